"""A judged action: its score by the rules of spec/1, and the feedback its author gets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from persona_pipeline.corrections.prompt import ClaimVerdict
from persona_pipeline.propositions.models import Proposition, PropositionSet
from persona_pipeline.propositions.templates import fill_template
from persona_pipeline.scoring.results import final_score, weighted_mean

_MOST_FEEDBACK_CLAIMS = 5


@dataclass(frozen=True)
class ReviewedClaim:
    """One proposition of a review. ``score``: 0-9 after inversion and hard mode, None when it does not apply."""

    proposition: Proposition
    claim: str
    score: float | None
    reasoning: str


@dataclass(frozen=True)
class Review:
    """All claims on one action. ``score``: their weighted mean, 0-9; None when none of them applies."""

    score: float | None
    claims: tuple[ReviewedClaim, ...]

    def failing(self, threshold: float) -> list[ReviewedClaim]:
        """Return the claims below the threshold, the heaviest loss first."""
        low = [item for item in self.claims if item.score is not None and item.score < threshold]
        return sorted(low, key=lambda item: (threshold - (item.score or 0.0)) * item.proposition.weight, reverse=True)

    def reasoning(self, threshold: float) -> str:
        """Return why the action scores as it does, one line a claim: the failing ones, else all."""
        shown = self.failing(threshold) or [item for item in self.claims if item.score is not None]
        return "\n".join(f"{item.proposition.id} ({item.score:.1f}): {item.reasoning}" for item in shown)


def review_of(verdicts: Sequence[ClaimVerdict], propositions: PropositionSet, variables: Mapping[str, str]) -> Review:
    """Return the review that verdicts on each proposition, in order, stand for."""
    claims = []
    for proposition, verdict in zip(propositions.propositions, verdicts, strict=True):
        score = None
        if verdict.raw is not None:
            score = final_score(verdict.raw, inverted=proposition.inverted, hard=propositions.hard)
        claim = fill_template(proposition.claim, {**variables, "action": "your message"})
        claims.append(ReviewedClaim(proposition, claim, score, verdict.reason))
    pairs = [(item.score, item.proposition.weight) for item in claims if item.score is not None]
    score = weighted_mean(pairs) if sum(weight for _, weight in pairs) > 0 else None
    return Review(score, tuple(claims))


def feedback_text(review: Review, threshold: float) -> str:
    """Return what the agent is told about a rejected action: the claims it fails, why, and what would help."""
    lines = [
        f"Your message was not sent. It scores {_shown(review.score)} of 9 for staying in character and needs "
        f"{threshold:.1f}.",
        "What is wrong with it:",
    ]
    for item in _weightiest(review, threshold):
        kind = "It should not be so that" if item.proposition.inverted else "It should be so that"
        lines.append(f"- {kind}: {item.claim.rstrip('.')}. {item.reasoning}")
        if item.proposition.recommendations_for_improvement:
            lines.append(f"  Instead: {item.proposition.recommendations_for_improvement}")
    lines.append("Write the message again so that this is put right, and send it again.")
    return "\n".join(lines)


def _weightiest(review: Review, threshold: float) -> Sequence[ReviewedClaim]:
    return review.failing(threshold)[:_MOST_FEEDBACK_CLAIMS]


def _shown(score: float | None) -> str:
    # Cut, not rounded: 4.96 against 5.0 must not read as 5.0.
    return "nothing" if score is None else f"{int(score * 10) / 10:.1f}"
