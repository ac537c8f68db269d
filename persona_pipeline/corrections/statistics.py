"""What the gate did, counted by action (one message over all its attempts), and what corrections did to every dimension."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.engine import Connection

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store
from persona_pipeline.corrections.counting import CheckTally, count_new_checks, day_tallies, uncounted_checks
from persona_pipeline.corrections.decision import Outcome
from persona_pipeline.world.models import Window

_RUNS = tables.evaluation_runs
_LOGS = tables.correction_logs


class DimensionChange(BaseModel):
    """A dimension's score (0-9) before the first correction and in the newest evaluation after it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    before: float | None
    after: float | None

    @property
    def change(self) -> float | None:
        """after - before; None when one of them is missing."""
        return None if self.before is None or self.after is None else self.after - self.before


class CorrectionEffect(BaseModel):
    """An agent's evaluations around its corrections.

    Attributes:
        first_correction: when the first text was rejected.
        before, after: ends of the windows that are compared: the newest that ended before, the newest of all.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    first_correction: datetime
    before: datetime
    after: datetime
    dimensions: dict[str, DimensionChange]


def correction_effects(store: Store, agent_ids: Iterable[str]) -> dict[str, CorrectionEffect]:
    """Return the effect for each agent that was evaluated both before its first correction and after it."""
    effects = {}
    with store.connect() as connection:
        for agent_id in agent_ids:
            rejected = (_LOGS.c.agent_id == agent_id, _LOGS.c.outcome == Outcome.CORRECTED.value)
            moment = connection.execute(sa.select(sa.func.min(_LOGS.c.created_at)).where(*rejected)).scalar()
            if moment is None:
                continue
            before = _newest_run(connection, agent_id, _RUNS.c.window_end <= moment)
            after = _newest_run(connection, agent_id, _RUNS.c.window_end > moment)
            if before is not None and after is not None:
                effects[agent_id] = _effect(moment, before, after)
    return effects


def _newest_run(connection: Connection, agent_id: str, when: sa.ColumnElement[bool]) -> sa.Row | None:
    query = (
        sa.select(_RUNS.c.window_end, _RUNS.c.summary)
        .where(
            _RUNS.c.agent_id == agent_id,
            _RUNS.c.status == "completed",
            _RUNS.c.synthetic.is_(False),
            _RUNS.c.summary.is_not(None),
            when,
        )
        .order_by(_RUNS.c.window_end.desc(), _RUNS.c.created_at.desc())
        .limit(1)
    )
    return connection.execute(query).one_or_none()


def _effect(moment: datetime, before: sa.Row, after: sa.Row) -> CorrectionEffect:
    old, new = _scores(before.summary), _scores(after.summary)
    names = [*old, *(name for name in new if name not in old)]
    return CorrectionEffect(
        first_correction=moment,
        before=before.window_end,
        after=after.window_end,
        dimensions={name: DimensionChange(before=old.get(name), after=new.get(name)) for name in names},
    )


def _scores(summary: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: dimension.get("score") for name, dimension in summary.get("dimensions", {}).items()}


class CheckLatency(BaseModel):
    """Milliseconds of wall-clock time of single checks, by nearest rank, to 2 %; ``highest`` is exact."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    p50: float
    p95: float
    p99: float
    highest: float


class GateStatistics(BaseModel):
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

    model_config = ConfigDict(frozen=True, extra="forbid")

    actions: int = 0
    passed: int = 0
    passed_after_retry: int = 0
    forced: int = 0
    fail_open: int = 0
    fail_open_by_reason: dict[str, int] = Field(default_factory=dict)
    shadowed: int = 0
    would_hold: int = 0
    abandoned: int = 0
    corrected: int = 0
    pass_rate: float | None = None
    first_pass_rate: float | None = None
    checks: int = 0
    rejections: int = 0
    latency_ms: CheckLatency | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_read_tokens: int = 0
    usd: float = 0.0
    unpriced_checks: int = 0
    usd_per_check: float | None = None


class CorrectionStatistics(BaseModel):
    """The gate over one window of time. ``days`` are UTC dates; an action counts, whole, where it began.

    ``effects`` holds, for agents with a correction and evaluations before and after it, every dimension's
    change. ``uncounted``: checks that are not summed up yet, as after an upgrade; the service does so as it runs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    window_start: datetime | None = None
    window_end: datetime | None = None
    total: GateStatistics = GateStatistics()
    agents: dict[str, GateStatistics] = Field(default_factory=dict)
    days: dict[date, GateStatistics] = Field(default_factory=dict)
    effects: dict[str, CorrectionEffect] = Field(default_factory=dict)
    uncounted: int = 0


def correction_statistics(
    store: Store,
    window: Window | None = None,
    *,
    agent_ids: Iterable[str] | None = None,
    most_new: int | None = None,
) -> CorrectionStatistics:
    """Return what the gate did in a window (None: ever), for some agents (None: all).

    Whole days are read as they were summed up; single checks are read where the window cuts a day, and once when they are new.

    Args:
        most_new: checks to sum up now, about; None: all that are new. What remains is ``uncounted``.
    """
    count_new_checks(store, most=most_new)
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
        effects=correction_effects(store, sorted(by_agent)),
        uncounted=0 if most_new is None else uncounted_checks(store),
    )


def _statistics(tally: CheckTally) -> GateStatistics:
    judged = tally.passed + tally.passed_after_retry + tally.forced
    unchecked = tally.reasons.total()
    # An action id that is used again ends more than once.
    actions = max(tally.actions, judged + unchecked + tally.shadowed)
    alike = {
        name: getattr(tally, name) for name in GateStatistics.model_fields if name in CheckTally.__dataclass_fields__
    }
    return GateStatistics(
        **alike
        | {
            "actions": actions,
            "fail_open": unchecked,
            "fail_open_by_reason": dict(sorted(tally.reasons.items())),
            "abandoned": actions - judged - unchecked - tally.shadowed,
            "pass_rate": (tally.passed + tally.passed_after_retry) / judged if judged else None,
            "first_pass_rate": tally.passed / judged if judged else None,
            "latency_ms": _latency(tally) if tally.checks else None,
            "cached_tokens": tally.cache_creation_tokens + tally.cache_read_tokens,
            "unpriced_checks": tally.checks - tally.priced,
            "usd_per_check": tally.usd / tally.priced if tally.priced else None,
        }
    )


def _latency(tally: CheckTally) -> CheckLatency:
    p50, p95, p99 = (tally.latency(share) for share in (0.5, 0.95, 0.99))
    return CheckLatency(p50=p50, p95=p95, p99=p99, highest=tally.highest)
