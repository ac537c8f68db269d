"""Scores over windows: what an agent scored before."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from persona_pipeline.baselines.spread import score_margins
from persona_pipeline.evaluation.results import AgentEvaluation
from persona_pipeline.store import Store, tables

MOST_POINTS = 60
_RUNS = tables.evaluation_runs
# Which of an agent's runs counts: of the newest window, a whole one before one of a part, the later.
NEWEST_LAST = (_RUNS.c.window_end, _RUNS.c.whole, _RUNS.c.completed_at, _RUNS.c.id)


@dataclass(frozen=True)
class HistoryValue:
    """The overall score (0-9, None: unscored) of the window that ends at ``window_end``."""

    window_end: datetime
    overall: float | None


@dataclass(frozen=True)
class Point:
    """One window of an agent's history.

    Attributes:
        overall: 0-9; None: unscored.
        dimensions: by name, ``score`` (0-9 or None), ``samples`` (judgments a claim) and ``claims`` (hash of the set).
        judged_by: model and prompt version.
        margins: half the width of each dimension's 95 % interval, in points, and ``overall``'s.
    """

    window_end: datetime
    overall: float | None
    dimensions: dict[str, dict[str, Any]]
    judged_by: tuple[str | None, ...]
    margins: dict[str, float] = field(default_factory=dict)


def summary_of(evaluation: AgentEvaluation) -> dict[str, Any]:
    """Return what a run leaves of itself in a history."""
    provenance = evaluation.provenance
    return {
        "overall": evaluation.overall,
        "dimensions": {
            name: {"score": item.score, "samples": item.samples, "claims": item.proposition_set_hash}
            for name, item in evaluation.dimensions.items()
        },
        "judged_by": [provenance.get("judge_model"), provenance.get("prompt_version")],
        # Without repeats there is nothing to tell the judge's noise from.
        "margins": score_margins(evaluation.dimensions)
        if any(i.samples > 1 for i in evaluation.dimensions.values())
        else {},
    }


def points_of(
    store: Store, agent_ids: Sequence[str], *, until: datetime | None = None, since: datetime | None = None
) -> dict[str, list[Point]]:
    """Return each agent's windows, oldest first, at most the newest 60: of each the newest whole run, else the newest of a part."""
    query = (
        sa.select(_RUNS.c.agent_id, _RUNS.c.window_end, _RUNS.c.summary)
        .where(_RUNS.c.agent_id.in_(list(agent_ids)), _RUNS.c.status == "completed", _RUNS.c.synthetic.is_(False))
        .order_by(*NEWEST_LAST)
    )
    if since is not None:
        query = query.where(_RUNS.c.window_end >= since)
    if until is not None:
        query = query.where(_RUNS.c.window_end <= until)
    found: dict[str, dict[datetime, Point]] = defaultdict(dict)
    with store.connect() as connection:
        for row in connection.execute(query):
            known = row.summary or {}
            found[row.agent_id][row.window_end] = Point(
                row.window_end,
                known.get("overall"),
                known.get("dimensions", {}),
                tuple(known.get("judged_by", ())),
                known.get("margins", {}),
            )
    return {agent_id: list(found[agent_id].values())[-MOST_POINTS:] for agent_id in agent_ids}


def score_history(
    store: Store, agent_ids: Sequence[str], *, until: datetime | None = None, since: datetime | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Return each agent's saved scores by window end, oldest first, as a report draws them."""
    return {
        agent_id: [
            {
                "window_end": point.window_end.isoformat(),
                "overall": point.overall,
                "dimensions": {name: item["score"] for name, item in point.dimensions.items()},
                **({"margins": point.margins} if point.margins else {}),
            }
            for point in points
        ]
        for agent_id, points in points_of(store, agent_ids, until=until, since=since).items()
    }


def overall_history(store: Store, agent_id: str, *, until: datetime, limit: int = 30) -> list[HistoryValue]:
    """Return an agent's overall scores by window end, oldest first, of the last ``limit`` windows."""
    points = points_of(store, [agent_id], until=until)[agent_id]
    return [HistoryValue(point.window_end, point.overall) for point in points[-limit:]]
