"""Golden baselines, the results of a comparison with one, and the judges behind both."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, computed_field

from persona_pipeline.base.options import Day
from persona_pipeline.base.shares import Share, ShareDrop
from persona_pipeline.guard.anchors import JudgeCheck
from persona_pipeline.scoring.results import HIGHEST, DimensionEvaluation


def _time(value: Any) -> Any:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def _triple(value: Any) -> Any:
    # JSON has no tuples.
    return tuple(value) if isinstance(value, list) else value


_Moment: TypeAlias = Annotated[datetime, BeforeValidator(_time)]
_Number: TypeAlias = Annotated[int, Field(ge=0)]


class Acceptance(BaseModel, extra="forbid", frozen=True):
    """Why a person accepted a refused baseline.

    Attributes:
        reason: the person's words. ``day``: in UTC.
        by: the objections, a sentence each.
        since: start of the earliest known drift; None: none has a date.
    """

    reason: str = Field(min_length=1)
    day: Day
    by: list[str]
    since: _Moment | None = None


class WindowCounts(BaseModel, extra="forbid", frozen=True):
    """Verdicts on the messages of a baseline's window.

    Attributes:
        start, end: of the window, UTC. ``start`` None: all messages up to the end.
        model, prompt_version: of the judge.
        conversations: numbers of messages in character, out of character and unclear by conversation, oldest first.
    """

    start: _Moment | None
    end: _Moment
    model: str | None
    prompt_version: str | None
    conversations: list[Annotated[tuple[_Number, _Number, _Number], BeforeValidator(_triple)]]


class Baseline(BaseModel, extra="forbid"):
    """Golden scores of an agent, ``baselines/<agent_id>.json``.

    ``dimensions``: scores (0-9) by dimension; ``proposition_scores``: claims' scores by dimension. ``accepted``: why it was taken
    in spite of a known drift; None: no drift was known. ``messages``: verdicts on messages, oldest window first.
    """

    agent_id: str
    captured_at: datetime
    dimensions: dict[str, float]
    proposition_scores: dict[str, dict[str, float]] = Field(default_factory=dict)
    provenance: dict[str, Any] = Field(default_factory=dict)
    accepted: Acceptance | None = None
    messages: list[WindowCounts] = Field(default_factory=list)


class PropositionDrop(BaseModel, extra="forbid", frozen=True):
    """A claim that dropped beyond its allowed drop. ``delta`` = current - baseline, negative."""

    dimension: str
    proposition_id: str
    baseline: float
    current: float
    delta: float
    claim: str = ""
    recommendation: str | None = None
    interval: tuple[float, float] | None = None
    p_value: float | None = None


# A comparison that misses a drop of this many points has low power.
LOW_POWER = 2.0


class Power(BaseModel, extra="ignore", frozen=True):
    """Power of a comparison, in points (0-9). Runs of earlier releases have more keys, which are ignored.

    Attributes:
        detectable: the smallest drop that is reported in four of five runs.
        windows: of the baseline.
        windows_needed: baseline windows that would detect a drop of ``LOW_POWER`` points; None: it does already, or 26 would not.
    """

    detectable: float
    windows: int = 1
    windows_needed: int | None = None

    @computed_field
    @property
    def text(self) -> str:
        """Which drops a run detects, and what a smaller one needs."""
        text = f"smallest detectable drop {self.detectable:.1f}"
        if self.missed:
            text = f"low power: {self.missed} would be missed"
        if self.windows_needed is None:
            return text
        return f"{text}; to detect {LOW_POWER:.1f}: {self.windows_needed} windows in the baseline"

    @property
    def shown(self) -> str:
        """The smallest drop that is found, no number where that is longer than the scale."""
        return f"{self.detectable:.1f}" if self.detectable <= HIGHEST else f">{HIGHEST:.0f}"

    @property
    def missed(self) -> str:
        """What would be missed, in words; "" where a drop of 2 points would be found."""
        if self.detectable <= LOW_POWER:
            return ""
        return "any drop" if self.detectable > HIGHEST else f"drops below {self.detectable:.1f}"


class ClaimTest(BaseModel, extra="ignore", frozen=True):
    """How a claim moved. ``delta`` = current - baseline; ``interval``: of that change, 95 %; ``p_value``: corrected, if tested."""

    delta: float
    interval: tuple[float, float]
    p_value: float | None = None


class Measure(BaseModel, extra="forbid", frozen=True):
    """A number with its 95 % interval, from ``n`` judgments; without a value where there is nothing to measure it by."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0


class JudgeShift(BaseModel, extra="ignore", frozen=True):
    """Baseline and run have different judges. Unknown fields of earlier releases are ignored.

    Attributes:
        before, now: model and prompt version of both judges.
        until, windows: the end of the baseline's newest window, RFC 3339, and their number; None: unknown.
    """

    before: str
    now: str
    until: str | None = None
    windows: int = 1


class DimensionComparison(BaseModel, extra="ignore"):
    """One dimension compared with its baseline. Unknown fields of earlier releases are ignored.

    status: ``ok``, ``regressed``, ``undecided`` (a drop too large to ignore that is not shown), ``no_baseline`` (scored without a
    baseline), ``unscored`` (no current score), ``incomplete`` (coverage below the minimum, so means are not compared),
    ``other_judge`` (the baseline has another judge).
    undecided_claims: claims whose drop is not significant, and too large to ignore.
    lost: claims without any judgment, because all of them failed.
    doubted: drops by a judge that failed its check, a sentence each.
    interval: of the change (current - baseline), 95 %; p_value: of a drop, corrected for all comparisons.
    power, claims: detectable drops, and the test of each claim; None and empty where nothing can be tested.
    """

    dimension: str
    status: Literal["ok", "regressed", "undecided", "no_baseline", "unscored", "incomplete", "other_judge"]
    current: float | None = None
    baseline: float | None = None
    delta: float | None = None
    drops: list[PropositionDrop] = Field(default_factory=list)
    undecided_claims: list[PropositionDrop] = Field(default_factory=list)
    lost: list[str] = Field(default_factory=list)
    interval: tuple[float, float] | None = None
    p_value: float | None = None
    power: Power | None = Field(default=None, validation_alias=AliasChoices("power", "sight"))
    claims: dict[str, ClaimTest] = Field(default_factory=dict)
    doubted: list[str] = Field(default_factory=list)
    judge_shift: JudgeShift | None = None


class BaselineComparison(BaseModel, extra="ignore"):
    """One agent's evaluation compared with its baseline. Keys of earlier releases are ignored.

    Attributes:
        families: what p-values were corrected for, in words; "" where nothing was tested.
        in_character: share of the baseline's messages in character; None: the same judge has not judged them.
        share_drop: how much lower the share is now.
        judge: what the check of the judge came to; None: it was not asked.
    """

    agent_id: str
    dimensions: dict[str, DimensionComparison] = Field(default_factory=dict)
    warnings: list[str] = Field(default_factory=list)
    families: str = ""
    in_character: Share | None = Field(default=None, exclude_if=lambda share: share is None)
    share_drop: ShareDrop | None = Field(default=None, exclude_if=lambda drop: drop is None)
    judge: JudgeCheck | None = Field(default=None, exclude_if=lambda check: check is None)

    @property
    def regressions(self) -> list[DimensionComparison]:
        """Dimensions that regressed by their mean, in baseline order."""
        return [item for item in self.dimensions.values() if item.status == "regressed"]

    @property
    def drops(self) -> list[PropositionDrop]:
        return [drop for item in self.dimensions.values() for drop in item.drops]

    @property
    def regressed(self) -> bool:
        return bool(self.regressions or self.drops)


@dataclass(frozen=True)
class Compared:
    """An agent's comparison by the size of drops, and its sides.

    ``provenance``: of the evaluation as a baseline would keep it: shows whether the baseline judged the same messages. None:
    unknown; they count as the same.
    """

    comparison: BaselineComparison
    dimensions: Mapping[str, DimensionEvaluation]
    baseline: Baseline | None
    provenance: Mapping[str, Any] | None = None
