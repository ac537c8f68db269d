"""The windows agents were evaluated on: bounds that never move, the newest of them, and those that late messages touched."""

import hashlib
import uuid
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.store import Store, among, tables, upsert
from persona_pipeline.world.models import Window

_WINDOWS = tables.message_windows


def record_windows(
    store: Store, connection: Connection, windows: Sequence[tuple[str, Window, datetime | None]]
) -> None:
    """Keep windows of agents; one that is known keeps its bounds.

    Args:
        windows: each with when its messages were read for an evaluation (None: they were not): what touched them before is
            evaluated now.
    """
    rows = [
        {"id": _window_id(agent_id, w), "agent_id": agent_id, "window_start": w.start, "window_end": w.end}
        for agent_id, w, _ in windows
    ]
    upsert(store, connection, _WINDOWS, rows)
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
    with store.connect() as connection:
        rows = connection.execute(sa.select(newest).where(newest.c.place == 1))
        return {row.agent_id: Window(end=row.window_end, start=row.window_start) for row in rows}


def known_windows(store: Store, agent_id: str, *, now: datetime) -> list[Window]:
    """Return the windows an agent was evaluated on that do not end in the future, the newest first."""
    query = (
        sa.select(_WINDOWS.c.window_start, _WINDOWS.c.window_end)
        .where(_WINDOWS.c.agent_id == agent_id, _WINDOWS.c.window_end <= now)
        .order_by(_WINDOWS.c.window_end.desc(), _WINDOWS.c.updated_at.desc(), _WINDOWS.c.id)
    )
    with store.connect() as connection:
        return [Window(end=row.window_end, start=row.window_start) for row in connection.execute(query)]


def touched_windows(store: Store, agent_ids: Collection[str]) -> list[tuple[str, Window]]:
    """Return the agents' windows whose messages changed after they were evaluated, the oldest first."""
    query = (
        sa.select(_WINDOWS)
        .where(_WINDOWS.c.touched_at.is_not(None), among(_WINDOWS.c.agent_id, agent_ids))
        .order_by(_WINDOWS.c.window_end, _WINDOWS.c.agent_id)
    )
    with store.connect() as connection:
        rows = [row for row in connection.execute(query) if row.agent_id in agent_ids]
    return [(row.agent_id, Window(end=row.window_end, start=row.window_start)) for row in rows]


def touch_windows(connection: Connection, moments: Iterable[datetime]) -> None:
    """Mark the windows that messages of these moments fall into, or into the window before, which consistency compares with.

    Messages newer than every window, the usual case, mark none and cost one look into an index.
    """
    times: Sequence[datetime] = sorted(moments)
    if not times:
        return
    untouched = (_WINDOWS.c.window_end >= times[0], _WINDOWS.c.touched_at.is_(None))
    bounds = sa.select(_WINDOWS.c.window_start, _WINDOWS.c.window_end).where(*untouched).distinct()
    now = datetime.now(UTC)
    # Agents share their windows: there are few bounds, however many windows.
    for start, end in connection.execute(bounds).all():
        previous = Window(end, start).previous()
        first = bisect_right(times, previous.start) if previous and previous.start else 0
        if bisect_right(times, end) > first:
            same = _WINDOWS.c.window_start.is_(None) if start is None else _WINDOWS.c.window_start == start
            marked = sa.update(_WINDOWS).where(*untouched, same, _WINDOWS.c.window_end == end)
            connection.execute(marked.values(touched_at=now))


def _window_id(agent_id: str, window: Window) -> uuid.UUID:
    start = window.start.astimezone(UTC).isoformat() if window.start else ""
    text = "\x1f".join([agent_id, start, window.end.astimezone(UTC).isoformat()])
    return uuid.UUID(bytes=hashlib.sha256(text.encode()).digest()[:16], version=5)
