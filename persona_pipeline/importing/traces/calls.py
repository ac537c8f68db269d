"""Calls of models in traces: the kept part of a span or an event."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.turn_forms import ASSISTANT, TOOL, USER, TurnError, unpacked
from persona_pipeline.importing.traces.otlp import OtlpRecord, plain
from persona_pipeline.importing.traces.spans import (
    DETAILS,
    NAMES,
    Heard,
    SaidMessage,
    beside,
    content_fields,
    heard_by_event,
    is_redacted,
    is_said,
    keys_of_contents,
    kind_of,
    names_nobody,
    read_span,
)

WHY_SILENT = {
    "form_not_known": "had input or output in a form that is not read",
    "no_call_of_a_model": "had input and output, and were no calls of a model",
    "no_contents": "were calls of a model in which no attribute or event holds words: set the instrumentation to record contents",
    "redacted": "had their contents redacted",
}


class RefusedError(ValueError):
    """A span or log record that is not taken, and why; the others of its request are."""


@dataclass(frozen=True)
class Piece:
    """One span, or one event about a span.

    Attributes:
        key: identifies the piece within its span: ``span`` itself, ``details``, or an event by its content.
        start, end: nanoseconds since 1970.
        agents: names of the model's caller, the best first. ``parts``: parts of the program, and ``span_name``: they may be an
            agent's name. ``service``: the program, where it has a name.
        inputs: messages to the model since its last answer, after a digest of the history.
        outputs: its answers, one for each choice; an answer without a text counts too.
        asked: a digest of all its input. ``continued``: a digest of all its input with its answer.
    """

    trace_id: str
    span_id: str
    key: str
    start: int
    end: int
    parent_id: str | None = None
    conversation: str | None = None
    agents: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    span_name: str | None = None
    user: str | None = None
    service: str | None = None
    model: str | None = None
    response_id: str | None = None
    inputs: tuple[SaidMessage, ...] = ()
    outputs: tuple[SaidMessage, ...] = ()
    asked: str | None = None
    continued: str | None = None

    @property
    def answer(self) -> str:
        """The words of the first choice that has any."""
        return next((said.text for said in self.outputs if said.text.strip()), "")


# Pieces as JSON, in which what a piece does not say is left out.
PIECE = TypeAdapter(Piece)


def piece_of(item: OtlpRecord) -> Piece | None:
    """Return the kept piece of a span or log record; None: the log record is not about a call of a model.

    Spans without a call are kept too, since they or the spans above them may have an agent's name.

    Raises:
        RefusedError: it has no valid ids or times, or holds something that looks like a tool call and has no known form.
    """
    try:
        return _read(item)
    except TurnError as error:
        raise RefusedError(f"span {item.record.span_id.hex()}: {error}") from error


def _read(item: OtlpRecord) -> Piece | None:
    record, found = item.record, item.attributes
    if item.is_span:
        return _piece(item, found, "span", read_span(found, item.events)[:2])
    name = record.event_name or str(found.get("event.name", ""))
    if name == DETAILS:
        body = plain(record.body)
        found = {**(body if isinstance(body, dict) else {}), **found}
        return _piece(item, found, "details", read_span(found, ())[:2])
    if not is_said(name):
        return None
    said = heard_by_event(name, {**found, **content_fields(plain(record.body))})
    moment = _times(item)[0]
    digest = hashlib.sha256(repr((name, moment, said)).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return _piece(item, found, f"{moment:020d}:{digest}", said)


def why_silent(item: OtlpRecord, piece: Piece | None) -> str | None:
    """Return why a span, or one side of it, has no words; None: it has all words, or none are expected."""
    sides = (piece.inputs, piece.outputs) if piece is not None else ((), ())
    worded = [any(said.text.strip() for said in side) for side in sides]
    found = item.attributes
    kind = kind_of(found)
    # The span around the calls of Vercel's AI SDK repeats their words.
    if (
        not item.is_span
        or all(worded)
        or (kind == "other" and str(found.get("ai.operationId") or "").startswith("ai."))
    ):
        return None
    if is_redacted(found, is_model=kind == "model"):
        return "redacted" if kind == "model" or not any(worded) else None
    if any(worded) or sides[1]:
        return None
    if keys_of_contents(found, item.events):
        return "form_not_known" if kind in ("model", "") else "no_call_of_a_model"
    return "no_contents" if kind == "model" else None


def keys_of(item: OtlpRecord, reason: str | None) -> Collection[str]:
    """Return the keys that the words of a span are read from, or that seem to hold them where it is silent for a reason."""
    if reason is None:
        return read_span(item.attributes, item.events).keys if item.is_span else ()
    has_some = reason in ("form_not_known", "no_call_of_a_model")
    return {*keys_of_contents(item.attributes, item.events)} if has_some else ()


def _piece(item: OtlpRecord, found: Mapping[str, Any], key: str, said: Heard) -> Piece:
    (trace_id, span_id), (start, end), (inputs, outputs) = _ids(item.record), _times(item), said
    if not start:
        raise RefusedError(f"span {span_id}: it has no time")
    service, named = item.resource.get("service.name"), beside(found)
    agents = tuple(dict.fromkeys(_values(named, NAMES["agent"])))
    parent = getattr(item.record, "parent_span_id", b"")
    is_whole = key in ("span", "details")
    asked, continued = exchange(inputs, outputs) if is_whole else (None, None)
    return Piece(
        trace_id=trace_id,
        span_id=span_id,
        key=key,
        start=start,
        end=end,
        parent_id=parent.hex() or None,
        conversation=next(_values(named, NAMES["conversation"]), None),
        agents=() if any(map(names_nobody, agents)) else agents,
        parts=tuple(dict.fromkeys(_values(named, NAMES["part"]))),
        span_name=next(_values({"name": getattr(item.record, "name", None)}, ("name",)), None),
        user=next(_values(named, NAMES["user"]), None),
        service=service if isinstance(service, str) and service and not service.startswith("unknown_service") else None,
        model=next(_values(found, NAMES["model"]), None),
        response_id=_response_id(found),
        inputs=last_words(inputs) if is_whole else tuple(map(without_answer, inputs)),
        outputs=tuple(outputs),
        asked=asked,
        continued=continued,
    )


def last_words(said: Iterable[SaidMessage]) -> tuple[SaidMessage, ...]:
    """Return messages to a model since its last answer, after a digest of the history before them.

    A beginning of the answer that the caller wrote at the end is left out.
    """
    heard = _heard(said)
    begin = max((place + 1 for place, item in enumerate(heard) if item.role == ASSISTANT), default=0)
    history = (SaidMessage(ASSISTANT, _digest(heard[:begin])),)
    return (history if begin else ()) + tuple(item for item in heard[begin:] if item.text.strip())


def exchange(inputs: Sequence[SaidMessage], outputs: Sequence[SaidMessage]) -> tuple[str | None, str | None]:
    """Return digests of a model's input, and of input with answer; None for a call without either."""
    heard, answer = _heard(inputs), next((said for said in outputs if said.text.strip()), None)
    return (_digest(heard), _digest([*heard, answer])) if heard and answer else (None, None)


def without_answer(said: SaidMessage) -> SaidMessage:
    """Return a message with an answer's text as a digest: answers in a history are only compared."""
    return said._replace(text=content_hash(said.text.strip())[:32]) if said.role == ASSISTANT else said


def _heard(said: Iterable[SaidMessage]) -> list[SaidMessage]:
    listed, heard = list(said), list[SaidMessage]()
    while listed and listed[-1].role == ASSISTANT:
        listed.pop()
    for item in listed:
        if item.role in (ASSISTANT, USER):
            heard.append(item)
        elif item.role == TOOL and (not heard or heard[-1].role == USER):
            # A tool's result follows its call, even where only the result is recorded.
            heard.append(SaidMessage(ASSISTANT, ""))
    return heard


def _digest(heard: Iterable[SaidMessage]) -> str:
    return content_hash([[item.role, item.text.strip()] for item in heard])[:32]


def _times(item: OtlpRecord) -> tuple[int, int]:
    record = item.record
    if item.is_span:
        start, end = record.start_time_unix_nano, record.end_time_unix_nano
        return start or end, max(start, end)
    moment = record.time_unix_nano or record.observed_time_unix_nano
    return moment, moment


def _ids(record: Any) -> tuple[str, str]:
    trace_id, span_id = record.trace_id, record.span_id
    if len(trace_id) != 16 or not any(trace_id) or len(span_id) != 8 or not any(span_id):
        raise RefusedError(f"trace id {trace_id.hex()[:40]!r} and span id {span_id.hex()[:40]!r} are not both valid")
    return trace_id.hex(), span_id.hex()


def _response_id(found: Mapping[str, Any]) -> str | None:
    given = next(_values(found, ("gen_ai.response.id",)), None)
    if given is None and found.get("openinference.span.kind") == "LLM":
        # OpenInference has no attribute for it; the whole answer is there unless it is hidden.
        whole = unpacked(found.get("output.value"))
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
