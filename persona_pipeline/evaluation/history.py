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


@dataclass(frozen=True)
class JudgedMessages:
    """The adherence (0-9) of single messages of one window, by id."""

    window_start: datetime | None
    scores: dict[str, float]


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


def newest_ids() -> sa.Select:
    """Return the query of the ids of every agent's newest finished run; of the runs before it nothing long is read."""
    order = [column.desc() for column in NEWEST_LAST]
    place = sa.func.row_number().over(partition_by=_RUNS.c.agent_id, order_by=order).label("place")
    finished = (_RUNS.c.status == "completed", _RUNS.c.synthetic.is_(False))
    ranked = sa.select(_RUNS.c.id, place).where(*finished).subquery()
    return sa.select(ranked.c.id).where(ranked.c.place == 1)


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


def overall_points(
    store: Store, agent_ids: Sequence[str], *, until: datetime, most: int
) -> dict[str, list[HistoryValue]]:
    """Return the overall scores of agents over their newest windows, at most so many each, oldest first.

    Read from a column of ordinary precision: meant to be drawn small, many at a time.
    """
    order = [column.desc() for column in NEWEST_LAST]
    place = sa.func.row_number().over(partition_by=_RUNS.c.agent_id, order_by=order).label("place")
    finished = (_RUNS.c.status == "completed", _RUNS.c.synthetic.is_(False), _RUNS.c.window_end <= until)
    columns = (_RUNS.c.agent_id, _RUNS.c.window_end, _RUNS.c.overall_score)
    ranked = sa.select(*columns, place).where(*finished).subquery()
    query = sa.select(ranked).where(ranked.c.place <= most).order_by(ranked.c.agent_id, ranked.c.place.desc())
    wanted, found = set(agent_ids), defaultdict[str, dict[datetime, HistoryValue]](dict)
    with store.connect() as connection:
        for agent_id, window_end, overall, _ in connection.execute(query):
            if agent_id in wanted:
                found[agent_id][window_end] = HistoryValue(window_end, overall)
    return {agent_id: list(values.values()) for agent_id, values in found.items()}


def judged_messages(store: Store, agent_id: str, persona_hash: str, *, most: int) -> list[JudgedMessages]:
    """Return the newest windows, at most so many, those left out that were of another persona; oldest first."""
    columns = (_RUNS.c.window_start, _RUNS.c.window_end, _RUNS.c.persona_hash, _RUNS.c.message_scores)
    query = (
        sa.select(*columns)
        .where(_RUNS.c.agent_id == agent_id, _RUNS.c.status == "completed", _RUNS.c.synthetic.is_(False))
        .order_by(*(column.desc() for column in NEWEST_LAST))
    )
    newest: dict[datetime, sa.Row] = {}
    with store.connect() as connection:
        for row in connection.execute(query):
            newest.setdefault(row.window_end, row)
            if len(newest) == most:
                break
    alike = [row for row in reversed(newest.values()) if row.persona_hash == persona_hash]
    return [JudgedMessages(row.window_start, row.message_scores or {}) for row in alike]


def overall_history(store: Store, agent_id: str, *, until: datetime, limit: int = 30) -> list[HistoryValue]:
    """Return an agent's overall scores by window end, oldest first, of the last ``limit`` windows."""
    points = points_of(store, [agent_id], until=until)[agent_id]
    return [HistoryValue(point.window_end, point.overall) for point in points[-limit:]]
