"""How each agent's own voice stands: what the reports and Dagster draw of a voice alarm."""

from collections.abc import Sequence
from typing import Any

from persona_pipeline.evaluation.report import RunReport
from persona_pipeline.evaluation.voice import VoiceState, voice_state
from persona_pipeline.scoring.voice_alarm import VoiceReading
from persona_pipeline.world import World
from persona_pipeline.world.models import Window

MOST_AGENTS, MOST_SUMS = 30, 300


def voice_alarm_statistics(world: World, report: RunReport) -> dict[str, Any]:
    """Return the voices of a run's agents that are learnt, or being learnt anew; of more than 30 agents, of those with an alarm."""
    alarmed = [finding.agent_id for finding in report.all_findings() if finding.kind == "voice_alarm"]
    asked = list(report.agents) if len(report.agents) <= MOST_AGENTS else sorted({*filter(None, alarmed)})[:MOST_AGENTS]
    states = []
    for agent_id in asked:
        evaluation = report.agents[agent_id].evaluation
        if not evaluation.synthetic:
            states.append(voice_state(world, agent_id, Window(evaluation.window_end, evaluation.window_start)))
    return {state.agent_id: voice_section(state) for state in states if state.learnt.model or state.learnt.since}


def voice_section(state: VoiceState) -> dict[str, Any]:
    """Return how a voice stands as plain JSON, as ``sections.VoiceSeen`` reads it."""
    from persona_pipeline.corrections.voices import alarm_facts

    model = state.learnt.model
    return {
        "text": state.text,
        "threshold": model.threshold if model else None,
        "learnt_from": {**model.provenance.model_dump(mode="json"), "kind": model.kind.value} if model else {},
        "sums": [
            {"id": item.message.id, "created_at": item.message.created_at.isoformat(), "sum": round(item.sum, 4)}
            for item in _thinned(state.readings)
        ],
        "alarms": [
            {
                **alarm_facts(found.alarm),
                "text": found.alarm.text,
                "changes": [{"at": change.at.isoformat(), "what": change.what} for change in found.changes],
            }
            for found in state.alarms
        ],
        "stands": state.stands,
    }


def _thinned(readings: Sequence[VoiceReading]) -> list[VoiceReading]:
    """Return at most 300 readings, of each group the highest: a peak is never left out."""
    size = max(1, -(-len(readings) // MOST_SUMS))
    return [max(readings[start : start + size], key=lambda item: item.sum) for start in range(0, len(readings), size)]
