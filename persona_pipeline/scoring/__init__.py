"""Scorers: one file a dimension, named by the dimension's declaration."""

from persona_pipeline.propositions.dimensions import DIMENSIONS
from persona_pipeline.scoring.aggregate import final_score, overall_score, weighted_mean
from persona_pipeline.scoring.case import AgentCase
from persona_pipeline.scoring.plan import DimensionPlan, Scorer, load_scorer
from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult

SCORERS: dict[str, Scorer] = {name: load_scorer(item) for name, item in DIMENSIONS.items()}

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
