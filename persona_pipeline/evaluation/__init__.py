"""Evaluation: from a world to scores, comparisons and an exit code."""

from persona_pipeline.evaluation.engine import evaluate_agent, evaluate_agents, evaluate_world
from persona_pipeline.evaluation.gate import GateRules
from persona_pipeline.evaluation.report import AgentReport, Finding, RunReport
from persona_pipeline.evaluation.results import AgentEvaluation

__all__ = [
    "AgentEvaluation",
    "AgentReport",
    "Finding",
    "GateRules",
    "RunReport",
    "evaluate_agent",
    "evaluate_agents",
    "evaluate_world",
]
