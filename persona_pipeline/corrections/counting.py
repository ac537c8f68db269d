"""Checks summed up by day, each once: sums that add up, brought up to date as checks come; old texts forgotten."""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from math import ceil, exp, log
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, upsert
from persona_pipeline.corrections.background import DaemonPool
from persona_pipeline.corrections.decision import Action
from persona_pipeline.corrections.records import ACTION_LIFETIME
from persona_pipeline.world.models import Window

# Latencies are kept in classes: of whole milliseconds up to here, of 2 % width above.
_WHOLE = 200
_GROWTH = log(1.02)
_SUMS = (
    "actions",
    "passed",
    "passed_after_retry",
    "forced",
    "shadowed",
    "would_hold",
    "corrected",
    "checks",
    "rejections",
    "input_tokens",
    "output_tokens",
    "cache_creation_tokens",
    "cache_read_tokens",
    "usd",
    "priced",
)
_TOKENS = ("input_tokens", "output_tokens", "cache_creation_tokens", "cache_read_tokens")


@dataclass
class CheckTally:
    """Sums over checks. An action is one message over all its attempts; it ends with the check that sends it.

    Attributes:
        shadowed: actions that a gate only watched; ``would_hold`` of them were below the threshold.
        reasons: actions sent without a score, by why.
        latencies: checks by class of latency; ``highest`` is exact, in milliseconds.
        priced: checks whose price is known; ``usd`` is the sum of their prices.
    """

    actions: int = 0
    passed: int = 0
    passed_after_retry: int = 0
    forced: int = 0
    shadowed: int = 0
    would_hold: int = 0
    corrected: int = 0
    checks: int = 0
    rejections: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_tokens: int = 0
    cache_read_tokens: int = 0
    usd: float = 0.0
    priced: int = 0
    highest: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)
    latencies: Counter[int] = field(default_factory=Counter)

    def add(self, check: Any, *, first: bool) -> None:
        """Count a row of ``gate_checks``; ``first``: it is the first of its action."""
        rejected = check.decision == Action.RETRY and not check.shadow
        self.actions += first
        self.checks += 1
        self.rejections += rejected
        self.corrected += first and rejected
        if check.shadow:
            self.shadowed += 1
            self.would_hold += check.decision != Action.COMMIT
        elif check.decision == Action.FORCE:
            self.forced += 1
        elif not rejected and check.reason is not None:
            self.reasons[check.reason] += 1
        elif not rejected:
            self.passed += check.attempt_number == 1
            self.passed_after_retry += check.attempt_number != 1
        usage: Mapping[str, int] = check.token_usage or {}
        for name in _TOKENS:
            setattr(self, name, getattr(self, name) + usage.get(name, 0))
        if check.usd is not None:
            self.usd += check.usd
            self.priced += 1
        self.latencies[_class_of(check.latency_ms)] += 1
        self.highest = max(self.highest, check.latency_ms)

    def merge(self, other: Self) -> None:
        """Add the sums of another tally."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.highest = max(self.highest, other.highest)
        self.reasons.update(other.reasons)
        self.latencies.update(other.latencies)

    def latency(self, share: float) -> float:
        """Return the latency in milliseconds that a share (0-1) of the checks stays within, by nearest rank, to 2 %."""
        rank, passed = ceil(share * self.checks), 0
        for level in sorted(self.latencies):
            passed += self.latencies[level]
            if passed >= rank:
                return min(_latency_of(level), self.highest)
        return self.highest

    def to_json(self) -> dict[str, Any]:
        sums = {name: getattr(self, name) for name in (*_SUMS, "highest")}
        return sums | {"reasons": dict(self.reasons), "latencies": {str(k): v for k, v in self.latencies.items()}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        # Days that were summed up by an earlier version know nothing of what came later.
        sums = {name: data.get(name, 0) for name in (*_SUMS, "highest")}
        latencies = Counter({int(level): count for level, count in data["latencies"].items()})
        return cls(**sums, reasons=Counter(data["reasons"]), latencies=latencies)


def _class_of(milliseconds: float) -> int:
    if milliseconds <= _WHOLE:
        return ceil(milliseconds)
    return _WHOLE + ceil(log(milliseconds / _WHOLE) / _GROWTH)


def _latency_of(level: int) -> float:
    """The upper end of a class."""
    return float(level) if level <= _WHOLE else _WHOLE * exp((level - _WHOLE) * _GROWTH)


_CHECKS, _DAYS = tables.gate_checks, tables.gate_days
_CHUNK = 5000
_COLUMNS = (
    "agent_id",
    "attempt_number",
    "decision",
    "shadow",
    "reason",
    "latency_ms",
    "token_usage",
    "usd",
    "created_at",
)


def count_new_checks(store: Store, *, most: int | None = None) -> int:
    """Add checks that are new to the tallies of their days, and return how many there were.

    Each is counted once, whoever else counts at the same time; memory does not grow with their number.

    Args:
        most: of checks, about; None: all there are.
    """
    counted = 0
    while most is None or counted < most:
        with store.connect() as connection:
            if connection.execute(sa.select(_CHECKS.c.id).where(~_CHECKS.c.counted).limit(1)).first() is None:
                break
        with store.begin() as connection:
            found = _count_chunk(connection)
        counted += found
        if found < _CHUNK:
            break
    return counted


def uncounted_checks(store: Store) -> int:
    """Return how many checks are in no tally yet."""
    with store.connect() as connection:
        return connection.execute(
            sa.select(sa.func.count()).select_from(_CHECKS).where(~_CHECKS.c.counted)
        ).scalar_one()


def day_tallies(
    store: Store, window: Window | None, agent_ids: Sequence[str] | None
) -> Iterator[tuple[str, date, CheckTally]]:
    """Yield agent, UTC day and tally of what began in a window; a day may come in parts."""
    first, last, edges = _parts(window)
    query = sa.select(_DAYS)
    if first is not None:
        query = query.where(_DAYS.c.day >= first)
    if last is not None:
        query = query.where(_DAYS.c.day <= last)
    if agent_ids is not None:
        query = query.where(_DAYS.c.agent_id.in_(agent_ids))
    with store.connect() as connection:
        for row in connection.execute(query):
            yield row.agent_id, row.day, CheckTally.from_json(row.tally)
        for edge in edges:
            for (agent_id, day), tally in _edge(connection, edge, agent_ids).items():
                yield agent_id, day, tally


def _count_chunk(connection: Connection) -> int:
    new = (
        sa.select(_CHECKS.c.id, _began(), *(_CHECKS.c[name] for name in _COLUMNS))
        .where(~_CHECKS.c.counted)
        .limit(_CHUNK)
        .with_for_update(skip_locked=True, of=_CHECKS)
    )
    rows = connection.execute(new).all()
    tallies: defaultdict[tuple[str, date], CheckTally] = defaultdict(CheckTally)
    for row in rows:
        tallies[row.agent_id, row.began.date()].add(row, first=row.began == row.created_at)
    for (agent_id, day), tally in sorted(tallies.items()):
        own = (_DAYS.c.agent_id == agent_id, _DAYS.c.day == day)
        upsert(
            connection,
            _DAYS,
            [{"agent_id": agent_id, "day": day, "tally": CheckTally().to_json()}],
            update=False,
        )
        known = connection.execute(sa.select(_DAYS.c.tally).where(*own).with_for_update()).scalar_one()
        tally.merge(CheckTally.from_json(known))
        connection.execute(sa.update(_DAYS).where(*own).values(tally=tally.to_json()))
    if rows:
        marked = sa.update(_CHECKS).where(_CHECKS.c.id == sa.bindparam("row_id")).values(counted=True)
        connection.execute(marked, [{"row_id": row.id} for row in rows])
    return len(rows)


def _began() -> sa.ColumnElement[datetime]:
    """When the action of a check began: its first check's time."""
    first = _CHECKS.alias("first")
    same = (first.c.agent_id == _CHECKS.c.agent_id, first.c.action_id == _CHECKS.c.action_id)
    earliest = sa.select(sa.func.min(first.c.created_at)).where(*same).correlate(_CHECKS).scalar_subquery()
    case = sa.case((_CHECKS.c.attempt_number == 1, _CHECKS.c.created_at), else_=earliest)
    return sa.type_coerce(case, _CHECKS.c.created_at.type).label("began")


def _parts(window: Window | None) -> tuple[date | None, date | None, list[Window]]:
    """Return the first and the last whole day of a window, and what it holds of others."""
    if window is None:
        return None, None, []
    end = window.end.astimezone(UTC)
    last = end.date() - timedelta(days=1)
    if window.start is None:
        return None, last, [Window(end=end, start=_midnight(end.date()))]
    start = window.start.astimezone(UTC)
    first = start.date() + timedelta(days=1)
    if first > end.date():
        return first, last, [Window(end=end, start=start)]
    # Checks at the very instant of midnight belong to the day that begins.
    before = Window(end=_midnight(first), start=start)
    return first, last, [before, Window(end=end, start=_midnight(end.date()))]


def _midnight(day: date) -> datetime:
    """The last instant before a day; a window excludes its start."""
    return datetime.combine(day, time(), UTC) - timedelta(microseconds=1)


def _edge(
    connection: Connection, window: Window, agent_ids: Sequence[str] | None
) -> dict[tuple[str, date], CheckTally]:
    began = _began()
    query = sa.select(began, *(_CHECKS.c[name] for name in _COLUMNS)).where(
        _CHECKS.c.created_at > window.start, _CHECKS.c.created_at <= window.end + ACTION_LIFETIME
    )
    if agent_ids is not None:
        query = query.where(_CHECKS.c.agent_id.in_(agent_ids))
    tallies: defaultdict[tuple[str, date], CheckTally] = defaultdict(CheckTally)
    for row in connection.execution_options(yield_per=_CHUNK).execute(query):
        if row.began in window:
            tallies[row.agent_id, row.began.date()].add(row, first=row.began == row.created_at)
    return tallies


_LOGS = tables.correction_logs
# Often enough that whoever asks for statistics finds next to nothing left to count.
_COUNTING_SECONDS = 10.0
_PRUNING_SECONDS = 3600.0
_MOST_AT_A_TIME = 5000
_BYPASS_DAYS = 90
_PAUSE_SECONDS = 0.05
_LOGGER = logging.getLogger(__name__)


def forget_texts(store: Store, days: int, *, now: datetime | None = None) -> int:
    """Remove the words from corrections older than some days, and return from how many; numbers and reasons in words stay apart.

    What was written, what replaced it and the judge's reasons, which quote it, become empty.
    """
    before = (now or datetime.now(UTC)) - timedelta(days=days)
    has_words = sa.or_(_LOGS.c.original_text != "", _LOGS.c.corrected_text.is_not(None), _LOGS.c.reasoning != "")
    change = sa.update(_LOGS).where(_LOGS.c.created_at < before, has_words)
    with store.begin() as connection:
        return connection.execute(change.values(original_text="", corrected_text=None, reasoning="")).rowcount


def forget_bypasses(store: Store, days: int = _BYPASS_DAYS, *, now: datetime | None = None) -> int:
    """Delete counts of bypasses older than some days, and return how many rows there were."""
    before = (now or datetime.now(UTC)) - timedelta(days=days)
    with store.begin() as connection:
        return connection.execute(
            sa.delete(tables.gate_bypasses).where(tables.gate_bypasses.c.created_at < before)
        ).rowcount


async def keep_in_order(store: Store, keep_text_days: int | None) -> None:
    """Sum checks up and forget old texts for as long as the service runs; a store that fails is tried again."""
    pool = DaemonPool(1, "gate-upkeep")
    pruned_at: float | None = None
    clock = asyncio.get_running_loop().time
    while True:
        try:
            # A backlog is worked off in pieces, between which other writers have their turn.
            while await pool.run(lambda: count_new_checks(store, most=_MOST_AT_A_TIME)) >= _MOST_AT_A_TIME:
                await asyncio.sleep(_PAUSE_SECONDS)
            if pruned_at is None or clock() - pruned_at > _PRUNING_SECONDS:
                await pool.run(partial(forget_bypasses, store))
                if keep_text_days is not None:
                    await pool.run(partial(forget_texts, store, keep_text_days))
                pruned_at = clock()
        except Exception as error:
            _LOGGER.warning("the gate's records are not put in order now: %s", type(error).__name__)
        await asyncio.sleep(_COUNTING_SECONDS)
