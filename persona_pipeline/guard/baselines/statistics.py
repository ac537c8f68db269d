"""Scores over windows and how much they vary, the level of all tests, and the specification's tests of two groups of scores.

An agent's dimensions and its claims share its level. Claims have the smaller part: they must drop three times as far anyway.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, model_validator

from persona_pipeline.guard.baselines.models import Baseline
from persona_pipeline.scoring.results import DimensionEvaluation
from persona_pipeline.world.propositions.models import DIMENSIONS

Numbers = NDArray[np.float64]

LEVEL = 0.05
DIMENSIONS_SHARE, CLAIMS_SHARE = 0.75, 0.25


def special() -> Any:
    """Return SciPy's special functions. Importing them takes 0.1 s and 24 MB, so only commands that test drops do."""
    from scipy import special

    return special


@dataclass(frozen=True)
class WelchResult:
    """Welch's t-test of two independent groups (Welch, 1947), two-sided. ``significant``: p below alpha."""

    t_statistic: float
    degrees_of_freedom: float
    p_value: float
    significant: bool
    mean_a: float
    mean_b: float
    sd_a: float
    sd_b: float


def welch(a: Sequence[float], b: Sequence[float], alpha: float = 0.05) -> WelchResult:
    """Compare the means of two groups that may differ in size and spread.

    Two constant groups have no spread to test against: equal means give t 0 and p 1, different ones t +-infinity and p 0, with
    n_a + n_b - 2 degrees of freedom. Raises ``ValueError``: a group has fewer than two values, or one that is not finite.
    """
    _check(a, "a")
    _check(b, "b")
    mean_a, mean_b, sd_a, sd_b = _mean(a), _mean(b), stdev(a), stdev(b)
    square_a, square_b = sd_a**2 / len(a), sd_b**2 / len(b)
    squares = square_a + square_b
    if squares == 0:
        t = 0.0 if mean_a == mean_b else math.copysign(math.inf, mean_a - mean_b)
        degrees = float(len(a) + len(b) - 2)
        p = 1.0 if t == 0 else 0.0
    else:
        t = (mean_a - mean_b) / math.sqrt(squares)
        # As shares of the whole, so that tiny spreads do not underflow when squared again.
        share_a, share_b = square_a / squares, square_b / squares
        degrees = 1 / (share_a**2 / (len(a) - 1) + share_b**2 / (len(b) - 1))
        p = float(2 * special().stdtr(degrees, -abs(t)))
    return WelchResult(t, degrees, p, p < alpha, mean_a, mean_b, sd_a, sd_b)


def cohens_d(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the difference of two means in pooled standard deviations (Cohen, 1988).

    Two constant groups give 0.0 for equal means, else +-infinity. Raises ``ValueError``: a group has fewer than two values, or
    one that is not finite.
    """
    _check(a, "a")
    _check(b, "b")
    difference = _mean(a) - _mean(b)
    squares = (len(a) - 1) * stdev(a) ** 2 + (len(b) - 1) * stdev(b) ** 2
    if squares == 0:
        return 0.0 if difference == 0 else math.copysign(math.inf, difference)
    return difference / math.sqrt(squares / (len(a) + len(b) - 2))


def _check(values: Sequence[float], name: str) -> None:
    if len(values) < 2:
        raise ValueError(f"group {name} has {len(values)} value(s); at least two are needed")
    if not all(math.isfinite(value) for value in values):
        raise ValueError(f"group {name} holds a value that is not finite")


def _mean(values: Sequence[float]) -> float:
    # Summing 0.1 three times gives more than 0.3: without spread to test against, that would pass for a difference.
    return float(values[0]) if min(values) == max(values) else fmean(values)


DECIMALS = 4
# The standard deviation of a 0 and a 9 is the largest of any scores.
WIDEST = 6.37
# Keys of golden files of earlier releases, which no rule reads any more.
_FORMER = frozenset(
    ("below", "median", "between_medians", "below_medians", "spread", "degrees", "outliers", "weight", "samples")
)


class Windows(BaseModel, extra="forbid"):
    """Scores of a dimension or claim over windows.

    Attributes:
        windows: number of windows with a score.
        between: standard deviation of the windows' scores (n - 1) in points; None below two windows.
    """

    windows: int = Field(default=1, ge=0)
    between: float | None = Field(default=None, ge=0, le=WIDEST)

    @model_validator(mode="before")
    @classmethod
    def _without_former_keys(cls, data: Any) -> Any:
        return {key: value for key, value in data.items() if key not in _FORMER} if isinstance(data, dict) else data


class DimensionSpread(Windows):
    """One dimension and its claims, by id."""

    claims: dict[str, Windows] = Field(default_factory=dict)


@dataclass(frozen=True)
class Pooled:
    """Sum of squares around the means of groups, in points squared, and its degrees of freedom."""

    squares: float = 0.0
    degrees: int = 0

    def __add__(self, other: "Pooled") -> "Pooled":
        return Pooled(self.squares + other.squares, self.degrees + other.degrees)

    @classmethod
    def of(cls, items: Iterable[Windows]) -> "Pooled":
        """Return the variation of dimensions or claims between windows."""
        known = [(item.windows - 1, item.between) for item in items if item.windows > 1]
        return sum((cls(own * sd**2, own) for own, sd in known if sd is not None), cls())


@dataclass(frozen=True)
class Summary:
    """A dimension over windows: its mean score, its claims' mean scores, and how they vary."""

    score: float
    claims: dict[str, float]
    spread: DimensionSpread


def spread_of(baseline: Baseline, dimension: str) -> DimensionSpread:
    """Return the spread of a dimension in a golden file; pydantic.ValidationError: it is malformed."""
    known: Mapping[str, Any] = baseline.provenance.get("dimensions", {}).get(dimension, {})
    return DimensionSpread.model_validate({name: known[name] for name in DimensionSpread.model_fields if name in known})


def variation_of(baseline: Baseline) -> tuple[Pooled, Pooled]:
    """Return how much the windows of a baseline differ, in its dimensions and in its claims."""
    spreads = [spread_of(baseline, name) for name in baseline.dimensions]
    return Pooled.of(spreads), Pooled.of(claim for item in spreads for claim in item.claims.values())


def summarised(windows: Sequence[DimensionEvaluation]) -> Summary:
    """Return a dimension over its scored windows, newest last; ValueError: a score is missing."""
    scores = [item.score for item in windows if item.score is not None]
    if not scores or len(scores) < len(windows):
        raise ValueError("a baseline needs at least one window, each with a score")
    newest, claims, spreads = windows[-1], dict[str, float](), dict[str, Windows]()
    for key in [key for key, row in newest.propositions.items() if row.score is not None]:
        rows = [item.propositions[key] for item in windows if key in item.propositions]
        own = [row.score for row in rows if row.score is not None]
        claims[key] = fmean(own)
        if not newest.propositions[key].algorithmic:
            spreads[key] = Windows(windows=len(own), between=_between(own))
    return Summary(
        fmean(scores), claims, DimensionSpread(windows=len(scores), between=_between(scores), claims=spreads)
    )


def _between(scores: Sequence[float]) -> float | None:
    return round(stdev(scores), DECIMALS) if len(scores) > 1 else None


def computed_moved(dimension: str, said: Mapping[str, float], now: Mapping[str, float]) -> float:
    """Return by how much a dimension's score is other than ``now`` because its computed parts were; 0 where they are alike."""
    known = DIMENSIONS.get(dimension)
    parts = {key: weight for key, weight in known.parts.items() if key in now and key in said} if known else {}
    if known is None or not parts:
        return 0.0
    moved = sum(weight * (said[key] - now[key]) for key, weight in parts.items())
    share = moved / (known.judged_weight + sum(parts.values()))
    return share if abs(share) > 10**-DECIMALS else 0.0
