"""The result model every report, the store, the command line and the assets share."""

import hashlib
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from persona_pipeline.scoring.results import NOT_IN_OVERALL, DimensionEvaluation, UsageSummary, add_usage, overall_score


class AgentEvaluation(BaseModel):
    """One evaluation of one agent over one window.

    Attributes:
        run_id: derived from the inputs, so that the same inputs give the same run.
        overall: mean of the scored dimensions except ideas_quantity, 0-9; None when there is none, or one of them failed.
        sample_size: messages of the agent in the window.
        provenance: persona_hash, messages_hash, proposition hashes, judge, judge_model(s), prompt_version, world root name.
    """

    model_config = ConfigDict(extra="forbid")

    run_id: str
    agent_id: str
    display_name: str
    overall: float | None = None
    dimensions: dict[str, DimensionEvaluation] = Field(default_factory=dict)
    window_start: datetime | None = None
    window_end: datetime
    sample_size: int = 0
    synthetic: bool = False
    provenance: dict[str, Any] = Field(default_factory=dict)
    usage: UsageSummary = Field(default_factory=UsageSummary)

    def with_dimensions(self, dimensions: Mapping[str, DimensionEvaluation]) -> "AgentEvaluation":
        """Return the evaluation with these dimensions and their overall score instead of its own."""
        return self.model_copy(update={"dimensions": dict(dimensions), "overall": overall_of(dimensions)})


def overall_of(dimensions: Mapping[str, DimensionEvaluation]) -> float | None:
    """Return the mean of the dimensions' scores, 0-9; None where one of them is missing because something failed.

    A dimension to which nothing applied only leaves the mean: an agent alone has no convergence, and an overall score.
    """
    if any(item.score is None and item.failed for name, item in dimensions.items() if name not in NOT_IN_OVERALL):
        return None
    return overall_score({name: item.score for name, item in dimensions.items()})


def uuid_from(text: str) -> uuid.UUID:
    """Return a name-based UUID of a text."""
    return uuid.UUID(bytes=hashlib.sha256(text.encode()).digest()[:16], version=5)


def total_usage(dimensions: Iterable[DimensionEvaluation]) -> UsageSummary:
    """Return what several dimensions cost together."""
    return add_usage(item.usage for item in dimensions)
