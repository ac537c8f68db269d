"""Golden baselines on disk: ``baselines/<agent_id>.json``."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from persona_pipeline.base.documents.json import JsonError, content_hash, rfc3339, strict_json, write_atomically
from persona_pipeline.base.documents.yaml import Document, validate_document
from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean, not_valid
from persona_pipeline.base.files import read_regular
from persona_pipeline.guard.baselines.models import Baseline, WindowCounts
from persona_pipeline.guard.baselines.statistics import Pooled, spread_of, summarised, variation_of
from persona_pipeline.scoring.messages.verdicts import counts_by_conversation
from persona_pipeline.scoring.results import HIGHEST, DimensionEvaluation
from persona_pipeline.world.models import Window
from persona_pipeline.world.personas import check_agent_id
from persona_pipeline.world.propositions.models import ADHERENCE, ALL_DIMENSIONS

BASELINES = "baselines"
_NUMBERS = re.compile(r"\[\n[\d\s,\[\]]+\]")


def baseline_path(folder: Path, agent_id: str) -> Path:
    """Return the path of an agent's baseline in a folder."""
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


def _known(dimension: str) -> str:
    if dimension not in ("", *ALL_DIMENSIONS):
        raise ValueError(f"unknown dimension {dimension!r}{did_you_mean(dimension, ALL_DIMENSIONS)}")
    return dimension


def _moment(value: Any) -> datetime:
    try:
        moment = datetime.fromtimestamp(0, UTC) if value is None else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(f"{value!r} is not an RFC 3339 time") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _by_dimension(value: Any) -> Any:
    """Return scores of claims by dimension; the flat form of old files has no dimensions."""
    if not isinstance(value, dict):
        return value
    flat = {key: item for key, item in value.items() if not isinstance(item, dict)}
    return {key: item for key, item in value.items() if key not in flat} | ({"": flat} if flat else {})


_Score = Annotated[float, Field(ge=0, le=HIGHEST)]
_Dimension = Annotated[str, AfterValidator(_known)]


class _GoldenFile(Baseline):
    """A golden file as it is written."""

    agent_id: str = Field(alias="agentId")
    captured_at: Annotated[datetime, BeforeValidator(_moment)] = Field(_moment(None), alias="capturedAt")
    dimensions: dict[_Dimension, _Score]
    proposition_scores: Annotated[dict[_Dimension, dict[str, _Score]], BeforeValidator(_by_dimension)] = Field(
        {}, alias="propositionScores"
    )
    provenance: Annotated[dict[str, Any], BeforeValidator(lambda value: value or {})] = Field({})


def load_baseline(path: Path | str) -> Baseline:
    """Read a golden file, with provenance or in the four-key form.

    Raises:
        ConfigError: it is missing, not JSON, or its content is not a baseline; every problem of it.
    """
    try:
        text = read_regular(path).decode("utf-8")
        document = Document(str(path), strict_json(text), text)
    except OSError as error:
        raise ConfigError(
            Problem(f"cannot be read ({error.strerror}); run persona-pipeline baseline", str(path))
        ) from error
    except JsonError as error:
        raise ConfigError(
            Problem(f"is not JSON ({error.msg}); restore it", str(path), error.lineno, error.colno)
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(Problem("is not UTF-8; restore it", str(path))) from error
    baseline = Baseline(**dict(validate_document(_GoldenFile, document)))
    _check_spread(baseline, str(path))
    return baseline


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
        **({"accepted": baseline.accepted.model_dump(mode="json")} if baseline.accepted else {}),
        **({"messages": [item.model_dump(mode="json") for item in baseline.messages]} if baseline.messages else {}),
    }
    if path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))
        if {**known, "capturedAt": None} == {**data, "capturedAt": None}:
            return path
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
    # One line a window, so that a diff shows which windows changed. JSON has no line break within a text.
    text = _NUMBERS.sub(lambda numbers: " ".join(numbers[0].split()).replace("[ ", "[").replace(" ]", "]"), text)
    write_atomically(path, text + "\n")
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
    """Return a baseline of the dimensions that were scored in full; other dimensions are kept from ``known``.

    Scores are means over windows. A dimension is captured if the newest window scored it in full; earlier windows count if they
    did too, with the same claims.

    Args:
        windows: evaluated dimensions of a single window, or of several, newest last; best without findings.
        provenance: of the newest window.
        spans: start and end of the windows; with them the file names its recordings and has verdicts on messages.
    """
    several: Sequence[Mapping[str, DimensionEvaluation]] = [windows] if isinstance(windows, Mapping) else windows
    kept = known or Baseline(agent_id=agent_id, captured_at=datetime.now(UTC), dimensions={})
    scores, propositions = dict(kept.dimensions), dict(kept.proposition_scores)
    per_dimension, flat = dict(kept.provenance.get("dimensions", {})), propositions.pop("", {})
    found = {name: item for name, item in (several[-1] if several else {}).items() if _is_full(item)}
    for name, item in found.items():
        places = _usable(name, several)
        summary = summarised([several[place][name] for place in places])
        scores[name], propositions[name] = summary.score, summary.claims
        flat = {key: score for key, score in flat.items() if key not in item.propositions}
        per_dimension[name] = {
            **provenance,
            "proposition_set_hash": item.proposition_set_hash,
            "input_hash": item.input_hash,
            "n_scored": item.n_scored,
            "samples": max((len(row.samples) for row in item.propositions.values()), default=0),
            **({"recordings": [_named(several[at][name], spans[at]) for at in places]} if spans else {}),
            **summary.spread.model_dump(exclude_defaults=True),
            "windows": summary.spread.windows,
            "claims": {
                key: {"windows": spread.windows, **spread.model_dump(exclude_defaults=True)}
                for key, spread in summary.spread.claims.items()
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
        messages=_counts_of(several, spans) or ([] if ADHERENCE.name in found else kept.messages),
    )


def _counts_of(
    windows: Sequence[Mapping[str, DimensionEvaluation]], spans: Sequence[tuple[datetime | None, datetime]]
) -> list[WindowCounts]:
    """Return the verdicts on messages by window, those that the judge of the newest window gave."""
    read = [(window[ADHERENCE.name].messages if ADHERENCE.name in window else None) for window in windows]
    newest = read[-1].judged_by if read and read[-1] else None
    return [
        WindowCounts(
            start=start,
            end=end,
            model=item.model,
            prompt_version=item.prompt_version,
            conversations=counts_by_conversation(item.verdicts),
        )
        for item, (start, end) in zip(read, spans, strict=False)
        if item and item.verdicts and item.judged_by == newest
    ]


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
    """Return the data that a window needs to be taken again from its recordings, and to check them."""
    start, end = (None if moment is None else moment.isoformat() for moment in span)
    return {"start": start, "end": end, "samples": item.samples, "digest": recordings_digest(item)}


def windows_noted(noted: Any) -> Iterator[tuple[Window, int]]:
    """Yield the windows that a golden file names, with the number of samples; nothing where they are malformed."""
    try:
        for item in noted or ():
            start, samples = item["start"], int(item.get("samples", 1))
            moment = None if start is None else datetime.fromisoformat(start)
            yield Window(datetime.fromisoformat(item["end"]), moment), min(max(samples, 1), 1000)
    except (AttributeError, KeyError, TypeError, ValueError):
        return


def windows_taken(baseline: Baseline) -> set[Window]:
    """Return the windows of a baseline; without any in its file, all time up to its capture."""
    found: set[Window] = set()
    for known in baseline.provenance.get("dimensions", {}).values():
        newest = [{"start": known.get("window_start"), "end": known.get("window_end")}]
        found |= {window for window, _ in windows_noted(known.get("recordings") or newest)}
    return found or {Window(baseline.captured_at)}


def _check_spread(baseline: Baseline, path: str) -> None:
    problems = []
    for name in baseline.dimensions:
        try:
            spread_of(baseline, name)
        except ValidationError as error:
            problems += not_valid(error, f"provenance of {name}: {{name}}: {{why}}; restore it", path).problems
        except (AttributeError, TypeError):
            problems.append(Problem(f"provenance of {name} is not an object of counts and spreads; restore it", path))
    if problems:
        raise ConfigError(problems)


# Enough agents to learn variation from; reading a thousand files would cost more than the evaluation.
MOST_READ = 40


@dataclass(frozen=True)
class Watched:
    """Number of agents with a golden file, and the baselines of a fixed sample of them."""

    count: int = 0
    baselines: Mapping[str, Baseline] = field(default_factory=dict)

    @cached_property
    def variations(self) -> Mapping[str, tuple[Pooled, Pooled]]:
        """How much the windows of each baseline differ, in its dimensions and in its claims."""
        return {agent_id: variation_of(baseline) for agent_id, baseline in self.baselines.items()}


def watched_agents(folder: Path) -> Watched:
    """Return the watched agents of a folder of golden files. An invalid file is skipped: its agent's run reports it."""
    # Ten thousand paths take longer than all that is read of them.
    names = (
        sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(".json")) if folder.is_dir() else []
    )
    step, found = max(1, -(-len(names) // MOST_READ)), dict[str, Baseline]()
    for path in (folder / name for name in names[::step]):
        with suppress(ConfigError):
            baseline = load_baseline(path)
            if baseline.agent_id == path.stem:
                found[path.stem] = baseline
    return Watched(len(names), found)
