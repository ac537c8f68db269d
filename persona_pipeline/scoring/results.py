"""Results of a scorer, one for each proposition and dimension (these models are also the JSON of the reports), and the
arithmetic from raw judgments to scores (spec/1 and spec/2). All scores are on the 0-9 scale.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from persona_pipeline.judging.verdict import Unscored, Usage
from persona_pipeline.scoring.messages.verdicts import MessageVerdicts
from persona_pipeline.world.propositions.models import DIMENSIONS

HIGHEST = 9.0
HARD_FACTOR = 0.8
# A claim that scores lower is broken (semantics 2: below the threshold; 5.0 is the gate's default).
LOW_SCORE = 5.0
# Counted and shown, but not in the overall score.
NOT_IN_OVERALL = frozenset(item.name for item in DIMENSIONS.values() if not item.in_overall)


def final_score(raw: float, *, inverted: bool, hard: bool) -> float:
    """Return the score of a raw judgment: flipped (``9 - raw``) if inverted, then x 0.8 below 9 if hard.

    Raises:
        ValueError: ``raw`` is not within 0-9.
    """
    if not 0 <= raw <= HIGHEST:
        raise ValueError(f"raw score {raw!r} is not within 0-9")
    score = HIGHEST - raw if inverted else raw
    return score * HARD_FACTOR if hard and score < HIGHEST else score


def weighted_mean(pairs: Iterable[tuple[float, float]]) -> float:
    """Return sum(score x weight) / sum(weight) of ``(score, weight)`` pairs.

    Raises:
        ValueError: ``pairs`` is empty, all weights are 0, or a weight is not finite.
    """
    pairs = list(pairs)
    # A power of two keeps all digits, and keeps sums of huge or tiny weights within the range of a float.
    scale = -math.frexp(max((weight for _, weight in pairs), default=0.0))[1]
    pairs = [(score, math.ldexp(weight, scale)) for score, weight in pairs]
    total = math.fsum(weight for _, weight in pairs)
    if not 0 < total < math.inf:
        raise ValueError("nothing to average: no pair has a weight")
    mean = math.fsum(score * weight for score, weight in pairs) / total
    # Rounding must not move the mean outside the range of its scores: 9 is the top of the scale.
    present = [score for score, weight in pairs if weight]
    return min(max(mean, min(present)), max(present))


def overall_score(dimensions: Mapping[str, float | None]) -> float | None:
    """Return the mean of the scored dimensions, without ideas_quantity; None if no dimension has a score."""
    scores = [score for name, score in dimensions.items() if score is not None and name not in NOT_IN_OVERALL]
    return statistics.fmean(scores) if scores else None


def spread(samples: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the standard deviation (n - 1) and the standard error of samples; ``(None, None)`` below two."""
    if len(samples) < 2:
        return None, None
    deviation = statistics.stdev(samples)
    return deviation, deviation / math.sqrt(len(samples))


# Reasons for a missing score that are answers, not failures.
ANSWERS = frozenset(reason.value for reason in Unscored if reason.is_answer)


class QuotedEvidence(BaseModel, extra="forbid"):
    """A quote that supports a verdict. ``verified``: the message contains it."""

    message_id: str | None = None
    quote: str
    verified: bool = False


class PropositionResult(BaseModel, extra="forbid"):
    """Result of a proposition for an agent: exactly one of ``score`` (0-9, after the rules) and ``unscored`` (a reason).

    Attributes:
        raw: mean of the judge's samples (0-9) before inversion and hard mode; None for algorithmic parts and unscored ones.
        algorithmic: computed, not judged (ids ``_ngram``, ``_catchphrase``, ``_vocabulary``, ``_agreement``).
        samples: raw scores of the samples that were scored.
        spread: standard deviation (n - 1) of the samples, standard_error: spread / sqrt(n); None below two samples.
        keys: recording keys of its judgments.
        parts: per-channel or per-action judgments where there is more than one.
        failed: number of failed judgments by reason; the proposition may still have a score from the others.
    """

    id: str
    claim: str
    weight: float = 1.0
    inverted: bool = False
    algorithmic: bool = False
    score: float | None = None
    raw: float | None = None
    unscored: str | None = None
    detail: str = ""
    reasoning: str = ""
    evidence: list[QuotedEvidence] = Field(default_factory=list)
    recommendation: str | None = None
    samples: list[float] = Field(default_factory=list)
    spread: float | None = None
    standard_error: float | None = None
    keys: list[str] = Field(default_factory=list)
    parts: list[dict[str, Any]] = Field(default_factory=list)
    failed: dict[str, int] = Field(default_factory=dict)
    injection_suspected: bool = False


def add_usage(parts: Iterable[Usage]) -> Usage:
    """Return the sum of usages; one unknown price makes the total price unknown."""
    return sum(parts, Usage())


class DimensionEvaluation(BaseModel, extra="forbid"):
    """Result of a dimension for an agent.

    Attributes:
        score: 0-9, None when nothing could be scored or a judged part failed as a whole.
        unscored: reason for a missing score, None when there is a score.
        n_expected: expected judgments and computed parts; ``no_evidence`` and ``not_applicable`` are answers and count in neither.
        n_scored: number of ``n_expected`` that have a score.
        statistics: the dimension's own numbers (see the scorers), plain JSON.
        samples: number of judgments per claim.
        min_coverage: share (0-1) of judgments that had to be scored when the failures were recorded; None: nothing failed, or some
            failures are not recorded, so that the rule of this run applies.
        messages: for adherence, the verdicts on single messages; None: no judge was asked, or no answer is recorded.
    """

    dimension: str
    score: float | None = None
    unscored: str | None = None
    n_scored: int = 0
    n_expected: int = 0
    propositions: dict[str, PropositionResult] = Field(default_factory=dict)
    statistics: dict[str, Any] = Field(default_factory=dict)
    usage: Usage = Field(default_factory=Usage)
    proposition_set_hash: str | None = None
    input_hash: str | None = None
    samples: int = 1
    min_coverage: float | None = Field(default=None, exclude_if=lambda least: least is None)
    messages: MessageVerdicts | None = Field(default=None, exclude_if=lambda read: read is None)

    @property
    def coverage(self) -> float:
        """Share of expected judgments that were scored, 0-1; 1 when none was expected."""
        return self.n_scored / self.n_expected if self.n_expected else 1.0

    @property
    def failed(self) -> dict[str, int]:
        """Number of failed judgments by reason, of unscored and of scored propositions."""
        return dict(sum((Counter(row.failed) for row in self.propositions.values()), Counter[str]()))

    @property
    def unscored_reasons(self) -> dict[str, int]:
        """Number of unscored propositions by reason."""
        return dict(Counter(item.unscored for item in self.propositions.values() if item.unscored))

    @property
    def failures(self) -> dict[str, PropositionResult]:
        """Propositions without a score because of a failure."""
        return {key: item for key, item in self.propositions.items() if item.unscored and item.unscored not in ANSWERS}


def algorithmic_row(
    row_id: str, claim: str, score: float | None, reasoning: str, unscored: Unscored = Unscored.NO_EVIDENCE
) -> PropositionResult:
    """Return the row of a computed part; ``score`` None: the data is missing or unreadable."""
    return PropositionResult(
        id=row_id,
        claim=claim,
        algorithmic=True,
        score=score,
        unscored=unscored.value if score is None else None,
        reasoning=reasoning,
        detail=reasoning if score is None else "",
    )
