"""Questions and answers of judges, claims and verdicts: a score 0-9 or a reason, never a guess."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any, Protocol

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.text import clean, storable, storable_data
from persona_pipeline.world.models import Trajectory

SCALE = range(10)


class Unscored(StrEnum):
    """Why a score is missing. The first two are answers; the others are failures and count against coverage."""

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


_LABELS = {
    "refusal": "judge refused",
    "truncated": "answer cut off",
    "timeout": "timed out",
    "api_error": "API error",
    "budget": "budget spent",
    "unrecorded": "not recorded",
    "unsupported": "quotes not found",
    "compromised": "judge took orders from the text",
}


def unscored_label(reason: str | None) -> str:
    """Return a reason for a missing score in plain words."""
    return _LABELS.get(reason or "", (reason or "not evaluated").replace("_", " "))


def _clean(said: object, *names: str, letters: Callable[[str], str] = storable) -> None:
    """Make the texts of a frozen object storable: a judge may be anything that a caller hands in."""
    for name in names:
        object.__setattr__(said, name, storable_data(getattr(said, name), letters))


@dataclass(frozen=True)
class Evidence:
    """A quote in a verdict. ``verified``: the quote is in that message, letter for letter after folding white space."""

    message_id: str | None
    quote: str
    verified: bool = False

    def __post_init__(self) -> None:
        _clean(self, "quote", letters=clean)


@dataclass(frozen=True)
class Usage:
    """Tokens of calls (``input_tokens`` excludes cached ones), and their price in US dollars (None: unknown)."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_tokens: int = 0
    cache_read_tokens: int = 0
    calls: int = 0
    usd: float | None = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        counts = (getattr(self, item.name) + getattr(other, item.name) for item in fields(self) if item.name != "usd")
        return Usage(*counts, usd=None if self.usd is None or other.usd is None else self.usd + other.usd)


# Of a call that may have been billed and did not say for how much.
UNKNOWN_USAGE = Usage(calls=1, usd=None)


@dataclass(frozen=True)
class JudgeRequest:
    """One claim to be judged against one trajectory.

    Attributes:
        claim: the claim with its variables filled in.
        persona: the persona text if it belongs to the judge's context, else None.
        lists_ideas: the judge also lists the distinct ideas it saw.
        sample: 0-based index of a repeated judgment.
        agent_id: the judged agent. It is not shown to the judge.
    """

    dimension: str
    proposition_id: str
    claim: str
    trajectory: Trajectory
    persona: str | None = None
    lists_ideas: bool = False
    sample: int = 0
    agent_id: str = ""

    def __post_init__(self) -> None:
        _clean(self, "claim", "persona")

    @cached_property
    def subject(self) -> Mapping[str, Any]:
        """The judged content as plain data: the same content gives the same recording, whatever the prompt or the model.

        Persona and trajectory are given by their SHA-256, so that a recording shows all parts of its key.
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
        detail: for a failure, the error in one line.
        min_coverage: for a recorded failure, the share (0-1) of judgments that must be scored; None: it is not recorded.
        model: the model that answered (None: there was none).
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
        _clean(self, "reasoning", "ideas", "detail", letters=clean)

    @property
    def has_failed(self) -> bool:
        """Whether it is neither a score nor an answer of another sort."""
        return self.unscored is not None and not self.unscored.is_answer


class Judge(Protocol):
    """An object that turns requests into verdicts, in their order, and never raises for a failed call: a judge of the caller, or an
    opened one, which asks them as questions."""

    @property
    def name(self) -> str:
        """The name in provenance, such as ``recorded`` or ``anthropic:claude-haiku-5-5``."""
        ...

    @property
    def live(self) -> bool:
        """Whether calls cost money and vary; sets the default minimum coverage."""
        ...

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]: ...


PROPOSITION = "proposition"


@dataclass(frozen=True)
class Question:
    """One call to a judge.

    Attributes:
        kind: ``proposition``, or the family's own word such as ``rubric`` or ``gate``; names its recordings.
        subject: the judged content, as JSON; its hash is in the recording key, so it holds content and no prompt's
            wording.
        label: for people, such as ``adherence/warm_greeting of michael``.
        system: the rules.
        context: trusted reference blocks, such as the persona.
        context_recurs: later questions have the same context about other evidence, as a gate's have, so that the
            API is to cache the request up to its evidence; otherwise questions about the same evidence share it.
        evidence: JSON text of the judged content; untrusted, so it is only ever put into a ``tool_result`` block.
        ask: the final user turn.
        schema: JSON schema of the answer; its objects have ``additionalProperties: false`` and require every
            property.
        max_tokens: for the answer and the thinking before it.
        sample: 0-based index of a repeated judgment.
        thinking: whether the model may think first, where it can do both.
        check: returns why an answer is invalid, or None; by default ``schema_problem`` decides.
    """

    kind: str
    subject: Mapping[str, Any]
    label: str
    system: str
    evidence: str
    ask: str
    schema: Mapping[str, Any]
    max_tokens: int
    context: tuple[str, ...] = ()
    context_recurs: bool = False
    sample: int = 0
    thinking: bool = True
    agent_id: str = ""
    dimension: str = ""
    prompt_version: str = ""
    check: Callable[[Any], str | None] | None = field(default=None, compare=False, repr=False)

    @cached_property
    def key(self) -> str:
        """SHA-256 of the visible fields of a recording; a repeated sample adds its index to the key."""
        if self.kind == PROPOSITION:
            return recording_key(self.subject, self.sample)
        return recording_key(answer_subject(self.kind, self.agent_id, self.subject_hash), self.sample)

    @cached_property
    def subject_hash(self) -> str:
        """SHA-256 of the subject alone."""
        return content_hash(dict(self.subject))

    def problem(self, data: Any) -> str | None:
        """Return what makes parsed JSON no valid answer to this question, in one line, or None."""
        return self.check(data) if self.check else schema_problem(self.schema, data)


def answer_subject(kind: str, agent_id: str, subject_hash: str) -> dict[str, Any]:
    """Return the parts of the key of a recorded answer of a kind other than ``proposition``.

    The label is not one: a test or an assert may be renamed while the judged content stays the same.
    """
    return {"kind": kind, "agent_id": agent_id, "subject": subject_hash}


def schema_problem(schema: Mapping[str, Any], data: Any) -> str | None:
    """Return the first thing in which data breaks a JSON schema (2020-12), or None."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(schema).iter_errors(data))
    if error is None:
        return None
    # The message about a missing field does not name the fields that are there.
    held = f", but there is {', '.join(map(str, error.instance)) or 'nothing'}" if error.validator == "required" else ""
    return f"{error.json_path}: {error.message[:200]}{held[:200]}"


class Blame(StrEnum):
    """Cause of a failed call: the request alone, the endpoint, or our own overload."""

    REQUEST = "request"
    ENDPOINT = "endpoint"
    OWN = "own"


@dataclass(frozen=True)
class Answer:
    """The answer to one ``Question``: exactly one of ``data`` (valid for the schema) and ``unscored``.

    Attributes:
        detail: for a failure, the error in one line.
        model: the model that served the answer (None: there was none).
        cached: it was paid for earlier.
        blame: the cause of the failure, where it is known.
    """

    data: Mapping[str, Any] | None = None
    unscored: Unscored | None = None
    detail: str = ""
    usage: Usage = field(default_factory=Usage)
    model: str | None = None
    prompt_version: str | None = None
    cached: bool = False
    blame: Blame | None = None

    def __post_init__(self) -> None:
        if (self.data is None) == (self.unscored is None):
            raise ValueError("an answer has exactly one of data and unscored")
        _clean(self, "data", "detail")

    @property
    def has_failed(self) -> bool:
        """Whether there is no answer."""
        return self.data is None


class Backend(Protocol):
    """Anything that answers questions, in the order asked, and never raises for a failed call."""

    @property
    def name(self) -> str: ...

    @property
    def live(self) -> bool:
        """Whether calls cost money and vary."""
        ...

    async def ask(self, questions: Sequence[Question]) -> list[Answer]: ...


Ask = Callable[[Sequence[Question]], Awaitable[list[Answer]]]


# Share of quotes that fail above which the judge itself is in doubt.
MOST_FAILING_QUOTES = 0.2


def is_unsupported(verdict: Verdict) -> bool:
    """Whether a verdict has quotes and none is in its message. Without quotes it is supported: absence cannot be quoted."""
    return not verdict.has_failed and bool(verdict.evidence) and not any(quote.verified for quote in verdict.evidence)


def unsupported(verdict: Verdict, detail: str) -> Verdict:
    """Return the verdict as ``unscored(unsupported)``; its quotes stay, to be looked at."""
    return replace(verdict, score=None, unscored=Unscored.UNSUPPORTED, ideas=(), detail=detail)


@dataclass(frozen=True)
class QuoteHealth:
    """Numbers of quotes and of failing quotes in a run."""

    quotes: int = 0
    failing: int = 0

    @property
    def failing_share(self) -> float:
        """Share (0-1) of the quotes that fail; 0 without quotes."""
        return self.failing / self.quotes if self.quotes else 0.0

    @property
    def is_doubtful(self) -> bool:
        """Whether more quotes fail than those of a working judge would: the finding ``judge_health``."""
        return self.failing_share > MOST_FAILING_QUOTES


def quote_health(verified: Iterable[Iterable[bool]]) -> QuoteHealth:
    """Return the health of a run from its verdicts on what the judge answered: for each, which of its quotes are verified."""
    every = [good for quotes in verified for good in quotes]
    return QuoteHealth(quotes=len(every), failing=every.count(False))
