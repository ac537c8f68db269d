"""Evaluation runs and their windows in the store, as rows; callers interpret them. Bounds of windows never change."""

import hashlib
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import CLOCKS_DIFFER, Store, among, chunks, upsert
from persona_pipeline.world.messages.revision import raise_revisions
from persona_pipeline.world.models import Message, Window, grouped

_WINDOWS = tables.message_windows
_ASKED = tables.evaluations_asked


def record_windows(connection: Connection, windows: Sequence[tuple[str, Window, datetime | None]]) -> None:
    """Keep windows of agents; one that is known keeps its bounds.

    Each comes with when its messages were read for an evaluation (None: not): what touched them before is evaluated now.
    """
    rows = [
        {"id": _window_id(agent_id, w), "agent_id": agent_id, "window_start": w.start, "window_end": w.end}
        for agent_id, w, _ in windows
    ]
    upsert(connection, _WINDOWS, rows)
    read = [
        {"known": row["id"], "read_at": read_at}
        for row, (*_, read_at) in zip(rows, windows, strict=True)
        if read_at is not None
    ]
    if read:
        known = (_WINDOWS.c.id == sa.bindparam("known")) & (_WINDOWS.c.touched_at <= sa.bindparam("read_at"))
        connection.execute(sa.update(_WINDOWS).where(known).values(touched_at=None), read)


def newest_windows(store: Store, agent_ids: Collection[str], *, now: datetime) -> dict[str, Window]:
    """Return the newest window of each agent that does not end in the future; agents without one are left out."""
    order = (_WINDOWS.c.window_end.desc(), _WINDOWS.c.updated_at.desc(), _WINDOWS.c.id)
    place = sa.func.row_number().over(partition_by=_WINDOWS.c.agent_id, order_by=order).label("place")
    known = (among(_WINDOWS.c.agent_id, agent_ids), _WINDOWS.c.window_end <= now)
    ranked = sa.select(_WINDOWS.c.agent_id, _WINDOWS.c.window_start, _WINDOWS.c.window_end, place).where(*known)
    newest = ranked.subquery()
    rows = store.rows(sa.select(newest).where(newest.c.place == 1))
    return {row.agent_id: Window(end=row.window_end, start=row.window_start) for row in rows}


def touched_windows(store: Store, agent_ids: Collection[str]) -> list[tuple[str, Window]]:
    """Return the agents' windows whose messages changed after they were evaluated, the oldest first."""
    raise_revisions(store)
    query = (
        sa.select(_WINDOWS)
        .where(_WINDOWS.c.touched_at.is_not(None), among(_WINDOWS.c.agent_id, agent_ids))
        .order_by(_WINDOWS.c.window_end, _WINDOWS.c.agent_id)
    )
    rows = [row for row in store.rows(query) if row.agent_id in agent_ids]
    return [(row.agent_id, Window(end=row.window_end, start=row.window_start)) for row in rows]


def _window_id(agent_id: str, window: Window) -> uuid.UUID:
    start = window.start.astimezone(UTC).isoformat() if window.start else ""
    text = "\x1f".join([agent_id, start, window.end.astimezone(UTC).isoformat()])
    return uuid.UUID(bytes=hashlib.sha256(text.encode()).digest()[:16], version=5)


Row: TypeAlias = sa.Row
_RUNS, _SCORES, _AGENTS = tables.evaluation_runs, tables.evaluation_scores, tables.agents
_VERDICTS = tables.message_verdicts
# Runs that are not decided yet.
UNFINISHED = ("pending", "running")
# Which of an agent's runs counts: of the newest window, a whole one before one of a part, a finished one, the later.
_NEWEST_LAST = (_RUNS.c.window_end, _RUNS.c.whole, _RUNS.c.status.not_in(UNFINISHED), _RUNS.c.completed_at, _RUNS.c.id)
_NEWEST_FIRST = tuple(column.desc() for column in _NEWEST_LAST)
# A run without a score counts, too: it has a verdict.
_REAL = _RUNS.c.synthetic.is_(False)
# Series over time are drawn from runs that have a score.
_SCORED = (_RUNS.c.status == "completed", _REAL)
# Columns of a run; those of its provenance have the same names there.
RUN_COLUMNS = frozenset(_RUNS.c.keys())
# Windows of an agent that a history goes back.
MOST_WINDOWS = 60
# Runs per transaction, so that other writers have their turn.
AT_ONCE = 200


@dataclass(frozen=True)
class RunRows:
    """A run as rows.

    ``run``: of ``evaluation_runs``; ``scores``: of ``evaluation_scores``; ``messages``: of ``message_verdicts``. ``window``:
    None: it has no window of real messages. ``read_at``: when its messages were read. ``is_baseline``: the agent's baseline
    was taken from it.
    """

    run: Mapping[str, Any]
    scores: Sequence[Mapping[str, Any]] = ()
    messages: Sequence[Mapping[str, Any]] = ()
    window: Window | None = None
    read_at: datetime | None = None
    is_baseline: bool = False


def write_runs(connection: Connection, runs: Sequence[RunRows]) -> None:
    """Write runs with their scores and windows, best at most 200; the same inputs write the same rows."""
    upsert(connection, _RUNS, [item.run for item in runs])
    scores = {row["id"]: row for item in runs for row in item.scores}
    written = sa.select(_SCORES.c.id).where(_SCORES.c.evaluation_run_id.in_([item.run["id"] for item in runs]))
    gone = [key for key in connection.execute(written).scalars() if key not in scores]
    for some in chunks(gone):
        connection.execute(sa.delete(_SCORES).where(_SCORES.c.id.in_(some)))
    upsert(connection, _SCORES, list(scores.values()))
    connection.execute(sa.delete(_VERDICTS).where(_VERDICTS.c.evaluation_run_id.in_([item.run["id"] for item in runs])))
    upsert(connection, _VERDICTS, [row for item in runs for row in item.messages])
    windows = [(item.run["agent_id"], item.window, item.read_at) for item in runs if item.window is not None]
    record_windows(connection, windows)
    for item in runs:
        if item.is_baseline:
            theirs = sa.update(_RUNS).where(_RUNS.c.agent_id == item.run["agent_id"])
            connection.execute(theirs.values(is_baseline=_RUNS.c.id == item.run["id"]))


def find_run(store: Store, run_id: str) -> sa.Row | None:
    """Return a run; None when there is none, or what it says of claims was forgotten."""
    query = sa.select(_RUNS).where(_RUNS.c.id == uuid.UUID(run_id), _RUNS.c.result.is_not(None))
    return store.row(query)


def results_on(store: Store, agent_ids: Collection[str], ends: Collection[datetime]) -> dict[str, str]:
    """Return what the runs of some agents on windows with these ends say, as JSON text by run id."""
    query = sa.select(_RUNS.c.id, sa.cast(_RUNS.c.result, sa.Text).label("result")).where(
        among(_RUNS.c.agent_id, agent_ids), among(_RUNS.c.window_end, set(ends)), _RUNS.c.result.is_not(None)
    )
    return {str(row.id): row.result for row in store.rows(query)}


def runs_by_window(store: Store, agent_id: str) -> list[sa.Row]:
    """Return an agent's scored runs that are not forgotten, oldest window first, of each window the one that counts."""
    query = sa.select(_RUNS).where(_RUNS.c.agent_id == agent_id, *_SCORED, _RUNS.c.result.is_not(None))
    by_window = {row.window_end: row for row in store.rows(query.order_by(*_NEWEST_LAST))}
    return list(by_window.values())


def newest_run_row(store: Store, agent_id: str) -> sa.Row | None:
    """Return the run of any status that counts of an agent's newest window; None when it was never evaluated."""
    query = sa.select(_RUNS).where(_RUNS.c.agent_id == agent_id, _REAL).order_by(*_NEWEST_FIRST).limit(1)
    return store.row(query)


def counting_rows(store: Store, agent_id: str) -> list[sa.Row]:
    """Return of each window of an agent the run that counts, the newest windows first.

    Rows are of id, window's end and start, and ``overall_score``.
    """
    columns = (_RUNS.c.id, _RUNS.c.window_end, _RUNS.c.window_start, _RUNS.c.overall_score)
    query = sa.select(*columns).where(_REAL, _RUNS.c.agent_id == agent_id).order_by(*_NEWEST_FIRST)
    found: dict[datetime, sa.Row] = {}
    for row in store.rows(query):
        found.setdefault(row.window_end, row)
    return list(found.values())


def newest_ids() -> sa.Select:
    """Return the query of the ids of every agent's newest run: an index look-up an agent, however many runs were before."""
    own = sa.select(_RUNS.c.id).where(_RUNS.c.agent_id == _AGENTS.c.id, _REAL).order_by(*_NEWEST_FIRST).limit(1)
    # Agents without a persona are other speakers.
    newest = sa.select(own.scalar_subquery().label("id")).where(_AGENTS.c.persona.is_not(None)).subquery()
    return sa.select(newest.c.id).where(newest.c.id.is_not(None))


def newest_rows(store: Store, names: Sequence[str], since: datetime | None = None) -> Sequence[sa.Row]:
    """Return the agent and some columns of every agent's newest run, by agent. ``since``: only windows that end then or later."""
    columns = [_RUNS.c[name] for name in ("agent_id", *names)]
    query = sa.select(*columns).where(_RUNS.c.id.in_(newest_ids())).order_by(_RUNS.c.agent_id)
    return store.rows(query if since is None else query.where(_RUNS.c.window_end >= since))


def summary_rows(
    store: Store, agent_ids: Collection[str], *, until: datetime | None = None, since: datetime | None = None
) -> Sequence[sa.Row]:
    """Return agent, window's end, ``whole`` and ``summary`` of finished runs; the last run of a window counts.

    They cover at least each agent's newest 60 windows; earlier runs are not read.
    """
    bounds = [] if until is None else [_RUNS.c.window_end <= until]
    bounds += [] if since is None else [_RUNS.c.window_end >= since]
    ends = sa.select(_RUNS.c.window_end).where(_RUNS.c.agent_id == _AGENTS.c.id, *_SCORED, *bounds).distinct()
    oldest = ends.order_by(_RUNS.c.window_end.desc()).offset(MOST_WINDOWS - 1).limit(1).correlate(_AGENTS)
    columns = (_RUNS.c.agent_id, _RUNS.c.window_end, _RUNS.c.whole, _RUNS.c.summary)
    query = sa.select(*columns).where(among(_RUNS.c.agent_id, agent_ids), *_SCORED, *bounds).order_by(*_NEWEST_LAST)
    with store.connect() as connection:
        asked = sa.select(oldest.scalar_subquery()).where(among(_AGENTS.c.id, agent_ids))
        known = connection.execute(asked).scalars().all()
        if known and None not in known:
            query = query.where(_RUNS.c.window_end >= min(known))
        return connection.execute(query).all()


def overall_rows(store: Store, *, until: datetime, most: int) -> Sequence[sa.Row]:
    """Return agent, window's end and ``overall_score`` of the newest ``most`` runs of each agent, oldest first."""
    place = sa.func.row_number().over(partition_by=_RUNS.c.agent_id, order_by=_NEWEST_FIRST).label("place")
    columns = (_RUNS.c.agent_id, _RUNS.c.window_end, _RUNS.c.overall_score)
    ranked = sa.select(*columns, place).where(*_SCORED, _RUNS.c.window_end <= until).subquery()
    query = sa.select(ranked).where(ranked.c.place <= most).order_by(ranked.c.agent_id, ranked.c.place.desc())
    return store.rows(query)


def message_verdict_rows(store: Store, agent_ids: Collection[str], *, until: datetime, most: int) -> Sequence[sa.Row]:
    """Return the verdicts on each agent's newest ``most`` messages up to a moment, oldest first.

    The verdict of the latest run on a message counts.
    """
    place = sa.func.row_number().over(
        partition_by=(_VERDICTS.c.agent_id, _VERDICTS.c.message_id), order_by=_NEWEST_FIRST
    )
    own = sa.select(_VERDICTS, place.label("place")).join(_RUNS, _RUNS.c.id == _VERDICTS.c.evaluation_run_id)
    latest = own.where(among(_VERDICTS.c.agent_id, agent_ids), _VERDICTS.c.said_at <= until, _REAL).subquery()
    newest = sa.func.row_number().over(
        partition_by=latest.c.agent_id, order_by=(latest.c.said_at.desc(), latest.c.message_id.desc())
    )
    ranked = sa.select(latest, newest.label("newest")).where(latest.c.place == 1).subquery()
    query = sa.select(ranked).where(ranked.c.newest <= most).order_by(ranked.c.agent_id, ranked.c.newest.desc())
    return [row for row in store.rows(query) if row.agent_id in agent_ids]


def is_latest_verdict() -> sa.ColumnElement[bool]:
    """Return the condition that a row of ``message_verdicts`` is of the latest run with a verdict on its message.

    The index by agent and time finds the other verdicts on the message.
    """
    other = _VERDICTS.alias()
    same = [other.c[name] == _VERDICTS.c[name] for name in ("agent_id", "said_at", "message_id")]
    runs = sa.select(_RUNS.c.id).join(other, _RUNS.c.id == other.c.evaluation_run_id).where(*same, _REAL)
    latest = runs.order_by(*_NEWEST_FIRST).limit(1).correlate(_VERDICTS)
    return _VERDICTS.c.evaluation_run_id == latest.scalar_subquery()


def verdict_rows_on(store: Store, messages: Sequence[Message]) -> dict[str, list[sa.Row]]:
    """Return the verdicts on some messages by id, each with its run's ``window_end``; the first one counts."""
    query = (
        sa.select(_VERDICTS, _RUNS.c.window_end)
        .join(_RUNS, _RUNS.c.id == _VERDICTS.c.evaluation_run_id)
        .where(
            _VERDICTS.c.agent_id.in_({message.agent_id for message in messages}),
            _VERDICTS.c.said_at.in_({message.created_at for message in messages}),
            _REAL,
        )
    )
    return grouped(store.rows(query.order_by(*_NEWEST_FIRST)), lambda row: row.message_id)


def forget_reasons(store: Store, days: int, *, now: datetime | None = None) -> int:
    """Take claims, reasons and quotes out of runs whose windows ended more than some days ago; return of how many.

    An agent's newest run stays whole, and so does the one its baseline was taken from. Of the others remain scores by dimension,
    findings and what histories are drawn from.
    """
    before = (now or datetime.now(UTC)) - timedelta(days=days)
    old = (
        sa.select(_RUNS.c.id)
        .where(_RUNS.c.window_end < before, _RUNS.c.result.is_not(None), _RUNS.c.is_baseline.is_(False))
        .where(_RUNS.c.id.not_in(newest_ids()))
    )
    ids = [row.id for row in store.rows(old)]
    for start in range(0, len(ids), AT_ONCE):
        some = ids[start : start + AT_ONCE]
        with store.begin() as connection:
            connection.execute(sa.delete(_SCORES).where(_SCORES.c.evaluation_run_id.in_(some)))
            connection.execute(sa.update(_RUNS).where(_RUNS.c.id.in_(some)).values(result=None, comparison=None))
            told = sa.update(_VERDICTS).where(_VERDICTS.c.evaluation_run_id.in_(some))
            connection.execute(told.values(quote="", reason=""))
    return len(ids)


def evaluated_since(store: Store, agent_ids: Collection[str], moment: datetime) -> set[str]:
    """Return the agents whose evaluation was requested by a sensor, or made, between a moment and now.

    Later dates come from a clock that is ahead and are ignored.
    """
    until = datetime.now(UTC) + CLOCKS_DIFFER
    asked = sa.select(_ASKED.c.agent_id).where(
        among(_ASKED.c.agent_id, agent_ids), _ASKED.c.asked_at.between(moment, until)
    )
    made = sa.select(_RUNS.c.agent_id).where(
        among(_RUNS.c.agent_id, agent_ids), _RUNS.c.created_at.between(moment, until)
    )
    return {row.agent_id for row in store.rows(sa.union(asked, made))} & set(agent_ids)


def note_asked(store: Store, agent_ids: Sequence[str]) -> None:
    """Note that a sensor asks for evaluations now."""
    now = datetime.now(UTC)
    if agent_ids:
        with store.begin() as connection:
            upsert(connection, _ASKED, [{"agent_id": name, "asked_at": now} for name in agent_ids])
