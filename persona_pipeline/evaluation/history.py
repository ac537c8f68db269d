"""Scores over windows: what an agent scored before."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from persona_pipeline.evaluation.results import AgentEvaluation
from persona_pipeline.evaluation.saving import latest_evaluations
from persona_pipeline.store import Store

MOST_POINTS = 60


def score_history(
    store: Store, agent_ids: Sequence[str], *, until: datetime | None = None, since: datetime | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Return each agent's saved scores by window end, oldest first, at most the newest 60 windows."""
    history = {}
    for agent_id in agent_ids:
        runs = latest_evaluations(store, agent_id, since=since)
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
