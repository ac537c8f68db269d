"""A model's answer on its way to whoever asked: checked whole, or sentence by sentence while it comes, and asked for once more."""

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, TypeVar

from persona_pipeline.corrections.configuration import StoredSettings
from persona_pipeline.corrections.decision import Action, GateDecision, Outcome
from persona_pipeline.corrections.gate import ActionGate
from persona_pipeline.corrections.service.answers import SHAPE_ERRORS, AnswerForm, Continuation, Json, Part
from persona_pipeline.scoring.text.said_again import SENTENCE_END

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
class Piece(Generic[Raw]):
    """An event of a stream: as it came, as it is read (None: it cannot be), and what it brings."""

    raw: Raw
    event: Json | None
    part: Part


@dataclass(frozen=True)
class Sentence(Generic[Raw]):
    """Events that are sent together, and the text in them. ``over``: nothing comes after them; ``passes``: as of ``Part``."""

    pieces: list[Piece[Raw]]
    text: str = ""
    over: bool = False
    passes: bool = False


@dataclass
class Answering(Generic[Raw]):
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
    _carried: list[Piece[Raw]] = field(default_factory=list)

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

    async def _pieces(self) -> AsyncIterator[Piece[Raw]]:
        try:
            async for raw, event in self.events:
                try:
                    part = Part() if event is None else self.form.part_of(event)
                except SHAPE_ERRORS:
                    part = Part(passes=True)
                self.opened = self.opened or event or {}
                if self.before:
                    self.before.came += part.text
                yield Piece(raw, event, part)
        except Exception as error:
            self.failure = error

    def sent(self, piece: Piece[Raw]) -> Raw:
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


Again = Callable[[str, str], Awaitable[Answering[Raw]]]


async def in_character(answer: Answering[Raw], speaker: Speaker, again: Again[Raw]) -> AsyncGenerator[Raw]:
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
                rewrite = _Rewriting(answer, said, again)
                (answer, sentence), decision = await speaker.settled(
                    (answer, sentence), lambda draft: draft[1].text, rewrite.draft, said, stands
                )
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


@dataclass(frozen=True)
class _Rewriting(Generic[Raw]):
    """Has a held sentence of an answer written anew, after what the answer ``said`` before it."""

    first: Answering[Raw]
    said: str
    again: Again[Raw]

    async def draft(
        self, draft: tuple[Answering[Raw], Sentence[Raw]], feedback: str
    ) -> tuple[Answering[Raw], Sentence[Raw]]:
        answer, sentence = draft
        fresh = await self.again(self.said + sentence.text, feedback)
        fresh.before = self._place(answer, sentence)
        try:
            opening = await fresh.opening(sentence, self.said)
        except BaseException:
            await fresh.close()
            raise
        # Until now the old one could have taken its place again.
        await answer.close()
        return fresh, opening

    def _place(self, answer: Answering[Raw], sentence: Sentence[Raw]) -> Continuation:
        if answer.before is not None:
            return replace(answer.before, said=self.said, came="")
        events = [piece.event for piece in sentence.pieces if piece.event is not None and piece.part.text]
        return Continuation(answer.opened, events[-1], events[0].get("sequence_number", 0) - 1, self.said)
