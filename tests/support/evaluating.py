"""A run in one line, and what the store has of runs in another."""

from collections.abc import Iterator, Sequence
from typing import Any

from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.history import (
    OUTLINE,
    Point,
    outlines,
    points_of,
    report_of,
    saved_run,
    saved_runs,
    score_history,
)
from persona_pipeline.evaluation.plan import AgentPlan, plans_of
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.guard.gate import GateRules
from persona_pipeline.guard.report import AgentEvaluation, AgentReport, RunReport
from persona_pipeline.judging.verdict import Judge, JudgeRequest
from persona_pipeline.world import World, runs


def evaluate_world(world: World, *, judge: Judge, **asked: Any) -> RunReport:
    """Evaluate agents and return the whole run; ``asked``: see ``EvaluationRequest``."""
    return run_evaluation(world, judge, EvaluationRequest(**asked)).report


def evaluate_agent(world: World, agent_id: str, *, judge: Judge, **asked: Any) -> AgentEvaluation:
    """Evaluate one agent and return its whole run as it is saved, however much of it was asked for."""
    run = evaluate_world(world, judge=judge, agents=[agent_id], **asked).agents[agent_id].evaluation
    saved = load_run(world.store, run.run_id)
    assert saved is not None
    return saved.evaluation


def load_run(store: Store, run_id: str) -> AgentReport | None:
    """Return a run as it was saved."""
    return saved_run(runs.find_run(store, run_id))


def newest_run(store: Store, agent_id: str) -> AgentReport | None:
    """Return the run that counts of an agent's newest window."""
    return saved_run(runs.newest_run_row(store, agent_id))


def latest_runs(store: Store, agent_id: str) -> list[AgentReport]:
    """Return the runs that count of an agent's windows, the oldest first."""
    return saved_runs(runs.runs_by_window(store, agent_id))


def newest_outlines(store: Store) -> dict[str, AgentReport]:
    """Return everybody's newest compared run without its claims."""
    return outlines(runs.newest_rows(store, OUTLINE))


def stored_history(store: Store, agent_ids: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Return agents' saved scores by window end, as a report draws them."""
    points: dict[str, list[Point]] = points_of(agent_ids, runs.summary_rows(store, agent_ids))
    return score_history(points)


def stored_report(world: World, agents: Sequence[str], whole: int | None = None) -> RunReport:
    """Return a report of agents' newest runs."""
    return report_of(WorldReader(world).reports(agents, whole=whole), GateRules())


def planned(world: World, request: EvaluationRequest) -> Iterator[AgentPlan]:
    """Return what a run would ask for first, agent by agent."""
    request = world.settled(request)
    return plans_of(WorldReader(world).inputs(request), request)


def planned_requests(world: World, request: EvaluationRequest) -> list[JudgeRequest]:
    """Return every judgment a run would ask for first."""
    request = world.settled(request)
    plans = plans_of(WorldReader(world).inputs(request), request)
    return [asked for plan in plans for asked in plan.requests]
