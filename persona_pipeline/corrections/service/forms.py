"""The endpoints of models: where a request says what it asks for, where an answer holds its words, and how it is asked again."""

import re
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
# Raised on reading an answer that has another shape than its form says.
SHAPE_ERRORS = (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError)
# Why a text goes out unchecked. ``TOO_LARGE``: more than is read. ``ENDPOINT``: its endpoint has no form.
NOT_TEXT, TOO_LARGE, NOT_READ, ENDPOINT = "not_text", "too_large", "not_read", "endpoint"
_MOST_IDS = 10_000
# Of one stream; an upstream must not have a long text written many times.
_MOST_REPLACED = 16


@dataclass(frozen=True)
class EventPart:
    """What an event of a stream brings.

    Attributes:
        text: that it adds to the answer.
        ends: the text is whole with it.
        passes: why nothing is held from here on, such as for a call of a tool; "": it is text alone.
    """

    text: str = ""
    ends: bool = False
    passes: str = ""


@dataclass
class Continuation:
    """A stream that takes the place of another in the middle of an answer, as its reader is to see it.

    Attributes:
        opened: the first event of the stream whose place it takes.
        instead: that stream's last event with text.
        number: of the last event that went out, where a form counts its events.
        said: all text that went out, of both.
        came: all text of this one as it came.
    """

    opened: Json
    instead: Json
    number: int
    said: str
    came: str = ""
    replaced: int = 0

    def whole(self, value: Any) -> Any:
        """Return a value in which the text of this stream, wherever it stands as a whole, is all that went out.

        Raises:
            ValueError: it stands there too often.
        """
        if isinstance(value, dict):
            return {key: self._whole_text(key, item) for key, item in value.items()}
        return [self.whole(item) for item in value] if isinstance(value, list) else value

    def _whole_text(self, key: str, item: Any) -> Any:
        if key != "text" or item != self.came:
            return self.whole(item)
        self.replaced += 1
        if self.replaced > _MOST_REPLACED:
            raise ValueError("the text stands in the stream too often")
        return self.said


class AnswerForm(ABC):
    """How requests and answers of one endpoint are written. What cannot be read raises one of ``SHAPE_ERRORS``.

    Attributes:
        limits: keys of a request that limit the tokens of its answer.
    """

    limits: tuple[str, ...]

    @abstractmethod
    def is_text(self, request: Json) -> bool:
        """Whether the request asks for one text, which can be written again without the caller noticing."""

    @abstractmethod
    def text_of(self, answer: Json) -> str | None:
        """Return the text of a whole answer; None: there is more, or something else, than one text."""

    def words_of(self, answer: Json) -> str | None:
        """Return the text of a whole answer; None also where it cannot be read."""
        try:
            return self.text_of(answer)
        except SHAPE_ERRORS:
            return None

    @abstractmethod
    def part_of(self, event: Json) -> EventPart:
        """Return what an event of a stream brings."""

    def most_tokens(self, request: Json) -> int | None:
        """Return the client's limit on the tokens of the answer; None: it sets none."""
        found = [request[name] for name in self.limits if isinstance(request.get(name), int)]
        return min(found, default=None)

    def may_act(self, request: Json) -> bool:
        """Whether the server may do more than write, such as run a tool: a second request would do it twice."""
        if any(request.get(name) for name in _ACTING):
            return True
        return any(not str(tool.get("type") or "").startswith(_CLIENTS_TOOLS) for tool in request.get("tools") or [])

    def asked_again(self, request: Json, written: str, feedback: str, tokens: int | None) -> Json:
        """Return a request that shows the model what it wrote, and what is wrong with it.

        ``tokens``: the new answer's limit, instead of the client's own; None: the client sets none.
        """
        limits = {name: tokens for name in self.limits if tokens is not None and request.get(name) is not None}
        turns = [{"role": "assistant", "content": written}, {"role": "user", "content": feedback}]
        return request | limits | self.with_turns(request, turns)

    def with_turns(self, request: Json, turns: list[Json]) -> Json:
        """Return the part of a request that holds the conversation, with more turns at its end."""
        return {"messages": [*request["messages"], *turns]}

    def resumed(self, request: Json) -> Json:
        """Return a request by the ids that the upstream knows; the same one where it knows them all."""
        return request

    @abstractmethod
    def continued(self, event: Json, text: str | None, before: Continuation) -> Json:
        """Return an event as it stands in the stream that it goes on with. ``text``: that it adds; None: it has none."""


# Keys of a request that have the server do something else too: search, connect to tools, keep a container, run a stored prompt.
_ACTING = ("web_search_options", "mcp_servers", "container", "plugins", "data_sources", "prompt")
# Types of tools that the client runs; a tool of Anthropic without a type is one too.
_CLIENTS_TOOLS = ("function", "custom", "bash_", "text_editor_", "memory_")


def _elsewhere(found: Json, known: Iterable[str]) -> bool:
    """Whether a message holds words, or calls of tools, under other keys than those that are known."""
    return any(item and isinstance(item, (str, list, dict)) for name, item in found.items() if name not in known)


class ChatForm(AnswerForm):
    """``/v1/chat/completions``, as OpenAI and most others speak it."""

    limits = ("max_completion_tokens", "max_tokens")
    # Besides the words: the model's thoughts and what servers add. A refusal, a transcript of audio and calls are not here.
    _KNOWN = (
        *("role", "name", "content", "annotations", "provider_specific_fields"),
        *("reasoning", "reasoning_content", "reasoning_details", "thinking_blocks"),
    )

    def is_text(self, request: Json) -> bool:
        form = request.get("response_format") or {"type": "text"}
        return request.get("n") in (None, 1) and form["type"] == "text" and isinstance(request["messages"], list)

    def text_of(self, answer: Json) -> str | None:
        (choice,) = answer["choices"]
        text = choice["message"].get("content") or ""
        return None if not isinstance(text, str) or _elsewhere(choice["message"], self._KNOWN) else text

    def part_of(self, event: Json) -> EventPart:
        if not event["choices"]:
            return EventPart()
        (choice,) = event["choices"]
        delta = choice.get("delta") or {}
        text = delta.get("content") or ""
        others = _elsewhere(delta, self._KNOWN) or choice.get("index") or choice.get("text") or choice.get("message")
        if others or not isinstance(text, str):
            return EventPart(passes=NOT_TEXT)
        return EventPart(text, ends=bool(choice.get("finish_reason")))

    def continued(self, event: Json, text: str | None, before: Continuation) -> Json:
        if text is not None:
            event["choices"][0]["delta"]["content"] = text
        return event | {name: before.opened[name] for name in ("id", "created") if name in before.opened}


class ResponsesForm(AnswerForm):
    """``/v1/responses``. What is kept in a conversation at the upstream passes: a second request would stand in it too.

    A stream keeps its id where another takes its place. What goes on after it is asked of the upstream under that other's id.
    """

    limits = ("max_output_tokens",)
    _PARTS = ("output_text", "reasoning_text", "summary_text")

    def __init__(self) -> None:
        self._other_ids: OrderedDict[str, str] = OrderedDict()

    def resumed(self, request: Json) -> Json:
        last = self._other_ids.get(request.get("previous_response_id") or "")
        return request | {"previous_response_id": last} if last else request

    def is_text(self, request: Json) -> bool:
        form = (request.get("text") or {}).get("format") or {"type": "text"}
        return not request.get("conversation") and not request.get("background") and form["type"] == "text"

    def text_of(self, answer: Json) -> str | None:
        items = [item for item in answer["output"] if item["type"] != "reasoning"]
        if any(item["type"] != "message" for item in items):
            return None
        parts = [part for item in items for part in item["content"]]
        return None if any(part["type"] != "output_text" for part in parts) else "".join(part["text"] for part in parts)

    def part_of(self, event: Json) -> EventPart:
        passes = False
        match event["type"]:
            case "response.output_text.delta":
                return EventPart(event["delta"])
            case "response.completed" | "response.incomplete" | "response.failed" | "error":
                return EventPart(ends=True)
            case "response.output_item.added":
                passes = event["item"]["type"] not in ("message", "reasoning")
            case "response.content_part.added":
                passes = event["part"]["type"] not in self._PARTS or bool(event["part"].get("text"))
            case str(kind):
                passes = kind.endswith(".delta") and not kind.startswith("response.reasoning")
        return EventPart(passes=NOT_TEXT if passes else "")

    def with_turns(self, request: Json, turns: list[Json]) -> Json:
        given = request.get("input") or []
        return {"input": [*([{"role": "user", "content": given}] if isinstance(given, str) else given), *turns]}

    def continued(self, event: Json, text: str | None, before: Continuation) -> Json:
        before.number += 1
        event["sequence_number"] = before.number
        if "response" in event:
            known = before.opened["response"]["id"]
            self._other_ids[known] = event["response"]["id"]
            event["response"] |= {"id": known}
            if len(self._other_ids) > _MOST_IDS:
                self._other_ids.popitem(last=False)
        place = {name: before.instead[name] for name in ("item_id", "output_index", "content_index")}
        if text is not None:
            return event | place | {"delta": text}
        if event["type"].startswith(("response.output_text.", "response.content_part.")):
            event |= place
        elif event["type"] == "response.output_item.done" and event["item"]["type"] == "message":
            event |= {"output_index": place["output_index"], "item": event["item"] | {"id": place["item_id"]}}
        return before.whole(event)


class MessagesForm(AnswerForm):
    """``/v1/messages``, as Anthropic speaks it."""

    limits = ("max_tokens",)
    _SILENT = ("thinking", "redacted_thinking")
    _SILENT_DELTAS = ("thinking_delta", "signature_delta", "citations_delta")

    def is_text(self, request: Json) -> bool:
        return isinstance(request["messages"], list) and not request.get("output_config", {}).get("format")

    def may_act(self, request: Json) -> bool:
        typed = [tool for tool in request.get("tools") or [] if tool.get("type")]
        return super().may_act(request | {"tools": typed})

    def text_of(self, answer: Json) -> str | None:
        parts = [part for part in answer["content"] if part["type"] not in self._SILENT]
        return None if any(part["type"] != "text" for part in parts) else "".join(part["text"] for part in parts)

    def part_of(self, event: Json) -> EventPart:
        passes = False
        match event["type"]:
            case "content_block_delta" if event["delta"]["type"] == "text_delta":
                return EventPart(event["delta"]["text"])
            case "message_delta" | "message_stop" | "error":
                return EventPart(ends=True)
            case "content_block_delta":
                passes = event["delta"]["type"] not in self._SILENT_DELTAS
            case "content_block_start":
                block = event["content_block"]
                passes = block["type"] not in ("text", *self._SILENT) or bool(block.get("text"))
            case "message_start":
                passes = bool(event["message"].get("content"))
        return EventPart(passes=NOT_TEXT if passes else "")

    def continued(self, event: Json, text: str | None, before: Continuation) -> Json:
        if event["type"] in ("content_block_delta", "content_block_stop"):
            event["index"] = before.instead["index"]
        if text is not None:
            event["delta"] = {"type": "text_delta", "text": text}
        return event


# Requests to these bring back no words of an agent. Whatever else is posted is counted where it has no form.
_WORDLESS = re.compile(
    r"/v1/(audio|detokenize|embeddings|files|fine_tuning|images|messages/count_tokens|models|moderations|rerank"
    r"|responses/input_tokens|tokenize|uploads|vector_stores)(/|$)"
)


def answer_forms() -> dict[str, AnswerForm]:
    """Return how requests and answers are written at the endpoints that are read, by ``endpoint_of`` their path."""
    return {"/v1/chat/completions": ChatForm(), "/v1/responses": ResponsesForm(), "/v1/messages": MessagesForm()}


def endpoint_of(path: str) -> str:
    """Return a path as servers take it, however many slashes stand in it."""
    return re.sub("/+", "/", path).rstrip("/")


def holds_words(path: str) -> bool:
    """Whether the answer to what is posted to a path may hold an agent's words."""
    return not _WORDLESS.match(endpoint_of(path))


# Hosts, or what their names end with, of which it is known that they answer as a model alone does.
_MODELS = ("api.openai.com", "api.anthropic.com", "api.mistral.ai", "api.deepseek.com", ".openai.azure.com")


def is_plain_model(host: str) -> bool:
    """Whether a host is known to serve models and nothing that acts, such as an agent behind a model's interface."""
    return f".{host}".endswith(tuple(name if name[0] == "." else f".{name}" for name in _MODELS))
