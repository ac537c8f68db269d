"""Scorers: one file a dimension, registered by name."""

from persona_pipeline.scoring.adherence import plan_adherence
from persona_pipeline.scoring.aggregate import final_score, overall_score, weighted_mean
from persona_pipeline.scoring.case import AgentCase
from persona_pipeline.scoring.consistency import plan_consistency
from persona_pipeline.scoring.convergence import plan_convergence
from persona_pipeline.scoring.fluency import plan_fluency
from persona_pipeline.scoring.ideas_quantity import plan_ideas_quantity
from persona_pipeline.scoring.plan import DimensionPlan, Scorer
from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult

SCORERS: dict[str, Scorer] = {
    "adherence": plan_adherence,
    "consistency": plan_consistency,
    "fluency": plan_fluency,
    "convergence": plan_convergence,
    "ideas_quantity": plan_ideas_quantity,
}

__all__ = [
    "SCORERS",
    "AgentCase",
    "DimensionEvaluation",
    "DimensionPlan",
    "PropositionResult",
    "Scorer",
    "final_score",
    "overall_score",
    "weighted_mean",
]
