"""The judge's answer: scored 0-9 or unscored with a reason, never a guess."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any, Protocol

from persona_pipeline.world.canonical import content_hash
from persona_pipeline.world.trajectory import Trajectory

SCALE = range(10)


class Unscored(StrEnum):
    """Why there is no number. The first two are answers; the others are failures and count against coverage."""

    NO_EVIDENCE = "no_evidence"
    NOT_APPLICABLE = "not_applicable"
    REFUSAL = "refusal"
    TRUNCATED = "truncated"
    INVALID_OUTPUT = "invalid_output"
    TIMEOUT = "timeout"
    API_ERROR = "api_error"
    BUDGET = "budget"
    UNRECORDED = "unrecorded"
    UNSUPPORTED = "unsupported"
    COMPROMISED = "compromised"

    @property
    def is_answer(self) -> bool:
        return self in (Unscored.NO_EVIDENCE, Unscored.NOT_APPLICABLE)

    @property
    def is_failed_call(self) -> bool:
        """Whether a judge should have answered and did not, which can be recorded; that nothing is recorded cannot."""
        return not self.is_answer and self is not Unscored.UNRECORDED


@dataclass(frozen=True)
class Evidence:
    """A quote the judge rests on. ``verified``: the quote stands in that message, letter for letter after folding white space."""

    message_id: str | None
    quote: str
    verified: bool = False


@dataclass(frozen=True)
class Usage:
    """Tokens of one or more calls (``input_tokens`` excludes cached ones), and their price in US dollars (None: unknown)."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_tokens: int = 0
    cache_read_tokens: int = 0
    calls: int = 0
    usd: float | None = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_creation_tokens + other.cache_creation_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.calls + other.calls,
            None if self.usd is None or other.usd is None else self.usd + other.usd,
        )


@dataclass(frozen=True)
class JudgeRequest:
    """One claim to be judged against one trajectory.

    Attributes:
        claim: the claim with its variables filled in.
        persona: the persona text if it belongs to the judge's context, else None.
        lists_ideas: the judge also lists the distinct ideas it saw.
        sample: 0-based index of a repeated judgment.
        agent_id: whose judgment it is. The judge is not told.
    """

    dimension: str
    proposition_id: str
    claim: str
    trajectory: Trajectory
    persona: str | None = None
    lists_ideas: bool = False
    sample: int = 0
    agent_id: str = ""

    @cached_property
    def subject(self) -> Mapping[str, Any]:
        """What is judged and of whom, as plain data: the same content gives the same recording whatever the prompt or the model.

        Persona and trajectory stand as their SHA-256, so that a recording can show all its key is made of.
        """
        return {
            "kind": "proposition",
            "agent_id": self.agent_id,
            "dimension": self.dimension,
            "proposition_id": self.proposition_id,
            "claim": self.claim,
            "persona": None if self.persona is None else content_hash(self.persona),
            "trajectory": _content_hash(self.trajectory),
        }

    @cached_property
    def key(self) -> str:
        """SHA-256 of the subject; a repeated sample adds its index to the key."""
        return recording_key(self.subject, self.sample)


# Many claims are judged against one trajectory.
@lru_cache(maxsize=256)
def _content_hash(trajectory: Trajectory) -> str:
    return content_hash(trajectory.content())


def recording_key(subject: Mapping[str, Any], sample: int = 0) -> str:
    """Return the SHA-256 by which a judgment is recorded; ``sample`` is the 0-based index of a repeated one."""
    return content_hash(dict(subject) if sample == 0 else {**subject, "sample": sample})


def shown_subject(shown: object) -> dict[str, Any]:
    """Return the subject of a judgment as a recording or a label shows it, field by field."""
    names = ("agent_id", "dimension", "proposition_id", "claim", "persona", "trajectory")
    return {"kind": "proposition"} | {name: getattr(shown, name) for name in names}


@dataclass(frozen=True)
class Verdict:
    """The answer to one ``JudgeRequest``: exactly one of ``score`` (whole, 0-9) and ``unscored``.

    Attributes:
        detail: for a failure, what went wrong in one line.
        min_coverage: for a failure that is recorded, the share (0-1) of judgments that have to be scored; None: it is of now.
        model: the model that answered (None: nobody did).
    """

    proposition_id: str
    score: int | None = None
    unscored: Unscored | None = None
    reasoning: str = ""
    evidence: tuple[Evidence, ...] = ()
    ideas: tuple[str, ...] = ()
    detail: str = ""
    min_coverage: float | None = None
    model: str | None = None
    prompt_version: str | None = None
    usage: Usage = field(default_factory=Usage)
    injection_suspected: bool = False

    def __post_init__(self) -> None:
        if (self.score is None) == (self.unscored is None):
            raise ValueError("a verdict has exactly one of score and unscored")
        if self.score is not None and (isinstance(self.score, bool) or self.score not in SCALE):
            raise ValueError(f"score {self.score!r} is not a whole number from 0 to 9")

    @property
    def has_failed(self) -> bool:
        """Whether it is neither a score nor an answer of another sort."""
        return self.unscored is not None and not self.unscored.is_answer


class Judge(Protocol):
    """Anything that turns requests into verdicts, in the order asked, and never raises for a failed call."""

    @property
    def name(self) -> str:
        """What stands in provenance, such as ``recorded`` or ``anthropic:claude-haiku-5-5``."""
        ...

    @property
    def live(self) -> bool:
        """Whether calls cost money and vary; sets the default minimum coverage."""
        ...

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]: ...


class JudgeLayer:
    """What a judge around another has of that one: its name, whether it is live, and its backend."""

    judging: Judge

    @property
    def name(self) -> str:
        return self.judging.name

    @property
    def live(self) -> bool:
        return self.judging.live

    @property
    def backend(self) -> Any:
        """That of the judge inside; None when it has none."""
        return getattr(self.judging, "backend", None)
