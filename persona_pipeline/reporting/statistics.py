"""Collects the parts of a report other than scores in ``RunReport.statistics``, as plain JSON.

Sections: ``history``, ``voice_map`` and ``voice_alarms``; empty sections are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from persona_pipeline.base.database.engine import Store
from persona_pipeline.evaluation.history import overall_points, points_of, score_history
from persona_pipeline.evaluation.plan import history_of
from persona_pipeline.evaluation.voice import VoiceState, voice_state
from persona_pipeline.guard.report import RunReport
from persona_pipeline.scoring.style.likeness import Voices, nearness, voice_similarity
from persona_pipeline.scoring.style.monitor import ALARM
from persona_pipeline.scoring.text.agreement import language_of
from persona_pipeline.scoring.text.tokens import pairwise_similarity, vocabulary_stats
from persona_pipeline.world.models import Window
from persona_pipeline.world.runs import overall_rows, summary_rows
from persona_pipeline.world.world import World

# Windows drawn of an agent that has only a line of the report.
_MOST_DRAWN = 24
# The number of pairs grows with the square of the agents.
_MOST_VOICES = 30


def gather(world: World, report: RunReport, *, since: datetime | None = None) -> RunReport:
    """Return the report with its statistics; the history begins at ``since``."""
    if not report.agents:
        return report
    agent_ids = [agent_id for agent_id, item in report.agents.items() if not item.outlined]
    newest = max((item.evaluation for item in report.agents.values()), key=lambda item: item.window_end)
    window = newest.window
    with world.store.together():
        sections: dict[str, Any] = {
            "history": {
                **_outlined_history(world.store, report, window.end),
                **score_history(
                    points_of(agent_ids, summary_rows(world.store, agent_ids, until=window.end, since=since))
                ),
            },
            "voice_map": _voice_statistics(world, agent_ids, window),
            "voice_alarms": _voice_alarm_statistics(world, report),
        }
    report.statistics |= {name: section for name, section in sections.items() if section}
    return report


def _outlined_history(store: Store, report: RunReport, until: datetime) -> dict[str, list[dict[str, Any]]]:
    outlined = [agent_id for agent_id, item in report.agents.items() if item.outlined]
    found = overall_points(outlined, overall_rows(store, until=until, most=_MOST_DRAWN)) if outlined else {}
    return {
        agent_id: [{"window_end": end, "overall": overall} for end, overall in values.items()]
        for agent_id, values in found.items()
    }


def _voice_alarm_statistics(world: World, report: RunReport) -> dict[str, Any]:
    """Return the state of the learnt voices; with more than 30 agents, only of agents with an alarm."""
    alarmed = [finding.agent_id for finding in report.all_findings() if finding.kind == "voice_alarm"]
    few = len(report.agents) <= _MOST_VOICES
    asked = list(report.agents) if few else sorted({*filter(None, alarmed)})[:_MOST_VOICES]
    evaluations = [report.agents[agent_id].evaluation for agent_id in asked]
    states = [voice_state(world, item.agent_id, item.window) for item in evaluations if not item.synthetic]
    return {state.agent_id: voice_section(state) for state in states if state.learnt.model or state.learnt.since}


def voice_section(state: VoiceState) -> dict[str, Any]:
    """Return the state of a voice as plain JSON.

    ``threshold`` is None while the voice is not learnt; ``sum`` shows how near the newest messages are to it.
    """
    model = state.learnt.model
    return {
        "text": state.text,
        "threshold": ALARM if model and model.limits else None,
        "learnt_from": model.provenance.model_dump(mode="json") if model else {},
        "sum": round(state.readings[-1].level, 4) if state.readings else None,
        "alarms": [{**alarm.facts, "text": alarm.text} for alarm in state.alarms],
        "stands": state.stands,
    }


def _voice_statistics(world: World, agent_ids: Sequence[str], window: Window) -> dict[str, Any]:
    """Return how alike the agents write, as of ``voices_alike``; nothing for fewer than 2 or more than 30 agents."""
    if not 2 <= len(agent_ids) <= _MOST_VOICES:
        return {}
    spoken = _spoken(world, agent_ids, window)
    span = replace(history_of(window), end=window.start) if window.start else None
    return voices_alike(spoken, _spoken(world, sorted(spoken), span) if span else {}, world.display_names())


def voices_alike(spoken: Voices, before: Voices, names: Mapping[str, str]) -> dict[str, Any]:
    """Return how some agents write and how similar each pair is.

    Of each pair: Jaccard of the vocabularies and cosine of character n-grams (0-1), and ``z``, how much nearer the two are than in
    the four windows before, in standard deviations; None where it is unknown or the pair is not similar.

    Args:
        spoken: texts by agent, oldest first; agents without texts are left out.
        before: their earlier texts.
        names: display names by agent.
    """
    if not 2 <= len(spoken) <= _MOST_VOICES:
        return {}
    # One comparison of all voices gives every pair.
    near = nearness(spoken, before)
    words, characters = pairwise_similarity(spoken), voice_similarity(spoken)
    return {
        "agents": {
            agent_id: {
                "name": names[agent_id],
                **vars(vocabulary_stats(texts)),
                "language": language_of(texts),
                "messages": len(texts),
            }
            for agent_id, texts in spoken.items()
        },
        "pairs": [
            {
                "a": a,
                "b": b,
                "vocabulary": words[a, b],
                "characters": characters.get((a, b)),
                "z": pair.z if (pair := near.pairs.get((a, b))) and pair.close else None,
            }
            for a, b in sorted(words)
        ],
    }


def _spoken(world: World, agent_ids: Sequence[str], window: Window) -> dict[str, list[str]]:
    spoken = {agent_id: [m.text for m in world.messages(window, agent_id=agent_id)] for agent_id in agent_ids}
    return {agent_id: texts for agent_id, texts in spoken.items() if texts}
