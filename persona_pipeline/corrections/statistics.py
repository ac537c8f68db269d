"""What the gate did, counted by action (one message on its way out, over all its attempts) and not by row."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from math import ceil, fsum

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field

from persona_pipeline.corrections.decision import Action
from persona_pipeline.corrections.effect import CorrectionEffect, correction_effects
from persona_pipeline.corrections.records import ACTION_LIFETIME
from persona_pipeline.store import Store, tables
from persona_pipeline.world.models import Window

_CHECKS = tables.gate_checks


class Latency(BaseModel):
    """Milliseconds of wall-clock time of single checks, by nearest rank."""

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
    abandoned: int = 0
    corrected: int = 0
    pass_rate: float | None = None
    first_pass_rate: float | None = None
    checks: int = 0
    rejections: int = 0
    latency_ms: Latency | None = None
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
    change.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    window_start: datetime | None = None
    window_end: datetime | None = None
    total: GateStatistics = GateStatistics()
    agents: dict[str, GateStatistics] = Field(default_factory=dict)
    days: dict[date, GateStatistics] = Field(default_factory=dict)
    effects: dict[str, CorrectionEffect] = Field(default_factory=dict)


def correction_statistics(
    store: Store, window: Window | None = None, *, agent_ids: Iterable[str] | None = None
) -> CorrectionStatistics:
    """Return what the gate did in a window (None: ever), for some agents (None: all)."""
    query = sa.select(_CHECKS).order_by(_CHECKS.c.created_at, _CHECKS.c.attempt_number)
    if window is not None:
        query = query.where(_CHECKS.c.created_at <= window.end + ACTION_LIFETIME)
        if window.start is not None:
            query = query.where(_CHECKS.c.created_at > window.start - ACTION_LIFETIME)
    if agent_ids is not None:
        query = query.where(_CHECKS.c.agent_id.in_(list(agent_ids)))
    with store.connect() as connection:
        rows = connection.execute(query).all()
    actions: Mapping[tuple[str, str], list[sa.Row]] = defaultdict(list)
    for row in rows:
        actions[row.agent_id, row.action_id].append(row)
    if window is not None:
        actions = {key: checks for key, checks in actions.items() if checks[0].created_at in window}
    by_agent: dict[str, list[Sequence[sa.Row]]] = defaultdict(list)
    by_day: dict[date, list[Sequence[sa.Row]]] = defaultdict(list)
    for (agent_id, _), checks in actions.items():
        by_agent[agent_id].append(checks)
        by_day[checks[0].created_at.date()].append(checks)
    return CorrectionStatistics(
        window_start=window.start if window else None,
        window_end=window.end if window else None,
        total=_statistics(list(actions.values())),
        agents={agent_id: _statistics(by_agent[agent_id]) for agent_id in sorted(by_agent)},
        days={day: _statistics(by_day[day]) for day in sorted(by_day)},
        effects=correction_effects(store, sorted(by_agent)),
    )


def _statistics(actions: Sequence[Sequence[sa.Row]]) -> GateStatistics:
    endings = Counter(_ending(checks) for checks in actions)
    checks = [check for action in actions for check in action]
    passed, retried, forced = endings["passed"], endings["passed_after_retry"], endings["forced"]
    judged = passed + retried + forced
    prices = [check.usd for check in checks if check.usd is not None]
    reasons = Counter(action[-1].reason for action in actions if _ending(action) == "fail_open")
    return GateStatistics(
        actions=len(actions),
        passed=passed,
        passed_after_retry=retried,
        forced=forced,
        fail_open=endings["fail_open"],
        fail_open_by_reason=dict(sorted(reasons.items())),
        abandoned=endings["abandoned"],
        corrected=sum(any(check.decision == Action.RETRY for check in action) for action in actions),
        pass_rate=(passed + retried) / judged if judged else None,
        first_pass_rate=passed / judged if judged else None,
        checks=len(checks),
        rejections=sum(check.decision == Action.RETRY for check in checks),
        latency_ms=_latency([check.latency_ms for check in checks]),
        input_tokens=_tokens(checks, "input_tokens"),
        output_tokens=_tokens(checks, "output_tokens"),
        cached_tokens=_tokens(checks, "cache_creation_tokens") + _tokens(checks, "cache_read_tokens"),
        cache_read_tokens=_tokens(checks, "cache_read_tokens"),
        usd=fsum(prices),
        unpriced_checks=len(checks) - len(prices),
        usd_per_check=fsum(prices) / len(prices) if prices else None,
    )


def _ending(checks: Sequence[sa.Row]) -> str:
    last = checks[-1]
    if last.decision == Action.RETRY:
        return "abandoned"
    if last.decision == Action.FORCE:
        return "forced"
    if last.reason is not None:
        return "fail_open"
    return "passed" if last.attempt_number == 1 else "passed_after_retry"


def _tokens(checks: Iterable[sa.Row], name: str) -> int:
    usages: Iterable[Mapping[str, int]] = (check.token_usage or {} for check in checks)
    return sum(usage.get(name, 0) for usage in usages)


def _latency(milliseconds: Sequence[float]) -> Latency | None:
    if not milliseconds:
        return None
    ordered = sorted(milliseconds)
    p50, p95, p99 = (ordered[ceil(share * len(ordered)) - 1] for share in (0.5, 0.95, 0.99))
    return Latency(p50=p50, p95=p95, p99=p99, highest=ordered[-1])
