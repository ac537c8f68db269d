"""Evaluations drawn from a model: levels, weeks and a noisy judge with a fixed seed."""

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

from persona_pipeline.guard.baselines.golden import captured
from persona_pipeline.guard.baselines.models import Baseline, Compared
from persona_pipeline.guard.baselines.regression import compare
from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult, spread

NOW = datetime(2026, 6, 1, tzinfo=UTC)
LEVELS = {f"p{number}": level for number, level in enumerate((7.0, 6.5, 7.5, 6.0, 7.0))}
NAMES = ("adherence", "consistency", "fluency")


def dimension(name: str, samples: Mapping[str, Sequence[float]], **values: Any) -> DimensionEvaluation:
    """Return a dimension from the judgments of its claims."""
    rows = {
        key: PropositionResult(
            id=key, claim=f"claim {key}", raw=fmean(judged), score=fmean(judged), samples=list(judged),
            spread=spread(judged)[0],
        )
        for key, judged in samples.items()
    }  # fmt: skip
    found = {"score": fmean(row.score or 0.0 for row in rows.values()), "n_scored": len(rows), "n_expected": len(rows)}
    return DimensionEvaluation(dimension=name, propositions=rows, **{**found, "proposition_set_hash": "set", **values})


class Office:
    """Draws windows of an agent; the same seed draws the same."""

    def __init__(self, seed: int, *, week: float = 0.0, judge: float = 0.8, samples: int = 3) -> None:
        self.generator = random.Random(seed)
        self.week, self.judge, self.samples = week, judge, samples

    def window(self, levels: Mapping[str, Mapping[str, float]] | None = None) -> dict[str, DimensionEvaluation]:
        """Return one window of all dimensions; ``levels`` puts other true scores in place of the usual."""
        return {name: dimension(name, self._judged({**LEVELS, **(levels or {}).get(name, {})})) for name in NAMES}

    def _judged(self, levels: Mapping[str, float]) -> dict[str, list[float]]:
        found = {}
        for key, level in levels.items():
            truth = self.generator.gauss(level, self.week)
            noisy = [self.generator.gauss(truth, self.judge) for _ in range(self.samples)]
            found[key] = [float(min(9, max(0, round(value)))) for value in noisy]
        return found

    def baseline(self, agent_id: str = "ann", windows: int = 4) -> Baseline:
        """Return a baseline of several windows."""
        return captured(agent_id, [self.window() for _ in range(windows)], {"messages_hash": "then"}, now=NOW)


def beside(
    baseline: Baseline | None,
    dimensions: Mapping[str, DimensionEvaluation],
    provenance: Mapping[str, Any] | None = None,
) -> Compared:
    """Return the comparison by the deltas; by default of other messages than the baseline's."""
    agent_id = baseline.agent_id if baseline else "ann"
    comparison = compare(agent_id, dimensions, baseline)
    known = {"messages_hash": "now"} if provenance is None else provenance
    return Compared(comparison, dimensions, baseline, known)
