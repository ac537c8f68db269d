"""What is kept of a span or of an event: who called a model where, what was last said to it, and what it answered."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from persona_pipeline.traces.contents import ASSISTANT, USER, Said, contents, is_said, said_by_event
from persona_pipeline.traces.otlp import Item, attributes, plain
from persona_pipeline.world.canonical import content_hash
from persona_pipeline.world.ingest import MAX_TEXT

DETAILS = "gen_ai.client.inference.operation.details"
_CONVERSATION = (
    "gen_ai.conversation.id",
    "session.id",
    "traceloop.association.properties.conversation_id",
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.thread_id",
    "langfuse.session.id",
)
_AGENT = ("gen_ai.agent.name", "agent.name", "gen_ai.agent.id")
_USER = ("user.id", "enduser.id", "traceloop.association.properties.user_id", "langfuse.user.id")
_MODEL = ("gen_ai.response.model", "llm.response.model_name", "llm.model_name", "gen_ai.request.model")


class RefusedError(ValueError):
    """A span or log record that is not taken, and why; the others of its request are."""


@dataclass(frozen=True)
class Piece:
    """One span, or one event about a span.

    Attributes:
        key: tells the pieces of a span apart: ``span`` itself, ``details``, or an event by its content.
        start, end: nanoseconds since 1970.
        agents: names of who called the model, the best first; ``service``: the program, where that has a name.
        inputs: what was said to the model since it last answered, with a digest of all before it.
        outputs: what it answered, one for each choice; one without a text counts as an answer all the same.
    """

    trace_id: str
    span_id: str
    key: str
    start: int
    end: int
    parent_id: str | None = None
    conversation: str | None = None
    agents: tuple[str, ...] = ()
    user: str | None = None
    service: str | None = None
    model: str | None = None
    response_id: str | None = None
    inputs: tuple[Said, ...] = ()
    outputs: tuple[Said, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return what differs from the defaults, as JSON."""
        values = {
            item.name: getattr(self, item.name) for item in fields(self) if getattr(self, item.name) != item.default
        }
        for name in ("inputs", "outputs"):
            if name in values:
                values[name] = [list(said) for said in values[name]]
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Piece":
        """Return the piece that ``to_json`` was called on."""
        said = {name: tuple(Said(*item) for item in values[name]) for name in ("inputs", "outputs") if name in values}
        return cls(**{**values, "agents": tuple(values.get("agents", ())), **said})


def piece_of(item: Item) -> Piece | None:
    """Return what is kept of a span or log record; None: the log record is about no call of a model.

    Of a span that calls no model its place is kept: an agent's name may stand on it, or on one above it.

    Raises:
        RefusedError: it has no valid ids or times, or a text is too long.
    """
    record = item.record
    if item.is_span:
        found = attributes(record.attributes)
        events = [(event.name, attributes(event.attributes)) for event in record.events]
        ids = _ids(record)
        start, end = record.start_time_unix_nano, record.end_time_unix_nano
        said = contents(found, events)
        return _piece(item, found, ids, "span", (start or end, max(start, end)), said)
    found = attributes(record.attributes)
    name = record.event_name or str(found.get("event.name", ""))
    moment = record.time_unix_nano or record.observed_time_unix_nano
    if name == DETAILS:
        body = plain(record.body)
        found = {**(body if isinstance(body, dict) else {}), **found}
        return _piece(item, found, _ids(record), "details", (moment, moment), contents(found, ()))
    if not is_said(name):
        return None
    said = said_by_event(name, plain(record.body), found)
    digest = hashlib.sha256(repr((name, moment, said)).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return _piece(item, found, _ids(record), f"{moment:020d}:{digest}", (moment, moment), said)


def _piece(
    item: Item,
    found: Mapping[str, Any],
    ids: tuple[str, str],
    key: str,
    times: tuple[int, int],
    said: tuple[Sequence[Said], Sequence[Said]],
) -> Piece:
    inputs, outputs = said
    if any(len(text.text) > MAX_TEXT for text in (*inputs, *outputs)):
        raise RefusedError(f"span {ids[1]}: a text is longer than {MAX_TEXT:,} characters")
    if not times[0]:
        raise RefusedError(f"span {ids[1]}: it has no time")
    service = item.resource.get("service.name")
    parent = getattr(item.record, "parent_span_id", b"")
    return Piece(
        trace_id=ids[0],
        span_id=ids[1],
        key=key,
        start=times[0],
        end=times[1],
        parent_id=parent.hex() or None,
        conversation=next(_values(found, _CONVERSATION), None),
        agents=tuple(dict.fromkeys(_values(found, _AGENT))),
        user=next(_values(found, _USER), None),
        service=service if isinstance(service, str) and service and not service.startswith("unknown_service") else None,
        model=next(_values(found, _MODEL), None),
        response_id=_response_id(found),
        inputs=last_words(inputs) if key in ("span", "details") else tuple(map(_without_answers, inputs)),
        outputs=tuple(outputs),
    )


def last_words(said: Iterable[Said]) -> tuple[Said, ...]:
    """Return what was said to a model since its last answer, after a digest of all that was said up to there: that is history.

    An answer that the caller began for the model stands at the end and is left out.
    """
    whole = list(said)
    while whole and whole[-1].role == ASSISTANT:
        whole.pop()
    heard = [item for item in whole if item.role in (ASSISTANT, USER)]
    begin = max((place + 1 for place, item in enumerate(heard) if item.role == ASSISTANT), default=0)
    history = (Said(ASSISTANT, content_hash([[item.role, item.text.strip()] for item in heard[:begin]])[:32]),)
    return (history if begin else ()) + tuple(item for item in heard[begin:] if item.text.strip())


def _without_answers(said: Said) -> Said:
    """An answer in a history is only ever compared."""
    return said._replace(text=content_hash(said.text.strip())[:32]) if said.role == ASSISTANT else said


def _ids(record: Any) -> tuple[str, str]:
    trace_id, span_id = record.trace_id, record.span_id
    if len(trace_id) != 16 or not any(trace_id) or len(span_id) != 8 or not any(span_id):
        raise RefusedError(f"trace id {trace_id.hex()[:40]!r} and span id {span_id.hex()[:40]!r} are not both valid")
    return trace_id.hex(), span_id.hex()


def _response_id(found: Mapping[str, Any]) -> str | None:
    given = next(_values(found, ("gen_ai.response.id",)), None)
    if given is None and found.get("openinference.span.kind") == "LLM":
        # OpenInference has no attribute for it; the whole answer is there unless it is hidden.
        from persona_pipeline.traces.contents import decoded

        whole = decoded(found.get("output.value"))
        given = whole.get("id") if isinstance(whole, dict) else None
    return given[:256] if isinstance(given, str) and given else None


def _values(found: Mapping[str, Any], keys: Sequence[str]) -> Iterator[str]:
    for key in keys:
        value = found.get(key)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            yield _name(str(value))


def _name(text: str) -> str:
    """The text as a name: at most 256 printable characters; one that is longer ends in a digest."""
    shown = "".join(char if char.isprintable() else " " for char in text).strip()
    if len(shown) <= 256:
        return shown or "unnamed"
    return shown[:239] + "-" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
