"""The gate over stored messages: each asked about as if it were on its way out, with what had been said before it."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from persona_pipeline.corrections.judgment import CONFIGURATION, NotJudgedError, question_of, reviewed
from persona_pipeline.corrections.prepare import GateFacts, Propositions, gather_facts
from persona_pipeline.corrections.records import PriorAttempts
from persona_pipeline.judging.verdict import Answer, Backend, Question, Usage
from persona_pipeline.world.models import CorrectionSettings, Message
from persona_pipeline.world.world import World

_ON = CorrectionSettings(action_gate_enabled=True)
_AT_ONCE = 8


@dataclass(frozen=True)
class Asking:
    """A stored message, and what the gate would have asked about it; ``reason``: why it would have asked nothing."""

    message: Message
    facts: GateFacts | None = None
    question: Question | None = None
    reason: str = ""


@dataclass(frozen=True)
class Checked:
    """What the gate says of a stored message.

    Attributes:
        score: 0-9; None: there is none, ``reason`` says why.
        seconds: how long the judge took; None: it was not asked.
    """

    message: Message
    score: float | None = None
    reason: str = ""
    model: str | None = None
    usage: Usage = field(default_factory=Usage)
    seconds: float | None = None


def questions_about(world: World, agent_id: str, messages: Sequence[Message]) -> list[Asking]:
    """Return what the gate would have asked about an agent's messages when they were sent, by today's persona and claims.

    Raises:
        ConfigError: the agent has no persona or no valid adherence claims.
    """
    propositions = Propositions(world.root)
    return [_asking(world, propositions, agent_id, message) for message in messages]


async def check_messages(backend: Backend, asked: Sequence[Asking]) -> list[Checked]:
    """Return what the judge says of messages, in their order; a failed call costs its message only."""
    places = asyncio.Semaphore(_AT_ONCE)
    async with AsyncExitStack() as stack:
        opened: Any = backend
        while not isinstance(opened, AbstractAsyncContextManager) and hasattr(opened, "asking"):
            opened = opened.asking
        if isinstance(opened, AbstractAsyncContextManager):
            await stack.enter_async_context(opened)

        async def check(item: Asking) -> Checked:
            async with places:
                return await _checked(backend, item)

        # The first alone: it writes the prefix to the API's cache that the others read.
        return [*await asyncio.gather(*map(check, asked[:1])), *await asyncio.gather(*map(check, asked[1:]))]


def _asking(world: World, propositions: Propositions, agent_id: str, message: Message) -> Asking:
    facts = gather_facts(
        world,
        propositions,
        agent_id=agent_id,
        text=message.text,
        channel=message.channel,
        recipient=message.recipient,
        action_id=None,
        known=PriorAttempts(),
        settings=_ON,
        before=(message.created_at, message.id),
    )
    if facts is None:
        return Asking(message, reason=CONFIGURATION)
    try:
        return Asking(message, facts, question_of(agent_id, facts))
    except NotJudgedError as error:
        return Asking(message, reason=error.reason)


async def _checked(backend: Backend, item: Asking) -> Checked:
    if item.question is None or item.facts is None:
        return Checked(item.message, reason=item.reason)
    started = time.monotonic()
    (answer,) = await backend.ask([item.question])
    seconds = time.monotonic() - started if answer.usage.calls and not answer.cached else None
    return _scored(item.message, item.facts, answer, seconds)


def _scored(message: Message, facts: GateFacts, answer: Answer, seconds: float | None) -> Checked:
    told = Checked(message, model=answer.model, usage=answer.usage, seconds=seconds)
    try:
        return Checked(message, reviewed(answer, facts).score, "", told.model, told.usage, told.seconds)
    except NotJudgedError as error:
        return Checked(message, None, error.reason, told.model, told.usage, told.seconds)
