"""The two things a check waits for, facts from the store and an answer from the judge, each bounded in time."""

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from persona_pipeline.corrections.background import DaemonPool
from persona_pipeline.corrections.prepare import GateFacts, Propositions, gather_facts
from persona_pipeline.corrections.prompt import gate_question
from persona_pipeline.corrections.records import PriorAttempts
from persona_pipeline.errors import ConfigError
from persona_pipeline.judging.breaker import Breaker
from persona_pipeline.judging.questions import Answer, Backend
from persona_pipeline.judging.verdict import Unscored, Usage
from persona_pipeline.world.files import is_agent_id
from persona_pipeline.world.models import CorrectionSettings
from persona_pipeline.world.world import World

DATABASE, CIRCUIT_OPEN, CONFIGURATION, INTERNAL_ERROR = "database", "circuit_open", "configuration", "internal_error"
TOO_LONG = "too_long"
# Of the text and what was said before it: about what the largest model reads. More would only hold up other checks.
_MOST_CHARACTERS = 1_000_000
_OUTAGES = (Unscored.TIMEOUT, Unscored.API_ERROR)

Value = TypeVar("Value")


class NotJudgedError(Exception):
    """There is no score; ``reason`` says why in one word that statistics count by."""

    def __init__(self, reason: str, detail: str = "", usage: Usage | None = None) -> None:
        super().__init__(f"{reason} {detail}".strip())
        self.reason, self.usage = reason, usage or Usage()


@dataclass(frozen=True)
class GateCall:
    """One text on its way out. ``ends``: when the check must be over (``time.monotonic``)."""

    agent_id: str
    text: str
    channel: str | None
    recipient: str | None
    attempt: int
    action_id: str
    known: PriorAttempts
    ends: float

    @property
    def place(self) -> tuple[str, str | None, str | None]:
        return self.agent_id, self.channel, self.recipient


class ActionJudge:
    """Gathers the facts of an action and has it judged.

    Args:
        settings: instead of each agent's stored ones.
        breaker_threshold: failures in a row after which the store or the judge is not asked for a while.
        breaker_cooldown: seconds of that while.
    """

    def __init__(
        self,
        world: World,
        backend: Backend,
        *,
        settings: CorrectionSettings | None = None,
        breaker_threshold: int = 5,
        breaker_cooldown: float = 30.0,
    ) -> None:
        self._world, self._backend, self._settings = world, backend, settings
        self._propositions = Propositions(world.root)
        self._reads = DaemonPool(8, "gate-read")
        self._database = Breaker(threshold=breaker_threshold, cooldown=breaker_cooldown)
        self._judge = Breaker(threshold=breaker_threshold, cooldown=breaker_cooldown)

    async def facts(self, call: GateCall) -> GateFacts | None:
        """Return what is known of an action; None when the agent's gate is off.

        Raises:
            NotJudgedError: the store does not answer in time or at all, or the agent's files are not valid.
        """
        if not is_agent_id(call.agent_id):
            raise NotJudgedError(CONFIGURATION, "no such agent")
        breaker = self._database
        if refusal := breaker.refusal():
            raise NotJudgedError(DATABASE, refusal)
        try:
            job = self._reads.run(
                lambda: gather_facts(
                    self._world,
                    self._propositions,
                    agent_id=call.agent_id,
                    text=call.text,
                    channel=call.channel,
                    recipient=call.recipient,
                    action_id=call.action_id if call.attempt > 1 else None,
                    known=call.known,
                    settings=self._settings,
                )
            )
            facts = await within(job, call.ends)
        except ConfigError as error:
            breaker.succeeded()
            raise NotJudgedError(CONFIGURATION, str(error)) from error
        except Exception as error:
            breaker.failed("database", type(error).__name__)
            raise NotJudgedError(DATABASE, f"{type(error).__name__}: {error}") from error
        breaker.succeeded()
        return facts

    async def answer(self, call: GateCall, facts: GateFacts) -> Answer:
        """Return the judge's answer on an action.

        Raises:
            NotJudgedError: there is none in time, it holds no verdicts, or there is more to read than a judge can.
        """
        size = sum(len(entry.text) for entry in facts.trajectory.entries)
        if size > _MOST_CHARACTERS:
            raise NotJudgedError(TOO_LONG, f"{size:,} characters")
        breaker = self._judge
        if refusal := breaker.refusal():
            raise NotJudgedError(CIRCUIT_OPEN, refusal)
        question = gate_question(
            facts.propositions.propositions,
            facts.trajectory,
            agent_id=call.agent_id,
            persona=facts.persona if facts.propositions.include_personas else None,
            variables=facts.variables,
        )
        try:
            (answer,) = await within(self._backend.ask([question]), call.ends)
        except TimeoutError as error:
            breaker.failed("judge", "no answer within the deadline")
            # The server may have worked on it, and may charge for it.
            usage = Usage(calls=1, usd=None)
            raise NotJudgedError(Unscored.TIMEOUT.value, "no answer within the deadline", usage) from error
        except Exception as error:
            breaker.failed("judge", type(error).__name__)
            raise NotJudgedError(Unscored.API_ERROR.value, f"{type(error).__name__}: {error}") from error
        if answer.unscored in _OUTAGES:
            breaker.failed("judge", answer.detail)
        else:
            breaker.succeeded()
        if answer.data is None:
            reason = answer.unscored or Unscored.INVALID_OUTPUT
            raise NotJudgedError(reason.value, answer.detail, answer.usage)
        return answer


async def within(work: Awaitable[Value], ends: float) -> Value:
    """Return the result of some work, or raise TimeoutError at a moment (``time.monotonic``).

    The work is cancelled then, but not waited for: whatever ignores its cancellation does not hold up the
    caller.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        await asyncio.wait({task}, timeout=max(0.0, ends - time.monotonic()))
    finally:
        if not task.done():
            task.cancel()
    if not task.done() or task.cancelled():
        raise TimeoutError
    return task.result()
