"""What models answer, as it goes over the wire: where the words of an answer stand, and how a request asks for it once more."""

from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
# What reading raises of an answer that is of another shape than its form says.
SHAPE_ERRORS = (AttributeError, IndexError, KeyError, TypeError, ValueError)
_MOST_IDS = 10_000


@dataclass(frozen=True)
class Part:
    """What an event of a stream brings.

    Attributes:
        text: that it adds to the answer.
        ends: the text is whole with it.
        passes: it is, or announces, what is not text alone, such as a call of a tool: nothing is held from here on.
    """

    text: str = ""
    ends: bool = False
    passes: bool = False


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

    def whole(self, value: Any) -> Any:
        """Return a value in which the text that this stream wrote, wherever it stands as a whole, is all that went out."""
        if isinstance(value, dict):
            return {
                key: self.said if key == "text" and item == self.came else self.whole(item)
                for key, item in value.items()
            }
        return [self.whole(item) for item in value] if isinstance(value, list) else value


class AnswerForm(ABC):
    """How requests and answers of one endpoint are written. What cannot be read raises one of ``SHAPE_ERRORS``."""

    @abstractmethod
    def is_text(self, request: Json) -> bool:
        """Whether what is asked for is one text, which can be written anew without the caller noticing."""

    @abstractmethod
    def text_of(self, answer: Json) -> str | None:
        """Return the text of a whole answer; None: it is more than one text alone."""

    @abstractmethod
    def part_of(self, event: Json) -> Part:
        """Return what an event of a stream brings."""

    @abstractmethod
    def asked_again(self, request: Json, written: str, feedback: str) -> Json:
        """Return a request that shows the model what it wrote, and what is to be said of that."""

    def resumed(self, request: Json) -> Json:
        """Return a request by the ids that the upstream knows; the same one where it knows them all."""
        return request

    @abstractmethod
    def continued(self, event: Json, text: str | None, before: Continuation) -> Json:
        """Return an event as it stands in the stream that it goes on with. ``text``: that it adds; None: it has none."""


def _turns(written: str, feedback: str) -> list[Json]:
    return [{"role": "assistant", "content": written}, {"role": "user", "content": feedback}]


class ChatCompletions(AnswerForm):
    """``/v1/chat/completions``, as OpenAI and most others speak it."""

    def is_text(self, request: Json) -> bool:
        form = request.get("response_format") or {"type": "text"}
        return request.get("n") in (None, 1) and form["type"] == "text" and isinstance(request["messages"], list)

    def text_of(self, answer: Json) -> str | None:
        (choice,) = answer["choices"]
        message = choice["message"]
        text = message.get("content") or ""
        calls = message.get("tool_calls") or message.get("function_call")
        return None if not isinstance(text, str) or (text and calls) else text

    def part_of(self, event: Json) -> Part:
        if not event["choices"]:
            return Part()
        (choice,) = event["choices"]
        delta = choice.get("delta") or {}
        text = delta.get("content") or ""
        if not isinstance(text, str) or choice.get("index") or delta.get("tool_calls") or delta.get("function_call"):
            return Part(passes=True)
        return Part(text, ends=bool(choice.get("finish_reason")))

    def asked_again(self, request: Json, written: str, feedback: str) -> Json:
        return request | {"messages": [*request["messages"], *_turns(written, feedback)]}

    def continued(self, event: Json, text: str | None, before: Continuation) -> Json:
        if text is not None:
            event["choices"][0]["delta"]["content"] = text
        return event | {name: before.opened[name] for name in ("id", "created") if name in before.opened}


class Responses(AnswerForm):
    """``/v1/responses``. What is kept in a conversation at the upstream passes: a second request would stand in it too.

    A stream keeps its id where another takes its place. What goes on after it is asked of the upstream under that other's id.
    """

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
        parts = [part for item in items if item["type"] == "message" for part in item["content"]]
        text = "".join(part["text"] for part in parts if part["type"] == "output_text")
        alone = all(item["type"] == "message" for item in items) and all("text" in part for part in parts)
        return None if text and not alone else text

    def part_of(self, event: Json) -> Part:
        match event["type"]:
            case "response.output_text.delta":
                return Part(event["delta"])
            case "response.output_item.added":
                return Part(passes=event["item"]["type"] not in ("message", "reasoning"))
            case "response.completed" | "response.incomplete" | "response.failed" | "error":
                return Part(ends=True)
        return Part()

    def asked_again(self, request: Json, written: str, feedback: str) -> Json:
        given = request.get("input") or []
        before = [{"role": "user", "content": given}] if isinstance(given, str) else given
        return request | {"input": [*before, *_turns(written, feedback)]}

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


class Messages(AnswerForm):
    """``/v1/messages``, as Anthropic speaks it."""

    _SILENT = ("thinking", "redacted_thinking")

    def is_text(self, request: Json) -> bool:
        return isinstance(request["messages"], list) and not request.get("output_config", {}).get("format")

    def text_of(self, answer: Json) -> str | None:
        parts = [part for part in answer["content"] if part["type"] not in self._SILENT]
        text = "".join(part["text"] for part in parts if part["type"] == "text")
        return None if text and any(part["type"] != "text" for part in parts) else text

    def part_of(self, event: Json) -> Part:
        match event["type"]:
            case "content_block_delta" if event["delta"]["type"] == "text_delta":
                return Part(event["delta"]["text"])
            case "content_block_start":
                return Part(passes=event["content_block"]["type"] not in ("text", *self._SILENT))
            case "message_delta" | "message_stop" | "error":
                return Part(ends=True)
        return Part()

    def asked_again(self, request: Json, written: str, feedback: str) -> Json:
        return request | {"messages": [*request["messages"], *_turns(written, feedback)]}

    def continued(self, event: Json, text: str | None, before: Continuation) -> Json:
        if event["type"] in ("content_block_delta", "content_block_stop"):
            event["index"] = before.instead["index"]
        if text is not None:
            event["delta"] = {"type": "text_delta", "text": text}
        return event


def answer_forms() -> dict[str, AnswerForm]:
    """Return a form for each path."""
    return {"/v1/chat/completions": ChatCompletions(), "/v1/responses": Responses(), "/v1/messages": Messages()}
