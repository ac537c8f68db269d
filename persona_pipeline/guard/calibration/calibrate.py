"""From rated judgments to a calibration, as it is printed and written as JSON: arithmetic alone, no files."""

from collections.abc import Iterable, Sequence
from itertools import combinations
from statistics import fmean
from typing import Literal

from pydantic import BaseModel, Field

from persona_pipeline.guard.baselines.models import FEWEST_LABELS, Measure
from persona_pipeline.guard.calibration.labelled import Rated
from persona_pipeline.guard.calibration.measures import (
    between_people,
    bias,
    labels_to_halve,
    peoples_mean,
    spearman,
    weighted_kappa,
)

Belief = Literal["believed", "chance", "unknown"]


class Agreement(BaseModel, extra="forbid", frozen=True):
    """How a judge agrees with somebody. All is of the judgments that both scored.

    Attributes:
        rank: Spearman's correlation; kappa: with quadratic weights; bias: judge - the other, in points.
        only_judge, only_other: judgments that one scored and the other held not applicable; neither: both held so.
        to_halve: how many labels more would halve the intervals.
    """

    rank: Measure
    kappa: Measure
    bias: Measure
    only_judge: int = 0
    only_other: int = 0
    neither: int = 0
    to_halve: int = 0

    @property
    def n(self) -> int:
        """Judgments that both scored."""
        return self.bias.n


class ClaimCalibration(BaseModel, extra="forbid", frozen=True):
    """One claim. ``apart``: mean distance of judge and people; ``people_apart``: of people from one another; in points.

    Attributes:
        rewrite: why it should be rewritten; empty: nothing speaks for that.
    """

    proposition_id: str
    agreement: Agreement
    apart: float | None = None
    people_apart: float | None = None
    rewrite: str = ""


class DimensionCalibration(BaseModel, extra="forbid", frozen=True):
    """One judge on one dimension.

    Attributes:
        judged, labelled: judgments it scored, and how many of them people labelled with a score.
        people: names of those who labelled.
        ceiling_rank, ceiling_kappa: agreement of people among themselves.
        judge_mean, people_mean: mean of the judge's scores, and what people would give the same judgments; claims turned so that
            more is better. ``people_mean`` has no value below 50 labels.
        models: agreement of the judge with other models' labels; calibrates nothing.
    """

    dimension: str
    judge_model: str
    prompt_version: str
    judged: int
    labelled: int
    people: list[str] = Field(default_factory=list)
    agreement: Agreement
    ceiling_rank: Measure = Field(default_factory=Measure)
    ceiling_kappa: Measure = Field(default_factory=Measure)
    claims: list[ClaimCalibration] = Field(default_factory=list)
    judge_mean: float | None = None
    people_mean: Measure = Field(default_factory=Measure)
    models: dict[str, Agreement] = Field(default_factory=dict)

    @property
    def missing(self) -> int:
        """How many labels are missing before the score people would give is estimated."""
        return max(0, FEWEST_LABELS - self.labelled)

    @property
    def belief(self) -> Belief:
        """Whether the judge can be believed here: ``believed``, no better than ``chance``, or ``unknown`` (too few labels)."""
        if self.missing:
            return "unknown"
        return "believed" if self.agreement.rank.is_above_zero else "chance"


class Calibration(BaseModel, extra="forbid", frozen=True):
    """Every judge on every dimension that something is judged of.

    Attributes:
        labels_hash: of the labels it rests on.
        stale: labels that were not used, each with the reason.
    """

    dimensions: list[DimensionCalibration] = Field(default_factory=list)
    labels_hash: str = ""
    stale: list[str] = Field(default_factory=list)

    def of(self, judge_model: str | None, prompt_version: str | None, dimension: str) -> DimensionCalibration | None:
        """Return a judge's calibration on a dimension, None when none of its judgments there is labelled."""
        wanted = (judge_model, prompt_version, dimension)
        return next((d for d in self.dimensions if (d.judge_model, d.prompt_version, d.dimension) == wanted), None)


# A claim is judged by its labels from so many on, and read otherwise from so many points on.
FEWEST_OF_A_CLAIM = 5
FAR_APART = 2.0


def agreement(pairs: Iterable[tuple[float | None, float | None]]) -> Agreement:
    """Return how a judge (first) agrees with somebody (second); None stands for not applicable."""
    every = list(pairs)
    both = [(a, b) for a, b in every if a is not None and b is not None]
    first, second = [a for a, _ in both], [b for _, b in both]
    return Agreement(
        rank=spearman(first, second),
        kappa=weighted_kappa(first, second),
        bias=bias(first, second),
        only_judge=sum(a is not None and b is None for a, b in every),
        only_other=sum(a is None and b is not None for a, b in every),
        neither=sum(a is None and b is None for a, b in every),
        to_halve=labels_to_halve(len(both)),
    )


def calibrate_dimension(
    judge: tuple[str, str], dimension: str, rated: Sequence[Rated], *, people: Sequence[str] = ()
) -> DimensionCalibration:
    """Return one judge's calibration on one dimension.

    Args:
        judge: its model and prompt version.
        rated: all it judged there, labelled or not.
        people: names of those who labelled.
    """
    labelled = [item for item in rated if item.people]
    both = [item for item in labelled if item.judge is not None and item.peoples is not None]
    scored = [item for item in rated if item.judge is not None]
    ceiling_rank, ceiling_kappa = between_people([item.scores for item in labelled])
    oriented = [item.oriented(item.judge) for item in scored if item.judge is not None]
    wanted = [None if item.peoples is None else item.oriented(item.peoples) for item in scored]
    return DimensionCalibration(
        dimension=dimension,
        judge_model=judge[0],
        prompt_version=judge[1],
        judged=len(scored),
        labelled=len(both),
        people=sorted(people),
        agreement=agreement((item.judge, item.peoples) for item in labelled),
        ceiling_rank=ceiling_rank,
        ceiling_kappa=ceiling_kappa,
        claims=_claims(labelled),
        judge_mean=fmean(oriented) if oriented else None,
        people_mean=peoples_mean(oriented, wanted) if len(both) >= FEWEST_LABELS else Measure(n=len(both)),
        models={
            name: agreement((item.judge, item.models[name]) for item in rated if name in item.models)
            for name in sorted({name for item in rated for name in item.models})
        },
    )


def _claims(labelled: Sequence[Rated]) -> list[ClaimCalibration]:
    """Return the claims that people labelled, those that judge and people read most unlike first."""
    found: dict[str, list[Rated]] = {}
    for item in labelled:
        found.setdefault(item.proposition_id, []).append(item)
    claims = [_claim(name, own) for name, own in found.items()]
    return sorted(claims, key=lambda claim: (not claim.rewrite, -(claim.apart or 0.0), claim.proposition_id))


def _claim(name: str, own: Sequence[Rated]) -> ClaimCalibration:
    distances = [abs(i.judge - i.peoples) for i in own if i.judge is not None and i.peoples is not None]
    between = [abs(a - b) for item in own for a, b in combinations(item.scores, 2)]
    applicable = [item for item in own if item.judge is not None and item.people and item.peoples is None]
    apart = fmean(distances) if distances else None
    people_apart = fmean(between) if between else None
    reasons = []
    if people_apart is not None and len(between) >= FEWEST_OF_A_CLAIM and people_apart >= FAR_APART:
        reasons.append(f"people differ among themselves by {people_apart:.1f} points")
    if apart is not None and len(distances) >= FEWEST_OF_A_CLAIM and apart >= FAR_APART:
        reasons.append(f"judge and people differ by {apart:.1f} points")
    if len(own) >= FEWEST_OF_A_CLAIM and 2 * len(applicable) >= len(own):
        reasons.append("people hold that it does not apply where the judge scores it")
    return ClaimCalibration(
        proposition_id=name,
        agreement=agreement((item.judge, item.peoples) for item in own),
        apart=apart,
        people_apart=people_apart,
        rewrite="; ".join(reasons),
    )
