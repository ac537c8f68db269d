"""What a report shows beside the scores: history, voices, corrections, suites."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from persona_pipeline.baselines import watched_agents
from persona_pipeline.evaluation.history import overall_points, score_history
from persona_pipeline.evaluation.report import RunReport
from persona_pipeline.evaluation.trends import WatchedPoints, trends_of
from persona_pipeline.reporting.fading import fading_statistics
from persona_pipeline.reporting.many import MOST_DRAWN
from persona_pipeline.reporting.voice_alarms import voice_alarm_statistics
from persona_pipeline.reporting.voices import voice_statistics
from persona_pipeline.store import Store, tables
from persona_pipeline.world import World
from persona_pipeline.world.models import Window


def gather(world: World, report: RunReport, *, since: datetime | None = None) -> RunReport:
    """Return the report with what stands beside its scores; a section that has nothing to say is left out.

    Args:
        since: history from then on only.
    """
    from persona_pipeline.corrections.statistics import correction_statistics

    if not report.agents:
        return report
    agent_ids = [agent_id for agent_id, item in report.agents.items() if not item.outlined]
    newest = max((item.evaluation for item in report.agents.values()), key=lambda item: item.window_end)
    window = Window(end=newest.window_end, start=newest.window_start)
    corrections = correction_statistics(world.store, window, agent_ids=list(report.agents))
    sections: dict[str, Any] = {
        "history": {
            **_outlined_history(world.store, report, window.end),
            **score_history(world.store, agent_ids, until=window.end, since=since),
        },
        "voice_map": voice_statistics(world, agent_ids, window),
        "voice_alarms": voice_alarm_statistics(world, report),
        "suites": _suite_summaries(world.store),
        "trends": _trends(world, report),
        "fading": {a: curves for a in agent_ids if (curves := fading_statistics(world, report.agents[a]))},
    }
    if corrections.agents:
        sections["corrections"] = corrections.model_dump(mode="json")
    report.statistics |= {name: section for name, section in sections.items() if section}
    return report


def _outlined_history(store: Store, report: RunReport, until: datetime) -> dict[str, list[dict[str, Any]]]:
    outlined = [agent_id for agent_id, item in report.agents.items() if item.outlined]
    if not outlined:
        return {}
    found = overall_points(store, outlined, until=until, most=MOST_DRAWN)
    return {
        agent_id: [{"window_end": value.window_end, "overall": value.overall} for value in values]
        for agent_id, values in found.items()
    }


def _trends(world: World, report: RunReport) -> dict[str, Any]:
    told = {f.agent_id for f in report.all_findings() if f.kind == "trend" and f.agent_id}
    watched = WatchedPoints(world.store, sorted(watched_agents(world.root).baselines) if told else [])
    return {
        agent_id: {name: asdict(trend) for name, trend in trends_of(item.evaluation, watched).items()}
        for agent_id, item in report.agents.items()
        if agent_id in told and not item.outlined
    }


def _suite_summaries(store: Store) -> list[dict[str, Any]]:
    with store.connect() as connection:
        if connection.execute(sa.select(tables.suite_runs.c.id).limit(1)).first() is None:
            return []
    # Here, because loading the suites takes a quarter of a second that few runs need.
    from persona_pipeline.suites.results.storage import latest_suite_summaries

    return latest_suite_summaries(store)
