"""A world's folder without a store: its inputs, and its golden baselines taken again from their recordings.

This needs no call, and makes a baseline no easier to forge than its recordings.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from persona_pipeline.base.calls import run_async
from persona_pipeline.base.settings import Settings
from persona_pipeline.evaluation.plan import build_case, plan_case
from persona_pipeline.evaluation.snapshot import AgentScope, Inputs
from persona_pipeline.guard.baselines.golden import BASELINES, load_baseline, recordings_digest, windows_noted
from persona_pipeline.guard.baselines.models import Baseline
from persona_pipeline.guard.baselines.statistics import Windows, computed_moved, spread_of, summarised
from persona_pipeline.judging.open import RECORDINGS, OpenedJudge
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.judging.verdict import Verdict
from persona_pipeline.scoring.results import DimensionEvaluation
from persona_pipeline.scoring.text.agreement import world_lexicon
from persona_pipeline.world.messages.store import MessageLog, folder_messages
from persona_pipeline.world.models import Persona, Window
from persona_pipeline.world.names import read_names
from persona_pipeline.world.personas import load_persona
from persona_pipeline.world.propositions.loading import PROPOSITIONS, StoredSet
from persona_pipeline.world.world import FUTURE_GRACE, utc_now


def folder_inputs(root: Path, now: datetime | None = None) -> Inputs:
    """Return messages, names and lexicon of a folder as of a moment; None: now."""
    names = read_names(root)
    log = folder_messages(root, names, until=(now or utc_now()) + FUTURE_GRACE)
    return Inputs(
        messages=MessageLog(tuple(message for message in log.messages if not message.synthetic)),
        generated=MessageLog(tuple(message for message in log.messages if message.synthetic)),
        names={agent_id: item.display_name or agent_id for agent_id, item in names.items()},
        lexicon=world_lexicon(root),
    )


# Numbers in golden files are rounded to four places.
TOLERANCE = 1e-3
UNNAMED = "names no recordings: taken live without --record, or by an older version"
COMPUTED = "what is computed of it, no judge asked, is other than then: another lexicon or version"
GONE = "its recordings are not here, or its persona, claims or messages are others than then"


@dataclass
class Retaken:
    """Check of a golden file.

    ``wrong``: differences to its recordings; ``unknown``: dimensions that cannot be taken again, by reason.
    """

    path: Path
    wrong: list[str] = field(default_factory=list)
    unknown: dict[str, list[str]] = field(default_factory=dict)


def retake_baselines(root: Path, settings: Settings) -> list[Retaken]:
    """Take every golden file of a world's folder again and return what differs."""
    paths = sorted((root / BASELINES).glob("*.json"))
    if not paths:
        return []
    inputs, judge = folder_inputs(root), RecordedBackend(root / RECORDINGS, settings=settings)
    return [_retake(root, inputs, judge, path) for path in paths]


def _retake(root: Path, inputs: Inputs, judge: RecordedBackend, path: Path) -> Retaken:
    baseline, found = load_baseline(path), Retaken(path)
    persona = load_persona(root, baseline.agent_id)
    for name in baseline.dimensions:
        known = baseline.provenance.get("dimensions", {}).get(name, {})
        windows = list(windows_noted(known.get("recordings")))
        claims = StoredSet.read(root / PROPOSITIONS, name, persona.agent_id)
        again = [_scored(inputs, judge, persona, (name, claims), window) for window in windows]
        digests = [recordings_digest(item) if item else None for item, _ in again]
        if not windows:
            found.unknown.setdefault(UNNAMED, []).append(name)
        elif digests != [noted["digest"] for noted in known["recordings"]] or any(
            item.proposition_set_hash != known.get("proposition_set_hash") for item, _ in again if item
        ):
            found.unknown.setdefault(GONE, []).append(name)
        else:
            items = [item for item, _ in again if item]
            said = baseline.proposition_scores.get(name, {})
            if all(item.score is not None for item in items) and computed_moved(name, said, summarised(items).claims):
                found.unknown.setdefault(COMPUTED, []).append(name)
            found.wrong += _differences(baseline, name, items, {v.model for v in again[-1][1] if v.model})
    return found


def _scored(
    inputs: Inputs,
    judge: RecordedBackend,
    persona: Persona,
    asked: tuple[str, StoredSet],
    noted: tuple[Window, int],
) -> tuple[DimensionEvaluation | None, list[Verdict]]:
    (name, claims), (window, samples) = asked, noted
    if claims.propositions is None:
        return None, []
    scope = AgentScope(persona.agent_id, window, (name,), persona, past=True)
    case = build_case(inputs, scope, 1)
    if samples > 1:
        # Drops were judged more often: each claim as often as it is recorded.
        often = {item.id: samples for item in claims.propositions.propositions}
        for request in plan_case(replace(case, repeats={name: often}), scope, {name: claims}).requests:
            if not judge.has_recorded([request]):
                often[request.proposition_id] = min(often[request.proposition_id], max(request.sample, 1))
        case = replace(case, repeats={name: often})
    plan = plan_case(case, scope, {name: claims})
    verdicts = run_async(OpenedJudge(judge).judge(plan.requests))
    return plan.finish(verdicts)[name], verdicts


def _differences(baseline: Baseline, name: str, windows: list[DimensionEvaluation], models: set[str]) -> Iterator[str]:
    if any(item.score is None for item in windows):
        yield f"{name} {baseline.dimensions[name]:.2f}, and its recordings give no score"
        return
    summary, said = summarised(windows), baseline.proposition_scores.get(name, {})
    moved = computed_moved(name, said, summary.claims)
    # Where computed parts changed, claims do not determine the spread of whole windows.
    left_out = set(Windows.model_fields) if moved else set()
    spreads = (item.model_dump(exclude=left_out) for item in (spread_of(baseline, name), summary.spread))
    told = ((baseline.dimensions[name], said), (summary.score + moved, summary.claims))
    known, again = (
        {name: score, **_flat(claims, f"{name}/"), **_flat(spread, f"{name}: ")}
        for (score, claims), spread in zip(told, spreads, strict=True)
    )
    for key in {**known, **again}:
        # Names of computed parts begin with an underscore.
        if not key.startswith(f"{name}/_") and not _alike(known.get(key), again.get(key)):
            yield f"{key} {_shown(known.get(key))}, and its recordings give {_shown(again.get(key))}"
    judged_by = str(baseline.provenance["dimensions"][name].get("judge_model"))
    if models and not models <= {judged_by, *judged_by.split(", ")}:
        yield f"{name} was judged by {judged_by!r}, and its recordings are by {', '.join(sorted(models))!r}"


def _flat(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return nested values under their joined names."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= _flat(value, f"{prefix}{key} ") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, abs_tol=TOLERANCE)
    return one == other


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "none" if value is None else "something else"
