"""Scores over windows: how much they vary, between windows and from judgment to judgment."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from persona_pipeline.guard.baselines.models import Baseline
from persona_pipeline.guard.baselines.variance import (
    MEDIAN_FROM,
    ROUNDING_VARIANCE,
    Level,
    Numbers,
    Repeats,
    medians,
    repeats,
    special,
)
from persona_pipeline.scoring.results import HIGHEST, NOT_IN_OVERALL, DimensionEvaluation, PropositionResult
from persona_pipeline.world.propositions.models import DIMENSIONS

DECIMALS = 4
# No standard deviation of scores from 0 to 9 is larger than that of one 0 and one 9.
WIDEST = 6.37
# Degrees of freedom from which a run alone tells how much its judge varies.
ENOUGH_REPEATS = 20


class Windows(BaseModel, extra="forbid"):
    """Scores of one thing over windows; standard deviations in points, None below two windows.

    Attributes:
        windows: how many it has a score in.
        between, below: standard deviation of the windows' scores (n - 1), and from what lies below their mean alone.
        median, between_medians, below_medians: mean over windows of the median judgment, and how those vary; None where
            a window has fewer than three judgments.
    """

    windows: int = Field(default=1, ge=0)
    between: float | None = Field(default=None, ge=0, le=WIDEST)
    below: float | None = Field(default=None, ge=0, le=WIDEST)
    median: float | None = Field(default=None, ge=0, le=9)
    between_medians: float | None = Field(default=None, ge=0, le=WIDEST)
    below_medians: float | None = Field(default=None, ge=0, le=WIDEST)


class ClaimSpread(Windows):
    """One claim.

    Attributes:
        weight: its part in the dimension's score, 0-1; None: not known (older files).
        samples: judgments in all windows.
        spread: the judge's standard deviation, known with ``degrees`` degrees of freedom, ``outliers`` verdicts left out.
    """

    weight: float | None = Field(default=None, ge=0, le=1)
    samples: int = Field(default=1, ge=0)
    spread: float | None = Field(default=None, ge=0, le=WIDEST)
    degrees: int = Field(default=0, ge=0)
    outliers: int = Field(default=0, ge=0)


class DimensionSpread(Windows):
    """One dimension and its claims, by id."""

    claims: dict[str, ClaimSpread] = Field(default_factory=dict)


@dataclass(frozen=True)
class Summary:
    """A dimension over windows: its mean score, its claims' mean scores, and how they vary."""

    score: float
    claims: dict[str, float]
    spread: DimensionSpread


def spread_of(baseline: Baseline, dimension: str) -> DimensionSpread:
    """Return what a golden file says of a dimension's spread; older files tell of one window, or of nothing.

    pydantic.ValidationError: the file says something else.
    """
    known: Mapping[str, Any] = baseline.provenance.get("dimensions", {}).get(dimension, {})
    if "claims" in known:
        return DimensionSpread.model_validate(
            {name: known[name] for name in DimensionSpread.model_fields if name in known}
        )
    count, spreads = max(1, known.get("samples") or 1), known.get("spread") or {}
    return DimensionSpread(
        claims={
            key: ClaimSpread(samples=count, spread=value, degrees=count - 1) if count > 1 else ClaimSpread()
            for key, value in spreads.items()
        }
        or {key: ClaimSpread(samples=count) for key in baseline.proposition_scores.get(dimension, {})}
    )


def summarised(windows: Sequence[DimensionEvaluation]) -> Summary:
    """Return a dimension over the windows it was scored in, newest last; ValueError: there is no window, or one without a score."""
    if not windows or any(item.score is None for item in windows):
        raise ValueError("a baseline needs at least one window, each with a score")
    newest = windows[-1]
    keys = [key for key, row in newest.propositions.items() if row.score is not None]
    weights = claim_weights(newest)
    claims, spreads = {}, {}
    for key in keys:
        rows = [item.propositions[key] for item in windows if key in item.propositions]
        scored = [row for row in rows if row.score is not None]
        claims[key] = fmean(row.score for row in scored if row.score is not None)
        if not newest.propositions[key].algorithmic:
            spreads[key] = _claim_spread(claim_level(scored), round(weights[key], DECIMALS))
    level = dimension_level(windows)
    return Summary(float(level.mean[0]), claims, DimensionSpread(**_windows(level), claims=spreads))


def claim_level(rows: Sequence[PropositionResult]) -> Level:
    """Return the level of one claim from its result in each window."""
    found = [_judged(row) for row in rows if row.score is not None]
    if not found:
        return NOTHING
    scores = np.array([[row.score for row in rows if row.score is not None]], float)
    middle = np.array([[item.median for item in found]], float)
    counts = np.array([[item.count for item in found]], float)
    return Level.over_windows(scores, middle, counts, _together([item.repeats for item in found]))


def dimension_level(windows: Sequence[DimensionEvaluation]) -> Level:
    """Return the level of one dimension from its evaluation in each window."""
    scored = [item for item in windows if item.score is not None]
    if not scored:
        return NOTHING
    scores = np.array([[item.score for item in scored]], float)
    middle = np.array([[_dimension_median(item) for item in scored]], float)
    return Level.over_windows(scores, middle, np.full(scores.shape, MEDIAN_FROM), NO_REPEATS)


def golden_level(mean: float, known: Windows) -> Level:
    """Return the level of a claim or dimension as a golden file keeps it."""

    def value(number: float | None, power: int = 1) -> Numbers:
        return np.array([np.nan if number is None else number**power])

    judged = known if isinstance(known, ClaimSpread) else ClaimSpread(samples=known.windows)
    degrees = judged.degrees if judged.spread is not None else 0
    squares = value((judged.spread or 0.0) ** 2 * degrees)
    return Level(
        mean=value(mean),
        median=value(known.median),
        windows=value(max(1, known.windows)),
        between=value(known.between, 2),
        between_medians=value(known.between_medians, 2),
        below=value(known.below, 2),
        below_medians=value(known.below_medians, 2),
        count=value(max(1, judged.samples)),
        judge=Repeats(squares, value(degrees), value(judged.outliers), squares, value(degrees)),
    )


def claim_weights(item: DimensionEvaluation) -> dict[str, float]:
    """Return what each scored claim weighs in the dimension's score (0-1); computed parts have the rest."""
    weights = {
        key: row.weight for key, row in item.propositions.items() if row.score is not None and not row.algorithmic
    }
    total = sum(weights.values())
    if not total > 0:
        return dict.fromkeys(weights, 0.0)
    share = judged_share(item)
    return {key: share * weight / total for key, weight in weights.items()}


def judged_share(item: DimensionEvaluation) -> float:
    """Return the part (0-1) of a dimension's score that its judged claims make up."""
    computed = [key for key, row in item.propositions.items() if row.algorithmic and row.score is not None]
    return _judged_share(item.dimension, computed)


def golden_weights(baseline: Baseline, dimension: str, claims: Sequence[str]) -> dict[str, float]:
    """Return what each judged claim weighed in a golden score; older files do not say, there all weigh alike."""
    known = spread_of(baseline, dimension).claims
    judged = [key for key in claims if not key.startswith("_")]
    alike = _judged_share(dimension, claims) / max(1, len(judged))
    weights = {key: known[key].weight if key in known else None for key in judged}
    return {key: alike if weight is None else weight for key, weight in weights.items()}


def computed_moved(dimension: str, said: Mapping[str, float], now: Mapping[str, float]) -> float:
    """Return by how much a dimension's score is other than ``now`` because its computed parts were; 0 where they are alike."""
    known = DIMENSIONS.get(dimension)
    parts = {key: weight for key, weight in known.parts.items() if key in now and key in said} if known else {}
    if known is None or not parts:
        return 0.0
    moved = sum(weight * (said[key] - now[key]) for key, weight in parts.items())
    share = moved / (known.judged_weight + sum(parts.values()))
    return share if abs(share) > 10**-DECIMALS else 0.0


def _judged_share(dimension: str, keys: Iterable[str]) -> float:
    known = DIMENSIONS.get(dimension)
    computed = sum(known.parts.get(key, 0.0) for key in keys) if known else 0.0
    return known.judged_weight / (known.judged_weight + computed) if known and computed else 1.0


def score_margins(dimensions: Mapping[str, DimensionEvaluation]) -> dict[str, float]:
    """Return half the width of each dimension's 95 % interval, as far as the judge goes, and of ``overall``.

    From the spread of repeated judgments, pooled over each dimension; dimensions without repeats are left out, and overall
    unless all of its dimensions have one.
    """
    found = {}
    for name, item in dimensions.items():
        weights = claim_weights(item)
        judged = {key: _judged(item.propositions[key]) for key in weights}
        together = _together([row.repeats for row in judged.values()])
        degrees = float(together.all_degrees[0])
        if degrees > 0:
            variance = max(float(together.all_squares[0]) / degrees, ROUNDING_VARIANCE)
            error = sum(weights[key] ** 2 * variance / row.count for key, row in judged.items()) ** 0.5
            found[name] = float(special().stdtrit(degrees, 0.975)) * error
    parts = [name for name, item in dimensions.items() if item.score is not None and name not in NOT_IN_OVERALL]
    if parts and all(name in found for name in parts):
        found["overall"] = sum(found[name] ** 2 for name in parts) ** 0.5 / len(parts)
    return found


@dataclass(frozen=True)
class _Judged:
    """One claim in one window, on the scale of its score. ``median`` is NaN below three judgments of the same thing."""

    median: float
    count: int
    repeats: Repeats


def _judged(row: PropositionResult) -> _Judged:
    if not row.samples or row.raw is None:
        count = max(1, len(row.samples))
        degrees = count - 1 if row.spread is not None else 0
        return _Judged(np.nan, count, golden_level(0.0, ClaimSpread(spread=row.spread, degrees=degrees)).judge)
    groups = _groups(row)
    if len(row.samples) == len(groups):
        return _Judged(np.nan, len(row.samples), NO_REPEATS)
    longest = max(len(values) for _, values in groups)
    table = np.array([[*values, *[np.nan] * (longest - len(values))] for _, values in groups])
    weights = np.array([weight for weight, _ in groups])
    slope = _slope(row)
    judge = _together([repeats(table)])
    judge = replace(judge, squares=judge.squares * slope**2, all_squares=judge.all_squares * slope**2)
    median = np.nan
    if len(row.samples) >= (MEDIAN_FROM - 0.5) * len(groups):
        moved = slope * (float(np.average(medians(table), weights=weights)) - row.raw)
        median = min(max((row.score or 0.0) + moved, 0.0), HIGHEST)
    return _Judged(median, len(row.samples), judge)


def _together(parts: Sequence[Repeats]) -> Repeats:
    return Repeats(
        *(np.array([sum(float(getattr(part, item.name).sum()) for part in parts)]) for item in fields(Repeats))
    )


def _groups(row: PropositionResult) -> list[tuple[float, list[float]]]:
    """Return the judgments of each thing the claim was judged on, with its weight."""
    found: dict[Any, tuple[float, list[float]]] = defaultdict(lambda: (1.0, []))
    for part in row.parts:
        if part.get("raw") is not None:
            weight, values = found[part["part"]]
            found[part["part"]] = (float(part.get("weight", weight)), [*values, float(part["raw"])])
    return list(found.values()) or [(1.0, list(row.samples))]


def _slope(row: PropositionResult) -> float:
    """Return by how much the score moves with the raw judgment: less than 1 in hard mode, below 0 for inverted claims."""
    flipped = HIGHEST - (row.raw or 0.0) if row.inverted else row.raw or 0.0
    size = (row.score or 0.0) / flipped if flipped > 0 else 1.0
    return -size if row.inverted else size


def _dimension_median(item: DimensionEvaluation) -> float:
    weights = claim_weights(item)
    moved = {
        key: found.median - (item.propositions[key].score or 0.0)
        for key in weights
        if np.isfinite((found := _judged(item.propositions[key])).median)
    }
    if not moved or item.score is None:
        return np.nan
    return item.score + sum(weights[key] * change for key, change in moved.items())


def _windows(level: Level) -> dict[str, Any]:
    return {
        "windows": int(level.windows[0]),
        "between": _root(level.between),
        "below": _root(level.below),
        "median": _rounded(level.median),
        "between_medians": _root(level.between_medians),
        "below_medians": _root(level.below_medians),
    }


def _claim_spread(level: Level, weight: float) -> ClaimSpread:
    degrees = int(level.judge.degrees[0])
    return ClaimSpread(
        **_windows(level),
        weight=weight,
        samples=int(level.count[0]),
        spread=_root(level.judge.squares / degrees) if degrees else None,
        degrees=degrees,
        outliers=int(level.judge.outliers[0]),
    )


def _root(values: Numbers) -> float | None:
    return _rounded(np.sqrt(values))


def _rounded(values: Numbers) -> float | None:
    return round(float(values[0]), DECIMALS) if np.isfinite(values[0]) else None


_NAN, _ZERO = np.array([np.nan]), np.zeros(1)
NO_REPEATS = Repeats(_ZERO, _ZERO, _ZERO, _ZERO, _ZERO)
NOTHING = Level(_NAN, _NAN, _ZERO, _NAN, _NAN, _NAN, _NAN, _ZERO, NO_REPEATS)
