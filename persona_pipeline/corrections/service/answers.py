"""A model's answer on its way to the client: read, checked as one message, and written again within its budget."""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from persona_pipeline.base.text import split_thinking
from persona_pipeline.corrections.configuration import StoredSettings
from persona_pipeline.corrections.gate import ActionGate
from persona_pipeline.corrections.records import GateDecision
from persona_pipeline.corrections.service.budget import BudgetSpentError, MessageBudget, Spending
from persona_pipeline.corrections.service.forms import NOT_TEXT, SHAPE_ERRORS, TOO_LARGE, AnswerForm, EventPart, Json

Raw = TypeVar("Raw")
# A rewrite that takes longer is given up, and the rejected answer is sent.
_REWRITE_SECONDS = 30.0
# Memory of a kept event besides its content, about.
_EVENT_BYTES = 64
# The reader of an answer that has no channel.
READER = "user"
NOT_REWRITTEN, NOT_REPEATABLE, BUDGET, INTERNAL_ERROR = "not_rewritten", "not_repeatable", "budget", "internal_error"
_LOGGER = logging.getLogger(__name__)

# Events of a stream as they came, each with its data, or with its part where that is known; None: it has no data.
Events = AsyncIterator[tuple[Raw, Json | EventPart | None]]


@dataclass(frozen=True)
class HeldAnswer(Generic[Raw]):
    """An answer as far as it was read.

    Attributes:
        pieces: as they came.
        text: None: the answer is not one text, for the reason in ``passes``.
        rest: the pieces that were not read.
        failure: the error that broke the answer off.
        response: the upstream's, with its status and headers, where the pieces are its body.
    """

    pieces: list[Raw]
    text: str | None = None
    passes: str = NOT_TEXT
    rest: AsyncIterator[Raw] | None = None
    failure: Exception | None = None
    response: Any = None

    async def all_pieces(self) -> AsyncIterator[Raw]:
        """Yield all pieces, then raise the failure."""
        for piece in self.pieces:
            yield piece
        if self.rest is not None:
            async for piece in self.rest:
                yield piece
        if self.failure is not None:
            raise self.failure


# Asks for another answer: by the rejected text, the feedback on it, and the tokens the answer may have.
Ask = Callable[[str, str, int | None], Awaitable[HeldAnswer[Raw]]]


async def read_stream(form: AnswerForm, events: Events[Raw], most: int) -> HeldAnswer[Raw]:
    """Read a stream to its end, or up to the first event that is not text. ``most``: bytes, or characters of text."""
    pieces, said, size = list[Raw](), list[str](), 0
    try:
        async for raw, event in events:
            part = _part_of(form, event)
            pieces.append(raw)
            said.append(part.text)
            size += len(raw) if isinstance(raw, bytes) else len(part.text)
            # Events without text take memory too.
            if part.passes or size > most or len(pieces) > most // _EVENT_BYTES:
                return HeldAnswer(pieces, None, part.passes or TOO_LARGE, (raw async for raw, _ in events))
    except Exception as error:
        return HeldAnswer(pieces, failure=error)
    return HeldAnswer(pieces, "".join(said))


def _part_of(form: AnswerForm, event: Json | EventPart | None) -> EventPart:
    if event is None or isinstance(event, EventPart):
        return event or EventPart()
    try:
        return form.part_of(event)
    except SHAPE_ERRORS:
        return EventPart(passes=NOT_TEXT)


@dataclass(frozen=True)
class Speaker:
    """The agent that writes one message, and the gate that checks it. On any failure the answer is sent.

    Attributes:
        watched: the gate holds nothing back.
        repeatable: the request may be sent again, as the upstream only writes.
    """

    gate: ActionGate
    agent_id: str
    channel: str | None
    watched: bool
    repeatable: bool
    spending: Spending

    @property
    def holds(self) -> bool:
        """Whether a stream is held until it is checked. Else nothing could be written again, and it is checked afterwards."""
        return self.repeatable and not self.watched

    async def check(self, text: str, last: GateDecision | None = None) -> GateDecision | None:
        """Return the gate's decision on a text; None: the gate failed. ``last``: the decision on the attempt before."""
        attempt, action_id = (last.attempt + 1, last.action_id) if last else (1, uuid.uuid4().hex)
        to = READER if self.channel is None else None
        check = partial(self.gate.check, self.agent_id, text, channel=self.channel, recipient=to)
        try:
            decision = await check(attempt=attempt, action_id=action_id)
        except Exception:
            _LOGGER.exception("the gate of %r failed; its answer is sent", self.agent_id)
            self.unchecked(INTERNAL_ERROR)
            return None
        self.spending.usd += decision.usage.usd or 0.0
        return decision

    def unchecked(self, reason: str) -> None:
        """Count an answer that is sent without a check, once."""
        if not self.spending.counted:
            self.spending.counted = True
            self.gate.bypasses.count(reason, self.agent_id)

    async def settled(self, answer: HeldAnswer[Raw], ask: Ask[Raw]) -> HeldAnswer[Raw]:
        """Return the answer that is sent: this one, or one that was asked for with the gate's feedback."""
        last: GateDecision | None = None
        self.spending.begin()
        while True:
            if not _has_words(answer.text):
                self.unchecked(answer.passes)
                return answer
            if not self.spending.allows_check:
                self.unchecked(BUDGET)
                return answer
            last = await self.check(answer.text or "", last)
            if last is None or last.sends:
                return answer
            fresh = await self._rewritten(answer.text or "", last.feedback or "", ask)
            if fresh is None:
                return answer
            answer = fresh

    async def _rewritten(self, written: str, feedback: str, ask: Ask[Raw]) -> HeldAnswer[Raw] | None:
        """Return another answer; None: there is none, and the reason is counted."""
        if not self.repeatable:
            self.unchecked(NOT_REPEATABLE)
            return None
        try:
            tokens = self.spending.take_rewrite(written)
            async with asyncio.timeout(min(_REWRITE_SECONDS, self.spending.seconds_left)):
                fresh = await ask(written, feedback, tokens)
        except BudgetSpentError:
            self.unchecked(BUDGET)
            return None
        except Exception as error:
            _LOGGER.warning("an answer of %r is not written again: %s", self.agent_id, type(error).__name__)
            self.unchecked(NOT_REWRITTEN)
            return None
        if _has_words(fresh.text):
            return fresh
        self.unchecked(NOT_REWRITTEN)
        return None

    async def passed(self, form: AnswerForm, events: Events[Raw]) -> AsyncIterator[Raw]:
        """Yield a stream as it comes, and check its text when it is over."""
        said = list[str]()
        try:
            async for raw, event in events:
                part = _part_of(form, event)
                if part.passes:
                    self.unchecked(part.passes)
                said.append(part.text)
                yield raw
        except Exception:
            self.unchecked(NOT_TEXT)
            raise
        text = "".join(said)
        if not _has_words(text):
            self.unchecked(NOT_TEXT)
        elif (decision := await self.check(text)) is not None and not decision.sends:
            self.unchecked(NOT_REPEATABLE)


def _has_words(text: str | None) -> bool:
    """Whether a text has more in it than thinking."""
    return bool(text and split_thinking(text)[1].strip())


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
    """Return the speaker of a request; None: its answer is not checked, which is counted.

    ``plain``: the upstream is known to only write.
    """
    speaker = Speaker(gate, agent_id, channel, watched=False, repeatable=False, spending=Spending(budget))
    known = await settings.soon(agent_id)
    if known is None or not known.action_gate_enabled:
        speaker.unchecked("database" if known is None else "disabled")
        return None
    try:
        if form.is_text(request):
            speaker.spending.most_tokens = form.most_tokens(request)
            return replace(speaker, watched=known.shadow_mode, repeatable=plain and not form.may_act(request))
    except SHAPE_ERRORS:
        pass
    speaker.unchecked(NOT_TEXT)
    return None
