"""Golden baselines on disk: ``baselines/<agent_id>.json``."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from persona_pipeline.base.documents.json import content_hash, rfc3339, write_atomically
from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.base.files import read_regular
from persona_pipeline.guard.baselines.models import Baseline
from persona_pipeline.guard.baselines.spread import spread_of, summarised
from persona_pipeline.scoring.results import DimensionEvaluation
from persona_pipeline.world.personas import check_agent_id
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS

BASELINES = "baselines"
_KEYS = ("agentId", "capturedAt", "dimensions", "propositionScores", "provenance")


def baseline_path(folder: Path, agent_id: str) -> Path:
    """Return where an agent's baseline stands in a folder of them."""
    return folder / f"{check_agent_id(agent_id)}.json"


def find_baseline(folder: Path, agent_id: str) -> Baseline | None:
    """Return an agent's baseline of a folder, None when it has none.

    Raises ``ConfigError``: the file is not a valid baseline, or is another agent's.
    """
    path = baseline_path(folder, agent_id)
    if not path.exists():
        return None
    baseline = load_baseline(path)
    if baseline.agent_id != agent_id:
        raise ConfigError(
            Problem(f"is the baseline of {baseline.agent_id!r}; its agentId must be {agent_id!r}", str(path))
        )
    return baseline


def load_baseline(path: Path | str) -> Baseline:
    """Read a golden file, with provenance or in the four-key form.

    Raises:
        ConfigError: it is missing, not JSON, or its content is not a baseline; every problem of it.
    """
    try:
        data = json.loads(read_regular(path).decode("utf-8"), object_pairs_hook=_unique)
    except OSError as error:
        raise ConfigError(
            Problem(f"cannot be read ({error.strerror}); run persona-pipeline baseline", str(path))
        ) from error
    except json.JSONDecodeError as error:
        raise ConfigError(
            Problem(f"is not JSON ({error.msg}); restore it", str(path), error.lineno, error.colno)
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(Problem(f"is not a baseline ({error}); restore it", str(path))) from error
    return _parse(data, str(path))


def save_baseline(folder: Path, baseline: Baseline) -> Path:
    """Write a golden file into a folder atomically; a file that says the same but for its time is left alone."""
    path = baseline_path(folder, baseline.agent_id)
    data = {
        "agentId": baseline.agent_id,
        "capturedAt": rfc3339(baseline.captured_at),
        "dimensions": baseline.dimensions,
        # Of old files it is not known which dimension a proposition belongs to: those stay flat.
        "propositionScores": {
            **baseline.proposition_scores.get("", {}),
            **{name: scores for name, scores in baseline.proposition_scores.items() if name},
        },
        "provenance": baseline.provenance,
    }
    if path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))
        if {**known, "capturedAt": None} == {**data, "capturedAt": None}:
            return path
    write_atomically(path, json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def captured(
    agent_id: str,
    windows: Mapping[str, DimensionEvaluation] | Sequence[Mapping[str, DimensionEvaluation]],
    provenance: Mapping[str, Any],
    *,
    spans: Sequence[tuple[datetime | None, datetime]] = (),
    known: Baseline | None = None,
    now: datetime | None = None,
) -> Baseline:
    """Return a baseline with the dimensions that were scored in full; what ``known`` says of the others is kept.

    Scores are means over windows. A dimension's earlier windows count if they were scored in full with the claims of the newest;
    one whose newest window was not is not captured. ``windows``: the evaluated dimensions of one window, or of several, newest
    last; best such without a finding. ``provenance``: of the newest window: what judged it, and which messages. ``spans``: start
    and end of the windows: with them the file names the recordings it was taken from.
    """
    several: Sequence[Mapping[str, DimensionEvaluation]] = [windows] if isinstance(windows, Mapping) else windows
    newest = several[-1] if several else {}
    places = {name: _usable(name, several) for name, item in newest.items() if _is_full(item)}
    scored = {name: [several[place][name] for place in own] for name, own in places.items()}
    found = {name: summarised(items) for name, items in scored.items()}
    kept = known or Baseline(agent_id=agent_id, captured_at=datetime.now(UTC), dimensions={})
    scores = {**kept.dimensions, **{name: summary.score for name, summary in found.items()}}
    propositions = dict(kept.proposition_scores)
    propositions |= {name: summary.claims for name, summary in found.items()}
    taken = {key for name in found for key in newest[name].propositions}
    flat = {key: score for key, score in propositions.pop("", {}).items() if key not in taken}
    per_dimension = dict(kept.provenance.get("dimensions", {}))
    for name, summary in found.items():
        per_dimension[name] = {
            **provenance,
            "proposition_set_hash": newest[name].proposition_set_hash,
            "input_hash": newest[name].input_hash,
            "n_scored": newest[name].n_scored,
            "samples": max((len(row.samples) for row in newest[name].propositions.values()), default=0),
            **({"recordings": [_named(several[at][name], spans[at]) for at in places[name]]} if spans else {}),
            **summary.spread.model_dump(exclude_defaults=True),
            "windows": summary.spread.windows,
            "claims": {
                key: {"windows": item.windows, "samples": item.samples, **item.model_dump(exclude_defaults=True)}
                for key, item in summary.spread.claims.items()
            },
        }
    order = [name for name in ALL_DIMENSIONS if name in scores] + [n for n in scores if n not in ALL_DIMENSIONS]
    return Baseline(
        agent_id=agent_id,
        captured_at=now or datetime.now(UTC),
        dimensions={name: scores[name] for name in order},
        proposition_scores={
            **({"": flat} if flat and found.keys() < scores.keys() else {}),
            **{name: propositions[name] for name in order if name in propositions},
        },
        provenance={"dimensions": {name: per_dimension[name] for name in order if name in per_dimension}},
    )


def _is_full(item: DimensionEvaluation | None) -> bool:
    return item is not None and item.score is not None and item.coverage >= 1


def _usable(name: str, windows: Sequence[Mapping[str, DimensionEvaluation]]) -> list[int]:
    """Return the places of the windows that count."""
    newest = windows[-1][name].proposition_set_hash
    full = [place for place, window in enumerate(windows) if _is_full(window.get(name))]
    return [place for place in full if windows[place][name].proposition_set_hash == newest]


def recordings_digest(item: DimensionEvaluation) -> str:
    """Return the SHA-256 of the keys of all judgments a dimension's score rests on."""
    return content_hash(sorted(key for row in item.propositions.values() for key in row.keys))


def _named(item: DimensionEvaluation, span: tuple[datetime | None, datetime]) -> dict[str, Any]:
    """Return what is needed to take a window again from its recordings, and to know that they are the same."""
    start, end = (None if moment is None else moment.isoformat() for moment in span)
    return {"start": start, "end": end, "samples": item.samples, "digest": recordings_digest(item)}


def _parse(data: Any, path: str) -> Baseline:
    if not isinstance(data, dict):
        raise ConfigError(Problem("is not an object; restore it", path))
    problems = [Problem(f"unknown key {key!r}{did_you_mean(key, _KEYS)}", path) for key in data if key not in _KEYS]
    problems += [Problem(f"{key} is missing; restore it", path) for key in ("agentId", "dimensions") if key not in data]
    dimensions = data.get("dimensions", {})
    if not isinstance(dimensions, dict):
        problems.append(Problem("dimensions must map a dimension to its score", path))
        dimensions = {}
    for name, score in dimensions.items():
        if name not in ALL_DIMENSIONS:
            problems.append(Problem(f"unknown dimension {name!r}{did_you_mean(name, ALL_DIMENSIONS)}", path))
        elif not _is_score(score):
            problems.append(Problem(f"the score of {name} must be a number from 0 to 9, not {score!r}", path))
    scores = data.get("propositionScores", {})
    propositions: dict[str, dict[str, float]] = {}
    if not isinstance(scores, dict):
        problems.append(Problem("propositionScores must map propositions to scores", path))
        scores = {}
    for key, value in scores.items():
        # The flat form does not say which dimension a proposition belongs to.
        dimension, nested = (key, value) if isinstance(value, dict) else ("", {key: value})
        if dimension not in ("", *ALL_DIMENSIONS):
            hint = did_you_mean(key, ALL_DIMENSIONS)
            problems.append(Problem(f"unknown dimension {key!r} in propositionScores{hint}", path))
        propositions.setdefault(dimension, {}).update(nested)
        problems += [
            Problem(f"the score of proposition {item!r} must be a number from 0 to 9, not {score!r}", path)
            for item, score in nested.items()
            if not _is_score(score)
        ]
    if not isinstance(data.get("agentId", ""), str):
        problems.append(Problem("agentId must be a string", path))
    captured_at = data.get("capturedAt")
    moment = datetime.fromtimestamp(0, UTC)
    if captured_at is not None:
        try:
            moment = datetime.fromisoformat(captured_at)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        except (TypeError, ValueError):
            problems.append(Problem(f"capturedAt {captured_at!r} is not an RFC 3339 time", path))
    provenance = data.get("provenance") or {}
    if not isinstance(provenance, dict):
        problems.append(Problem("provenance must be an object", path))
    if problems:
        raise ConfigError(problems)
    baseline = Baseline(
        agent_id=data["agentId"],
        captured_at=moment,
        dimensions=dimensions,
        proposition_scores=propositions,
        provenance=provenance,
    )
    _check_spread(baseline, path)
    return baseline


def _check_spread(baseline: Baseline, path: str) -> None:
    problems = []
    for name in baseline.dimensions:
        try:
            spread_of(baseline, name)
        except ValidationError as error:
            where = ".".join(str(part) for part in error.errors()[0]["loc"])
            problems.append(Problem(f"provenance of {name}: {where}: {error.errors()[0]['msg']}; restore it", path))
        except (AttributeError, TypeError):
            problems.append(Problem(f"provenance of {name} is not an object of counts and spreads; restore it", path))
    if problems:
        raise ConfigError(problems)


def _is_score(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and 0 <= value <= 9


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
        raise ValueError(f"key {twice!r} stands twice")
    return found


# What varies is known well from so many agents; reading a thousand files for it would cost more than the evaluation.
MOST_READ = 40


@dataclass(frozen=True)
class Watched:
    """How many agents have a golden file, and the baselines of some of them, the same ones whoever is evaluated."""

    count: int = 0
    baselines: Mapping[str, Baseline] = field(default_factory=dict)


def watched_agents(folder: Path) -> Watched:
    """Return who is watched by the golden files of a folder. One that is not valid is passed over: its own agent's run says so."""
    # Ten thousand paths take longer than all that is read of them.
    names = (
        sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(".json")) if folder.is_dir() else []
    )
    step = max(1, -(-len(names) // MOST_READ))
    found = {}
    for path in (folder / name for name in names[::step]):
        status = path.stat()
        baseline = _loaded(path, status.st_mtime_ns, status.st_size)
        if baseline is not None and baseline.agent_id == path.stem:
            found[path.stem] = baseline
    return Watched(len(names), found)


@lru_cache(maxsize=4 * MOST_READ)
def _loaded(path: Path, _modified: int, _size: int) -> Baseline | None:
    try:
        return load_baseline(path)
    except ConfigError:
        return None
