"""What a comparison of versions and a search for the cause of a drop found: plain values that are also their JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from persona_pipeline.base.documents.json import JsonError, strict_json
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.options import WINDOW
from persona_pipeline.judging.verdict import Usage

MAX_BYTES, MOST_SUSPECTS = 20_000_000, 3


class ScoreChange(StrEnum):
    """What can be said of a change."""

    FELL = "fell"
    ROSE = "rose"
    SAME = "same"
    OPEN = "open"


class Value(BaseModel):
    """A plain value of a result. Fields of earlier releases are passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ScoreDifference(Value):
    """A score before and after, over the scenes scored in both versions, each conversation counting once; points, 0-9.

    Attributes:
        change: after minus before, the mean over conversations; None: there are none.
        low, high: the interval of the change; None below two scenes.
        p_value: of no change, corrected for all comparisons, and valid at any look.
        asked_alike: the judge's questions are equal for both versions, so nothing can have changed.
        kind: of an interview's scenes, where one kind shows the change more than all together.
        open_kinds: kinds of an interview's scenes in which a change of twice ``--change`` is possible, where it is ruled out for
            all scenes together.
        scenes: number of pairs; ``unjudged``: scenes without a judgment on one side; ``silent``: scenes with nothing to judge.
    """

    before: float | None = None
    after: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float = 1.0
    moved: ScoreChange = ScoreChange.OPEN
    asked_alike: bool = False
    kind: str = ""
    open_kinds: tuple[str, ...] = ()
    scenes: int = 0
    unjudged: int = 0
    silent: int = 0


class ClaimDifference(Value):
    """A claim that both versions have. ``edited``: it does not say the same in both."""

    dimension: str
    id: str
    claim: str
    edited: bool = False
    difference: ScoreDifference


class SceneClaim(Value):
    """A claim that moved in a scene, as ``dimension/id``, with the judge's quote of the second answer."""

    claim: str
    before: float
    after: float
    quote: str = ""


class SideBySide(Value):
    """Answers of both versions to the same line, where something moved.

    Attributes:
        turn: the number of the line in the scene, from 1; ``asked``: the line.
        scores: rows that moved, before and after in this scene.
        claims: those with the largest change here.
    """

    scene: str
    kind: str = ""
    turn: int = 1
    asked: str
    before: str
    after: str
    scores: dict[str, tuple[float, float]] = Field(default_factory=dict)
    claims: tuple[SceneClaim, ...] = ()


class AgentDifference(Value):
    """One agent in both versions.

    Attributes:
        persona_changed: whether its name or persona text differ.
        scenes: number of scenes; ``left_out``: those without any recorded judgment; ``repeated``: those that both answered with the
            same words as before.
        conversations: those with a score in both versions. Each counts once, as does a block of neighbouring windows.
        lines: the scenes that moved most, up or down.
        only_before, only_after: claims, as ``dimension/id``, that the other version lacks.
    """

    agent_id: str
    display_name: str
    persona_changed: bool
    scenes: int = 0
    left_out: int = 0
    repeated: int = 0
    conversations: int = 0
    dimensions: dict[str, ScoreDifference] = Field(default_factory=dict)
    claims: tuple[ClaimDifference, ...] = ()
    lines: tuple[SideBySide, ...] = ()
    only_before: tuple[str, ...] = ()
    only_after: tuple[str, ...] = ()

    @property
    def moved(self) -> list[ClaimDifference]:
        """Claims that dropped or rose, the largest drop first."""
        shown = [item for item in self.claims if item.difference.moved in (ScoreChange.FELL, ScoreChange.ROSE)]
        return sorted(shown, key=lambda item: item.difference.change or 0.0)

    @property
    def suspects(self) -> list[ClaimDifference]:
        """Claims that moved as far as their dimension, but may be chance alone: at most three of each dimension."""
        found = []
        for name, dimension in self.dimensions.items():
            if dimension.moved not in (ScoreChange.FELL, ScoreChange.ROSE):
                continue
            own = [item for item in self.claims if item.dimension == name and item.difference.moved is ScoreChange.OPEN]
            sign = -1.0 if dimension.moved is ScoreChange.FELL else 1.0
            far = [item for item in own if sign * (item.difference.change or 0.0) >= abs(dimension.change or 0.0)]
            found += sorted(far, key=lambda item: -sign * (item.difference.change or 0.0))[:MOST_SUSPECTS]
        return found


class MeanChange(Value):
    """How a mean over scenes changed, paired by scene; points, 0-9. None: nothing of it is scored on both sides.

    Attributes:
        low, high: 95 % interval of the change; None below six scenes.
        p_value: that it did not drop, corrected for all means of the interview.
        detectable: the drop that would be seen in four of five interviews.
        scenes: how many have a score on both sides.
    """

    before: float | None = None
    after: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    detectable: float | None = None
    scenes: int = 0

    @property
    def change(self) -> float | None:
        """After minus before."""
        return None if self.after is None or self.before is None else self.after - self.before


class Asked(Value):
    """Answers and judgments of a run.

    Attributes:
        answers: number of requested answers, ``unanswered``: missing ones, by reason.
        usage: calls and dollars of judging; ``answers_usd``: of answers, None: a target does not report them.
    """

    answers: int = 0
    unanswered: dict[str, int] = Field(default_factory=dict)
    answers_usd: float | None = 0.0
    usage: Usage = Field(default_factory=Usage)
    exit_code: int = 0

    @property
    def usd(self) -> float | None:
        """Dollars in all; None: not all of it is known."""
        return None if self.usage.usd is None or self.answers_usd is None else self.usage.usd + self.answers_usd


class VersionComparison(Asked):
    """Two versions side by side.

    Attributes:
        scenes_are: ``windows`` (the same messages judged for both) or ``answers`` (the same scenes answered by both).
        targets: that answered, of before and after; None: messages were judged.
        level: share (0-1) of runs without a change in which a change is reported.
        rule: the correction for many tests, in words.
        most: scenes an agent, at most; ``stopped``: why it ended, in words.
    """

    version: str
    before: str
    after: str
    scenes_are: str
    judge: str
    targets: tuple[str, str] | None = None
    change: float
    level: float
    rule: str
    most: int
    stopped: str = ""
    agents: dict[str, AgentDifference] = Field(default_factory=dict)
    only_before: tuple[str, ...] = ()
    only_after: tuple[str, ...] = ()

    @property
    def fell(self) -> list[str]:
        """Names of all drops, as ``agent/dimension`` and ``agent/dimension/claim``."""
        dimensions, claims = list[str](), list[str]()
        for agent_id, agent in self.agents.items():
            own = {name: item.moved for name, item in agent.dimensions.items()}
            single = {f"{item.dimension}/{item.id}": item.difference.moved for item in agent.moved}
            dimensions += [f"{agent_id}/{name}" for name, moved in own.items() if moved is ScoreChange.FELL]
            claims += [f"{agent_id}/{name}" for name, moved in single.items() if moved is ScoreChange.FELL]
        return dimensions + claims


def read_comparison(text: str, place: str) -> VersionComparison:
    """Return the comparison that a JSON text holds; ConfigError: it holds none."""
    if len(text) > MAX_BYTES:
        raise ConfigError(Problem(f"is longer than {MAX_BYTES:,} characters: no comparison of versions", place))
    try:
        return VersionComparison.model_validate(strict_json(text), strict=False)
    except (JsonError, ValueError) as error:
        raise ConfigError(Problem(f"is no comparison of versions ({type(error).__name__})", place)) from None


# Each of an interview's six kinds of scenes is seen sixteen times: fewer do not show a fault in a single kind.
SCENES, INTERVIEW_SCENES, CHANGE = 40, 96, 1.0


def check_change(points: float) -> None:
    """Raise ``ConfigError`` where points (0-9) cannot be those that a change must reach to matter."""
    if not 0 < points <= 9:
        raise ConfigError(f"--change {points:g} is not usable; give points above 0, up to 9")


@dataclass(frozen=True)
class ComparisonRequest:
    """Whom to compare, on what, and when it is decided.

    Attributes:
        agents: None for all that both versions have.
        dimensions: None for all that have claims.
        window: the length of a scene where the same messages are judged; of answered ones, from how long the talk is drawn.
        as_of: where the newest window ends; None: at the newest message that is not in the future.
        scenes: how many at most, an agent.
        change: points (0-9) that matter: when so large a change is ruled out, up and down, a row has held.
        samples: judgments per claim.
        seed: of the order of scenes.
        interview: scenes are those of an interview.
    """

    agents: Sequence[str] | None = None
    dimensions: Sequence[str] | None = None
    window: str = WINDOW
    as_of: datetime | None = None
    scenes: int = SCENES
    change: float = CHANGE
    samples: int = 1
    seed: int = 0
    interview: bool = False

    def __post_init__(self) -> None:
        check_change(self.change)


class CauseKind(StrEnum):
    """What can change a score."""

    PERSONA = "persona"
    CLAIMS = "claims"
    MESSAGES = "messages"
    JUDGE = "judge"
    NAMES = "names"


class PastPoint(Value):
    """A moment of the history: a commit, or a stored evaluation. ``at`` is RFC 3339."""

    name: str
    commit: str | None = None
    subject: str = ""
    at: str | None = None
    score: float | None = None


class Cause(Value):
    """What changed a score, and what says so.

    Attributes:
        share: how much of the step it explains, 0-1.
        what: the persona's lines, ids of claims, ids of messages, models.
        evidence: lines for a person: a diff, quotes, scores.
    """

    kind: CauseKind
    share: float
    what: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()


class Fall(Value):
    """A score that dropped, and the cause.

    Attributes:
        claim: None: the dimension as a whole.
        good, bad: the ends of the search; ``last_good`` and ``first_bad``: the step.
        share: the part of the drop in that step, 0-1.
        cause: None: it is not known, for the reason in ``why_not``.
        candidates: possible causes, if it is not known.
        steps: other steps in which it dropped, if one step is not all.
    """

    dimension: str
    claim: str | None = None
    good: PastPoint
    bad: PastPoint
    last_good: PastPoint | None = None
    first_bad: PastPoint | None = None
    share: float = 0.0
    cause: Cause | None = None
    candidates: tuple[CauseKind, ...] = ()
    why_not: str = ""
    steps: tuple[PastPoint, ...] = ()


class Bisection(Value):
    """The causes of an agent's drops.

    Attributes:
        source: ``commits`` or ``evaluations``, the points of its history.
        looked_at: number of points that were scored.
        missing: judgments that do not exist and would help.
    """

    version: str
    agent_id: str
    source: str
    good: str
    bad: str
    falls: tuple[Fall, ...] = ()
    looked_at: int = 0
    missing: int = 0
    calls: int = 0
    usd: float | None = 0.0
    exit_code: int = 0
