"""Questions on their way to a model: what is sent, what shares a prefix, and who pays."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from persona_pipeline.judging.client import CallError
from persona_pipeline.judging.questions import Answer, Question
from persona_pipeline.judging.request import Prefix, RequestStyle
from persona_pipeline.judging.verdict import Usage


@dataclass(frozen=True)
class Call:
    """A question in the form a model is asked in. ``key`` is the judgment's."""

    question: Question
    style: RequestStyle
    key: str
    prefix: Prefix


def failed_answer(error: CallError) -> Answer:
    """Return what a call that brought no message is as an answer."""
    return Answer(unscored=error.reason, detail=error.detail, usage=error.usage, blame=error.blame)


def by_prefix(calls: Iterable[Call]) -> list[list[Call]]:
    """Return the calls in groups that share all but the last turn."""
    groups: dict[Prefix, list[Call]] = {}
    for call in calls:
        groups.setdefault(call.prefix, []).append(call)
    return list(groups.values())


def each_paid_once(calls: Sequence[Call], answers: dict[str, Answer]) -> Iterator[Answer]:
    """Yield the answers of calls in their order; what several share is charged to the first."""
    seen: set[str] = set()
    for call in calls:
        answer = answers[call.key]
        yield replace(answer, usage=Usage(), cached=True) if call.key in seen else answer
        seen.add(call.key)
