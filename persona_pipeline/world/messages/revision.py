"""Revision numbers of agents' messages, so that a look costs only the changes, and deletion of old messages.

Database triggers note each change in the transaction that makes it. Here the notes become numbers that only rise, by agent, and
mark the evaluated windows that they are in.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, time, timedelta
from time import sleep

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, chunks, pruning_time, upsert
from persona_pipeline.world.models import Window, grouped

_MESSAGES, _CHANGES = tables.run_messages, tables.message_changes
_REMEMBERED, _AGED = tables.remembered, "messages aged out before"
_REVISIONS, _WINDOWS = tables.message_revisions, tables.message_windows
_ADVISORY_LOCK = 0x7065_7273_6F6E_62
_ROWS, _TURN = 5000, 0.15
# A sender's clock may be a little ahead; later messages are not judged yet.
FUTURE_GRACE = timedelta(minutes=5)


def revisions(store: Store, until: datetime | None = None) -> dict[str, int]:
    """Return how often what each agent said has changed, without changes outside every window it was evaluated on.

    Changes of messages after ``until`` count from then on.
    """
    raise_revisions(store, until)
    return {row.agent_id: row.revision for row in store.rows(sa.select(_REVISIONS))}


def raise_revisions(store: Store, until: datetime | None = None) -> None:
    """Raise the revisions by the changes that are noted of messages up to a moment; None: now, and some minutes of grace."""
    until = until or datetime.now(UTC) + FUTURE_GRACE
    noted = sa.select(_CHANGES.c.id).where(_CHANGES.c.said_at <= until).order_by(_CHANGES.c.id).limit(_ROWS)
    taken = sa.delete(_CHANGES).where(_CHANGES.c.id.in_(noted)).returning(_CHANGES.c.agent_id, _CHANGES.c.said_at)
    while store.value(noted) is not None:
        with store.begin() as connection:
            # One process at a time; the lock goes with the transaction. SQLite has one writer anyway.
            if not store.is_sqlite:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
            changes = connection.execute(taken).all()
            # Another process may have taken them.
            if changes:
                # What aged out changes nothing that is to be judged.
                aged = aged_out_before(connection)
                changes = [row for row in changes if aged is None or row.said_at >= aged]
                _raise(connection, changes)
                touch_windows(connection, (row.said_at for row in changes))


def _raise(connection: Connection, changes: Sequence[sa.Row]) -> None:
    said = grouped(changes, lambda row: row.agent_id)
    windows: dict[str, list[Window]] = {agent_id: [] for agent_id in said}
    bounds = (_WINDOWS.c.agent_id, _WINDOWS.c.window_start, _WINDOWS.c.window_end)
    for some in chunks(list(said)):
        for row in connection.execute(sa.select(*bounds).where(_WINDOWS.c.agent_id.in_(some)).distinct()):
            windows[row.agent_id].append(Window(row.window_end, row.window_start))
    rows = [
        {"agent_id": agent_id, "revision": sum(_is_judged(row.said_at, windows[agent_id]) for row in own)}
        for agent_id, own in said.items()
    ]
    upsert(connection, _REVISIONS, rows, add=True)


def _is_judged(moment: datetime, windows: Sequence[Window]) -> bool:
    """Return whether an agent's message is in one of its windows or the window before it, or newer than all of them.

    Of an agent that was never evaluated every message is: its first evaluation may be about any.
    """
    if not windows or moment > max(window.end for window in windows):
        return True
    return any(moment in window or moment in (window.previous() or window) for window in windows)


def touch_windows(connection: Connection, moments: Iterable[datetime]) -> None:
    """Mark windows that contain messages of these moments, and the windows after those, which consistency compares.

    Messages newer than every window, the usual case, mark none and cost one index look-up.
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


def newest_times(store: Store) -> dict[str, datetime]:
    """Return when each agent's newest real message up to now was sent; agents without one are left out."""
    agents, until = tables.agents, datetime.now(UTC) + FUTURE_GRACE
    own = sa.select(_MESSAGES.c.created_at).where(_MESSAGES.c.agent_id == agents.c.id, _MESSAGES.c.synthetic.is_(False))
    newest = own.where(_MESSAGES.c.created_at <= until).order_by(_MESSAGES.c.created_at.desc()).limit(1)
    query = sa.select(agents.c.id, newest.scalar_subquery().label("newest"))
    return {row.id: row.newest for row in store.rows(query) if row.newest is not None}


def aged_out_before(connection: Connection) -> datetime | None:
    """Return the UTC midnight before which real messages are deleted for their age; None: all are kept."""
    kept = connection.execute(sa.select(_REMEMBERED.c.value).where(_REMEMBERED.c.name == _AGED)).scalar()
    return None if kept is None else datetime.fromisoformat(kept)


def age_out(store: Store, days: int, *, now: datetime | None = None) -> int:
    """Delete real messages of UTC days more than ``days`` ago, and return their number.

    They stay out even if they are written again. Earlier evaluations of them stay and are not repeated. Deletion is in
    batches, so that other writers have their turn.
    """
    day = ((now or pruning_time()) - timedelta(days=days)).date()
    midnight = datetime.combine(day, time.min, UTC)
    with store.begin() as connection:
        upsert(connection, _REMEMBERED, [{"name": _AGED, "value": midnight.isoformat()}])
    old = sa.select(_MESSAGES.c.id).where(_MESSAGES.c.synthetic.is_(False), _MESSAGES.c.created_at < midnight)
    some = old.order_by(_MESSAGES.c.created_at).limit(_ROWS)
    deleted, gone = 0, _ROWS
    while gone == _ROWS:
        with store.begin() as connection:
            gone = connection.execute(sa.delete(_MESSAGES).where(_MESSAGES.c.id.in_(some))).rowcount
        deleted += gone
        if store.is_sqlite:
            # Who waits there asks again every tenth of a second, and would find it taken each time.
            sleep(_TURN)
    raise_revisions(store, midnight)
    return deleted
