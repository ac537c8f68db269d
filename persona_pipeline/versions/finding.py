"""What a search for the cause of a fall found: plain values that are also its JSON."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class Kind(StrEnum):
    """What can change a score."""

    PERSONA = "persona"
    CLAIMS = "claims"
    MESSAGES = "messages"
    JUDGE = "judge"
    NAMES = "names"


class _Value(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Point(_Value):
    """A moment of the history: a commit, or a stored evaluation. ``at`` is RFC 3339."""

    name: str
    commit: str | None = None
    subject: str = ""
    at: str | None = None
    score: float | None = None


class Cause(_Value):
    """What changed a score, and what says so.

    Attributes:
        share: how much of the step it explains, 0-1.
        what: the persona's lines, ids of claims, ids of messages, models.
        evidence: lines for a person: a diff, quotes, scores.
    """

    kind: Kind
    share: float
    what: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()


class Fall(_Value):
    """A score that fell, and what made it fall.

    Attributes:
        claim: None: the dimension as a whole.
        good, bad: where it was well, where it was not; ``last_good`` and ``first_bad``: the step.
        share: how much of the fall is in that step, 0-1.
        cause: None: it cannot be told, and ``why_not`` says why.
        candidates: what it may be, where it cannot be told.
        steps: the others in which it fell, where one step is not all.
    """

    dimension: str
    claim: str | None = None
    good: Point
    bad: Point
    last_good: Point | None = None
    first_bad: Point | None = None
    share: float = 0.0
    cause: Cause | None = None
    candidates: tuple[Kind, ...] = ()
    why_not: str = ""
    steps: tuple[Point, ...] = ()


class Bisection(_Value):
    """What made an agent's scores fall.

    Attributes:
        source: ``commits`` or ``evaluations``: where its history was read from.
        looked_at: at how many points it was scored.
        missing: judgments that nobody made and that would tell more.
        voice: of an alarm about its voice, when it began, and what changed around it.
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
    voice: tuple[str, ...] = Field(default_factory=tuple)
    exit_code: int = 0
