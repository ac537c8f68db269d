"""Collects what a report has besides scores in ``RunReport.statistics``, as plain JSON: the section ``history``."""

from datetime import datetime
from typing import Any

from persona_pipeline.base.database.engine import Store
from persona_pipeline.evaluation.history import overall_points, points_of, score_history
from persona_pipeline.guard.report import RunReport
from persona_pipeline.world.runs import overall_rows, summary_rows
from persona_pipeline.world.world import World

# Windows drawn of an agent that has only a line of the report.
_MOST_DRAWN = 24


def gather(world: World, report: RunReport, *, since: datetime | None = None) -> RunReport:
    """Return the report with its history, which begins at ``since``; without one it has no such section."""
    if not report.agents:
        return report
    agent_ids = [agent_id for agent_id, item in report.agents.items() if not item.outlined]
    until = max(item.evaluation.window_end for item in report.agents.values())
    with world.store.together():
        rows = summary_rows(world.store, agent_ids, until=until, since=since)
        history = {**_outlined_history(world.store, report, until), **score_history(points_of(agent_ids, rows))}
    if history:
        report.statistics["history"] = history
    return report


def _outlined_history(store: Store, report: RunReport, until: datetime) -> dict[str, list[dict[str, Any]]]:
    outlined = [agent_id for agent_id, item in report.agents.items() if item.outlined]
    found = overall_points(outlined, overall_rows(store, until=until, most=_MOST_DRAWN)) if outlined else {}
    return {
        agent_id: [{"window_end": end, "overall": overall} for end, overall in values.items()]
        for agent_id, values in found.items()
    }
