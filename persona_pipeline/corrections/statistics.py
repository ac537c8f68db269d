"""Statistics of the gate, counted by action in SQL, and removal of old texts and bypasses."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from math import ceil
from typing import Any

import sqlalchemy as sa
from pydantic import BaseModel, Field
from sqlalchemy.engine import RowMapping

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, pruning_time
from persona_pipeline.corrections.records import ACTION_LIFETIME, Action
from persona_pipeline.world.models import Window

_CHECKS, _LOGS, _BYPASSES = tables.gate_checks, tables.correction_logs, tables.gate_bypasses


class CheckLatency(BaseModel, frozen=True, extra="forbid"):
    """Milliseconds of wall-clock time of single checks, by nearest rank, to 2 %; ``highest`` is exact."""

    p50: float
    p95: float
    p99: float
    highest: float


class GateStatistics(BaseModel, extra="forbid"):
    """Actions of an agent, a day, or all together. An action is one message over all its attempts.

    Attributes:
        passed: reached the threshold at the first attempt.
        passed_after_retry: reached it at a later attempt.
        forced: sent below the threshold after the last attempt.
        fail_open: sent without a score, for the reasons in ``fail_open_by_reason``.
        shadowed: sent whatever the score, as the gate only watched; it would have sent back ``would_hold`` of them.
        abandoned: rejected, without a later attempt.
        corrected: rejected at least once, however they ended.
        pass_rate: (passed + passed_after_retry) / actions that ended with a score, 0-1; None without one.
        first_pass_rate: passed / the same, 0-1.
        checks: single checks of all attempts; ``rejections`` of them asked for another attempt.
        input_tokens: without cached ones; ``cached_tokens``: written to or read from the API's cache, ``cache_read_tokens`` of them
            read.
        usd: known price of the checks in US dollars; ``unpriced_checks``: checks without a known price.
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
    cache_read_tokens: int = 0
    usd: float = 0.0
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
    """The gate in one window of time. An action counts as a whole where its first check was. ``days`` are UTC dates."""

    window_start: datetime | None = None
    window_end: datetime | None = None
    total: GateStatistics = GateStatistics()
    agents: dict[str, GateStatistics] = Field(default_factory=dict)
    days: dict[date, GateStatistics] = Field(default_factory=dict)


def correction_statistics(
    store: Store, window: Window | None = None, *, agent_ids: Iterable[str] | None = None
) -> CorrectionStatistics:
    """Return the gate's statistics for a window (None: all time) and some agents (None: all)."""
    checks = _checks(store, window, None if agent_ids is None else list(agent_ids))
    total, agents, days = _Tally(), defaultdict[str, _Tally](_Tally), defaultdict[date, _Tally](_Tally)
    with store.connect() as connection:
        for row in connection.execute(_sums(checks)).mappings():
            for tally in (total, agents[row["agent_id"]], days[_date(row["day"])]):
                tally.add(row)
    return CorrectionStatistics(
        window_start=window.start if window else None,
        window_end=window.end if window else None,
        total=total.statistics(),
        agents={agent_id: agents[agent_id].statistics() for agent_id in sorted(agents)},
        days={day: days[day].statistics() for day in sorted(days)},
    )


_SUMS = (
    "actions", "passed", "passed_after_retry", "forced", "shadowed", "would_hold", "corrected", "checks", "rejections",
    "input_tokens", "output_tokens", "cache_creation_tokens", "cache_read_tokens", "usd", "priced",
)  # fmt: skip


@dataclass
class _Tally:
    sums: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    latencies: Counter[float] = field(default_factory=Counter)
    highest: float = 0.0

    def add(self, row: RowMapping) -> None:
        self.sums.update({name: row[name] or 0 for name in _SUMS})
        self.highest = max(self.highest, row["highest"])
        self.latencies[float(row["level"])] += row["checks"]
        if row["reason"] is not None:
            self.reasons[row["reason"]] += row["checks"]

    def statistics(self) -> GateStatistics:
        sums, unchecked = self.sums, self.reasons.total()
        judged = sums["passed"] + sums["passed_after_retry"] + sums["forced"]
        # An action id that is used again ends more than once.
        actions = max(sums["actions"], judged + unchecked + sums["shadowed"])
        known: dict[str, Any] = {name: sums[name] for name in _SUMS if name in GateStatistics.model_fields}
        return GateStatistics(
            **known
            | {
                "actions": actions,
                "fail_open": unchecked,
                "fail_open_by_reason": dict(sorted(self.reasons.items())),
                "abandoned": actions - judged - unchecked - sums["shadowed"],
                "pass_rate": (sums["passed"] + sums["passed_after_retry"]) / judged if judged else None,
                "first_pass_rate": sums["passed"] / judged if judged else None,
                "latency_ms": self._latency() if self.latencies else None,
                "cached_tokens": sums["cache_creation_tokens"] + sums["cache_read_tokens"],
                "unpriced_checks": sums["checks"] - sums["priced"],
                "usd_per_check": sums["usd"] / sums["priced"] if sums["priced"] else None,
            }
        )

    def _latency(self) -> CheckLatency:
        levels, found = sorted(self.latencies.items()), list[float]()
        for share in (0.5, 0.95, 0.99):
            rank, passed = ceil(share * self.latencies.total()), 0
            for level, count in levels:
                passed += count
                if passed >= rank:
                    found.append(min(level, self.highest))
                    break
        p50, p95, p99 = found
        return CheckLatency(p50=p50, p95=p95, p99=p99, highest=self.highest)


def _checks(store: Store, window: Window | None, agent_ids: list[str] | None) -> sa.Subquery:
    """Return the checks of a window with the day and the first check of their action."""
    first = _CHECKS.alias("first")
    same = (first.c.agent_id == _CHECKS.c.agent_id, first.c.action_id == _CHECKS.c.action_id)
    # Not the least time: for that SQLite reads all checks of the agent in the order of time.
    by_attempt = (
        sa.select(first.c.created_at).where(*same).order_by(first.c.attempt_number, first.c.created_at).limit(1)
    )
    earliest = by_attempt.correlate(_CHECKS).scalar_subquery()
    began = sa.case((_CHECKS.c.attempt_number == 1, _CHECKS.c.created_at), else_=earliest)
    query = sa.select(_CHECKS, sa.type_coerce(began, _CHECKS.c.created_at.type).label("began"))
    if agent_ids is not None:
        query = query.where(_CHECKS.c.agent_id.in_(agent_ids))
    if window is not None:
        query = query.where(_CHECKS.c.created_at <= window.end + ACTION_LIFETIME)
    if window is not None and window.start is not None:
        query = query.where(_CHECKS.c.created_at > window.start)
    found = query.subquery("checks")
    utc_day = (
        sa.func.date(found.c.began) if store.is_sqlite else sa.cast(sa.func.timezone("UTC", found.c.began), sa.Date())
    )
    dated = sa.select(found, utc_day.label("day"), (found.c.began == found.c.created_at).label("is_first"))
    if window is not None:
        dated = dated.where(found.c.began <= window.end)
    if window is not None and window.start is not None:
        dated = dated.where(found.c.began > window.start)
    return dated.subquery("dated")


def _date(day: date | str) -> date:
    # SQLite has no type for dates.
    return date.fromisoformat(day) if isinstance(day, str) else day


def _sums(checks: sa.Subquery) -> "sa.Select[*tuple[Any, ...]]":
    """Return the query for sums by agent, day, reason of actions that were sent without a score, and class of latency.

    ``level``: the upper end of the class in milliseconds.
    """
    c = checks.c
    watched, rejected = c.shadow, sa.and_(c.decision == Action.RETRY, ~c.shadow)
    sent = sa.and_(c.decision == Action.COMMIT, ~c.shadow)
    scored, reason = sa.and_(sent, c.reason.is_(None)), sa.case((sent, c.reason))

    def number(*conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
        return sa.func.sum(sa.case((sa.and_(*conditions), 1), else_=0))

    def tokens(name: str) -> sa.ColumnElement[int]:
        return sa.func.sum(c.token_usage[name].as_integer())

    sums = {
        "actions": number(c.is_first),
        "passed": number(scored, c.attempt_number == 1),
        "passed_after_retry": number(scored, c.attempt_number != 1),
        "forced": number(c.decision == Action.FORCE, ~watched),
        "shadowed": number(watched),
        "would_hold": number(watched, c.decision != Action.COMMIT),
        "corrected": number(c.is_first, rejected),
        "checks": sa.func.count(),
        "rejections": number(rejected),
        "usd": sa.func.sum(c.usd),
        "priced": sa.func.count(c.usd),
        "highest": sa.func.max(c.latency_ms),
    } | {name: tokens(name) for name in _SUMS if name.endswith("_tokens")}
    columns = [column.label(name) for name, column in sums.items()]
    width = sa.case((c.latency_ms <= 200, 1.0), (c.latency_ms <= 1000, 4.0), (c.latency_ms <= 5000, 20.0), else_=100.0)
    # Rounded up: neither database has the same function for that.
    level = width * sa.func.round(c.latency_ms / width + 0.499999)
    by = (c.agent_id, c.day, reason.label("reason"), level.label("level"))
    return sa.select(*by, *columns).group_by(*by)


_BYPASS_DAYS = 90


def forget_texts(store: Store, days: int, *, now: datetime | None = None) -> int:
    """Empty texts and reasons of corrections older than some days, and return the number of rows; scores stay."""
    before = (now or pruning_time()) - timedelta(days=days)
    has_words = sa.or_(_LOGS.c.original_text != "", _LOGS.c.corrected_text.is_not(None), _LOGS.c.reasoning != "")
    change = sa.update(_LOGS).where(_LOGS.c.created_at < before, has_words)
    with store.begin() as connection:
        return connection.execute(change.values(original_text="", corrected_text=None, reasoning="")).rowcount


def forget_bypasses(store: Store, days: int = _BYPASS_DAYS, *, now: datetime | None = None) -> int:
    """Delete counts of bypasses older than some days, and return the number of rows."""
    before = (now or pruning_time()) - timedelta(days=days)
    with store.begin() as connection:
        return connection.execute(sa.delete(_BYPASSES).where(_BYPASSES.c.created_at < before)).rowcount
