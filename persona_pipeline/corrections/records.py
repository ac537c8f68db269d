"""Decisions of the gate, and the rows that corrections read and write: earlier messages, checks, rejected texts."""

import logging
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, upsert
from persona_pipeline.base.text import split_thinking
from persona_pipeline.corrections.background import DaemonPool
from persona_pipeline.judging.verdict import Usage
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.world.messages.store import message_of
from persona_pipeline.world.models import Entry, Message, Omission, Trajectory

# A mean of 5 can come out as 4.999999999999999; it reaches a threshold of 5.
_TOLERANCE = 1e-9


class Action(StrEnum):
    """What the caller does: send the text, have the agent write it again with the feedback, or send it all the same."""

    COMMIT = "commit"
    RETRY = "retry"
    FORCE = "force"


class Outcome(StrEnum):
    """How one check ended. The three with a row in ``correction_logs`` are spec/2's own.

    ``passed``: first try. ``corrected``: this text was rejected and feedback given. ``passed_after_retry``: a
    later attempt reached the threshold. ``forced_through``: still below it after the last attempt.
    ``fail_open``: no score, so it passes. ``disabled``: the agent has no gate. ``shadow``: the gate only watches.
    """

    PASSED = "passed"
    CORRECTED = "corrected"
    PASSED_AFTER_RETRY = "passed_after_retry"
    FORCED_THROUGH = "forced_through"
    FAIL_OPEN = "fail_open"
    DISABLED = "disabled"
    SHADOW = "shadow"


@dataclass(frozen=True)
class GateDecision:
    """The answer to one check. ``text`` is the checked text: the gate never writes.

    Attributes:
        feedback: for the agent's next attempt, None unless ``action`` is retry.
        score: weighted mean of the propositions, 0-9; None: not scored.
        verdict: the judge's, on the whole message; None: no verdict. A message that is out of character counts as below the
            threshold.
        reason: why the score is missing (``timeout``, ``api_error``, ``database``, ...), None for a judged text.
        action_id: the same for all attempts at one message.
        attempt: 1 for the first text.
        latency_ms: wall-clock time of the check.
        would: the decision of a gate that only watches; None: it does not only watch, or the judge has not answered yet.
    """

    action: Action
    outcome: Outcome
    text: str
    feedback: str | None = None
    score: float | None = None
    threshold: float | None = None
    reason: str | None = None
    action_id: str = ""
    attempt: int = 1
    latency_ms: float = 0.0
    usage: Usage = field(default_factory=Usage)
    would: Action | None = None
    verdict: Role | None = None

    @property
    def sends(self) -> bool:
        """Whether the text goes out now."""
        return self.action is not Action.RETRY


def decide(score: float | None, threshold: float, *, attempt: int, max_attempts: int, is_out: bool = False) -> Action:
    """Return what to do with a text.

    ``score``: 0-9; None always commits. ``is_out``: the message is out of character, so it counts as below the threshold.
    ``attempt``: the number of texts written for the action, this one included. ``max_attempts``: rejections before the text is
    sent.
    """
    if score is None or (score >= threshold - _TOLERANCE and not is_out):
        return Action.COMMIT
    return Action.RETRY if attempt <= max_attempts else Action.FORCE


def outcome_of(action: Action, attempt: int) -> Outcome:
    if action is Action.RETRY:
        return Outcome.CORRECTED
    if action is Action.FORCE:
        return Outcome.FORCED_THROUGH
    return Outcome.PASSED if attempt == 1 else Outcome.PASSED_AFTER_RETRY


LOGGED = (Outcome.CORRECTED, Outcome.PASSED_AFTER_RETRY, Outcome.FORCED_THROUGH)
# An agent that takes longer than this to write again has forgotten what it was about.
ACTION_LIFETIME = timedelta(days=1)


@dataclass(frozen=True)
class PriorAttempts:
    """Earlier attempts at an action: the number of rejections, and the text of the first."""

    rejections: int = 0
    first_text: str | None = None


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
    def words(self) -> str:
        """The text without thinking in front of it, which is not judged."""
        return split_thinking(self.text)[1] or self.text

    @property
    def place(self) -> tuple[str, str | None, str | None]:
        return self.agent_id, self.channel, self.recipient


@dataclass(frozen=True)
class CheckRecord:
    """One check as it is written down.

    ``decided_at``: earlier than the row where the store is slow; rows are in the order of decisions, not of writing.
    """

    agent_id: str
    decision: GateDecision
    first_text: str
    reasoning: str = ""
    judge_model: str | None = None
    run_id: uuid.UUID | None = None
    decided_at: datetime = field(default_factory=lambda: datetime.now(UTC))


def prior_attempts(connection: Connection, agent_id: str, action_id: str) -> PriorAttempts:
    """Return the earlier attempts at an action, from the rows of its rejections."""
    table = tables.correction_logs
    query = (
        sa.select(table.c.original_text)
        .where(
            table.c.agent_id == agent_id,
            table.c.created_at > datetime.now(UTC) - ACTION_LIFETIME,
            table.c.action_id == action_id,
            table.c.outcome == Outcome.CORRECTED.value,
        )
        .order_by(table.c.attempt_number)
    )
    texts = connection.execute(query).scalars().all()
    return PriorAttempts(len(texts), texts[0] if texts else None)


def write_checks(store: Store, records: Sequence[CheckRecord]) -> None:
    """Write checks down, all or none."""
    if records:
        with store.begin() as connection:
            for record in records:
                _write_check(connection, record)


def _write_check(connection: Connection, record: CheckRecord) -> None:
    decision = record.decision
    usage = asdict(decision.usage)
    usd = usage.pop("usd")
    if decision.verdict is not None:
        # The column takes JSON. The words of the message stay in the log of corrections, whose texts can be forgotten.
        usage["verdict"] = decision.verdict.value
    common = {"agent_id": record.agent_id, "action_id": decision.action_id, "token_usage": usage}
    common |= {"attempt_number": decision.attempt, "score": decision.score, "created_at": record.decided_at}
    connection.execute(
        sa.insert(tables.gate_checks),
        common
        | {
            "decision": (decision.would or decision.action).value,
            "shadow": decision.would is not None,
            "reason": decision.reason,
            "latency_ms": decision.latency_ms,
            "usd": usd,
        },
    )
    if decision.outcome not in LOGGED or decision.score is None or decision.threshold is None:
        return
    if record.run_id is not None:
        upsert(connection, tables.runs, [{"id": record.run_id}], update=False)
    original, corrected = decision.text, None
    if decision.outcome is not Outcome.CORRECTED and decision.attempt > 1:
        original, corrected = record.first_text, original
    connection.execute(
        sa.insert(tables.correction_logs),
        common
        | {
            "run_id": record.run_id,
            "original_text": original,
            "corrected_text": corrected,
            "threshold": decision.threshold,
            "reasoning": record.reasoning,
            "outcome": decision.outcome.value,
            "judge_model": record.judge_model,
        },
    )


_BYPASSES = tables.gate_bypasses
# Pairs of reason and agent between two writes, so that made-up names do not fill memory.
_MOST_KINDS = 200
_OTHER = "(other)"
_LONGEST_NAME = 64
_LOGGER = logging.getLogger(__name__)


class Bypasses:
    """Counts bypasses and writes them to ``gate_bypasses``, a row for each reason and agent, without delaying callers.

    Args:
        observer: called with the reason of every bypass.
        seconds: between two writes.
    """

    def __init__(self, store: Store, *, observer: Callable[[str], None] | None = None, seconds: float = 10.0) -> None:
        self._store, self._observer, self._seconds = store, observer, seconds
        self._waiting: Counter[tuple[str, str | None]] = Counter()
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._pool = DaemonPool(1, "gate-bypass")

    def count(self, reason: str, agent_id: str | None = None) -> None:
        """Count one text that went out unchecked."""
        name = agent_id and agent_id[:_LONGEST_NAME]
        with self._lock:
            key = (reason, name)
            if key not in self._waiting and len(self._waiting) >= _MOST_KINDS:
                key = (reason, _OTHER)
            self._waiting[key] += 1
            self._start_timer()
        try:
            if self._observer:
                self._observer(reason)
        except Exception:
            _LOGGER.exception("the observer of bypasses failed")

    def flush(self) -> None:
        """Write the counts; those that cannot be written wait for the next time."""
        with self._lock:
            waiting, self._waiting, self._timer = self._waiting, Counter(), None
        if not waiting:
            return
        now = datetime.now(UTC)
        rows = [
            {"reason": reason, "agent_id": agent_id, "count": count, "created_at": now}
            for (reason, agent_id), count in waiting.items()
        ]
        try:
            with self._store.begin() as connection:
                connection.execute(sa.insert(_BYPASSES), rows)
        except Exception as error:
            _LOGGER.warning("%d bypasses are not written down yet: %s", waiting.total(), type(error).__name__)
            with self._lock:
                self._waiting.update(waiting)
                self._start_timer()

    def _start_timer(self) -> None:
        # A forked process has its parent's timer without the thread that waits.
        if self._timer is None or not self._timer.is_alive():
            timer = threading.Timer(self._seconds, lambda: self._pool.submit(self.flush))
            timer.daemon = True
            try:
                timer.start()
            except RuntimeError:
                # No thread to spare: the next bypass, or the end, tries again.
                return
            self._timer = timer


_MESSAGES = tables.run_messages
EARLIER, UNDER_REVIEW = "earlier", "under review"
# Time and id of a stored message: earlier messages are those that were stored when it was sent.
Before = tuple[datetime, str]


def action_trajectory(
    connection: Connection,
    call: GateCall,
    *,
    whole_channel: bool,
    first_n: int,
    last_n: int,
    before: Before | None = None,
) -> Trajectory:
    """Return the messages before an action, windowed, and the action itself as the last entry.

    ``whole_channel``: all messages of the conversation instead of the agent's own everywhere. ``first_n``, ``last_n``: number of
    messages before; the action is always shown. ``before``: the place of a stored action; None: all stored messages are earlier.
    """
    agent_id, channel, recipient = call.place
    scope = _conversation(agent_id, channel, recipient) if whole_channel else _MESSAGES.c.agent_id == agent_id
    scope = sa.and_(scope, _MESSAGES.c.synthetic.is_(False), _said(before))
    order = (_MESSAGES.c.created_at, _MESSAGES.c.id)
    total = connection.execute(sa.select(sa.func.count()).select_from(_MESSAGES).where(scope)).scalar_one()
    first_n = min(first_n, total)
    last_n = min(last_n, total - first_n)
    found = sa.select(_MESSAGES).where(scope)
    first = connection.execute(found.order_by(*order).limit(first_n)).all()
    newest = found.order_by(*(column.desc() for column in order)).limit(last_n)
    last = connection.execute(newest).all()[::-1]
    speakers = {agent_id, *(row.agent_id for row in (*first, *last)), *(r for r in (recipient,) if r)}
    speakers |= {row.recipient_id for row in (*first, *last) if row.recipient_id}
    agents = tables.agents.c
    called = sa.select(agents.id, agents.display_name).where(agents.id.in_(speakers))
    names = {row.id: row.display_name for row in connection.execute(called)}
    items: list[Entry | Omission] = [_entry(row, names) for row in first]
    if total > len(first) + len(last):
        items.append(Omission(total - len(first) - len(last)))
    items += [_entry(row, names) for row in last]
    told = recipient and names.get(recipient, recipient)
    items.append(Entry(names.get(agent_id, agent_id), call.words, "", channel, told, UNDER_REVIEW))
    return Trajectory(tuple(items))


def recent_messages(
    connection: Connection, limit: int, before: Before | None = None, *, agent_id: str = "", channel: str | None = None
) -> list[Message]:
    """Return the newest messages of a channel, or of an agent in all channels and direct messages; oldest first."""
    scope = _MESSAGES.c.agent_id == agent_id if channel is None else _MESSAGES.c.channel_id == channel
    query = sa.select(_MESSAGES).where(scope, _said(before), _MESSAGES.c.synthetic.is_(False))
    newest = query.order_by(_MESSAGES.c.created_at.desc(), _MESSAGES.c.id.desc()).limit(limit)
    return [message_of(row) for row in reversed(connection.execute(newest).all())]


def _said(before: Before | None) -> sa.ColumnElement[bool]:
    if before is None:
        return sa.true()
    moment, message_id = before
    # The first half alone is a range that an index serves.
    return sa.and_(
        _MESSAGES.c.created_at <= moment, sa.or_(_MESSAGES.c.created_at < moment, _MESSAGES.c.id < message_id)
    )


def _conversation(agent_id: str, channel: str | None, recipient: str | None) -> sa.ColumnElement[bool]:
    if channel is not None:
        return _MESSAGES.c.channel_id == channel
    between = [(agent_id, recipient), (recipient, agent_id)]
    return sa.or_(*(sa.and_(_MESSAGES.c.agent_id == a, _MESSAGES.c.recipient_id == b) for a, b in between))


def _entry(row: sa.Row, names: dict[str, str]) -> Entry:
    recipient = None if row.recipient_id is None else names.get(row.recipient_id, row.recipient_id)
    speaker = names.get(str(row.agent_id), str(row.agent_id))
    return Entry(speaker, row.text, row.id, row.channel_id, recipient, EARLIER)
