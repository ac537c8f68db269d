"""What a calibration says, as it is printed and written as JSON."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from persona_pipeline.calibration.measures import Measure
from persona_pipeline.calibration.prediction import FEWEST_LABELS

Belief = Literal["believed", "chance", "unknown"]


class Agreement(BaseModel):
    """How a judge agrees with somebody. All is of the judgments that both scored.

    Attributes:
        rank: Spearman's correlation; kappa: with quadratic weights; bias: judge - the other, in points.
        only_judge, only_other: judgments that one scored and the other held not applicable; neither: both held so.
        to_halve: how many labels more would halve the intervals.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

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


class ClaimCalibration(BaseModel):
    """One claim. ``apart``: mean distance of judge and people; ``people_apart``: of people from one another; in points.

    Attributes:
        rewrite: why it should be rewritten; empty: nothing speaks for that.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    proposition_id: str
    agreement: Agreement
    apart: float | None = None
    people_apart: float | None = None
    rewrite: str = ""


class DimensionCalibration(BaseModel):
    """One judge on one dimension.

    Attributes:
        judged, labelled: judgments it scored, and how many of them people labelled with a score.
        people: names of those who labelled.
        ceiling_rank, ceiling_kappa: agreement of people among themselves.
        judge_mean, people_mean: mean of the judge's scores, and what people would give the same judgments; claims turned so that
            more is better. ``people_mean`` has no value below 50 labels.
        models: agreement of the judge with other models' labels; calibrates nothing.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

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


class Calibration(BaseModel):
    """Every judge on every dimension that something is judged of.

    Attributes:
        labels_hash: of the labels it rests on.
        stale: labels that were not used, each with the reason.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    dimensions: list[DimensionCalibration] = Field(default_factory=list)
    labels_hash: str = ""
    stale: list[str] = Field(default_factory=list)

    def of(self, judge_model: str | None, prompt_version: str | None, dimension: str) -> DimensionCalibration | None:
        """Return a judge's calibration on a dimension, None when none of its judgments there is labelled."""
        wanted = (judge_model, prompt_version, dimension)
        return next((d for d in self.dimensions if (d.judge_model, d.prompt_version, d.dimension) == wanted), None)
