"""Runs as the page shows them: all agents' newest, an agent's windows, a claim before and after, and suites with their tests."""

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.evaluation import history
from persona_pipeline.evaluation.history import report_of
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.guard.baselines.golden import BASELINES, find_baseline
from persona_pipeline.guard.gate import GateRules
from persona_pipeline.guard.report import AgentReport, RunReport
from persona_pipeline.reporting.pages.browser import MOST_DRAWN, AgentBlock
from persona_pipeline.reporting.view import ReportView
from persona_pipeline.scoring.messages.verdicts import LOWEST_SHARE, Role
from persona_pipeline.suites.grading.results import TestResult, pass_interval
from persona_pipeline.viewer.messages import messages_by_id
from persona_pipeline.world.models import Window
from persona_pipeline.world.runs import counting_rows, find_run, is_latest_verdict, overall_rows, summary_rows
from persona_pipeline.world.world import World

_SUITES, _VERDICTS = tables.suite_runs, tables.message_verdicts
MOST_SUITE_RUNS, MOST_TESTS, WEEKS = 200, 100, 8


def everybody(world: World) -> dict[str, Any]:
    """Return the newest evaluation of every agent of the world, and of agents that only the store still knows.

    ``rows``: agents that need a look come first; ``lines``: overall scores, oldest first; ``silent``: agents never evaluated;
    ``weeks``, ``shares``: see ``weekly_shares``.
    """
    own = world.agent_ids()
    reports = WorldReader(world).reports({*own, *world.display_names()}, whole=0)
    view = ReportView(report_of(reports, GateRules()) if reports else RunReport())
    scored = history.overall_points(reports, overall_rows(world.store, until=world.horizon, most=MOST_DRAWN))
    weeks, shares = weekly_shares(world)
    return {
        "view": view,
        "rows": sorted(view.rows, key=lambda row: (row.severity, row.name)),
        "lines": {agent_id: [*points.values()] for agent_id, points in scored.items()},
        "silent": [agent_id for agent_id in own if agent_id not in reports],
        "weeks": weeks,
        "shares": shares,
    }


@dataclass(frozen=True)
class WeekShare:
    """The verdicts on an agent's messages of a week: ``n_in`` in character, of ``n`` that are in or out of character."""

    n_in: int
    n: int

    @property
    def tone(self) -> str:
        """The colour of the cell: bad below the share that a baseline needs."""
        if not self.n:
            return "none"
        return "bad" if self.n_in < LOWEST_SHARE * self.n else "warn" if self.n_in < self.n else "good"


def weekly_shares(world: World) -> tuple[list[Window], dict[str, dict[int, WeekShare]]]:
    """Return the 8 weeks up to the newest message, oldest first, and by agent the share of each week with verdicts."""
    newest = world.newest_message_time()
    if newest is None:
        return [], {}
    length = timedelta(weeks=1)
    weeks = [Window.ending(newest - place * length, length) for place in reversed(range(WEEKS))]
    week = sa.case(*((_VERDICTS.c.said_at <= window.end, place) for place, window in enumerate(weeks))).label("week")
    counted = [sa.func.count().filter(_VERDICTS.c.verdict == role) for role in (Role.IN, Role.OUT)]
    query = (
        sa.select(_VERDICTS.c.agent_id, week, *(count.label(f"n_{place}") for place, count in enumerate(counted)))
        .where(_VERDICTS.c.said_at > newest - WEEKS * length, _VERDICTS.c.said_at <= newest, is_latest_verdict())
        .group_by(_VERDICTS.c.agent_id, "week")
    )
    found: dict[str, dict[int, WeekShare]] = {}
    for agent_id, place, n_in, n_out in world.store.rows(query):
        found.setdefault(agent_id, {})[place] = WeekShare(n_in, n_in + n_out)
    return weeks, found


@dataclass(frozen=True)
class RunLine:
    """One window's run of an agent, as far as a list shows it."""

    id: str
    window: Window
    overall: float | None


def newest_runs(store: Store, agent_id: str) -> list[RunLine]:
    """Return the run that counts of each window of an agent, the newest first."""
    return [
        RunLine(str(row.id), Window(row.window_end, row.window_start), row.overall_score)
        for row in counting_rows(store, agent_id)
    ]


def agent_page(world: World, agent_id: str, run_id: str = "") -> dict[str, Any] | None:
    """Return the page of an agent for one of its ``runs``; by default the newest. None: the run does not exist."""
    lines = newest_runs(world.store, agent_id)
    line = next((item for item in lines if run_id in ("", item.id)), None)
    saved = stored_run(world.store, line.id) if line else None
    if line is None or saved is None:
        return None
    report = report_of({agent_id: saved}, GateRules())
    row = ReportView(report).rows[0]
    points = history.points_of([agent_id], summary_rows(world.store, [agent_id]))
    block = AgentBlock(row, "agent", history.score_history(points)[agent_id])
    return {"row": row, "block": block, "runs": lines, "run": line}


def stored_run(store: Store, run_id: str) -> AgentReport | None:
    """Return a complete run; None: the id is unknown, or the run's results for claims were removed."""
    try:
        return history.saved_run(find_run(store, str(uuid.UUID(run_id))))
    except ValueError:
        return None


def before_and_after(
    world: World, agent_id: str, dimension: str, claim_id: str, *, before: str = "", after: str = ""
) -> dict[str, Any] | None:
    """Return a claim in two runs: by default the run of the baseline's window and the newest. None: the agent has no runs.

    ``missing``: the end of the baseline's window, if the store has no run of it.
    """
    lines = newest_runs(world.store, agent_id)
    by_id = {item.id: item for item in lines}
    if not lines:
        return None
    now, missing = by_id.get(after, lines[0]), None
    then = by_id.get(before)
    if then is None:
        ends = _baseline_ends(world, agent_id, dimension)
        then = next((item for item in lines if item.window.end in ends and item != now), None)
        missing = max(ends) if then is None and ends and now.window.end not in ends else None
    return {
        "before": _side(world.store, then, dimension, claim_id) if then else None,
        "after": _side(world.store, now, dimension, claim_id),
        "runs": lines,
        "missing": missing,
    }


def _baseline_ends(world: World, agent_id: str, dimension: str) -> set[datetime]:
    """Return the ends of the windows of a dimension's baseline, as far as its file has them."""
    try:
        baseline = find_baseline(world.rules_root / BASELINES, agent_id)
    except ConfigError:
        # `validate` reports errors in the file; the page shows what it can.
        return set()
    of_dimension: Any = (baseline.provenance.get("dimensions", {}) if baseline else {}).get(dimension, {})
    recorded = of_dimension.get("recordings") or [{"end": of_dimension.get("window_end")}]
    return {datetime.fromisoformat(item["end"]) for item in recorded if item.get("end")}


def _side(store: Store, line: RunLine, dimension: str, claim_id: str) -> dict[str, Any]:
    """Return a run's result for a claim. ``lines``: the quotes, each with its message (None: removed)."""
    saved = stored_run(store, line.id)
    judged = saved.evaluation.dimensions.get(dimension) if saved else None
    result = judged.propositions.get(claim_id) if judged else None
    # Samples of a judgment quote the same.
    evidence = {(item.message_id, item.quote): item for item in (result.evidence if result else ())}.values()
    cited = messages_by_id(store, {item.message_id for item in evidence if item.message_id})
    return {"run": line, "result": result, "lines": [(item, cited.get(item.message_id or "")) for item in evidence]}


def suite_runs(store: Store, suite: str = "") -> Sequence[sa.Row]:
    """Return the newest runs of suites ("": of all), each with its summary and without the results of its tests."""
    columns = [_SUITES.c[name] for name in ("id", "suite", "target", "verdict", "score", "created_at")]
    summary = _SUITES.c.result["summary"].label("summary")
    query = sa.select(*columns, summary).order_by(_SUITES.c.created_at.desc(), _SUITES.c.id).limit(MOST_SUITE_RUNS)
    return store.rows(query.where(_SUITES.c.suite == suite) if suite else query)


def passed_text(summary: Mapping[str, Any]) -> str:
    """Return how many tests of a run passed, with the 95 % interval of their share."""
    interval = pass_interval(summary)
    return f"{summary['passed']} of {summary['total']}" + (
        f" ({interval[0]:.0%}–{interval[1]:.0%})" if interval else ""
    )


def suite_run_page(store: Store, run_id: str, *, verdict: str = "", page: int = 1) -> dict[str, Any] | None:
    """Return a page of the tests of a run with this verdict; None: the run does not exist.

    ``verdict``: ``failed`` is every test that did not pass or nearly pass; "" is all. ``counts``: tests of the run by verdict.
    """
    try:
        query = sa.select(_SUITES).where(_SUITES.c.id == uuid.UUID(run_id))
    except ValueError:
        return None
    run = store.row(query)
    if run is None:
        return None
    tests = run.result["tests"]
    wanted = ("fail", "error") if verdict == "failed" else (verdict,)
    chosen = [test for test in tests if not verdict or test["verdict"] in wanted]
    pages = max(1, -(-len(chosen) // MOST_TESTS))
    page = min(max(1, page), pages)
    return {
        "run": run,
        "counts": Counter(test["verdict"] for test in tests),
        "tests": [TestResult.from_dict(test) for test in chosen[(page - 1) * MOST_TESTS : page * MOST_TESTS]],
        "page": page,
        "pages": pages,
    }
