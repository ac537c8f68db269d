"""The windows agents were evaluated on: bounds that never move, the newest of them, and those that late messages touched."""

import hashlib
import uuid
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.store import Store, tables, upsert
from persona_pipeline.world.models import Window

_WINDOWS = tables.message_windows


def record_window(
    store: Store, connection: Connection, agent_id: str, window: Window, *, read_at: datetime | None = None
) -> None:
    """Keep a window of an agent; one that is known keeps its bounds.

    Args:
        read_at: when its messages were read for an evaluation: what touched them before is evaluated now.
    """
    row = {
        "id": _window_id(agent_id, window),
        "agent_id": agent_id,
        "window_start": window.start,
        "window_end": window.end,
    }
    upsert(store, connection, _WINDOWS, [row])
    if read_at is not None:
        known = (_WINDOWS.c.id == row["id"]) & (_WINDOWS.c.touched_at <= read_at)
        connection.execute(sa.update(_WINDOWS).where(known).values(touched_at=None))


def newest_window(store: Store, agent_id: str, *, now: datetime) -> Window | None:
    """Return the newest window of an agent that does not end in the future; None when it has none."""
    return next(iter(known_windows(store, agent_id, now=now, most=1)), None)


def known_windows(store: Store, agent_id: str, *, now: datetime, most: int | None = None) -> list[Window]:
    """Return the windows an agent was evaluated on that do not end in the future, the newest first; ``most``: at most so many."""
    query = (
        sa.select(_WINDOWS.c.window_start, _WINDOWS.c.window_end)
        .where(_WINDOWS.c.agent_id == agent_id, _WINDOWS.c.window_end <= now)
        .order_by(_WINDOWS.c.window_end.desc(), _WINDOWS.c.updated_at.desc(), _WINDOWS.c.id)
        .limit(most)
    )
    with store.connect() as connection:
        return [Window(end=row.window_end, start=row.window_start) for row in connection.execute(query)]


def touched_windows(store: Store, agent_ids: Collection[str]) -> list[tuple[str, Window]]:
    """Return the agents' windows whose messages changed after they were evaluated, the oldest first."""
    query = (
        sa.select(_WINDOWS)
        .where(_WINDOWS.c.touched_at.is_not(None), _WINDOWS.c.agent_id.in_(sorted(agent_ids)))
        .order_by(_WINDOWS.c.window_end, _WINDOWS.c.agent_id)
    )
    with store.connect() as connection:
        return [(row.agent_id, Window(end=row.window_end, start=row.window_start)) for row in connection.execute(query)]


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
