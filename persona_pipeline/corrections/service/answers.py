"""A model's answer on its way: where its words stand, checked whole or by sentence while it comes, and asked for once more."""

import asyncio
import logging
import uuid
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

from persona_pipeline.corrections.configuration import StoredSettings
from persona_pipeline.corrections.gate import ActionGate
from persona_pipeline.corrections.records import Action, GateDecision, Outcome
from persona_pipeline.scoring.text.said_again import SENTENCE_END

Json = dict[str, Any]
# What reading raises of an answer that is of another shape than its form says.
SHAPE_ERRORS = (AttributeError, IndexError, KeyError, TypeError, ValueError)
_MOST_IDS = 10_000


@dataclass(frozen=True)
class EventPart:
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

    def words_of(self, answer: Json) -> str | None:
        """Return the text of a whole answer; None also where it cannot be read."""
        try:
            return self.text_of(answer)
        except SHAPE_ERRORS:
            return None

    @abstractmethod
    def part_of(self, event: Json) -> EventPart:
        """Return what an event of a stream brings."""

    def asked_again(self, request: Json, written: str, feedback: str) -> Json:
        """Return a request that shows the model what it wrote, and what is to be said of that."""
        return request | {"messages": [*request["messages"], *_turns(written, feedback)]}

    def resumed(self, request: Json) -> Json:
        """Return a request by the ids that the upstream knows; the same one where it knows them all."""
        return request

    @abstractmethod
    def continued(self, event: Json, text: str | None, before: Continuation) -> Json:
        """Return an event as it stands in the stream that it goes on with. ``text``: that it adds; None: it has none."""


def _turns(written: str, feedback: str) -> list[Json]:
    return [{"role": "assistant", "content": written}, {"role": "user", "content": feedback}]


class ChatForm(AnswerForm):
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

    def part_of(self, event: Json) -> EventPart:
        if not event["choices"]:
            return EventPart()
        (choice,) = event["choices"]
        delta = choice.get("delta") or {}
        text = delta.get("content") or ""
        if not isinstance(text, str) or choice.get("index") or delta.get("tool_calls") or delta.get("function_call"):
            return EventPart(passes=True)
        return EventPart(text, ends=bool(choice.get("finish_reason")))

    def continued(self, event: Json, text: str | None, before: Continuation) -> Json:
        if text is not None:
            event["choices"][0]["delta"]["content"] = text
        return event | {name: before.opened[name] for name in ("id", "created") if name in before.opened}


class ResponsesForm(AnswerForm):
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

    def part_of(self, event: Json) -> EventPart:
        match event["type"]:
            case "response.output_text.delta":
                return EventPart(event["delta"])
            case "response.output_item.added":
                return EventPart(passes=event["item"]["type"] not in ("message", "reasoning"))
            case "response.completed" | "response.incomplete" | "response.failed" | "error":
                return EventPart(ends=True)
        return EventPart()

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


class MessagesForm(AnswerForm):
    """``/v1/messages``, as Anthropic speaks it."""

    _SILENT = ("thinking", "redacted_thinking")

    def is_text(self, request: Json) -> bool:
        return isinstance(request["messages"], list) and not request.get("output_config", {}).get("format")

    def text_of(self, answer: Json) -> str | None:
        parts = [part for part in answer["content"] if part["type"] not in self._SILENT]
        text = "".join(part["text"] for part in parts if part["type"] == "text")
        return None if text and any(part["type"] != "text" for part in parts) else text

    def part_of(self, event: Json) -> EventPart:
        match event["type"]:
            case "content_block_delta" if event["delta"]["type"] == "text_delta":
                return EventPart(event["delta"]["text"])
            case "content_block_start":
                return EventPart(passes=event["content_block"]["type"] not in ("text", *self._SILENT))
            case "message_delta" | "message_stop" | "error":
                return EventPart(ends=True)
        return EventPart()

    def continued(self, event: Json, text: str | None, before: Continuation) -> Json:
        if event["type"] in ("content_block_delta", "content_block_stop"):
            event["index"] = before.instead["index"]
        if text is not None:
            event["delta"] = {"type": "text_delta", "text": text}
        return event


def answer_forms() -> dict[str, AnswerForm]:
    """Return a form for each path."""
    return {"/v1/chat/completions": ChatForm(), "/v1/responses": ResponsesForm(), "/v1/messages": MessagesForm()}


Raw = TypeVar("Raw")
Draft = TypeVar("Draft")
# A sentence shorter than this ("Dr.", "1.", "Oh!") is checked with the next, a longer one before its end.
_SHORTEST, _LONGEST = 12, 2000
# In which an answer that was asked for once more must have its first sentence; after that the one that is there goes out.
_REWRITE_SECONDS = 30.0
# Whom an answer without a channel is for.
READER = "user"
NOT_TEXT, NOT_REWRITTEN, INTERNAL_ERROR = "not_text", "not_rewritten", "internal_error"
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Speaker:
    """The agent that answers, before the gate that checks what it says. Whatever goes wrong, the answer is sent."""

    gate: ActionGate
    agent_id: str
    channel: str | None
    watched: bool

    async def check(self, text: str, said: str = "", last: GateDecision | None = None) -> GateDecision | None:
        """Return what the gate says of a text that goes on after what was ``said``; None: it could not be asked.

        ``last``: the decision on the attempt before.
        """
        attempt, action_id = (last.attempt + 1, last.action_id) if last else (1, uuid.uuid4().hex)
        to = READER if self.channel is None else None
        check = partial(self.gate.check, self.agent_id, text, channel=self.channel, recipient=to)
        try:
            return await check(attempt=attempt, action_id=action_id, said=said)
        except Exception:
            _LOGGER.exception("the gate of %r failed; its answer is sent", self.agent_id)
            self.unchecked(INTERNAL_ERROR)
            return None

    def unchecked(self, reason: str) -> None:
        """Count an answer that goes out without a check."""
        self.gate.bypasses.count(reason, self.agent_id)

    async def settled(
        self,
        draft: Draft,
        text_of: Callable[[Draft], str],
        again: Callable[[Draft, str], Awaitable[Draft]],
        said: str = "",
        stands: int = 0,
    ) -> tuple[Draft, GateDecision | None]:
        """Return the draft that is sent, and what the gate said of it; None: it said nothing, or there is no better one.

        ``again`` has a draft written anew with the gate's feedback; what it raises is logged, and the draft that is there sent.
        ``said``: before it, judged with it from ``stands`` on.
        """
        last: GateDecision | None = None
        while True:
            text = text_of(draft)
            last = await self.check(said[stands:] + text, said, last) if text.strip() else None
            if last is None or last.sends:
                return draft, last
            try:
                async with asyncio.timeout(_REWRITE_SECONDS):
                    draft = await again(draft, last.feedback or "")
            except Exception as error:
                _LOGGER.warning("an answer of %r is not written anew: %s", self.agent_id, type(error).__name__)
                self.unchecked(NOT_REWRITTEN)
                return draft, None

    async def settled_whole(
        self, draft: Draft, text_of: Callable[[Draft], str | None], again: Callable[[str, str], Awaitable[Draft]]
    ) -> Draft:
        """Return the whole answer that is sent; one without a text (None) is not checked. ``again``: by what was written."""
        if text_of(draft) is None:
            self.unchecked(NOT_TEXT)
            return draft

        async def spoken(last: Draft, feedback: str) -> Draft:
            fresh = await again(text_of(last) or "", feedback)
            if not text_of(fresh):
                raise EOFError("the answer says nothing")
            return fresh

        return (await self.settled(draft, lambda item: text_of(item) or "", spoken))[0]


async def speaker_of(
    agent_id: str, channel: str | None, gate: ActionGate, settings: StoredSettings, is_text: Callable[[], bool]
) -> Speaker | None:
    """Return an agent before its gate; None: what it says is not checked, which is counted.

    ``is_text``: whether what it is asked for is one text.
    """
    known = await settings.soon(agent_id)
    speaker = Speaker(gate, agent_id, channel, known is not None and known.shadow_mode)
    try:
        checked = known is not None and (known.action_gate_enabled or known.voice_check)
        reason = "database" if known is None else "disabled" if not checked else None if is_text() else NOT_TEXT
    except SHAPE_ERRORS:
        reason = NOT_TEXT
    if reason is None:
        return speaker
    speaker.unchecked(reason)
    return None


@dataclass(frozen=True)
class StreamEvent(Generic[Raw]):
    """An event of a stream: as it came, as it is read (None: it cannot be), and what it brings."""

    raw: Raw
    event: Json | None
    part: EventPart


@dataclass(frozen=True)
class Sentence(Generic[Raw]):
    """Events that are sent together, and the text in them. ``over``: nothing comes after them; ``passes``: as of ``EventPart``."""

    pieces: list[StreamEvent[Raw]]
    text: str = ""
    over: bool = False
    passes: bool = False


@dataclass
class AnswerStream(Generic[Raw]):
    """A stream of an answer.

    Attributes:
        events: as they came, each with what is read of it.
        close: lets go of the stream.
        render: makes of what is read an event as it comes.
        before: where the stream takes the place of another.
        failure: what broke the stream off.
        opened: its first event.
    """

    form: AnswerForm
    events: AsyncIterator[tuple[Raw, Json | None]]
    close: Callable[[], Awaitable[None]]
    render: Callable[[Json], Raw]
    before: Continuation | None = None
    failure: Exception | None = None
    opened: Json = field(default_factory=dict)
    _carried: list[StreamEvent[Raw]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stream = self._pieces()

    async def sentence(self, *, held: bool = True) -> Sentence[Raw]:
        """Return what comes up to the end of a sentence; an event alone where there is no text yet, or none is to be ``held``."""
        pieces, self._carried = self._carried, []
        text = "".join(piece.part.text for piece in pieces)
        if pieces and not held:
            return Sentence(pieces, text)
        async for piece in self._stream:
            whole = text + piece.part.text
            if not piece.part.passes and text and self._end(whole, len(text)) == len(text):
                self._carried = [piece]
                return Sentence(pieces, text)
            pieces.append(piece)
            if piece.part.passes or piece.part.ends or not whole or not held:
                return Sentence(pieces, whole, passes=piece.part.passes)
            if piece.part.text and self._end(whole, len(text)) is not None:
                return Sentence(pieces, whole)
            text = whole
        return Sentence(pieces, text, over=True, passes=self.failure is not None)

    @staticmethod
    def _end(text: str, known: int) -> int | None:
        """Return where a sentence ends, not before the text that was known already; None: nowhere yet."""
        if len(text) > _LONGEST:
            return len(text)
        blank = len(text) - len(text.lstrip())
        found = SENTENCE_END.search(text, max(known, blank + _SHORTEST))
        return None if found is None else found.start()

    async def _pieces(self) -> AsyncIterator[StreamEvent[Raw]]:
        try:
            async for raw, event in self.events:
                try:
                    part = EventPart() if event is None else self.form.part_of(event)
                except SHAPE_ERRORS:
                    part = EventPart(passes=True)
                self.opened = self.opened or event or {}
                if self.before:
                    self.before.came += part.text
                yield StreamEvent(raw, event, part)
        except Exception as error:
            self.failure = error

    def sent(self, piece: StreamEvent[Raw]) -> Raw:
        """Return a piece as it is sent: as it came, or as it stands in the stream whose place this one takes."""
        if self.before is None or piece.event is None:
            return piece.raw
        text = piece.part.text or None
        self.before.said += text or ""
        try:
            return self.render(self.form.continued(piece.event, text, self.before))
        except SHAPE_ERRORS:
            return piece.raw

    async def opening(self, instead: Sentence[Raw], said: str) -> Sentence[Raw]:
        """Return the first sentence of a stream that takes another's place; EOFError: it says nothing.

        What comes before its first word is left out, for it was sent already, and so is what it says again of what was ``said``.
        """
        text = ""
        while True:
            found = await self.sentence()
            if self.failure is not None:
                raise self.failure
            text += found.text
            ends = found.over or any(piece.part.ends for piece in found.pieces)
            repeats = bool(said) and said.startswith(text.strip())
            if not found.passes and (not text.strip() or repeats):
                if ends:
                    raise EOFError("the answer says nothing more")
                continue
            spoken = [place for place, piece in enumerate(found.pieces) if piece.part.text]
            text = text.lstrip().removeprefix(said.strip()) if said else text
            if not spoken:
                return replace(found, pieces=found.pieces[-1:])
            if said and not text[:1].isspace():
                text = instead.text[: len(instead.text) - len(instead.text.lstrip())] + text
            last = found.pieces[spoken[-1]]
            first = replace(last, part=replace(last.part, text=text))
            return replace(found, pieces=[first, *found.pieces[spoken[-1] + 1 :]], text=text)


Again = Callable[[str, str], Awaitable[AnswerStream[Raw]]]


async def in_character(answer: AnswerStream[Raw], speaker: Speaker, again: Again[Raw]) -> AsyncGenerator[Raw]:
    """Yield what an answer sends, each sentence when it has been checked; what broke the stream off is raised at its end.

    A sentence is checked with all that the message said before it. One that is rejected is asked for ``again``, with what was
    written and the feedback, and the new stream takes the place of the old. Where a check has no score, the rest of the message
    goes out as it comes; a sentence that was forced through is not judged again with those after it.
    """
    said, stands, free = "", 0, speaker.watched
    try:
        while True:
            sentence = await answer.sentence(held=not free)
            if sentence.passes and not free:
                free = True
                if (said + sentence.text).strip():
                    speaker.unchecked(NOT_TEXT)
            if sentence.text.strip() and not free:
                anew = partial(_written_anew, said, again)
                draft, decision = await speaker.settled(
                    (answer, sentence), lambda item: item[1].text, anew, said, stands
                )
                answer, sentence = draft
                free = decision is None or decision.outcome in (Outcome.FAIL_OPEN, Outcome.DISABLED, Outcome.SHADOW)
                if decision is not None and decision.action is Action.FORCE:
                    stands = len(said) + len(sentence.text)
            for piece in sentence.pieces:
                yield answer.sent(piece)
            said += sentence.text
            if sentence.over:
                break
        if speaker.watched and said.strip():
            await speaker.check(said)
        if answer.failure is not None:
            raise answer.failure
    finally:
        await answer.close()


async def _written_anew(
    said: str, again: Again[Raw], draft: tuple[AnswerStream[Raw], Sentence[Raw]], feedback: str
) -> tuple[AnswerStream[Raw], Sentence[Raw]]:
    """Return a stream that takes another's place at a held sentence, and its first one; until then the other may go on."""
    answer, sentence = draft
    fresh = await again(said + sentence.text, feedback)
    if answer.before is None:
        events = [piece.event for piece in sentence.pieces if piece.event is not None and piece.part.text]
        fresh.before = Continuation(answer.opened, events[-1], events[0].get("sequence_number", 0) - 1, said)
    else:
        fresh.before = replace(answer.before, said=said, came="")
    try:
        opening = await fresh.opening(sentence, said)
    except BaseException:
        await fresh.close()
        raise
    await answer.close()
    return fresh, opening
