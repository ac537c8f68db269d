"""Scores over windows: what an agent scored before."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from persona_pipeline.evaluation.results import AgentEvaluation
from persona_pipeline.evaluation.saving import latest_runs
from persona_pipeline.store import Store, tables

MOST_POINTS = 60


@dataclass(frozen=True)
class HistoryValue:
    """The overall score (0-9, None: unscored) of the window that ends at ``window_end``."""

    window_end: datetime
    overall: float | None


def score_history(
    store: Store, agent_ids: Sequence[str], *, until: datetime | None = None, since: datetime | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Return each agent's saved scores by window end, oldest first, at most the newest 60 windows."""
    history = {}
    for agent_id in agent_ids:
        runs = [run.evaluation for run in latest_runs(store, agent_id, since=since)]
        points = [history_point(run) for run in runs if until is None or run.window_end <= until]
        history[agent_id] = points[-MOST_POINTS:]
    return history


def history_point(evaluation: AgentEvaluation) -> dict[str, Any]:
    """Return one point of a history: the window's end and its scores (0-9, None: unscored)."""
    return {
        "window_end": evaluation.window_end.isoformat(),
        "overall": evaluation.overall,
        "dimensions": {name: item.score for name, item in evaluation.dimensions.items()},
    }


def overall_history(store: Store, agent_id: str, *, until: datetime, limit: int = 30) -> list[HistoryValue]:
    """Return an agent's overall scores by window end, oldest first: the newest run of each of the last ``limit`` windows.

    Reads one number a run, where ``score_history`` reads whole evaluations.
    """
    runs = tables.evaluation_runs
    query = (
        sa.select(runs.c.window_end, runs.c.overall_score)
        .where(runs.c.agent_id == agent_id, runs.c.status == "completed", runs.c.synthetic.is_(False))
        .where(runs.c.window_end <= until)
        .order_by(runs.c.window_end.desc(), runs.c.whole.desc(), runs.c.completed_at.desc(), runs.c.id.desc())
    )
    found: dict[datetime, float | None] = {}
    with store.connect() as connection:
        for row in connection.execute(query):
            if row.window_end not in found and len(found) == limit:
                break
            found.setdefault(row.window_end, row.overall_score)
    return [HistoryValue(end, found[end]) for end in sorted(found)]
