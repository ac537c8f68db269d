"""Endpoints of models: the contents of a request, the place of an answer's text, and the request for a rewrite."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
# Raised by reading an answer of another shape than its form.
SHAPE_ERRORS = (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError)
# Reasons for which a text is sent unchecked. ``TOO_LARGE``: more than is read. ``ENDPOINT``: its endpoint has no form.
NOT_TEXT, TOO_LARGE, NOT_READ, ENDPOINT = "not_text", "too_large", "not_read", "endpoint"


@dataclass(frozen=True)
class EventPart:
    """The part of an answer in one event: its ``text``, or why it is not text, such as a call of a tool (``passes``)."""

    text: str = ""
    passes: str = ""


class AnswerForm(ABC):
    """Format of requests and answers of an endpoint. Another format raises one of ``SHAPE_ERRORS``.

    Attributes:
        limits: keys of a request that limit the tokens of its answer.
    """

    limits: tuple[str, ...]

    @abstractmethod
    def is_text(self, request: Json) -> bool:
        """Whether the request asks for one text, which can be written again without the caller noticing."""

    @abstractmethod
    def text_of(self, answer: Json) -> str | None:
        """Return the text of a whole answer; None: it is not one text alone."""

    def words_of(self, answer: Json) -> str | None:
        """Return the text of a whole answer; None: it is not one text alone, or has another format."""
        try:
            return self.text_of(answer)
        except SHAPE_ERRORS:
            return None

    @abstractmethod
    def part_of(self, event: Json) -> EventPart:
        """Return the part of the answer in an event of a stream."""

    def most_tokens(self, request: Json) -> int | None:
        """Return the client's limit on the tokens of the answer; None: unlimited."""
        found = [request[name] for name in self.limits if isinstance(request.get(name), int)]
        return min(found, default=None)

    def may_act(self, request: Json) -> bool:
        """Whether the server may do more than write, such as run a tool, which a second request would run twice."""
        if any(request.get(name) for name in _ACTING):
            return True
        return any(not str(tool.get("type") or "").startswith(_CLIENTS_TOOLS) for tool in request.get("tools") or [])

    def asked_again(self, request: Json, written: str, feedback: str, tokens: int | None) -> Json:
        """Return a request that shows the model its answer and the feedback on it.

        ``tokens``: limit of the new answer, instead of the client's; None: the client sets no limit.
        """
        limits = {name: tokens for name in self.limits if tokens is not None and request.get(name) is not None}
        turns = [{"role": "assistant", "content": written}, {"role": "user", "content": feedback}]
        return request | limits | self.with_turns(request, turns)

    def with_turns(self, request: Json, turns: list[Json]) -> Json:
        """Return the part of a request that holds the conversation, with more turns at its end."""
        return {"messages": [*request["messages"], *turns]}


# Keys of a request for a server that does more than write: search, tools, a container, a stored prompt.
_ACTING = ("web_search_options", "mcp_servers", "container", "plugins", "data_sources", "prompt")
# Types of tools that the client runs; a tool of Anthropic without a type is one too.
_CLIENTS_TOOLS = ("function", "custom", "bash_", "text_editor_", "memory_")


def _elsewhere(found: Json, known: Iterable[str]) -> bool:
    """Whether a message holds words, or calls of tools, under other keys than those that are known."""
    return any(item and isinstance(item, (str, list, dict)) for name, item in found.items() if name not in known)


class ChatForm(AnswerForm):
    """``/v1/chat/completions``, as OpenAI and most others speak it."""

    limits = ("max_completion_tokens", "max_tokens")
    # Keys next to the text: thoughts, and additions of servers. A refusal, an audio transcript and calls are not here.
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
        return EventPart(text)


class ResponsesForm(AnswerForm):
    """``/v1/responses``. Answers in a stored conversation pass: the upstream would store the second request too."""

    limits = ("max_output_tokens",)
    _PARTS = ("output_text", "reasoning_text", "summary_text")

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
            case "content_block_delta":
                passes = event["delta"]["type"] not in self._SILENT_DELTAS
            case "content_block_start":
                block = event["content_block"]
                passes = block["type"] not in ("text", *self._SILENT) or bool(block.get("text"))
            case "message_start":
                passes = bool(event["message"].get("content"))
        return EventPart(passes=NOT_TEXT if passes else "")


# Endpoints whose answers never hold text of an agent. Other posts without a form are counted.
_WORDLESS = re.compile(
    r"/v1/(audio|detokenize|embeddings|files|fine_tuning|images|messages/count_tokens|models|moderations|rerank"
    r"|responses/input_tokens|tokenize|uploads|vector_stores)(/|$)"
)


# The endpoints that are read, by ``endpoint_of`` their path.
FORMS: dict[str, AnswerForm] = {
    "/v1/chat/completions": ChatForm(),
    "/v1/responses": ResponsesForm(),
    "/v1/messages": MessagesForm(),
}


def endpoint_of(path: str) -> str:
    """Return a path without repeated and trailing slashes, as servers read it."""
    return re.sub("/+", "/", path).rstrip("/")


def holds_words(path: str) -> bool:
    """Whether the answer to a post to a path may hold an agent's words."""
    return not _WORDLESS.match(endpoint_of(path))


# Hosts, or ends of their names, that serve plain models.
_MODELS = ("api.openai.com", "api.anthropic.com", "api.mistral.ai", "api.deepseek.com", ".openai.azure.com")


def is_plain_model(host: str) -> bool:
    """Whether a host is known to serve plain models, and not agents behind a model's interface."""
    return f".{host}".endswith(tuple(name if name[0] == "." else f".{name}" for name in _MODELS))
