"""A run in one line."""

from typing import Any

from persona_pipeline.evaluation.history import load_run
from persona_pipeline.evaluation.request import EvaluationRequest
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.guard.report import AgentEvaluation, RunReport
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.world import World


def evaluate_world(world: World, *, judge: Judge, **asked: Any) -> RunReport:
    """Evaluate agents and return the whole run; ``asked``: see ``EvaluationRequest``."""
    return run_evaluation(world, judge, EvaluationRequest(**asked)).report


def evaluate_agent(world: World, agent_id: str, *, judge: Judge, **asked: Any) -> AgentEvaluation:
    """Evaluate one agent and return its whole run as it is saved, however much of it was asked for."""
    run = evaluate_world(world, judge=judge, agents=[agent_id], **asked).agents[agent_id].evaluation
    saved = load_run(world.store, run.run_id)
    assert saved is not None
    return saved.evaluation
