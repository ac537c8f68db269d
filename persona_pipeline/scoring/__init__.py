"""Scorers: one file a dimension, named by the dimension's declaration."""

from persona_pipeline.scoring.plan import AgentCase, DimensionPlan, Scorer, load_scorer
from persona_pipeline.scoring.results import (
    DimensionEvaluation,
    PropositionResult,
    final_score,
    overall_score,
    weighted_mean,
)
from persona_pipeline.world.propositions.dimensions import DIMENSIONS

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
