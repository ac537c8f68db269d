"""Is a drop more than the judge's noise? For live runs, where a claim gets another score each time it is judged.

A dimension's propositions are fixed, not a sample of some larger set: what varies is the judge. So a drop is tested within
propositions (a stratified comparison of means): its standard error comes from how much repeated judgments of the same
thing differ, pooled over the dimension, and not from how unequally propositions fell.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TypeVar

from persona_pipeline.baselines.models import Baseline, BaselineComparison
from persona_pipeline.baselines.regression import golden_propositions
from persona_pipeline.baselines.statistics import PairedDrop, holm
from persona_pipeline.scoring.results import DimensionEvaluation

Key = TypeVar("Key", bound=Hashable)

CONFIRMATIONS = 5
# Dimensions and propositions are two families of tests that share 5 % of false alarms a run.
FAMILY_ALPHA = 0.025
# A score is a whole number: rounding alone spreads it by the deviation of a uniform distribution of width 1.
ROUNDING_SPREAD = math.sqrt(1 / 12)


@dataclass(frozen=True)
class Sampled:
    """Repeated judgments of one claim: their mean (0-9), how many, and their standard deviation (n - 1; None below two)."""

    mean: float
    n: int
    spread: float | None = None

    @classmethod
    def of(cls, samples: Sequence[float]) -> "Sampled":
        """Summarise samples.

        Raises:
            ValueError: there are none.
        """
        if not samples:
            raise ValueError("a claim needs at least one judgment")
        return cls(fmean(samples), len(samples), stdev(samples) if len(samples) > 1 else None)


@dataclass(frozen=True)
class PropositionPair:
    """One proposition in the baseline and now, both on the same scale (0-9, higher is better, before hard mode)."""

    proposition_id: str
    before: Sampled
    after: Sampled
    weight: float = 1.0

    @property
    def drop(self) -> float:
        """By how much it fell; positive is worse."""
        return self.before.mean - self.after.mean


@dataclass(frozen=True)
class JudgeNoise:
    """Standard deviation of one judgment, in points, and the degrees of freedom it was estimated with."""

    spread: float
    degrees: int


def judge_noise(pairs: Sequence[PropositionPair]) -> JudgeNoise | None:
    """Return the noise pooled over every repeated judgment of the pairs, at least that of rounding; None without repeats."""
    known = [
        (side.spread, side.n - 1) for pair in pairs for side in (pair.before, pair.after) if side.spread is not None
    ]
    degrees = sum(n for _, n in known)
    if not degrees:
        return None
    return JudgeNoise(max(ROUNDING_SPREAD, math.sqrt(sum(s**2 * n for s, n in known) / degrees)), degrees)


def dimension_drop(
    pairs: Sequence[PropositionPair],
    noise: JudgeNoise,
    *,
    drop: float | None = None,
    share: float = 1.0,
    confidence: float = 0.95,
) -> PairedDrop:
    """Test whether a dimension fell: by the weighted mean of its propositions, or by ``drop`` where more is known.

    Args:
        drop: by how much the whole dimension fell, its computed parts included; those have no noise.
        share: part of the dimension's score (0-1) that is judged. 1 is never too sure.

    Raises:
        ValueError: there are no pairs, or all weights are 0.
    """
    total = sum(pair.weight for pair in pairs)
    if not total > 0:
        raise ValueError("a drop needs at least one proposition with a weight above 0")
    if drop is None:
        drop = share * sum(pair.weight * pair.drop for pair in pairs) / total
    variance = sum((pair.weight / total) ** 2 * (1 / pair.before.n + 1 / pair.after.n) for pair in pairs)
    return _tested(drop, share * noise.spread * math.sqrt(variance), noise.degrees, len(pairs), confidence)


def proposition_drop(pair: PropositionPair, noise: JudgeNoise, *, confidence: float = 0.95) -> PairedDrop:
    """Test whether one proposition fell, by the noise of its dimension."""
    error = noise.spread * math.sqrt(1 / pair.before.n + 1 / pair.after.n)
    return _tested(pair.drop, error, noise.degrees, 1, confidence)


@dataclass(frozen=True)
class DimensionDrops:
    """The tests of one dimension and of its propositions, by id."""

    dimension: PairedDrop
    propositions: dict[str, PairedDrop]


def drops_of(evaluated: DimensionEvaluation, baseline: Baseline, *, share: float = 1.0) -> DimensionDrops | None:
    """Test an evaluated dimension against its baseline.

    None where nothing was judged twice, then or now, or no proposition stands in both. How often the baseline was judged,
    and the spread of that, are in its provenance; a baseline without counts as judged once.

    Args:
        share: see ``dimension_drop``.
    """
    before = golden_propositions(baseline, evaluated.dimension)
    captured = baseline.provenance.get("dimensions", {}).get(evaluated.dimension, {})
    count, spreads = max(1, captured.get("samples") or 1), captured.get("spread") or {}
    pairs = [
        PropositionPair(
            key,
            Sampled(before[key], count, spreads.get(key) if count > 1 else None),
            Sampled(row.score, max(1, len(row.samples)), row.spread),
            row.weight,
        )
        for key, row in evaluated.propositions.items()
        if row.score is not None and not row.algorithmic and key in before
    ]
    noise = judge_noise(pairs)
    if noise is None or not any(pair.weight > 0 for pair in pairs):
        return None
    golden = baseline.dimensions.get(evaluated.dimension)
    drop = None if golden is None or evaluated.score is None else golden - evaluated.score
    return DimensionDrops(
        dimension_drop(pairs, noise, drop=drop, share=share),
        {pair.proposition_id: proposition_drop(pair, noise) for pair in pairs},
    )


def confirmed(tests: Mapping[Key, PairedDrop], alpha: float = FAMILY_ALPHA) -> dict[Key, float]:
    """Return those drops that hold against being one of many, with their p-values after Holm's correction.

    ``tests`` are all comparisons of a run, not only the suspicious ones; a family each for dimensions and propositions.
    """
    return {key: p for key, p in _corrected(tests).items() if p < alpha}


@dataclass(frozen=True)
class Compared:
    """One agent's comparison by the deltas, with what it compares."""

    comparison: BaselineComparison
    dimensions: Mapping[str, DimensionEvaluation]
    baseline: Baseline | None


def settled(agents: Mapping[str, Compared], alpha: float = FAMILY_ALPHA) -> dict[str, BaselineComparison]:
    """Return the comparisons of a live run with only those drops that the judge's noise does not explain.

    Every comparison of the run counts, whether it looks suspicious or not. Dimensions get the interval of their change and
    their corrected p-value. What fell beyond its delta and is not confirmed becomes a warning. Where nothing was judged
    twice, then or now, the deltas alone decide.
    """
    tests = {
        (agent_id, name): found
        for agent_id, item in agents.items()
        if item.baseline
        for name in item.comparison.dimensions
        if name in item.dimensions and (found := drops_of(item.dimensions[name], item.baseline))
    }
    dimensions = _corrected({key: found.dimension for key, found in tests.items()})
    propositions = _corrected(
        {(*key, p): test for key, found in tests.items() for p, test in found.propositions.items()}
    )
    result = {}
    for agent_id, item in agents.items():
        comparison = item.comparison.model_copy(deep=True)
        for name, compared in comparison.dimensions.items():
            test = tests.get((agent_id, name))
            if test is None:
                continue
            compared.interval = (-test.dimension.high, -test.dimension.low)
            compared.p_value = dimensions[agent_id, name]
            if compared.status == "regressed" and compared.p_value >= alpha:
                compared.status = "ok"
                comparison.warnings.append(f"{name}: {_within_noise(-(compared.delta or 0.0), compared.p_value)}")
            for drop in list(compared.drops):
                p_value = propositions.get((agent_id, name, drop.proposition_id), 0.0)
                if p_value >= alpha:
                    compared.drops.remove(drop)
                    comparison.warnings.append(f"{name}/{drop.proposition_id}: {_within_noise(-drop.delta, p_value)}")
        result[agent_id] = comparison
    return result


def _corrected(tests: Mapping[Key, PairedDrop]) -> dict[Key, float]:
    return dict(zip(tests, holm([test.p_value for test in tests.values()]), strict=True))


def _within_noise(drop: float, p_value: float) -> str:
    return f"fell by {drop:.2f}, which the judge's noise may explain (p = {p_value:.2g}); judge with more samples to be sure"


def _tested(drop: float, error: float, degrees: int, n: int, confidence: float) -> PairedDrop:
    from scipy.special import stdtr, stdtrit

    reach = float(stdtrit(degrees, (1 + confidence) / 2)) * error
    p_value = float(stdtr(degrees, -drop / error))
    return PairedDrop(drop, drop - reach, drop + reach, p_value, confidence, n)
