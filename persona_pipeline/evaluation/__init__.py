"""Evaluation: from a world to scores, comparisons and an exit code."""

from persona_pipeline.evaluation.gate import GateRules
from persona_pipeline.evaluation.report import AgentEvaluation, AgentReport, Finding, RunReport
from persona_pipeline.evaluation.request import EvaluationRequest
from persona_pipeline.evaluation.run import EvaluationRun, run_evaluation

__all__ = [
    "AgentEvaluation",
    "AgentReport",
    "EvaluationRequest",
    "EvaluationRun",
    "Finding",
    "GateRules",
    "RunReport",
    "run_evaluation",
]
