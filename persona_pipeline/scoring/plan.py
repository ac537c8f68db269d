"""A scorer in two halves: what must be judged, and the score once it has been. So runs can be estimated, batched and pooled."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from persona_pipeline.errors import ConfigError
from persona_pipeline.judging.verdict import JudgeRequest, Unscored, Verdict
from persona_pipeline.propositions.dimensions import Dimension
from persona_pipeline.propositions.models import PropositionSet
from persona_pipeline.scoring.aggregate import weighted_mean
from persona_pipeline.scoring.case import AgentCase
from persona_pipeline.scoring.judged import JudgedPropositions
from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult


@dataclass(frozen=True)
class DimensionPlan:
    """``requests`` for the judge, and ``finish``, which takes their verdicts in order and returns the evaluation."""

    requests: Sequence[JudgeRequest]
    finish: Callable[[Sequence[Verdict]], DimensionEvaluation]


class Scorer(Protocol):
    """Plans one dimension for one agent."""

    def __call__(self, case: AgentCase, propositions: PropositionSet) -> DimensionPlan: ...


def load_scorer(dimension: Dimension) -> Scorer:
    """Return the scorer that a dimension names.

    Raises:
        ConfigError: there is none of that name.
    """
    module, _, name = dimension.scorer.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"the scorer {dimension.scorer!r} of {dimension.name} cannot be loaded: {error}") from error


@dataclass(frozen=True)
class Part:
    """One weighted part of a dimension. ``score`` None with ``failed``: it should be there and is not; else it does not apply."""

    score: float | None
    weight: float
    failed: bool = False


def compose(parts: Sequence[Part]) -> float | None:
    """Return the weighted mean of the parts that apply, 0-9; None when one failed or none applies."""
    if any(part.failed for part in parts):
        return None
    present = [(part.score, part.weight) for part in parts if part.score is not None]
    return weighted_mean(present) if present else None


def judged_part(judged: JudgedPropositions, weight: float = 1.0) -> Part:
    """Return the judged part of a dimension: failed when it has no score and a judgment that was due is missing."""
    score = judged.mean()
    return Part(score, weight, failed=score is None and judged.n_scored < judged.n_expected)


def algorithmic_row(
    row_id: str, claim: str, score: float | None, reasoning: str, unscored: Unscored = Unscored.NO_EVIDENCE
) -> PropositionResult:
    """Return the row of a computed part; no score means there was nothing to compute it from, or it cannot be read."""
    return PropositionResult(
        id=row_id,
        claim=claim,
        algorithmic=True,
        score=score,
        unscored=unscored.value if score is None else None,
        reasoning=reasoning,
        detail=reasoning if score is None else "",
    )


def evaluation(
    dimension: str,
    judged: JudgedPropositions,
    rows: Sequence[PropositionResult],
    parts: Sequence[Part],
    statistics: Mapping[str, object],
    propositions: PropositionSet,
) -> DimensionEvaluation:
    """Return the dimension's evaluation from its judged propositions, its computed rows and the parts of its score."""
    score = compose(parts)
    computed = [row for row in rows if row.score is not None]
    return DimensionEvaluation(
        dimension=dimension,
        score=score,
        unscored=judged.reason() if score is None else None,
        n_scored=judged.n_scored + len(computed),
        n_expected=judged.n_expected + len(computed),
        propositions={**judged.results, **{row.id: row for row in rows}},
        statistics=dict(statistics),
        usage=judged.usage,
        proposition_set_hash=propositions.hash,
    )


def no_evidence(dimension: str, propositions: PropositionSet, detail: str) -> DimensionPlan:
    """Return a plan that asks nothing: there is nothing to judge."""
    results = {
        item.id: PropositionResult(
            id=item.id,
            claim=item.claim,
            weight=item.weight,
            inverted=item.inverted,
            unscored=Unscored.NO_EVIDENCE.value,
            detail=detail,
            recommendation=item.recommendations_for_improvement,
        )
        for item in propositions.propositions
    }
    judged = JudgedPropositions(results=results)
    return DimensionPlan((), lambda _: evaluation(dimension, judged, (), (), {}, propositions))
