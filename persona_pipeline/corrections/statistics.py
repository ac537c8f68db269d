"""What the gate did: checks summed up by day as they come, and counted by action."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from math import ceil, exp, log
from typing import Any, Self

import sqlalchemy as sa
from pydantic import BaseModel, Field
from sqlalchemy.engine import Connection

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, pruning_time, upsert
from persona_pipeline.corrections.records import ACTION_LIFETIME, Action
from persona_pipeline.world.models import Window

# Latencies are kept in classes: of whole milliseconds up to here, of 2 % width above.
_WHOLE = 200
_GROWTH = log(1.02)
_TOKENS = ("input_tokens", "output_tokens", "cache_creation_tokens", "cache_read_tokens")


class _Counts(BaseModel):
    """What is counted of actions and checks, and of one day as of all."""

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
    cache_read_tokens: int = 0
    usd: float = 0.0


class CheckTally(_Counts):
    """Sums over checks. An action is one message over all its attempts; it ends with the check that sends it.

    Attributes:
        shadowed: actions that a gate only watched; ``would_hold`` of them were below the threshold.
        reasons: actions sent without a score, by why.
        latencies: checks by class of latency; ``highest`` is exact, in milliseconds.
        priced: checks whose price is known; ``usd`` is the sum of their prices.
    """

    cache_creation_tokens: int = 0
    priced: int = 0
    highest: float = 0.0
    reasons: Counter[str] = Field(default_factory=Counter)
    latencies: Counter[int] = Field(default_factory=Counter)

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
                # The upper end of its class.
                upper = level if level <= _WHOLE else _WHOLE * exp((level - _WHOLE) * _GROWTH)
                return min(float(upper), self.highest)
        return self.highest


# What adds up; the rest is the highest, and counts by reason and class.
_SUMS = tuple(name for name in CheckTally.model_fields if name not in ("highest", "reasons", "latencies"))


def _class_of(milliseconds: float) -> int:
    if milliseconds <= _WHOLE:
        return ceil(milliseconds)
    return _WHOLE + ceil(log(milliseconds / _WHOLE) / _GROWTH)


_CHECKS, _DAYS = tables.gate_checks, tables.gate_days
_CHUNK = 5000
_COLUMNS = (
    *("agent_id", "attempt_number", "created_at"),
    *("decision", "shadow", "reason", "latency_ms", "token_usage", "usd"),
)


def count_new_checks(store: Store, *, most: int | None = None) -> int:
    """Add checks that are new to the tallies of their days, and return how many there were.

    Each is counted once, whoever else counts at the same time; memory does not grow with their number. ``most``: of checks,
    about; None: all there are.
    """
    counted = 0
    while most is None or counted < most:
        if store.value(sa.select(_CHECKS.c.id).where(~_CHECKS.c.counted).limit(1)) is None:
            break
        with store.begin() as connection:
            found = _count_chunk(connection)
        counted += found
        if found < _CHUNK:
            break
    return counted


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
            yield row.agent_id, row.day, CheckTally.model_validate(row.tally)
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
    for (agent_id, day), tally in sorted(_tallied(rows).items()):
        own = (_DAYS.c.agent_id == agent_id, _DAYS.c.day == day)
        new = {"agent_id": agent_id, "day": day, "tally": CheckTally().model_dump(mode="json")}
        upsert(connection, _DAYS, [new], update=False)
        known = connection.execute(sa.select(_DAYS.c.tally).where(*own).with_for_update()).scalar_one()
        tally.merge(CheckTally.model_validate(known))
        connection.execute(sa.update(_DAYS).where(*own).values(tally=tally.model_dump(mode="json")))
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
    rows = connection.execution_options(yield_per=_CHUNK).execute(query)
    return _tallied(row for row in rows if row.began in window)


def _tallied(checks: Iterable[Any]) -> dict[tuple[str, date], CheckTally]:
    """Return tallies by agent and the day that an action began."""
    tallies: defaultdict[tuple[str, date], CheckTally] = defaultdict(CheckTally)
    for check in checks:
        tallies[check.agent_id, check.began.date()].add(check, first=check.began == check.created_at)
    return tallies


_BYPASS_DAYS = 90


def forget_texts(store: Store, days: int, *, now: datetime | None = None) -> int:
    """Remove the words from corrections older than some days, and return from how many; numbers and reasons in words stay apart.

    What was written, what replaced it and the judge's reasons, which quote it, become empty.
    """
    before = (now or pruning_time()) - timedelta(days=days)
    has_words = sa.or_(_LOGS.c.original_text != "", _LOGS.c.corrected_text.is_not(None), _LOGS.c.reasoning != "")
    change = sa.update(_LOGS).where(_LOGS.c.created_at < before, has_words)
    with store.begin() as connection:
        return connection.execute(change.values(original_text="", corrected_text=None, reasoning="")).rowcount


def forget_bypasses(store: Store, days: int = _BYPASS_DAYS, *, now: datetime | None = None) -> int:
    """Delete counts of bypasses older than some days, and return how many rows there were."""
    before = (now or pruning_time()) - timedelta(days=days)
    with store.begin() as connection:
        return connection.execute(
            sa.delete(tables.gate_bypasses).where(tables.gate_bypasses.c.created_at < before)
        ).rowcount


_LOGS = tables.correction_logs


class CheckLatency(BaseModel, frozen=True, extra="forbid"):
    """Milliseconds of wall-clock time of single checks, by nearest rank, to 2 %; ``highest`` is exact."""

    p50: float
    p95: float
    p99: float
    highest: float


class GateStatistics(_Counts, extra="forbid"):
    """Actions of one agent, one day or all together.

    Attributes:
        passed: reached the threshold at the first attempt.
        passed_after_retry: reached it at a later one.
        forced: sent below the threshold after the last attempt.
        fail_open: sent without a score, ``fail_open_by_reason`` says why.
        shadowed: sent whatever the score, as the gate only watched; ``would_hold`` of them it would have sent back.
        abandoned: rejected, and nothing came after that.
        corrected: rejected at least once, however they ended.
        pass_rate: (passed + passed_after_retry) / actions that ended with a score, 0-1; None without one.
        first_pass_rate: passed / the same, 0-1.
        checks: single checks of all attempts; ``rejections`` of them asked for another attempt.
        input_tokens: without those of a cached prefix; ``cached_tokens``: written to or read from the API's cache,
            of them ``cache_read_tokens`` read.
        usd: price of the checks in US dollars, as far as it is known; ``unpriced_checks``: of how many it is not.
    """

    fail_open: int = 0
    fail_open_by_reason: dict[str, int] = Field(default_factory=dict)
    abandoned: int = 0
    pass_rate: float | None = None
    first_pass_rate: float | None = None
    latency_ms: CheckLatency | None = None
    cached_tokens: int = 0
    unpriced_checks: int = 0
    usd_per_check: float | None = None


class CorrectionStatistics(BaseModel, frozen=True, extra="forbid"):
    """The gate over one window of time. ``days`` are UTC dates; an action counts, whole, where it began.

    ``uncounted``: checks that are not summed up yet, as after an upgrade; the service does so as it runs.
    """

    window_start: datetime | None = None
    window_end: datetime | None = None
    total: GateStatistics = GateStatistics()
    agents: dict[str, GateStatistics] = Field(default_factory=dict)
    days: dict[date, GateStatistics] = Field(default_factory=dict)
    uncounted: int = 0


def correction_statistics(
    store: Store, window: Window | None = None, *, agent_ids: Iterable[str] | None = None, most_new: int | None = None
) -> CorrectionStatistics:
    """Return what the gate did in a window (None: ever), for some agents (None: all).

    Whole days are read as they were summed up; single checks are read where the window cuts a day, and once when they are new.

    Args:
        most_new: checks to sum up now, about; None: all that are new. What remains is ``uncounted``.
    """
    count_new_checks(store, most=most_new)
    waiting = sa.select(sa.func.count()).select_from(_CHECKS).where(~_CHECKS.c.counted)
    total = CheckTally()
    by_agent, by_day = defaultdict[str, CheckTally](CheckTally), defaultdict[date, CheckTally](CheckTally)
    for agent_id, day, tally in day_tallies(store, window, None if agent_ids is None else list(agent_ids)):
        by_agent[agent_id].merge(tally)
        by_day[day].merge(tally)
    for tally in by_agent.values():
        total.merge(tally)
    return CorrectionStatistics(
        window_start=window.start if window else None,
        window_end=window.end if window else None,
        total=_statistics(total),
        agents={agent_id: _statistics(by_agent[agent_id]) for agent_id in sorted(by_agent)},
        days={day: _statistics(by_day[day]) for day in sorted(by_day)},
        uncounted=0 if most_new is None else store.value(waiting),
    )


def _statistics(tally: CheckTally) -> GateStatistics:
    judged = tally.passed + tally.passed_after_retry + tally.forced
    unchecked = tally.reasons.total()
    # An action id that is used again ends more than once.
    actions = max(tally.actions, judged + unchecked + tally.shadowed)
    p50, p95, p99 = (tally.latency(share) for share in (0.5, 0.95, 0.99))
    latency = CheckLatency(p50=p50, p95=p95, p99=p99, highest=tally.highest)
    return GateStatistics(
        **{name: getattr(tally, name) for name in _Counts.model_fields}
        | {
            "actions": actions,
            "fail_open": unchecked,
            "fail_open_by_reason": dict(sorted(tally.reasons.items())),
            "abandoned": actions - judged - unchecked - tally.shadowed,
            "pass_rate": (tally.passed + tally.passed_after_retry) / judged if judged else None,
            "first_pass_rate": tally.passed / judged if judged else None,
            "latency_ms": latency if tally.checks else None,
            "cached_tokens": tally.cache_creation_tokens + tally.cache_read_tokens,
            "unpriced_checks": tally.checks - tally.priced,
            "usd_per_check": tally.usd / tally.priced if tally.priced else None,
        }
    )
