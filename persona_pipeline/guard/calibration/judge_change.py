"""Has the judge changed? Judgments that an earlier judge made are made again by the one of now, and compared.

Not to be confused with the claims with a known answer of ``judging.layers``, which catch a judge that obeys what it reads.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from persona_pipeline.base.documents.json import write_atomically
from persona_pipeline.base.errors import not_valid
from persona_pipeline.base.files import read_regular
from persona_pipeline.guard.baselines.models import Measure
from persona_pipeline.guard.baselines.variance import special
from persona_pipeline.guard.calibration.measures import bias, spearman
from persona_pipeline.world.models import grouped

# Below this many anchors a change of .4 in rank correlation is seen in less than half of the cases.
FEWEST_ANCHORS = 40
ANCHORS = 80
# A dimension's scores are compared across judges from so many anchors of its own on.
FEWEST_OF_A_DIMENSION = 10
# Points by which scores must have moved on average to be called so, and by how much surely (two-sided level).
MOVED = 0.5
_SHIFT_LEVEL = 0.005
# How much less it must agree with people than before (rank correlation), and how surely so (one-sided level): the same judge asked
# again is never that far from itself.
LOST = 0.25
_RANK_LEVEL = 0.05
# Two judges whose rank correlation is surely below this read the claims differently.
UNLIKE = 0.5
# A judge that reads spreads what it gives within a claim as the earlier one did; this part of it is surely too little (one-sided).
_FLAT, _FLAT_LEVEL = 0.6, 0.005
# Anchors beside others of the same claim that are enough to compare within claims.
FEWEST_WITHIN = 20
# Points by which judgments of one claim must differ, or there is nothing to read apart.
LEAST_SPREAD = 1.25


@dataclass(frozen=True)
class Anchor:
    """A judgment made by both judges: raw scores turned so that more is better; ``people``: what people gave it, None: nothing."""

    dimension: str
    before: float
    now: float
    people: float | None = None
    claim: str = ""


class JudgeName(BaseModel, frozen=True, extra="forbid"):
    """A judge: model as it was served, and version of the prompt."""

    model: str
    prompt_version: str

    def __str__(self) -> str:
        return f"{self.model} (prompt {self.prompt_version})"


class DimensionShift(BaseModel, extra="forbid", frozen=True):
    """How much more the judge of now gives, in points (now - before), on a dimension."""

    dimension: str
    points: Measure


class JudgeChange(BaseModel, extra="forbid", frozen=True):
    """What comparing two judges found.

    Attributes:
        anchors, labelled: judgments both made, and those of them with people's labels.
        points: now - before over all of them.
        alike: rank correlation of the two judges.
        rank_before, rank_now: of each with people; without value where too few are labelled.
        reasons: why the judge counts as changed; empty: it does not.
        ran_at: RFC 3339.
    """

    before: JudgeName
    now: JudgeName
    anchors: int
    labelled: int
    points: Measure
    alike: Measure
    rank_before: Measure = Field(default_factory=Measure)
    rank_now: Measure = Field(default_factory=Measure)
    dimensions: list[DimensionShift] = Field(default_factory=list)
    reasons: list[str] = Field(default_factory=list)
    ran_at: str = ""

    @property
    def changed(self) -> bool:
        """Whether the two judge unlike."""
        return bool(self.reasons)

    def shift(self, dimension: str) -> Measure | None:
        """Return the shift on a dimension; None where too few of its judgments were made by both."""
        found = next((item.points for item in self.dimensions if item.dimension == dimension), None)
        return found if found and found.n >= FEWEST_OF_A_DIMENSION else None


def judge_change(before: JudgeName, now: JudgeName, anchors: Sequence[Anchor], *, ran_at: str = "") -> JudgeChange:
    """Return whether a judge changed, by four rules.

    Scores moved by half a point or more, over all anchors or on a dimension (paired t, two-sided .005 in all); the judge's rank
    correlation with people is .25 lower than before, and surely lower (Meng, Rosenthal and Rubin, Psychological Bulletin 111, 1992,
    one-sided .05); or, without labels, the two judges' rank correlation is surely below .5. A judge that surely spreads its scores
    within claims less than .6 times as much as before (one-sided .005) gives each claim its usual score, whatever else it does.
    Power and false alarms by number of anchors: benchmarks/people.py canary.
    """
    first, second = [item.before for item in anchors], [item.now for item in anchors]
    labelled = [(item, item.people) for item in anchors if item.people is not None]
    people = [score for _, score in labelled]
    theirs, ours = [item.before for item, _ in labelled], [item.now for item, _ in labelled]
    rank_before, rank_now = spearman(theirs, people), spearman(ours, people)
    alike = spearman(first, second)
    reasons = []
    groups = {"": list(anchors), **grouped(anchors, lambda item: item.dimension)}
    tests = [name for name, own in groups.items() if len(own) >= FEWEST_OF_A_DIMENSION]
    for name in tests:
        moved, p_value = _moved(groups[name])
        if abs(moved) >= MOVED and p_value < _SHIFT_LEVEL / len(tests):
            reasons.append(f"it gives {moved:+.1f} points {f'on {name}' if name else 'on average'}")
    if (flat := _flattened(anchors)) is not None:
        reasons.append(f"it gives each claim its usual score (within claims {flat:.2f} times as much apart)")
    if len(labelled) >= FEWEST_ANCHORS:
        if _agrees_less(labelled, rank_before, rank_now, spearman(theirs, ours)):
            told = " and ".join("none" if m.value is None else f"{m.value:.2f}" for m in (rank_before, rank_now))
            reasons.append(f"it agrees less with people (rank correlation before and now: {told})")
    elif len(anchors) >= FEWEST_ANCHORS and (alike.high is None or alike.high < UNLIKE):
        told = "none" if alike.value is None else f"{alike.value:.2f}"
        reasons.append(f"it ranks the same judgments otherwise (rank correlation with the judge before: {told})")
    return JudgeChange(
        before=before,
        now=now,
        anchors=len(anchors),
        labelled=len(labelled),
        points=bias(second, first),
        alike=alike,
        rank_before=rank_before,
        rank_now=rank_now,
        dimensions=[
            DimensionShift(dimension=name, points=bias([i.now for i in own], [i.before for i in own]))
            for name, own in groups.items()
            if name
        ],
        reasons=reasons,
        ran_at=ran_at,
    )


def _flattened(anchors: Sequence[Anchor]) -> float | None:
    """Return how much less the judge of now spreads its scores within claims, as a share of before; None: not surely much less."""
    claims = grouped((item for item in anchors if item.claim), lambda item: (item.dimension, item.claim))
    free = sum(len(own) - 1 for own in claims.values())
    if free < FEWEST_WITHIN:
        return None
    squares = [len(own) * np.var([(item.before, item.now) for item in own], axis=0) for own in claims.values()]
    before, now = np.sqrt(np.sum(squares, axis=0) / free).tolist()
    is_flat = before >= LEAST_SPREAD and special().fdtr(free, free, (now / before / _FLAT) ** 2) < _FLAT_LEVEL
    return now / before if is_flat else None


def _moved(anchors: Sequence[Anchor]) -> tuple[float, float]:
    """Return the mean of now - before and the p-value that it is nothing."""
    from scipy.stats import ttest_rel

    before, now = ([getattr(item, side) for item in anchors] for side in ("before", "now"))
    mean = float(np.mean(np.subtract(now, before)))
    if len({n - b for b, n in zip(before, now, strict=True)}) == 1:
        return mean, 0.0 if mean else 1.0
    return mean, float(ttest_rel(now, before).pvalue)


def _agrees_less(labelled: Sequence[tuple[Anchor, float]], before: Measure, now: Measure, alike: Measure) -> bool:
    """Whether the correlation with people fell; both share the people, and the judges may share their errors."""
    from scipy.stats import norm

    if before.value is None or before.value - (now.value or 0.0) < LOST:
        return False
    r1, r2, rx = before.value, now.value or 0.0, alike.value or 0.0
    mean = (r1 * r1 + r2 * r2) / 2
    factor = min((1 - rx) / (2 * (1 - mean)), 1.0)
    spread = 2 * (1 - rx) * (1 - factor * mean) / (1 - mean)
    if spread <= 0:
        return False
    z = (math.atanh(min(r1, 0.9999)) - math.atanh(r2)) * math.sqrt((len(labelled) - 3) / spread)
    return float(norm.sf(z)) < _RANK_LEVEL


CHANGES = Path("calibration") / "judge_changes.json"


class _Changes(BaseModel, extra="forbid"):
    changes: list[JudgeChange]


def load_judge_changes(path: Path) -> list[JudgeChange]:
    """Return what was found of every pair of judges; a missing file holds nothing. ConfigError: it is not valid."""
    return load_kept(path, _Changes, "run persona-pipeline canary").changes if path.exists() else []


Kept = TypeVar("Kept", bound=BaseModel)


def load_kept(path: Path, kind: type[Kept], remedy: str) -> Kept:
    """Return what a file of ``calibration/`` holds; ConfigError: it is not valid, and ``remedy`` writes it anew."""
    try:
        return kind.model_validate_json(read_regular(path))
    except ValidationError as error:
        raise not_valid(error, f"{{name}}: {{why}}; restore it, or {remedy}", str(path)) from None


def save_judge_changes(path: Path, changes: Sequence[JudgeChange]) -> Path:
    """Write what was found of pairs of judges, replacing what was found of the same pair before."""
    known = {(item.before, item.now): item for item in [*load_judge_changes(path), *changes]}
    ordered = sorted(known.values(), key=lambda item: (str(item.before), str(item.now)))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, _Changes(changes=ordered).model_dump_json(indent=2) + "\n")
    return path
