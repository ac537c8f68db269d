"""Summing checks up by day, each once, so that nobody reads hundreds of thousands of rows to know what the gate did."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.corrections.records import ACTION_LIFETIME
from persona_pipeline.corrections.tally import Tally
from persona_pipeline.store import Store, tables, upsert
from persona_pipeline.world.models import Window

_CHECKS, _DAYS = tables.gate_checks, tables.gate_days
_CHUNK = 5000
_COLUMNS = (
    "agent_id",
    "attempt_number",
    "decision",
    "shadow",
    "reason",
    "latency_ms",
    "token_usage",
    "usd",
    "created_at",
)


def count_new_checks(store: Store, *, most: int | None = None) -> int:
    """Add checks that are new to the tallies of their days, and return how many there were.

    Each is counted once, whoever else counts at the same time; memory does not grow with their number.

    Args:
        most: of checks, about; None: all there are.
    """
    counted = 0
    while most is None or counted < most:
        with store.connect() as connection:
            if connection.execute(sa.select(_CHECKS.c.id).where(~_CHECKS.c.counted).limit(1)).first() is None:
                break
        with store.begin() as connection:
            found = _count_chunk(store, connection)
        counted += found
        if found < _CHUNK:
            break
    return counted


def uncounted_checks(store: Store) -> int:
    """Return how many checks are in no tally yet."""
    with store.connect() as connection:
        return connection.execute(
            sa.select(sa.func.count()).select_from(_CHECKS).where(~_CHECKS.c.counted)
        ).scalar_one()


def day_tallies(
    store: Store, window: Window | None, agent_ids: Sequence[str] | None
) -> Iterator[tuple[str, date, Tally]]:
    """Yield agent, UTC day and tally of what began in a window; a day may come in parts."""
    first, last, edges = _parts(window)
    query = sa.select(_DAYS)
    if first is not None:
        query = query.where(_DAYS.c.day >= first)
    if last is not None:
        query = query.where(_DAYS.c.day <= last)
    if agent_ids is not None:
        query = query.where(_DAYS.c.agent_id.in_(agent_ids))
    with store.connect() as connection:
        for row in connection.execute(query):
            yield row.agent_id, row.day, Tally.from_json(row.tally)
        for edge in edges:
            for (agent_id, day), tally in _edge(connection, edge, agent_ids).items():
                yield agent_id, day, tally


def _count_chunk(store: Store, connection: Connection) -> int:
    new = (
        sa.select(_CHECKS.c.id, _began(), *(_CHECKS.c[name] for name in _COLUMNS))
        .where(~_CHECKS.c.counted)
        .limit(_CHUNK)
        .with_for_update(skip_locked=True, of=_CHECKS)
    )
    rows = connection.execute(new).all()
    tallies: defaultdict[tuple[str, date], Tally] = defaultdict(Tally)
    for row in rows:
        tallies[row.agent_id, row.began.date()].add(row, first=row.began == row.created_at)
    for (agent_id, day), tally in sorted(tallies.items()):
        own = (_DAYS.c.agent_id == agent_id, _DAYS.c.day == day)
        upsert(store, connection, _DAYS, [{"agent_id": agent_id, "day": day, "tally": Tally().to_json()}], update=False)
        known = connection.execute(sa.select(_DAYS.c.tally).where(*own).with_for_update()).scalar_one()
        tally.merge(Tally.from_json(known))
        connection.execute(sa.update(_DAYS).where(*own).values(tally=tally.to_json()))
    if rows:
        marked = sa.update(_CHECKS).where(_CHECKS.c.id == sa.bindparam("row_id")).values(counted=True)
        connection.execute(marked, [{"row_id": row.id} for row in rows])
    return len(rows)


def _began() -> sa.ColumnElement[datetime]:
    """When the action of a check began: its first check's time."""
    first = _CHECKS.alias("first")
    same = (first.c.agent_id == _CHECKS.c.agent_id, first.c.action_id == _CHECKS.c.action_id)
    earliest = sa.select(sa.func.min(first.c.created_at)).where(*same).correlate(_CHECKS).scalar_subquery()
    case = sa.case((_CHECKS.c.attempt_number == 1, _CHECKS.c.created_at), else_=earliest)
    return sa.type_coerce(case, _CHECKS.c.created_at.type).label("began")


def _parts(window: Window | None) -> tuple[date | None, date | None, list[Window]]:
    """Return the first and the last whole day of a window, and what it holds of others."""
    if window is None:
        return None, None, []
    end = window.end.astimezone(UTC)
    last = end.date() - timedelta(days=1)
    if window.start is None:
        return None, last, [Window(end=end, start=_midnight(end.date()))]
    start = window.start.astimezone(UTC)
    first = start.date() + timedelta(days=1)
    if first > end.date():
        return first, last, [Window(end=end, start=start)]
    # Checks at the very instant of midnight belong to the day that begins.
    before = Window(end=_midnight(first), start=start)
    return first, last, [before, Window(end=end, start=_midnight(end.date()))]


def _midnight(day: date) -> datetime:
    """The last instant before a day; a window excludes its start."""
    return datetime.combine(day, time(), UTC) - timedelta(microseconds=1)


def _edge(connection: Connection, window: Window, agent_ids: Sequence[str] | None) -> dict[tuple[str, date], Tally]:
    began = _began()
    query = sa.select(began, *(_CHECKS.c[name] for name in _COLUMNS)).where(
        _CHECKS.c.created_at > window.start, _CHECKS.c.created_at <= window.end + ACTION_LIFETIME
    )
    if agent_ids is not None:
        query = query.where(_CHECKS.c.agent_id.in_(agent_ids))
    tallies: defaultdict[tuple[str, date], Tally] = defaultdict(Tally)
    for row in connection.execution_options(yield_per=_CHUNK).execute(query):
        if row.began in window:
            tallies[row.agent_id, row.began.date()].add(row, first=row.began == row.created_at)
    return tallies
