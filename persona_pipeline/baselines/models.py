"""Golden baselines and what a comparison with one finds."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Baseline(BaseModel):
    """Golden scores of one agent, ``baselines/<agent_id>.json``.

    ``dimensions`` maps a dimension to its score (0-9); ``proposition_scores`` maps a dimension to its propositions' scores.
    """

    model_config = ConfigDict(extra="forbid")

    agent_id: str
    captured_at: datetime
    dimensions: dict[str, float]
    proposition_scores: dict[str, dict[str, float]] = Field(default_factory=dict)
    provenance: dict[str, Any] = Field(default_factory=dict)


class Regression(BaseModel):
    """A dimension that fell beyond the allowed drop. ``delta`` = current - baseline, negative."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dimension: str
    baseline: float
    current: float
    delta: float


class PropositionDrop(BaseModel):
    """A proposition that fell beyond its own allowed drop. ``delta`` = current - baseline, negative."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dimension: str
    proposition_id: str
    baseline: float
    current: float
    delta: float
    claim: str = ""
    recommendation: str | None = None


class DimensionComparison(BaseModel):
    """One dimension beside its baseline.

    status: ``ok``, ``regressed``, ``no_baseline`` (scored, nothing to compare with), ``unscored`` (no score now),
    ``incomplete`` (coverage below the minimum, so the mean is not compared).
    """

    model_config = ConfigDict(extra="forbid")

    dimension: str
    status: Literal["ok", "regressed", "no_baseline", "unscored", "incomplete"]
    current: float | None = None
    baseline: float | None = None
    delta: float | None = None
    drops: list[PropositionDrop] = Field(default_factory=list)
    interval: tuple[float, float] | None = None
    p_value: float | None = None


class BaselineComparison(BaseModel):
    """One agent's evaluation beside its baseline."""

    model_config = ConfigDict(extra="forbid")

    agent_id: str
    dimensions: dict[str, DimensionComparison] = Field(default_factory=dict)
    warnings: list[str] = Field(default_factory=list)

    @property
    def regressions(self) -> list[Regression]:
        """Dimensions that regressed by their mean, in baseline order."""
        found = []
        for item in self.dimensions.values():
            if item.status != "regressed" or item.baseline is None or item.current is None:
                continue
            delta = item.current - item.baseline
            found.append(
                Regression(dimension=item.dimension, baseline=item.baseline, current=item.current, delta=delta)
            )
        return found

    @property
    def drops(self) -> list[PropositionDrop]:
        return [drop for item in self.dimensions.values() for drop in item.drops]

    @property
    def regressed(self) -> bool:
        return bool(self.regressions or self.drops)
