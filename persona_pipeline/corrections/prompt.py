"""The gate's question about one message, all claims in one call, and the score, verdict and feedback of its answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import content_hash, list_schema, object_schema
from persona_pipeline.base.text import shortened
from persona_pipeline.corrections.nudges import GateTexts, language_told
from persona_pipeline.judging.claims import SCORE_SCHEMA, TEXT_SCHEMA, checked_quote, plain_json
from persona_pipeline.judging.verdict import Question, schema_problem
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.scoring.results import final_score, weighted_mean
from persona_pipeline.world.models import Trajectory
from persona_pipeline.world.propositions.models import Proposition, PropositionSet, fill_template

KIND = "gate"
RULES = (Path(__file__).parent / "data" / "rules.txt").read_text(encoding="utf-8")
# Short names and no more fields than needed, since an agent waits for every token of the answer; the model writes them in this
# order: the reason before the score.
_VERDICT = {"id": TEXT_SCHEMA, "reason": TEXT_SCHEMA, "score": SCORE_SCHEMA}
_MESSAGE = {
    "claims": list_schema(TEXT_SCHEMA),
    "quote": TEXT_SCHEMA,
    "reason": TEXT_SCHEMA,
    "verdict": {**TEXT_SCHEMA, "enum": [role.value for role in Role]},
}
SCHEMA = object_schema({"verdicts": list_schema(object_schema(_VERDICT)), "message": object_schema(_MESSAGE)})
PROMPT_VERSION = f"gate-3-{content_hash({'rules': RULES, 'schema': SCHEMA})[:8]}"
# Twice the tokens of a terse answer, so that a wordy one is not cut off.
_TOKENS, _TOKENS_PER_CLAIM = 250, 80


def gate_question(
    propositions: Sequence[Proposition],
    trajectory: Trajectory,
    *,
    agent_id: str,
    persona: str | None,
    canon: Sequence[str] = (),
    variables: Mapping[str, str],
) -> Question:
    """Return the question about the last entry of a trajectory.

    ``{{action}}`` in a claim becomes a reference to that entry: the text is in the transcript alone, where it cannot act as an
    instruction. Persona and claims come first and do not change between messages, so that the API can cache them. ``canon``: facts
    that people laid down about the agent.
    """
    shown = trajectory.content()
    reviewed = shown[-1]["id"]
    known = {**variables, "action": f"the message under review ({reviewed})"}
    asked = [{"proposition_id": item.id, "claim": fill_template(item.claim, known)} for item in propositions]
    # Without the entry's id, which depends on how much was said before.
    known = {**variables, "action": "the message under review"}
    claims = [{"id": _claim_id(i), "claim": fill_template(item.claim, known)} for i, item in enumerate(propositions)]
    context = [] if persona is None else [f"Persona of the agent, as JSON:\n{plain_json({'persona': persona})}"]
    if canon:
        context.append(f"Facts laid down about the agent, as JSON:\n{plain_json({'facts': [*canon]})}")
    context.append(f"Claims to check, as JSON:\n{plain_json({'claims': claims})}")
    return Question(
        kind=KIND,
        subject={"kind": KIND, "propositions": asked, "persona": persona, "trajectory": shown}
        | ({"canon": [*canon]} if canon else {}),
        label=f"gate of {agent_id}",
        system=RULES,
        context=tuple(context),
        context_recurs=True,
        evidence=plain_json(shown),
        ask=f"Check {reviewed} against each of these claims: {', '.join(item['id'] for item in claims)}. Then give the verdict "
        f"on {reviewed} as a whole.",
        schema=SCHEMA,
        max_tokens=_TOKENS + _TOKENS_PER_CLAIM * len(asked),
        thinking=False,
        agent_id=agent_id,
        dimension="adherence",
        prompt_version=PROMPT_VERSION,
        check=lambda data: answer_problem(data, len(claims)),
    )


def language_of_action(trajectory: Trajectory) -> str:
    """Return the language of the last entry; if it is too short, of all entries of its speaker."""
    *earlier, action = trajectory.entries
    return language_told([action.text], [entry.text for entry in earlier if entry.speaker == action.speaker])


def answer_problem(data: Any, count: int) -> str | None:
    """Return the problem of an answer about ``count`` claims, or None.

    Recordings of release 0.2 lack ``message`` and are valid.
    """
    said = data.get("message") if isinstance(data, Mapping) else None
    if isinstance(said, Mapping) and isinstance(said.get("verdict"), str):
        # Structured output does not promise the case of a string enum.
        data = {**data, "message": {**said, "verdict": said["verdict"].lower()}}
    if problem := schema_problem(SCHEMA | {"required": ["verdicts"]}, data):
        return problem
    if sorted(item["id"] for item in data["verdicts"]) != sorted(map(_claim_id, range(count))):
        return "the verdicts are not exactly one for each claim"
    return None


def _claim_id(index: int) -> str:
    return f"c{index + 1}"


_MOST_FEEDBACK_CLAIMS, _LONGEST_QUOTE = 5, 200


@dataclass(frozen=True)
class ReviewedClaim:
    """One proposition of a review. ``score``: 0-9 after inversion and hard mode, None when it does not apply."""

    proposition: Proposition
    claim: str
    score: float | None
    reasoning: str


@dataclass(frozen=True)
class ReviewedMessage:
    """The verdict on a message as a whole: the claims it breaks, the words that decide, and why.

    A quote that is not in the message is left out, and an ``out`` without a quote counts as unclear.
    """

    verdict: Role
    claims: tuple[ReviewedClaim, ...] = ()
    quote: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Review:
    """All claims on one action, and the verdict on it as a whole.

    Attributes:
        score: weighted mean of the claims, 0-9. Where no claim applies: 0 for a message that is out of character, else None.
        message: None when the answer has no verdict.
    """

    score: float | None
    claims: tuple[ReviewedClaim, ...]
    message: ReviewedMessage | None = None

    @property
    def is_out(self) -> bool:
        """Whether the message is out of character."""
        return self.message is not None and self.message.verdict is Role.OUT

    def broken(self, threshold: float) -> list[ReviewedClaim]:
        """Return the claims that the verdict names, then the others below the threshold."""
        named = self.message.claims if self.is_out and self.message else ()
        return [*named, *(item for item in self.failing(threshold) if item not in named)]

    def failing(self, threshold: float) -> list[ReviewedClaim]:
        """Return the claims below the threshold, the heaviest loss first."""
        low = [item for item in self.claims if item.score is not None and item.score < threshold]
        return sorted(low, key=lambda item: (threshold - (item.score or 0.0)) * item.proposition.weight, reverse=True)

    def reasoning(self, threshold: float) -> str:
        """Return the verdict, unless it is ``in``, and one line for each failing claim, else for every claim."""
        lines: list[str] = []
        if self.message is not None and self.message.verdict is not Role.IN:
            ids = ", ".join(item.proposition.id for item in self.message.claims)
            quote = shortened(self.message.quote, _LONGEST_QUOTE)
            lines.append(f'{self.message.verdict} ({ids}): "{quote}" {self.message.reason}')
        shown = self.failing(threshold) or [item for item in self.claims if item.score is not None]
        return "\n".join([*lines, *(f"{item.proposition.id} ({item.score:.1f}): {item.reasoning}" for item in shown)])


def review_of(
    data: Mapping[str, Any], propositions: PropositionSet, trajectory: Trajectory, variables: Mapping[str, str]
) -> Review:
    """Return the review in a valid answer; ``trajectory``: the judge's transcript, the action last."""
    verdicts = {item["id"]: item for item in data["verdicts"]}
    claims: dict[str, ReviewedClaim] = {}
    for index, proposition in enumerate(propositions.propositions):
        verdict, score = verdicts[_claim_id(index)], None
        if verdict["score"] is not None:
            score = final_score(verdict["score"], inverted=proposition.inverted, hard=propositions.hard)
        claim = fill_template(proposition.claim, variables)
        claims[_claim_id(index)] = ReviewedClaim(proposition, claim, score, _on_one_line(verdict["reason"]))
    message = _reviewed_message(data["message"], trajectory, claims) if "message" in data else None
    pairs = [(item.score, item.proposition.weight) for item in claims.values() if item.score is not None]
    without = 0.0 if message and message.verdict is Role.OUT else None
    score = weighted_mean(pairs) if sum(weight for _, weight in pairs) > 0 else without
    return Review(score, tuple(claims.values()), message)


def _reviewed_message(
    said: Mapping[str, Any], trajectory: Trajectory, claims: Mapping[str, ReviewedClaim]
) -> ReviewedMessage:
    verdict = Role(said["verdict"].lower())
    shown = f"m{len(trajectory.entries)}"
    is_quoted = checked_quote(trajectory, shown, said["quote"]).verified
    if verdict is Role.OUT and not is_quoted:
        verdict = Role.UNCLEAR
    named = tuple(claims[name] for name in dict.fromkeys(said["claims"]) if name in claims)
    quote = _on_one_line(said["quote"]) if is_quoted else ""
    return ReviewedMessage(verdict, named, quote, _on_one_line(said["reason"]))


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def feedback_text(review: Review, threshold: float, texts: GateTexts) -> str:
    """Return the feedback on a rejected message, in the agent's language.

    Out of character: the quote that decides, then the broken claims. Otherwise the score, then the failed claims.
    """
    if review.is_out and review.message:
        quote = shortened(review.message.quote, _LONGEST_QUOTE)
        lines = [fill_template(texts.out, {"quote": quote, "reason": review.message.reason}).rstrip()]
    else:
        # Cut, not rounded: 4.96 against 5.0 must not read as 5.0.
        score = f"{int((review.score or 0.0) * 10) / 10:.1f}"
        lines = [fill_template(texts.rejected, {"score": score, "threshold": f"{threshold:.1f}"})]
    failing = review.failing(threshold)
    for item in review.broken(threshold)[:_MOST_FEEDBACK_CLAIMS]:
        claim = fill_template(item.claim, {"action": texts.your_message}).rstrip(".。")
        template = texts.avoid if item.proposition.inverted else texts.missing
        # The reason of a claim that reached the threshold speaks for the message.
        reason = item.reasoning if item in failing else ""
        lines.append(f"- {fill_template(template, {'claim': claim, 'reason': reason})}".rstrip())
        if advice := item.proposition.recommendations_for_improvement:
            lines.append(f"  {fill_template(texts.instead, {'advice': advice.strip()})}")
    return "\n".join([*lines, texts.rewrite])
