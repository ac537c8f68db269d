"""What a scorer returns, one result a proposition and one a dimension (these models are also the JSON of the reports), and the
arithmetic from raw judgments to scores (spec/1 and spec/2), all on the 0-9 scale.
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
# Counted and shown, but no part of the overall score.
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
        ValueError: there is no pair, all weights are 0, or one is not finite.
    """
    pairs = list(pairs)
    # A power of two changes no digit, and sums of huge or tiny weights stay within what a float holds.
    scale = -math.frexp(max((weight for _, weight in pairs), default=0.0))[1]
    pairs = [(score, math.ldexp(weight, scale)) for score, weight in pairs]
    total = math.fsum(weight for _, weight in pairs)
    if not 0 < total < math.inf:
        raise ValueError("nothing to average: no pair has a weight")
    mean = math.fsum(score * weight for score, weight in pairs) / total
    # Rounding must not carry a mean outside its scores: 9 is the top of the scale.
    present = [score for score, weight in pairs if weight]
    return min(max(mean, min(present)), max(present))


def overall_score(dimensions: Mapping[str, float | None]) -> float | None:
    """Return the mean of the scored dimensions, ideas_quantity left out; None when there is none."""
    scores = [score for name, score in dimensions.items() if score is not None and name not in NOT_IN_OVERALL]
    return statistics.fmean(scores) if scores else None


def spread(samples: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the standard deviation (n - 1) and the standard error of samples; ``(None, None)`` below two."""
    if len(samples) < 2:
        return None, None
    deviation = statistics.stdev(samples)
    return deviation, deviation / math.sqrt(len(samples))


# Reasons for a missing score that are answers, and no failure.
ANSWERS = frozenset(reason.value for reason in Unscored if reason.is_answer)


class QuotedEvidence(BaseModel, extra="forbid"):
    """A quote a verdict rests on. ``verified``: it stands in that message."""

    message_id: str | None = None
    quote: str
    verified: bool = False


class PropositionResult(BaseModel, extra="forbid"):
    """One proposition of one agent: exactly one of ``score`` (0-9, after the rules) and ``unscored`` (a reason).

    Attributes:
        raw: mean of the judge's samples (0-9) before inversion and hard mode; None for algorithmic parts and unscored ones.
        algorithmic: computed, not judged (ids ``_ngram``, ``_catchphrase``, ``_vocabulary``, ``_agreement``).
        samples: raw scores of the samples that were scored.
        spread: standard deviation (n - 1) of the samples, standard_error: spread / sqrt(n); None below two samples.
        keys: recording keys of the judgments it rests on.
        parts: per-channel or per-action judgments where there is more than one.
        failed: its judgments that failed, by reason; a proposition may be scored from the others all the same.
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
    """Return the sum of several usages; one unknown price makes the whole price unknown."""
    return sum(parts, Usage())


class DimensionEvaluation(BaseModel, extra="forbid"):
    """One dimension of one agent.

    Attributes:
        score: 0-9, None when nothing could be scored or a judged part failed as a whole.
        unscored: why there is no score, None when there is one.
        n_expected: judgments due and parts to compute; ``no_evidence`` and ``not_applicable`` are answers and leave both counts.
        n_scored: those of them that have a score.
        statistics: the dimension's own numbers (see the scorers), plain JSON.
        samples: how often each claim was judged.
        min_coverage: share (0-1) of judgments that had to be scored when what failed was recorded; None: nothing failed, or not
            all of it is recorded, so that the rule of this run counts.
        messages: of adherence, the verdicts on single messages; None: nobody was asked, or no answer is recorded.
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
        """How many judgments failed, by reason: of unscored propositions, and single ones of scored propositions."""
        return dict(sum((Counter(row.failed) for row in self.propositions.values()), Counter[str]()))

    @property
    def unscored_reasons(self) -> dict[str, int]:
        """How many propositions are unscored, by reason."""
        return dict(Counter(item.unscored for item in self.propositions.values() if item.unscored))

    @property
    def failures(self) -> dict[str, PropositionResult]:
        """Propositions that should have been scored and were not."""
        return {key: item for key, item in self.propositions.items() if item.unscored and item.unscored not in ANSWERS}


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
