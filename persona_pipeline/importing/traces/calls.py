"""Calls of models in traces: what each convention writes on spans and events, and what is kept of it."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.text import storable
from persona_pipeline.importing.base import TEXTS
from persona_pipeline.importing.base import text_of as text_of_parts
from persona_pipeline.importing.records import decoded
from persona_pipeline.importing.traced import turns_in
from persona_pipeline.importing.traces.otlp import OtlpRecord, attributes, plain
from persona_pipeline.world.messages.files import MAX_TEXT

ASSISTANT, USER = "assistant", "user"
_TOOLS = ("tool_use", "tool_result", "tool_call", "tool_call_response", "server_tool_use", "web_search_tool_result")
_FILES = ("image", "image_url", "input_image", "document", "file", "input_audio")
_BLOCKS = frozenset((*TEXTS, *_TOOLS, *_FILES, "thinking", "redacted_thinking", "reasoning"))
# Bedrock's blocks have a key instead of a type.
_KEYED = frozenset(("text", "toolUse", "toolResult", "reasoningContent", "image", "document", "video", "cachePoint"))
# What stands in a trace in place of words that were to stay where they were said, alone or in a sentence's place.
_REDACTED = re.compile(
    r"(?-i:REDACTED)|[_*]{1,2}redacted[_*]{1,2}|[\[<{]{1,2}(?:redacted|masked|scrubbed|filtered)\b[^\n\]>}]{0,60}[\]>}]{1,2}"
    r"|[*\u2022\u25cf\u2588\u2587\u25a0\u2591-\u2593]{3,}",
    re.IGNORECASE,
)
_ROLES = {"human": USER, "ai": ASSISTANT, "model": ASSISTANT, "chatbot": ASSISTANT}
_INDEXED = re.compile(
    r"(?:gen_ai\.prompt|llm\.prompts|(?P<output>gen_ai\.completion|llm\.completions))\.(?P<number>\d{1,6})"
    r"\.(?P<field>role|content|user|name)"
)
_OPENINFERENCE = re.compile(
    r"llm\.(?:input|(?P<output>output))_messages\.(?P<number>\d{1,6})\.message"
    r"\.(?:(?P<field>role|name|content)|contents\.(?P<block>\d{1,6})\.message_content\.(?P<of_block>type|text))"
)

Event = tuple[str, Mapping[str, Any]]
Heard = tuple[Sequence["SaidMessage"], Sequence["SaidMessage"]]


class SaidMessage(NamedTuple):
    """One message to or from a model: its role, its words and, where it has one, the name of who speaks."""

    role: str
    text: str
    name: str | None = None


def contents(found: Mapping[str, Any], events: Iterable[Event]) -> Heard:
    """Return inputs and outputs of a span.

    The first convention that wrote any is believed: GenAI's attributes, those of Vercel's AI SDK and of Langfuse's, OpenInference,
    events on the span, then the numbered attributes of OpenLLMetry. System instructions, tools' results and thinking are nobody's
    messages.

    Args:
        found: the span's attributes; ``events``: the names and attributes of its events.
    """
    reads = (_current, _vercel, _langfuse, _openinference)
    if found.get("gen_ai.operation.name") == "execute_tool":
        return (), ()
    for read in (*reads, lambda _: _from_events(events), lambda given: _numbered(given, _INDEXED)):
        inputs, outputs = read(found)
        if inputs or outputs:
            return inputs, outputs
    return (), ()


WHY_SILENT = {
    "form_not_known": "had input and output in a form not known",
    "no_call_of_a_model": "had input and output, and were no calls of a model",
    "no_contents": "were calls of a model without their contents: the instrumentation has to be told to write them",
    "redacted": "had their contents redacted",
}
# Attributes in which instrumentations of any kind write what went in and came out.
_CONTENTS = re.compile(
    r"(?:.*[._])?(?:inputs?|outputs?|prompts?|completions?|messages|spanInputs|spanOutputs)(?:[._](?:value|text|messages|json))?"
)


def why_silent(item: OtlpRecord, piece: "Piece | None") -> str | None:
    """Return why a span has no words, or one side of it has none; None: it has all, or nobody would look for any there."""
    sides = (piece.inputs, piece.outputs) if piece is not None else ((), ())
    worded = [any(said.text.strip() for said in side) for side in sides]
    if not item.is_span or all(worded):
        return None
    found = item.attributes
    operation = str(found.get("ai.operationId") or found.get("gen_ai.operation.name") or "")
    kind = found.get("openinference.span.kind") or found.get("langfuse.observation.type")
    calls_model = operation in ("chat", "generate_content", "text_completion") or kind in ("LLM", "generation")
    texts = {key: value for key, value in found.items() if isinstance(value, str) and value}
    contents = [value for key, value in texts.items() if _CONTENTS.fullmatch(key)]
    if operation.startswith("ai.") and ".do" not in operation:
        # Around the calls of Vercel's AI SDK, whose words it repeats.
        return None
    if any(map(_REDACTED.fullmatch, texts.values())) or (calls_model and any(map(_REDACTED.search, contents))):
        return "redacted" if calls_model or not any(worded) else None
    if any(worded) or sides[1]:
        return None
    if contents:
        return "form_not_known" if calls_model or kind is None else "no_call_of_a_model"
    return "no_contents" if calls_model else None


def is_said(name: str) -> bool:
    """Whether an event of this name holds one message."""
    return name == "gen_ai.choice" or bool(re.fullmatch(r"gen_ai\.\w+\.message", name))


def said_by_event(name: str, body: Any, found: Mapping[str, Any]) -> Heard:
    """Return what an event of the older convention says, as an input or an output."""
    beside = body if isinstance(body, dict) else {} if body is None else {"content": body}
    given = {**found, **beside}
    if name == "gen_ai.choice":
        message = decoded(given.get("message", given))
        if not isinstance(message, dict):
            message = {"content": message}
        # Choices after the first are alternatives that nobody is known to have read.
        return ((), (_said(message, ASSISTANT),)) if str(given.get("index", 0)) == "0" else ((), ())
    return (_said(given, name.split(".")[1]),), ()


def text_of(content: Any) -> str:
    """Return the words of a message's content: a text, or blocks and parts of which those that are text are joined."""
    if isinstance(content, str):
        blocks = decoded(content) if content.startswith("[{") else None
        # What only looks like blocks is what was said.
        if not isinstance(blocks, list) or not all(map(_is_block, blocks)):
            return storable(content)
        content = blocks
    return storable(text_of_parts([content] if isinstance(content, dict) else content))


def _is_block(item: Any) -> bool:
    return isinstance(item, dict) and (item.get("type") in _BLOCKS or (len(item) == 1 and item.keys() <= _KEYED))


def _said(message: Mapping[str, Any], role: str) -> SaidMessage:
    given = message.get("role")
    role = given.lower() if isinstance(given, str) and given else role
    name = message.get("name")
    known = isinstance(name, str) and name.isprintable() and 0 < len(name) <= 256
    text = text_of(message.get("parts") if "parts" in message else message.get("content"))
    if len(text) > MAX_TEXT:
        text = text[: MAX_TEXT - 1] + "\u2026"
    elif _REDACTED.fullmatch(text.strip()):
        text = ""
    return SaidMessage(_ROLES.get(role, role), text, name if known else None)


def _current(found: Mapping[str, Any]) -> Heard:
    inputs = decoded(found.get("gen_ai.input.messages"))
    outputs = decoded(found.get("gen_ai.output.messages"))
    return _messages(inputs, USER), _messages(outputs, ASSISTANT)


def _vercel(found: Mapping[str, Any]) -> Heard:
    """Return what a call of a model says; the span around all of its steps repeats their words in another form."""
    if (inputs := found.get("ai.prompt.messages")) is None:
        return (), ()
    answered = any(f"ai.response.{kind}" in found for kind in ("text", "toolCalls", "object"))
    said = _said({"content": found.get("ai.response.text")}, ASSISTANT)
    return _messages(decoded(inputs), USER), [said] if answered else []


def _langfuse(found: Mapping[str, Any]) -> Heard:
    if found.get("langfuse.observation.type") != "generation":
        return (), ()
    outputs = _in_any_form(found.get("langfuse.observation.output"), ASSISTANT)
    # An output may be all that was said up to it.
    return _in_any_form(found.get("langfuse.observation.input"), USER), outputs[-1:]


def _in_any_form(value: Any, role: str) -> list[SaidMessage]:
    try:
        turns = turns_in(decoded(value), role)
    except ValueError:
        return []
    return [_said({"content": turn.text, "name": turn.name}, turn.role) for turn in turns]


def _messages(listed: Any, role: str) -> list[SaidMessage]:
    if isinstance(listed, dict):
        listed = [listed]
    return [_said(item, role) for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def _openinference(found: Mapping[str, Any]) -> Heard:
    if found.get("openinference.span.kind") != "LLM":
        return (), ()
    return _numbered(found, _OPENINFERENCE)


def _numbered(found: Mapping[str, Any], pattern: re.Pattern[str]) -> Heard:
    """Return messages whose fields, or those of their content's blocks, are attributes of their own."""
    sides: dict[str, dict[int, dict[str, Any]]] = {USER: {}, ASSISTANT: {}}
    for key, value in found.items():
        if (match := pattern.fullmatch(key)) is None:
            continue
        message = sides[ASSISTANT if match["output"] else USER].setdefault(int(match["number"]), {})
        if match["field"]:
            message[match["field"]] = value
        else:
            message.setdefault("blocks", {}).setdefault(int(match["block"]), {})[match["of_block"]] = value
    return _ordered(sides[USER], USER), _ordered(sides[ASSISTANT], ASSISTANT)


def _ordered(messages: Mapping[int, dict[str, Any]], role: str) -> list[SaidMessage]:
    found = []
    for _, message in sorted(messages.items()):
        blocks = message.pop("blocks", {})
        if blocks and not message.get("content"):
            message["content"] = [block for _, block in sorted(blocks.items())]
        found.append(_said(message, role))
    return found


def _from_events(events: Iterable[Event]) -> Heard:
    inputs: list[SaidMessage] = []
    outputs: list[SaidMessage] = []
    for name, given in events:
        if name == DETAILS:
            heard = _current(given)
        elif name == "gen_ai.content.prompt":
            heard = _messages(decoded(given.get("gen_ai.prompt")), USER), ()
        elif name == "gen_ai.content.completion":
            heard = (), _messages(decoded(given.get("gen_ai.completion")), ASSISTANT)
        elif is_said(name):
            heard = said_by_event(name, None, given)
        else:
            continue
        inputs += heard[0]
        outputs += heard[1]
    return inputs, outputs


DETAILS = "gen_ai.client.inference.operation.details"
_CONVERSATION = (
    "gen_ai.conversation.id",
    "session.id",
    "traceloop.association.properties.conversation_id",
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.thread_id",
    "langfuse.session.id",
    "ai.telemetry.metadata.sessionId",
    "ai.settings.context.sessionId",
)
_AGENT = ("gen_ai.agent.name", "agent.name", "gen_ai.agent.id")
# Names of a place in a program: of an agent, where the program gave it one of its own.
_PART = (
    "ai.telemetry.functionId",
    "langgraph_node",
    "graph.node.id",
    "langfuse.observation.metadata.langgraph_node",
    "traceloop.association.properties.langgraph_node",
)
_USER = (
    "user.id",
    "enduser.id",
    "traceloop.association.properties.user_id",
    "langfuse.user.id",
    "ai.telemetry.metadata.userId",
    "ai.settings.context.userId",
)
_MODEL = (
    "gen_ai.response.model",
    "llm.response.model_name",
    "llm.model_name",
    "langfuse.observation.model.name",
    "gen_ai.request.model",
)


class RefusedError(ValueError):
    """A span or log record that is not taken, and why; the others of its request are."""


@dataclass(frozen=True)
class Piece:
    """One span, or one event about a span.

    Attributes:
        key: tells the pieces of a span apart: ``span`` itself, ``details``, or an event by its content.
        start, end: nanoseconds since 1970.
        agents: names of who called the model, the best first; ``parts``: of which part of a program it is, and the span's own name:
            they may be an agent's. ``service``: the program, where that has a name.
        inputs: what was said to the model since it last answered, with a digest of all before it.
        outputs: what it answered, one for each choice; one without a text counts as an answer all the same.
        asked: a digest of all that it was told. ``continued``: what that will be once its answer is history.
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

    def to_json(self) -> dict[str, Any]:
        """Return what differs from the defaults, as JSON."""
        return _PIECE.dump_python(self, mode="json", exclude_defaults=True)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Piece":
        """Return the piece that ``to_json`` was called on."""
        return _PIECE.validate_python(values)


_PIECE = TypeAdapter(Piece)


def piece_of(item: OtlpRecord) -> Piece | None:
    """Return what is kept of a span or log record; None: the log record is about no call of a model.

    Of a span that calls no model its place is kept: an agent's name may stand on it, or on one above it.

    Raises:
        RefusedError: it has no valid ids or times.
    """
    record, found = item.record, item.attributes
    if item.is_span:
        events = [(event.name, attributes(event.attributes)) for event in record.events]
        ids = _ids(record)
        start, end = record.start_time_unix_nano, record.end_time_unix_nano
        said = contents(found, events)
        return _piece(item, found, ids, "span", (start or end, max(start, end)), said)
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
    item: OtlpRecord,
    found: Mapping[str, Any],
    ids: tuple[str, str],
    key: str,
    times: tuple[int, int],
    said: tuple[Sequence[SaidMessage], Sequence[SaidMessage]],
) -> Piece:
    inputs, outputs = said
    if not times[0]:
        raise RefusedError(f"span {ids[1]}: it has no time")
    service, inner = item.resource.get("service.name"), decoded(found.get("metadata"))
    parent = getattr(item.record, "parent_span_id", b"")
    is_whole = key in ("span", "details")
    asked, continued = exchange(inputs, outputs) if is_whole else (None, None)
    return Piece(
        trace_id=ids[0],
        span_id=ids[1],
        key=key,
        start=times[0],
        end=times[1],
        parent_id=parent.hex() or None,
        conversation=next(_values(found, _CONVERSATION), None),
        agents=tuple(dict.fromkeys(_values(found, _AGENT))),
        parts=tuple(dict.fromkeys(_values({**inner, **found} if isinstance(inner, dict) else found, _PART))),
        span_name=next(_values({"name": getattr(item.record, "name", None)}, ("name",)), None),
        user=next(_values(found, _USER), None),
        service=service if isinstance(service, str) and service and not service.startswith("unknown_service") else None,
        model=next(_values(found, _MODEL), None),
        response_id=_response_id(found),
        inputs=last_words(inputs) if is_whole else tuple(map(without_answer, inputs)),
        outputs=tuple(outputs),
        asked=asked,
        continued=continued,
    )


def last_words(said: Iterable[SaidMessage]) -> tuple[SaidMessage, ...]:
    """Return what was said to a model since its last answer, after a digest of all that was said up to there: that is history.

    An answer that the caller began for the model stands at the end and is left out.
    """
    heard = _heard(said)
    begin = max((place + 1 for place, item in enumerate(heard) if item.role == ASSISTANT), default=0)
    history = (SaidMessage(ASSISTANT, _digest(heard[:begin])),)
    return (history if begin else ()) + tuple(item for item in heard[begin:] if item.text.strip())


def exchange(inputs: Sequence[SaidMessage], outputs: Sequence[SaidMessage]) -> tuple[str | None, str | None]:
    """Return digests of what a model was told, and of that with its answer; of a call without either, none."""
    heard, answer = _heard(inputs), next((said for said in outputs if said.text.strip()), None)
    return (_digest(heard), _digest([*heard, answer])) if heard and answer else (None, None)


def without_answer(said: SaidMessage) -> SaidMessage:
    """An answer in a history is only ever compared."""
    return said._replace(text=content_hash(said.text.strip())[:32]) if said.role == ASSISTANT else said


def _heard(said: Iterable[SaidMessage]) -> list[SaidMessage]:
    heard = list(said)
    while heard and heard[-1].role == ASSISTANT:
        heard.pop()
    return [item for item in heard if item.role in (ASSISTANT, USER)]


def _digest(heard: Iterable[SaidMessage]) -> str:
    return content_hash([[item.role, item.text.strip()] for item in heard])[:32]


def _ids(record: Any) -> tuple[str, str]:
    trace_id, span_id = record.trace_id, record.span_id
    if len(trace_id) != 16 or not any(trace_id) or len(span_id) != 8 or not any(span_id):
        raise RefusedError(f"trace id {trace_id.hex()[:40]!r} and span id {span_id.hex()[:40]!r} are not both valid")
    return trace_id.hex(), span_id.hex()


def _response_id(found: Mapping[str, Any]) -> str | None:
    given = next(_values(found, ("gen_ai.response.id",)), None)
    if given is None and found.get("openinference.span.kind") == "LLM":
        # OpenInference has no attribute for it; the whole answer is there unless it is hidden.
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
