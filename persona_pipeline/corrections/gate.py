"""The action gate: is a message in character, asked before it is sent, and never at the price of the message."""

import asyncio
import logging
import os
import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Self, TypeVar

from persona_pipeline.base.calls import BackgroundLoop
from persona_pipeline.base.settings import Settings, from_environment
from persona_pipeline.base.telemetry import EvaluationEvent, emitter
from persona_pipeline.base.text import storable_data
from persona_pipeline.corrections.background import DaemonPool, QueueFullError
from persona_pipeline.corrections.judgment import (
    INTERNAL_ERROR,
    MOST_AT_ONCE,
    ActionJudge,
    GateFacts,
    NotJudgedError,
    reviewed,
)
from persona_pipeline.corrections.nudges import Nudges
from persona_pipeline.corrections.prompt import feedback_text, language_of_action
from persona_pipeline.corrections.records import (
    Action,
    Bypasses,
    CheckRecord,
    GateCall,
    GateDecision,
    Outcome,
    PriorAttempts,
    decide,
    outcome_of,
    write_checks,
)
from persona_pipeline.judging.open import JudgeOptions, open_judge
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.verdict import Backend
from persona_pipeline.world.models import CorrectionSettings
from persona_pipeline.world.world import World


def decision_event(agent_id: str, decision: GateDecision) -> EvaluationEvent:
    """Return the event of a decision; points go from 0 to 9."""
    return EvaluationEvent(
        "gate",
        decision.score,
        decision.outcome.value,
        decision.reason,
        attributes={
            "gen_ai.agent.id": agent_id,
            "persona.gate.action": decision.action.value,
            "persona.gate.would": decision.would.value if decision.would else None,
            "persona.gate.action_id": decision.action_id or None,
            "persona.gate.threshold": decision.threshold,
            "persona.gate.verdict": decision.verdict.value if decision.verdict else None,
            "persona.gate.attempt": decision.attempt,
            "persona.gate.latency_ms": round(decision.latency_ms, 3),
        },
    )


_MOST_OPEN_ACTIONS = 10_000
_MOST_REPEATABLE = 1000

Place = tuple[str, str | None, str | None]
Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered:
    """The actions under way at one gate, by agent and place, and the newest answers; the oldest are forgotten."""

    def __init__(self) -> None:
        self._open: OrderedDict[Place, tuple[str, PriorAttempts]] = OrderedDict()
        self._answered: OrderedDict[tuple[str, str, int, int], GateDecision] = OrderedDict()

    def answer(self, agent_id: str, action_id: str | None, attempt: int, text: str) -> GateDecision | None:
        """Return the decision that this attempt already has, once."""
        # An agent that never counts its attempts must not be asked for the same text for ever.
        found = self._answered.pop((agent_id, action_id, attempt, hash(text)), None) if action_id else None
        return replace(found, text=text) if found else None

    def keep_answer(self, agent_id: str, decision: GateDecision, text: str) -> None:
        """Keep a decision for the same attempt delivered once more."""
        self._answered[agent_id, decision.action_id, decision.attempt, hash(text)] = replace(decision, text="")
        _drop_oldest(self._answered, _MOST_REPEATABLE)

    def prior(self, place: Place, action_id: str | None, attempt: int) -> tuple[str | None, PriorAttempts]:
        """Return the id of the action that an attempt belongs to, and the attempts before it."""
        known = self._open.get(place)
        if known and (action_id == known[0] or (action_id is None and attempt > 1)):
            return known
        return action_id, PriorAttempts()

    def decided(self, place: Place, decision: GateDecision, first_text: str) -> None:
        """Keep an action that continues, forget one that has ended."""
        if decision.sends:
            self._open.pop(place, None)
            return
        self._open[place] = (decision.action_id, PriorAttempts(decision.attempt, first_text))
        _drop_oldest(self._open, _MOST_OPEN_ACTIONS)


def _drop_oldest(entries: OrderedDict[Key, Value], most: int) -> None:
    while len(entries) > most:
        entries.popitem(last=False)


DEADLINE_SECONDS = 5.0
# Left of the deadline for coming back to the caller.
_MARGIN_SECONDS = 0.02
_NOT_RECORDED = "not_recorded"
_RECORD_WAIT_SECONDS = 0.25
_NO_MORE_WAITING_SECONDS = 0.25
# After the deadline, for the gate's own loop when it does not answer.
_LOOP_GRACE_SECONDS = 0.25
_LOGGER = logging.getLogger(__name__)

Observer = Callable[[str, GateDecision], None]


class ActionGate:
    """Checks each message before it is sent, against the agent's adherence propositions.

    On any failure of the judge or the database ``check`` returns within the deadline and sends the text. Use ``check`` from one
    event loop, or ``check_sync``, which has its own loop, but not both on one gate. ``async with`` keeps the judge's connections
    open.

    Args:
        world: source of settings, personas, propositions and earlier messages.
        backend: the judge, without a cache: a look-up would block the event loop.
        deadline: wall-clock seconds for a check, the database included.
        settings: used instead of each agent's stored ones.
        observer: called with every decision, for example for metrics; its errors are logged.
        most_at_once: checks that are judged at once; more wait, and at overload texts are sent as ``overload``.
        bypasses: counts texts that are sent without a check's row.

    Raises:
        ConfigError: the world's nudges are not valid.
    """

    def __init__(
        self,
        world: World,
        backend: Backend,
        *,
        deadline: float = DEADLINE_SECONDS,
        settings: CorrectionSettings | None = None,
        observer: Observer | None = None,
        breaker_threshold: int = 5,
        most_at_once: int = MOST_AT_ONCE,
        bypasses: Bypasses | None = None,
    ) -> None:
        self.world: World = world
        self.backend: Backend = backend
        self.deadline: float = deadline
        self._observer = observer
        self.bypasses: Bypasses = bypasses or Bypasses(world.store)
        self._judge = ActionJudge(world, backend, settings, most_at_once, {"threshold": breaker_threshold})
        self._nudges = Nudges.load(world.root)
        # One thread keeps the order of checks.
        self._writes = DaemonPool(1, "gate-write")
        self._unwritten: deque[CheckRecord] = deque()
        # Load the dependencies now, not while a text waits.
        emitter(world.settings)
        self._remembered = Remembered()
        self._loop: BackgroundLoop | None = None
        self._lock, self._process = threading.Lock(), os.getpid()
        self._watching: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        if isinstance(self.backend, AbstractAsyncContextManager):
            await self.backend.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._watching:
            await asyncio.wait(self._watching, timeout=self.deadline)
        if isinstance(self.backend, AbstractAsyncContextManager):
            await self.backend.__aexit__(None, None, None)
        await asyncio.to_thread(self.flush)

    async def check(
        self,
        agent_id: str,
        text: str,
        *,
        channel: str | None = None,
        recipient: str | None = None,
        attempt: int = 1,
        action_id: str | None = None,
        run_id: uuid.UUID | None = None,
        arrived: float | None = None,
    ) -> GateDecision:
        """Decide what happens to a text.

        Args:
            channel: where it is going; None for a direct message, which has a recipient.
            attempt: 1 for the first text of an action; after ``retry``, one more.
            action_id: what the decision on the first attempt returned. Needed where several processes, or
                several messages at a time to one place, share an agent; else the gate remembers it. The same
                text delivered once more as the same attempt of an action gets the decision it already has.
            arrived: when the request arrived (``time.monotonic``), from which the deadline counts; default: now.

        Returns:
            A decision whose ``text`` is the text given. ``retry``: have the agent write again with
            ``feedback`` and check that with the next attempt. ``commit`` and ``force``: send it.
        """
        started = arrived if arrived is not None else time.monotonic()
        if answered := self._remembered.answer(agent_id, action_id, attempt, text):
            return answered
        channel, recipient = storable_data((channel, recipient))
        known_id, known = self._remembered.prior((agent_id, channel, recipient), action_id, attempt)
        call = GateCall(
            *(agent_id, text, channel, recipient),
            attempt=max(attempt, known.rejections + 1),
            action_id=known_id or uuid.uuid4().hex,
            known=known,
            ends=started + self.deadline - _MARGIN_SECONDS,
        )
        unscored = GateDecision(Action.COMMIT, Outcome.FAIL_OPEN, text, action_id=call.action_id, attempt=call.attempt)
        record = CheckRecord(agent_id, unscored, call.known.first_text or text, run_id=run_id)
        try:
            record = await self._judged(call, record)
        except Exception:
            _LOGGER.exception("gate of %r fails open", agent_id)
            record = _failed_open(record, NotJudgedError(INTERNAL_ERROR))
        record = _decided(record, started)
        decision = record.decision
        self._remembered.decided(call.place, decision, record.first_text)
        if decision.outcome is not Outcome.DISABLED and action_id:
            self._remembered.keep_answer(agent_id, decision, text)
        if decision.outcome is Outcome.SHADOW:
            # The check is written down and counted when the judge has answered.
            return decision
        if decision.outcome is Outcome.DISABLED:
            self.bypasses.count(Outcome.DISABLED.value, agent_id)
        else:
            await self._write(record, call.ends)
        self._observed(agent_id, decision)
        return decision

    def check_sync(
        self,
        agent_id: str,
        text: str,
        *,
        channel: str | None = None,
        recipient: str | None = None,
        attempt: int = 1,
        action_id: str | None = None,
        run_id: uuid.UUID | None = None,
    ) -> GateDecision:
        """Like ``check``, for callers without an event loop."""
        check = partial(self.check, agent_id, text, channel=channel, recipient=recipient)
        try:
            loop = self._own_loop()
            work = check(attempt=attempt, action_id=action_id, run_id=run_id)
            return loop.wait(work, self.deadline + _LOOP_GRACE_SECONDS)
        except Exception:
            _LOGGER.exception("gate of %r fails open", agent_id)
            return GateDecision(Action.COMMIT, Outcome.FAIL_OPEN, text, reason=INTERNAL_ERROR, attempt=attempt)

    def _own_loop(self) -> BackgroundLoop:
        if self._process != os.getpid():
            # A forked process has its parent's loop without the thread that ran it.
            self._loop, self._lock, self._process = None, threading.Lock(), os.getpid()
        with self._lock:
            if self._loop is None:
                loop = BackgroundLoop("gate-loop")
                loop.start(self.__aenter__())
                self._loop = loop
            return self._loop

    def flush(self, seconds: float = 2.0) -> bool:
        """Wait until every decision is written down; return whether that was so in time."""
        idle = self._writes.wait_idle(seconds)
        self.bypasses.flush()
        return idle

    async def _judged(self, call: GateCall, record: CheckRecord) -> CheckRecord:
        try:
            facts = await self._judge.facts(call)
            if facts is None:
                return replace(record, decision=replace(record.decision, outcome=Outcome.DISABLED))
            call = replace(call, attempt=max(call.attempt, facts.prior.rejections + 1))
            record = replace(
                record,
                first_text=facts.prior.first_text or record.first_text,
                decision=replace(record.decision, attempt=call.attempt),
            )
            if facts.settings.shadow_mode:
                task = asyncio.get_running_loop().create_task(self._watched(call, facts, record))
                self._watching.add(task)
                task.add_done_callback(self._watching.discard)
                return replace(record, decision=replace(record.decision, outcome=Outcome.SHADOW))
            return await self._scored(call, facts, record)
        except NotJudgedError as error:
            _LOGGER.warning("gate of %r fails open: %s", call.agent_id, error)
            return _failed_open(record, error)

    async def _watched(self, call: GateCall, facts: GateFacts, record: CheckRecord) -> None:
        """Have the text judged behind the caller's back, which has its answer already."""
        started = time.monotonic()
        try:
            record = await self._scored(call, facts, record)
            changes = {"action": Action.COMMIT, "outcome": Outcome.SHADOW, "would": record.decision.action}
        except NotJudgedError as error:
            record, changes = _failed_open(record, error), {}
        except Exception:
            _LOGGER.exception("gate of %r watches in vain", call.agent_id)
            record, changes = _failed_open(record, NotJudgedError(INTERNAL_ERROR)), {}
        record = _decided(record, started, feedback=None, **changes)
        await self._write(record, call.ends)
        self._observed(call.agent_id, record.decision)

    def _observed(self, agent_id: str, decision: GateDecision) -> None:
        try:
            if self._observer:
                self._observer(agent_id, decision)
            sender = emitter(self.world.settings)
            if sender is not None and decision.outcome is not Outcome.DISABLED:
                sender.emit([decision_event(agent_id, decision)])
        except Exception:
            _LOGGER.exception("the observer of the gate failed")

    async def _scored(self, call: GateCall, facts: GateFacts, record: CheckRecord) -> CheckRecord:
        """Return the record with the judge's review of the text; NotJudgedError: the score is missing."""
        answer = await self._judge.answer(call, facts)
        review, settings = reviewed(answer, facts), facts.settings
        threshold = settings.action_gate_threshold
        action = decide(
            review.score,
            threshold,
            attempt=call.attempt,
            max_attempts=settings.max_correction_attempts,
            is_out=review.is_out,
        )
        decision = replace(
            record.decision,
            action=action,
            outcome=outcome_of(action, call.attempt),
            score=review.score,
            threshold=threshold,
            verdict=review.message and review.message.verdict,
            usage=answer.usage,
        )
        if action is Action.RETRY:
            texts = self._nudges.of(call.agent_id, language_of_action(facts.trajectory))
            decision = replace(decision, feedback=feedback_text(review, threshold, texts.gate))
        return replace(record, decision=decision, reasoning=review.reasoning(threshold), judge_model=answer.model)

    async def _write(self, record: CheckRecord, ends: float) -> None:
        """Record the check. The caller does not wait for a slow or failing write."""
        try:
            self._unwritten.append(record)
            future = self._writes.submit(self._write_all)
        except (QueueFullError, RuntimeError) as error:
            with suppress(ValueError):
                self._unwritten.remove(record)
                self._count_unwritten(record, str(error))
            return
        # A check past its deadline does not wait for this.
        seconds = min(_RECORD_WAIT_SECONDS, ends - _NO_MORE_WAITING_SECONDS - time.monotonic())
        if seconds > 0:
            await asyncio.wait({asyncio.wrap_future(future)}, timeout=seconds)

    def _write_all(self) -> None:
        """Write the waiting records together, or one by one if that fails."""
        records = [self._unwritten.popleft() for _ in range(len(self._unwritten))]
        with suppress(Exception):
            write_checks(self.world.store, records)
            return
        for record in records:
            try:
                write_checks(self.world.store, [record])
            except Exception as error:
                self._count_unwritten(record, type(error).__name__)

    def _count_unwritten(self, record: CheckRecord, why: str) -> None:
        """Log and count a check that cannot be written, such as one of an unknown agent."""
        _LOGGER.warning("a check of %r is not written down: %s", record.agent_id, why)
        self.bypasses.count(record.decision.reason or _NOT_RECORDED, record.agent_id)


def _decided(record: CheckRecord, started: float, **changes: Any) -> CheckRecord:
    latency = (time.monotonic() - started) * 1000
    decision = replace(record.decision, latency_ms=latency, **changes)
    return replace(record, decision=decision, decided_at=datetime.now(UTC))


def _failed_open(record: CheckRecord, error: NotJudgedError) -> CheckRecord:
    decision = replace(record.decision, outcome=Outcome.FAIL_OPEN, reason=error.reason, usage=error.usage)
    return replace(record, decision=decision)


_MAX_RETRIES = 1
_WIDTH = 200
# Seconds for which a message waits for the server's limits.
_PATIENCE = 1.0


def gate_backend(settings: Settings | None = None, options: ModelOptions | None = None) -> Backend:
    """Return a backend for an ``ActionGate``.

    Args:
        settings: None: the environment's.
        options: used instead of the options in the settings.

    Raises:
        ConfigError: the key is missing.
    """
    settings = settings or from_environment(Settings)
    calling = options or ModelOptions.from_settings(settings)
    quick = replace(
        calling,
        deadline=min(calling.deadline, DEADLINE_SECONDS),
        run_deadline=None,
        patience=min(calling.patience, _PATIENCE),
        max_retries=min(calling.max_retries, _MAX_RETRIES),
        # Messages wait behind one another otherwise.
        width=max(calling.width, _WIDTH),
    )
    # One question at a time and no claims: the model itself, whose connections stay open.
    asked = JudgeOptions(recorded=False, kept=False)
    return open_judge(quick.provider.name, None, asked, settings=settings, calling=quick).backend
