"""What a judge is asked and answers: one protocol for evaluation, suites and corrections."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol

from persona_pipeline.judging.verdict import Unscored, Usage, recording_key
from persona_pipeline.world.canonical import content_hash

PROPOSITION = "proposition"


@dataclass(frozen=True)
class Question:
    """One call to a judge.

    Attributes:
        kind: ``proposition``, or the family's own word such as ``rubric`` or ``gate``; names its recordings.
        subject: what is judged, as JSON; its hash is in the recording key, so it holds content and no prompt's
            wording.
        label: for people, such as ``adherence/warm_greeting of michael``.
        system: the rules.
        context: trusted reference blocks, such as the persona.
        context_recurs: later questions have the same context about other evidence, as a gate's have, so that the
            API is to cache the request up to its evidence; otherwise questions about the same evidence share it.
        evidence: JSON text of what is judged; untrusted, so it only ever stands in a ``tool_result`` block.
        ask: the final user turn.
        schema: JSON schema of the answer; its objects have ``additionalProperties: false`` and require every
            property.
        max_tokens: for the answer and the thinking before it.
        sample: 0-based index of a repeated judgment.
        thinking: whether the model may think first, where it can do both.
        mechanism: who pays: ``evaluation``, ``gate``, ``suite``, ``synthetic``.
        check: returns what is wrong with an answer, or None; by default ``schema_problem`` decides.
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
    mechanism: str = "evaluation"
    prompt_version: str = ""
    check: Callable[[Any], str | None] | None = field(default=None, compare=False, repr=False)

    @cached_property
    def key(self) -> str:
        """SHA-256 of what a recording of the answer shows; a repeated sample adds its index to the key."""
        if self.kind == PROPOSITION:
            return recording_key(self.subject, self.sample)
        return recording_key(answer_subject(self.kind, self.agent_id, self.subject_hash), self.sample)

    @cached_property
    def subject_hash(self) -> str:
        """SHA-256 of the subject alone."""
        return content_hash(dict(self.subject))

    @property
    def subject_key(self) -> str:
        """``key``, by the name it has beside the key of a judgment."""
        return self.key

    def problem(self, data: Any) -> str | None:
        """Return what makes parsed JSON no valid answer to this question, in one line, or None."""
        return self.check(data) if self.check else schema_problem(self.schema, data)


def answer_subject(kind: str, agent_id: str, subject_hash: str) -> dict[str, Any]:
    """Return what the recording of an answer of a kind other than ``proposition`` shows and its key is made of.

    The label is a note for readers: a test or an assert may be renamed, and what was judged is the same.
    """
    return {"kind": kind, "agent_id": agent_id, "subject": subject_hash}


def schema_problem(schema: Mapping[str, Any], data: Any) -> str | None:
    """Return the first thing in which data breaks a JSON schema (2020-12), or None."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(schema).iter_errors(data))
    return None if error is None else f"{error.json_path}: {error.message[:200]}"


class Blame(StrEnum):
    """Whose a failed call is: the request's alone, the endpoint's, or our own for asking more than we can carry."""

    REQUEST = "request"
    ENDPOINT = "endpoint"
    OWN = "own"


@dataclass(frozen=True)
class Answer:
    """The answer to one ``Question``: exactly one of ``data`` (valid for the schema) and ``unscored``.

    Attributes:
        detail: for a failure, what went wrong in one line.
        model: the model that served the answer (None: nobody did).
        cached: it was paid for earlier.
        blame: whose the failure is, where that is known.
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


class Asked(Protocol):
    """What must be known of a question to read and keep its answer, which may come a day later."""

    @property
    def kind(self) -> str: ...

    @property
    def label(self) -> str: ...

    @property
    def agent_id(self) -> str: ...

    @property
    def prompt_version(self) -> str: ...

    @property
    def subject_key(self) -> str: ...

    def problem(self, data: Any) -> str | None: ...


class Backend(Protocol):
    """Anything that answers questions, in the order asked, and never raises for a failed call."""

    @property
    def name(self) -> str: ...

    @property
    def live(self) -> bool:
        """Whether calls cost money and vary."""
        ...

    async def ask(self, questions: Sequence[Question]) -> list[Answer]: ...
