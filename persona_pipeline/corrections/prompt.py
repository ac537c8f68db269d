"""One action before the judge: how it is asked, all claims in one call, and what its answer comes to as score and feedback."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import content_hash, list_schema, object_schema
from persona_pipeline.corrections.nudges import GateTexts, language_told
from persona_pipeline.judging.claims import SCORE_SCHEMA, TEXT_SCHEMA, plain_json
from persona_pipeline.judging.verdict import SCALE, Question
from persona_pipeline.scoring.facts.reading import TEXTS
from persona_pipeline.scoring.results import final_score, weighted_mean
from persona_pipeline.world.models import Trajectory
from persona_pipeline.world.propositions.models import Proposition, PropositionSet, fill_template

KIND = "gate"
RULES = (Path(__file__).parent / "data" / "rules.txt").read_text(encoding="utf-8")
# Short names and no more fields than needed, since an agent waits for every token of the answer; the model writes them in this
# order: the reason stands before the score.
_VERDICT = {"id": TEXT_SCHEMA, "reason": TEXT_SCHEMA, "score": SCORE_SCHEMA}
SCHEMA = object_schema({"verdicts": list_schema(object_schema(_VERDICT))})
PROMPT_VERSION = f"gate-2-{content_hash({'rules': RULES, 'schema': SCHEMA})[:8]}"
# Twice what a terse answer takes, so that a wordy one is not cut off.
_TOKENS, _TOKENS_PER_CLAIM = 100, 80
_FIELDS = {"id", "reason", "score"}
# Of no weight: it can only lower the score of an action, to its own.
KEEPS_TO_FACTS = Proposition("keeps-to-facts", TEXTS["gate"]["claim"], weight=0.0)


def gate_question(
    propositions: Sequence[Proposition],
    trajectory: Trajectory,
    *,
    agent_id: str,
    persona: str | None,
    variables: Mapping[str, str],
) -> Question:
    """Return the question about the last entry of a trajectory.

    ``{{action}}`` in a claim becomes a reference to that entry: the text itself stands in the transcript
    alone, where it cannot pass for an instruction. Persona and claims come first and stay the same from
    message to message, so that the API can cache them.
    """
    shown = trajectory.content()
    reviewed = shown[-1]["id"]
    known = {**variables, "action": f"the message under review ({reviewed})"}
    asked = [{"proposition_id": item.id, "claim": fill_template(item.claim, known)} for item in propositions]
    # Without the entry's id, which depends on how much was said before.
    known = {**variables, "action": "the message under review"}
    claims = [{"id": _claim_id(i), "claim": fill_template(item.claim, known)} for i, item in enumerate(propositions)]
    context = [] if persona is None else [f"Persona of the agent, as JSON:\n{plain_json({'persona': persona})}"]
    context.append(f"Claims to check, as JSON:\n{plain_json({'claims': claims})}")
    return Question(
        kind=KIND,
        subject={"kind": KIND, "propositions": asked, "persona": persona, "trajectory": shown},
        label=f"gate of {agent_id}",
        system=RULES,
        context=tuple(context),
        context_recurs=True,
        evidence=plain_json(shown),
        ask=f"Check {reviewed} against each of these claims: {', '.join(item['id'] for item in claims)}.",
        schema=SCHEMA,
        max_tokens=_TOKENS + _TOKENS_PER_CLAIM * len(asked),
        thinking=False,
        agent_id=agent_id,
        dimension="adherence",
        prompt_version=PROMPT_VERSION,
        check=lambda data: answer_problem(data, len(claims)),
    )


def language_of_action(trajectory: Trajectory) -> str:
    """Return the language of the last entry; where it is too short to tell, of all its speaker said."""
    *earlier, action = trajectory.entries
    return language_told([action.text], [entry.text for entry in earlier if entry.speaker == action.speaker])


def answer_problem(data: Any, count: int) -> str | None:
    """Return what is wrong with an answer about so many claims, or None."""
    if not isinstance(data, Mapping) or set(data) != {"verdicts"} or not isinstance(data["verdicts"], list):
        return "the answer is not an object with the one key 'verdicts', a list"
    for item in data["verdicts"]:
        if not isinstance(item, Mapping) or set(item) != _FIELDS:
            return f"a verdict does not have exactly the fields {', '.join(sorted(_FIELDS))}"
        if not isinstance(item["id"], str) or not isinstance(item["reason"], str):
            return "the id or the reason of a verdict is not a string"
        if item["score"] is not None and (type(item["score"]) is not int or item["score"] not in SCALE):
            return "a score is neither a whole number from 0 to 9 nor null"
    if sorted(item["id"] for item in data["verdicts"]) != sorted(map(_claim_id, range(count))):
        return "the verdicts are not exactly one for each claim"
    return None


def _claim_id(index: int) -> str:
    return f"c{index + 1}"


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


def review_of(data: Mapping[str, Any], propositions: PropositionSet, variables: Mapping[str, str]) -> Review:
    """Return the review that a valid answer stands for."""
    verdicts = {item["id"]: item for item in data["verdicts"]}
    claims = []
    for index, proposition in enumerate(propositions.propositions):
        verdict, score = verdicts[_claim_id(index)], None
        if verdict["score"] is not None:
            score = final_score(verdict["score"], inverted=proposition.inverted, hard=propositions.hard)
        claim = fill_template(proposition.claim, variables)
        claims.append(ReviewedClaim(proposition, claim, score, " ".join(verdict["reason"].split())))
    pairs = [(item.score, item.proposition.weight) for item in claims if item.score is not None]
    score = weighted_mean(pairs) if sum(weight for _, weight in pairs) > 0 else None
    facts = [item.score for item in claims if item.proposition is KEEPS_TO_FACTS]
    return Review(min((value for value in (score, *facts) if value is not None), default=None), tuple(claims))


def feedback_text(review: Review, threshold: float, texts: GateTexts) -> str:
    """Return what the agent is told about a rejected action, in its language: the claims it fails, why, and what would help."""
    # Cut, not rounded: 4.96 against 5.0 must not read as 5.0.
    score = f"{int((review.score or 0.0) * 10) / 10:.1f}"
    lines = [fill_template(texts.rejected, {"score": score, "threshold": f"{threshold:.1f}"})]
    for item in review.failing(threshold)[:_MOST_FEEDBACK_CLAIMS]:
        claim = fill_template(item.claim, {"action": texts.your_message}).rstrip(".。")
        template = texts.avoid if item.proposition.inverted else texts.missing
        lines.append(f"- {fill_template(template, {'claim': claim, 'reason': item.reasoning})}")
        if advice := item.proposition.recommendations_for_improvement:
            lines.append(f"  {fill_template(texts.instead, {'advice': advice.strip()})}")
    return "\n".join([*lines, texts.rewrite])
