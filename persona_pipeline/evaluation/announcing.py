"""An evaluation's scores as OpenTelemetry events: of the whole, each dimension, each claim, and each message judged by itself."""

import logging
from collections.abc import Iterator, Mapping, Sequence

from persona_pipeline.evaluation.report import AgentReport
from persona_pipeline.evaluation.results import AgentEvaluation
from persona_pipeline.scoring.results import PropositionResult
from persona_pipeline.telemetry.events import EvaluationEvent, SpanIds, emitter
from persona_pipeline.world import World
from persona_pipeline.world.canonical import rfc3339
from persona_pipeline.world.messages import messages_by_id
from persona_pipeline.world.models import Message

_HIGHEST = 9
_LOGGER = logging.getLogger("persona_pipeline.telemetry")


def announce(world: World, report: AgentReport) -> None:
    """Hand an agent's scores over where events are asked for; whatever goes wrong, the evaluation does not learn of it."""
    sender = emitter()
    if sender is None or report.past or report.evaluation.synthetic:
        return
    try:
        ids = {str(part["part"]) for part in _message_parts(report.evaluation)}
        sender.emit(evaluation_events(report, messages_by_id(world.store, sorted(ids))))
    except Exception:
        _LOGGER.exception("scores were not handed to OpenTelemetry")


def evaluation_events(report: AgentReport, messages: Mapping[str, Message]) -> Iterator[EvaluationEvent]:
    """Yield the events of a report; points go from 0 to 9.

    Args:
        messages: those that were judged by themselves, by id, as far as they are known.
    """
    evaluation = report.evaluation
    given = {
        "gen_ai.agent.id": evaluation.agent_id,
        "gen_ai.agent.name": evaluation.display_name,
        "persona.run.id": evaluation.run_id,
        "persona.window.start": rfc3339(evaluation.window_start) if evaluation.window_start else None,
        "persona.window.end": rfc3339(evaluation.window_end),
        "persona.judge": str(evaluation.provenance.get("judge", "")) or None,
    }
    compared, fell = (
        report.comparison.dimensions,
        {(item.dimension, item.proposition_id) for item in report.comparison.drops},
    )
    reason = None if evaluation.overall is not None else "no_score"
    yield EvaluationEvent("overall", evaluation.overall, error=reason, attributes=given)
    for name, dimension in evaluation.dimensions.items():
        of = {**given, "persona.dimension": name}
        counts = {"persona.scored": dimension.n_scored, "persona.expected": dimension.n_expected}
        label = compared[name].status if name in compared else None
        yield EvaluationEvent(name, dimension.score, label, dimension.unscored, attributes={**of, **counts})
        for key, claim in dimension.propositions.items():
            about = {**of, "persona.claim.id": key, "persona.claim.inverted": claim.inverted or None}
            label = None if claim.score is None else "regressed" if (name, key) in fell else "ok"
            reason = claim.reasoning or claim.detail
            yield EvaluationEvent(f"{name}/{key}", claim.score, label, claim.unscored, reason, attributes=about)
            yield from _of_messages(f"{name}/{key}", claim, about, messages)


def _of_messages(
    name: str, claim: PropositionResult, about: Mapping[str, str | bool | None], messages: Mapping[str, Message]
) -> Iterator[EvaluationEvent]:
    for part in claim.parts:
        message = messages.get(str(part["part"]))
        if message is None:
            continue
        raw = part.get("raw")
        score = None if raw is None else _HIGHEST - float(raw) if claim.inverted else float(raw)
        extras = message.extras
        yield EvaluationEvent(
            name,
            score,
            error=part.get("unscored"),
            explanation=part.get("reasoning"),
            span=SpanIds.among(extras),
            response_id=str(extras["response_id"]) if "response_id" in extras else None,
            attributes={**about, "persona.message.id": message.id, "gen_ai.conversation.id": message.channel},
        )


def _message_parts(evaluation: AgentEvaluation) -> Sequence[Mapping[str, object]]:
    """Return the judgments on parts of the transcript: a message where the claims are about single ones, else a channel or pair."""
    claims = (claim for dimension in evaluation.dimensions.values() for claim in dimension.propositions.values())
    return [part for claim in claims for part in claim.parts if part.get("part")]
