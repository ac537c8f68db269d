"""Evaluation runs in the store, as rows: what they say is the caller's."""

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.store import MOST_NAMED, Store, among, tables, upsert
from persona_pipeline.world.evaluated_windows import record_windows
from persona_pipeline.world.models import Window

_RUNS, _SCORES = tables.evaluation_runs, tables.evaluation_scores
# Which of an agent's runs counts: of the newest window, a whole one before one of a part, the later.
_NEWEST_LAST = (_RUNS.c.window_end, _RUNS.c.whole, _RUNS.c.completed_at, _RUNS.c.id)
_NEWEST_FIRST = tuple(column.desc() for column in _NEWEST_LAST)
_FINISHED = (_RUNS.c.status == "completed", _RUNS.c.synthetic.is_(False))
# Runs of one transaction, so that other writers have their turn.
_AT_ONCE = 200


@dataclass(frozen=True)
class RunRows:
    """A run as it is written.

    Attributes:
        run: the row of ``evaluation_runs``; ``scores``: those of ``evaluation_scores``.
        window: None: the run is about no window of what the agent really said.
        read_at: when its messages were read.
        is_baseline: the agent's baseline was taken from it.
    """

    run: Mapping[str, Any]
    scores: Sequence[Mapping[str, Any]] = ()
    window: Window | None = None
    read_at: datetime | None = None
    is_baseline: bool = False


def write_runs(store: Store, runs: Sequence[RunRows]) -> None:
    """Write runs with their scores and windows, at most 200 in a transaction; the same inputs write the same rows."""
    for start in range(0, len(runs), _AT_ONCE):
        some = runs[start : start + _AT_ONCE]
        with store.begin() as connection:
            _write(store, connection, some)


def _write(store: Store, connection: Connection, runs: Sequence[RunRows]) -> None:
    upsert(store, connection, _RUNS, [item.run for item in runs])
    scores = {row["id"]: row for item in runs for row in item.scores}
    written = sa.select(_SCORES.c.id).where(_SCORES.c.evaluation_run_id.in_([item.run["id"] for item in runs]))
    gone = [key for key in connection.execute(written).scalars() if key not in scores]
    for start in range(0, len(gone), MOST_NAMED):
        connection.execute(sa.delete(_SCORES).where(_SCORES.c.id.in_(gone[start : start + MOST_NAMED])))
    upsert(store, connection, _SCORES, list(scores.values()))
    windows = [(item.run["agent_id"], item.window, item.read_at) for item in runs if item.window is not None]
    record_windows(store, connection, windows)
    for item in runs:
        if item.is_baseline:
            theirs = sa.update(_RUNS).where(_RUNS.c.agent_id == item.run["agent_id"])
            connection.execute(theirs.values(is_baseline=_RUNS.c.id == item.run["id"]))


def find_run(store: Store, run_id: str) -> sa.Row | None:
    """Return a run; None when there is none, or what it says of claims was forgotten."""
    query = sa.select(_RUNS).where(_RUNS.c.id == uuid.UUID(run_id), _RUNS.c.result.is_not(None))
    with store.connect() as connection:
        return connection.execute(query).one_or_none()


def results_on(store: Store, agent_ids: Collection[str], ends: Collection[datetime]) -> dict[str, str]:
    """Return what the runs of some agents on windows with these ends say, as JSON text by run id."""
    query = sa.select(_RUNS.c.id, sa.cast(_RUNS.c.result, sa.Text).label("result")).where(
        among(_RUNS.c.agent_id, agent_ids), among(_RUNS.c.window_end, set(ends)), _RUNS.c.result.is_not(None)
    )
    with store.connect() as connection:
        return {str(row.id): row.result for row in connection.execute(query)}


def runs_by_window(store: Store, agent_id: str, since: datetime | None = None) -> list[sa.Row]:
    """Return an agent's finished runs that are not forgotten, oldest window first, of each window the one that counts."""
    query = sa.select(_RUNS).where(_RUNS.c.agent_id == agent_id, *_FINISHED, _RUNS.c.result.is_not(None))
    if since is not None:
        query = query.where(_RUNS.c.window_end >= since)
    with store.connect() as connection:
        by_window = {row.window_end: row for row in connection.execute(query.order_by(*_NEWEST_LAST))}
    return list(by_window.values())


def newest_run_row(store: Store, agent_id: str) -> sa.Row | None:
    """Return the run that counts of an agent's newest window; None when it was never evaluated."""
    query = sa.select(_RUNS).where(_RUNS.c.agent_id == agent_id, *_FINISHED).order_by(*_NEWEST_FIRST).limit(1)
    with store.connect() as connection:
        return connection.execute(query).one_or_none()


def newest_ids() -> sa.Select:
    """Return the query of the ids of every agent's newest finished run; of the runs before it nothing long is read."""
    place = sa.func.row_number().over(partition_by=_RUNS.c.agent_id, order_by=_NEWEST_FIRST).label("place")
    ranked = sa.select(_RUNS.c.id, place).where(*_FINISHED).subquery()
    return sa.select(ranked.c.id).where(ranked.c.place == 1)


def newest_p_values(store: Store) -> dict[str, float]:
    """Return the smallest p-value of each agent's newest comparison, by agent; those without a test are left out."""
    query = sa.select(_RUNS.c.agent_id, _RUNS.c.comparison["p_value"].as_float()).where(_RUNS.c.id.in_(newest_ids()))
    with store.connect() as connection:
        return {agent_id: p for agent_id, p in connection.execute(query) if p is not None}


def newest_outline_rows(store: Store, since: datetime | None = None) -> Sequence[sa.Row]:
    """Return agent, ``outline``, ``comparison`` and ``findings`` of every agent's newest compared run, by agent."""
    columns = (_RUNS.c.agent_id, _RUNS.c.outline, _RUNS.c.comparison, _RUNS.c.findings)
    query = (
        sa.select(*columns)
        .where(_RUNS.c.id.in_(newest_ids()), _RUNS.c.comparison.is_not(None), _RUNS.c.outline.is_not(None))
        .order_by(_RUNS.c.agent_id)
    )
    if since is not None:
        query = query.where(_RUNS.c.window_end >= since)
    with store.connect() as connection:
        return connection.execute(query).all()


def summary_rows(
    store: Store, agent_ids: Collection[str], *, until: datetime | None = None, since: datetime | None = None
) -> Sequence[sa.Row]:
    """Return agent, window's end, ``whole`` and ``summary`` of finished runs; of one window the last is the one that counts."""
    query = (
        sa.select(_RUNS.c.agent_id, _RUNS.c.window_end, _RUNS.c.whole, _RUNS.c.summary)
        .where(among(_RUNS.c.agent_id, agent_ids), *_FINISHED)
        .order_by(*_NEWEST_LAST)
    )
    if since is not None:
        query = query.where(_RUNS.c.window_end >= since)
    if until is not None:
        query = query.where(_RUNS.c.window_end <= until)
    with store.connect() as connection:
        return connection.execute(query).all()


def overall_rows(store: Store, *, until: datetime, most: int) -> Sequence[sa.Row]:
    """Return agent, window's end and ``overall_score`` of the newest so many runs of each agent, oldest first."""
    place = sa.func.row_number().over(partition_by=_RUNS.c.agent_id, order_by=_NEWEST_FIRST).label("place")
    columns = (_RUNS.c.agent_id, _RUNS.c.window_end, _RUNS.c.overall_score)
    ranked = sa.select(*columns, place).where(*_FINISHED, _RUNS.c.window_end <= until).subquery()
    query = sa.select(ranked).where(ranked.c.place <= most).order_by(ranked.c.agent_id, ranked.c.place.desc())
    with store.connect() as connection:
        return connection.execute(query).all()


def message_score_rows(store: Store, agent_id: str, *, most: int) -> list[sa.Row]:
    """Return window, ``persona_hash`` and ``message_scores`` of an agent's newest windows, at most so many; oldest first."""
    columns = (_RUNS.c.window_start, _RUNS.c.window_end, _RUNS.c.persona_hash, _RUNS.c.message_scores)
    query = sa.select(*columns).where(_RUNS.c.agent_id == agent_id, *_FINISHED).order_by(*_NEWEST_FIRST)
    newest: dict[datetime, sa.Row] = {}
    with store.connect() as connection:
        for row in connection.execute(query):
            newest.setdefault(row.window_end, row)
            if len(newest) == most:
                break
    return list(reversed(newest.values()))


def maker_rows(store: Store, agent_id: str, until: datetime) -> Sequence[sa.Row]:
    """Return window's end, ``persona_hash`` and ``judge_model`` of an agent's finished runs up to a moment, oldest first."""
    query = (
        sa.select(_RUNS.c.window_end, _RUNS.c.persona_hash, _RUNS.c.judge_model)
        .where(_RUNS.c.agent_id == agent_id, *_FINISHED, _RUNS.c.window_end <= until)
        .order_by(*_NEWEST_LAST)
    )
    with store.connect() as connection:
        return connection.execute(query).all()


def forget_reasons(store: Store, days: int, *, now: datetime | None = None) -> int:
    """Take claims, reasons and quotes out of runs whose windows ended more than some days ago; return of how many.

    An agent's newest run stays whole, and so does the one its baseline was taken from. Of the others remain scores by dimension,
    findings and what histories and trends are drawn from.
    """
    before = (now or datetime.now(UTC)) - timedelta(days=days)
    old = (
        sa.select(_RUNS.c.id)
        .where(_RUNS.c.window_end < before, _RUNS.c.result.is_not(None), _RUNS.c.is_baseline.is_(False))
        .where(_RUNS.c.id.not_in(newest_ids()))
    )
    with store.connect() as connection:
        ids = connection.execute(old).scalars().all()
    for start in range(0, len(ids), _AT_ONCE):
        some = ids[start : start + _AT_ONCE]
        with store.begin() as connection:
            connection.execute(sa.delete(_SCORES).where(_SCORES.c.evaluation_run_id.in_(some)))
            connection.execute(sa.update(_RUNS).where(_RUNS.c.id.in_(some)).values(result=None, comparison=None))
    return len(ids)
