"""What the gate decided as an OpenTelemetry event about the span that is current where the text is checked."""

from persona_pipeline.corrections.decision import GateDecision, Outcome
from persona_pipeline.telemetry.events import EvaluationEvent, emitter


def announce_decision(agent_id: str, decision: GateDecision) -> None:
    """Hand a decision over where events are asked for; nothing waits for it, and nothing is raised."""
    sender = emitter()
    if sender is not None and decision.outcome is not Outcome.DISABLED:
        sender.emit([decision_event(agent_id, decision)])


def decision_event(agent_id: str, decision: GateDecision) -> EvaluationEvent:
    """Return the event of a decision; points go from 0 to 9."""
    return EvaluationEvent(
        "gate",
        decision.score,
        decision.outcome.value,
        decision.reason,
        attributes={
            "gen_ai.agent.id": agent_id,
            "persona.gate.action": decision.action.value,
            "persona.gate.would": decision.would.value if decision.would else None,
            "persona.gate.action_id": decision.action_id or None,
            "persona.gate.threshold": decision.threshold,
            "persona.gate.attempt": decision.attempt,
            "persona.gate.latency_ms": round(decision.latency_ms, 3),
        },
    )
