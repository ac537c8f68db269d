"""A model's answer on its way: checked whole or by sentence, and asked for again within the budget of its message."""

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, TypeVar

from persona_pipeline.base.turns import split_thinking
from persona_pipeline.corrections.configuration import StoredSettings
from persona_pipeline.corrections.gate import ActionGate
from persona_pipeline.corrections.records import Action, GateDecision, Outcome
from persona_pipeline.corrections.service.budget import BudgetSpentError, MessageBudget, Spending
from persona_pipeline.corrections.service.forms import (
    NOT_TEXT,
    SHAPE_ERRORS,
    AnswerForm,
    Continuation,
    EventPart,
    Json,
)
from persona_pipeline.scoring.text.said_again import SENTENCE_END

Raw = TypeVar("Raw")
Draft = TypeVar("Draft")
# A sentence shorter than this ("Dr.", "1.", "Oh!") is checked with the next, a longer one before its end.
_SHORTEST, _LONGEST = 12, 2000
# Events that are held for one sentence.
_MOST_HELD = 1000
# In which an answer that was asked for once more must have its first sentence; after that the one that is there goes out.
_REWRITE_SECONDS = 30.0
# Whom an answer without a channel is for.
READER = "user"
NOT_REWRITTEN, NOT_REPEATABLE, BUDGET, INTERNAL_ERROR = "not_rewritten", "not_repeatable", "budget", "internal_error"
_LOGGER = logging.getLogger(__name__)


# Asks for another answer: by what was written, what is wrong with it, and the tokens it may have.
Ask = Callable[[str, str, int | None], Awaitable[Draft]]


@dataclass(frozen=True)
class Speaker:
    """The agent that answers one message, before the gate that checks it. Whatever goes wrong, the answer is sent.

    Attributes:
        watched: the gate holds nothing back, and checks the message when it is out.
        repeatable: the request may be sent again, as the upstream does nothing but write.
    """

    gate: ActionGate
    agent_id: str
    channel: str | None
    watched: bool
    repeatable: bool
    spending: Spending

    @property
    def afterwards(self) -> bool:
        """Whether a stream is checked when it is out, as nothing in it would be held back or written anew."""
        return self.watched or not self.repeatable

    async def check(self, text: str, said: str = "", last: GateDecision | None = None) -> GateDecision | None:
        """Return what the gate says of a text that goes on after what was ``said``; None: it could not be asked.

        ``last``: the decision on the attempt before.
        """
        attempt, action_id = (last.attempt + 1, last.action_id) if last else (1, uuid.uuid4().hex)
        to = READER if self.channel is None else None
        check = partial(self.gate.check, self.agent_id, text, channel=self.channel, recipient=to)
        self.spending.checks += 1
        try:
            decision = await check(attempt=attempt, action_id=action_id, said=said)
        except Exception:
            _LOGGER.exception("the gate of %r failed; its answer is sent", self.agent_id)
            self.unchecked(INTERNAL_ERROR)
            return None
        self.spending.usd += decision.usage.usd or 0.0
        return decision

    def unchecked(self, reason: str) -> None:
        """Count an answer that goes out without a check, once."""
        if not self.spending.counted:
            self.spending.counted = True
            self.gate.bypasses.count(reason, self.agent_id)

    def over(self) -> None:
        """Count an answer that is out and in which no text was found."""
        if not self.spending.checks:
            self.unchecked(NOT_TEXT)

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
        with self.spending.held():
            while True:
                text = text_of(draft)
                if not _has_words(said + text):
                    return draft, None
                if not self.spending.allows_check():
                    self.unchecked(BUDGET)
                    return draft, None
                last = await self.check(said[stands:] + text, said, last)
                if last is None or last.sends:
                    return draft, last
                if not self.repeatable:
                    self.unchecked(NOT_REPEATABLE)
                    return draft, None
                try:
                    draft = await again(draft, last.feedback or "")
                except BudgetSpentError:
                    self.unchecked(BUDGET)
                    return draft, None
                except Exception as error:
                    _LOGGER.warning("an answer of %r is not written anew: %s", self.agent_id, type(error).__name__)
                    self.unchecked(NOT_REWRITTEN)
                    return draft, None

    async def settled_whole(self, draft: Draft, text_of: Callable[[Draft], str | None], ask: Ask[Draft]) -> Draft:
        """Return the whole answer that is sent; one without a text (None) is not checked."""
        if not text_of(draft):
            self.unchecked(NOT_TEXT)
            return draft

        async def again(last: Draft, feedback: str) -> Draft:
            written = text_of(last) or ""
            tokens = self.spending.take_rewrite("", written, written if self.spending.rewrites else "")
            async with asyncio.timeout(min(_REWRITE_SECONDS, self.spending.seconds_left)):
                fresh = await ask(written, feedback, tokens)
            if not text_of(fresh):
                raise EOFError("the answer says nothing")
            return fresh

        return (await self.settled(draft, lambda item: text_of(item) or "", again))[0]


async def speaker_of(
    agent_id: str,
    channel: str | None,
    gate: ActionGate,
    settings: StoredSettings,
    form: AnswerForm,
    request: Json,
    budget: MessageBudget,
    *,
    plain: bool,
) -> Speaker | None:
    """Return an agent before its gate; None: what it says is not checked, which is counted.

    ``plain``: the upstream is known to do nothing but write.
    """
    known = await settings.soon(agent_id)
    reason, repeatable, most_tokens = "", False, None
    try:
        if known is None:
            reason = "database"
        elif not known.action_gate_enabled:
            reason = "disabled"
        elif not form.is_text(request):
            reason = NOT_TEXT
        else:
            repeatable, most_tokens = plain and not form.may_act(request), form.most_tokens(request)
    except SHAPE_ERRORS:
        reason = NOT_TEXT
    watched = known is not None and known.shadow_mode
    speaker = Speaker(gate, agent_id, channel, watched, repeatable, Spending(budget, most_tokens))
    if not reason:
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
    passes: str = ""


def sentences_in(text: str) -> int:
    """Return how many sentences a text is checked in."""
    count, start = 1, 0
    for found in SENTENCE_END.finditer(text.strip()):
        if found.start() - start >= _SHORTEST:
            count, start = count + 1, found.start()
    return count


@dataclass
class AnswerStream(Generic[Raw]):
    """A stream of an answer.

    Attributes:
        events: as they came, each with what is read of it: its data, or what it brings where that is known without.
        close: lets go of the stream.
        render: makes of what is read an event as it comes.
        before: where the stream takes the place of another.
        failure: what broke the stream off.
        opened: its first event.
    """

    form: AnswerForm
    events: AsyncIterator[tuple[Raw, Json | EventPart | None]]
    close: Callable[[], Awaitable[None]]
    render: Callable[[Json], Raw]
    before: Continuation | None = None
    failure: Exception | None = None
    opened: Json = field(default_factory=dict)
    _ahead: deque[StreamEvent[Raw]] = field(default_factory=deque)
    _coming: "asyncio.Future[StreamEvent[Raw] | None] | None" = None

    def __post_init__(self) -> None:
        self._stream = self._pieces()

    async def sentence(self, *, held: bool = True) -> Sentence[Raw]:
        """Return what comes up to the end of a sentence; an event alone where there is no text yet, or none is to be ``held``."""
        pieces: list[StreamEvent[Raw]] = []
        text = ""
        while (piece := await self._next()) is not None:
            whole = text + piece.part.text
            if not piece.part.passes and text and self._end(whole, len(text)) == len(text):
                self._ahead.appendleft(piece)
                return Sentence(pieces, text)
            pieces.append(piece)
            if piece.part.passes or piece.part.ends or not whole or not held:
                return Sentence(pieces, whole, passes=piece.part.passes)
            if len(pieces) >= _MOST_HELD or (piece.part.text and self._end(whole, len(text)) is not None):
                return Sentence(pieces, whole)
            text = whole
        return Sentence(pieces, text, over=True, passes=NOT_TEXT if self.failure is not None else "")

    @staticmethod
    def _end(text: str, known: int) -> int | None:
        """Return where a sentence ends, not before the text that was known already; None: nowhere yet."""
        if len(text) > _LONGEST:
            return len(text)
        blank = len(text) - len(text.lstrip())
        found = SENTENCE_END.search(text, max(known, blank + _SHORTEST))
        return None if found is None else found.start()

    async def _next(self) -> StreamEvent[Raw] | None:
        """Return the next event; None: there is none."""
        if self._ahead:
            return self._ahead.popleft()
        if self._coming is None:
            return await anext(self._stream, None)
        # Who gives up waiting here must not break the stream off.
        piece = await asyncio.shield(self._coming)
        self._coming = None
        return piece

    async def read_ahead(self, seconds: float, most: int) -> str:
        """Read the stream to its end, keep its events for later, and return their text.

        Raises:
            BudgetSpentError: it has more bytes than ``most``, or does not end in time. It goes on all the same.
        """
        ends, size = time.monotonic() + seconds, 0
        while True:
            self._coming = self._coming or asyncio.ensure_future(anext(self._stream, None))
            await asyncio.wait({self._coming}, timeout=max(0.0, ends - time.monotonic()))
            if not self._coming.done():
                raise BudgetSpentError
            piece, self._coming = self._coming.result(), None
            if piece is None:
                break
            self._ahead.append(piece)
            size += len(piece.raw) if isinstance(piece.raw, bytes) else len(piece.part.text)
            if size > most or len(self._ahead) > most // 64:
                raise BudgetSpentError
        if self.failure is not None:
            raise self.failure
        return "".join(piece.part.text for piece in self._ahead)

    async def end(self) -> None:
        """Let go of the stream."""
        if self._coming is not None:
            self._coming.cancel()
        await self.close()

    async def _pieces(self) -> AsyncGenerator[StreamEvent[Raw]]:
        try:
            async for raw, event in self.events:
                try:
                    known = isinstance(event, EventPart)
                    part = event if known else EventPart() if event is None else self.form.part_of(event)
                except SHAPE_ERRORS:
                    part = EventPart(passes=NOT_TEXT)
                read = None if isinstance(event, EventPart) else event
                self.opened = self.opened or read or {}
                if self.before:
                    self.before.came += part.text
                yield StreamEvent(raw, read, part)
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


async def in_character(answer: AnswerStream[Raw], speaker: Speaker, ask: Ask[AnswerStream[Raw]]) -> AsyncGenerator[Raw]:
    """Yield what an answer sends, each sentence when it has been checked; what broke the stream off is raised at its end.

    A sentence is checked with all that the message said before it. For one that is rejected another answer is asked for, with what
    was written and the feedback, and the new stream takes the place of the old. Where a check has no score, or the budget is spent,
    the rest of the message goes out as it comes; a sentence that was forced through is not judged again with those after it.
    """
    said, stands, free = "", 0, speaker.afterwards
    try:
        while True:
            sentence = await answer.sentence(held=not free)
            if sentence.passes and (speaker.afterwards or not free):
                free = True
                speaker.unchecked(sentence.passes)
            if sentence.text.strip() and not free and _has_words(said + sentence.text):
                again = partial(_written_anew, said, speaker.spending, ask)
                draft, decision = await speaker.settled(
                    (answer, sentence), lambda item: item[1].text, again, said, stands
                )
                answer, sentence = draft
                free = decision is None or decision.outcome in (Outcome.FAIL_OPEN, Outcome.DISABLED, Outcome.SHADOW)
                if decision is not None and decision.action is Action.FORCE:
                    stands = len(said) + len(sentence.text)
            for piece in sentence.pieces:
                yield answer.sent(piece)
            said += sentence.text
            speaker.spending.sent += bool(sentence.text.strip())
            if sentence.over:
                break
        if speaker.afterwards and said.strip():
            decision = await speaker.check(said)
            if decision is not None and not decision.sends:
                speaker.unchecked(NOT_REPEATABLE)
        speaker.over()
        if answer.failure is not None:
            raise answer.failure
    finally:
        await answer.end()


def _has_words(text: str) -> bool:
    """Whether a text has more in it than thinking."""
    return bool(split_thinking(text)[1].strip())


async def _written_anew(
    said: str,
    spending: Spending,
    ask: Ask[AnswerStream[Raw]],
    draft: tuple[AnswerStream[Raw], Sentence[Raw]],
    feedback: str,
) -> tuple[AnswerStream[Raw], Sentence[Raw]]:
    """Return a stream that takes another's place at a held sentence, and its first one.

    The other is read to its end first: no two answers are written at once, and it goes out if the new one does not come.
    """
    answer, sentence = draft
    spending.require_rewrite()
    unsent = sentence.text + await answer.read_ahead(spending.seconds_left, spending.budget.size)
    await answer.end()
    if spending.first is None:
        spending.first = spending.sent + sentences_in(unsent)
    tokens = spending.take_rewrite(said, sentence.text, unsent if answer.before else "")
    async with asyncio.timeout(min(_REWRITE_SECONDS, spending.seconds_left)):
        fresh = await ask(said + sentence.text, feedback, tokens)
        if answer.before is None:
            events = [piece.event for piece in sentence.pieces if piece.event is not None and piece.part.text]
            fresh.before = Continuation(answer.opened, events[-1], events[0].get("sequence_number", 0) - 1, said)
        else:
            fresh.before = replace(answer.before, said=said, came="", replaced=0)
        try:
            return fresh, await fresh.opening(sentence, said)
        except BaseException:
            await fresh.end()
            raise
