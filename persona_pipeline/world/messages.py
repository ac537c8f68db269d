"""Messages in the store: writing them idempotently, and reading a window of them."""

import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.store import Store, among, tables, upsert
from persona_pipeline.world.canonical import content_hash
from persona_pipeline.world.counting import said_by_agent
from persona_pipeline.world.evaluated_windows import touch_windows
from persona_pipeline.world.models import Message, Window
from persona_pipeline.world.removing import kept_out, let_in

_TABLE = tables.run_messages
_CHUNK = 5000
_MOST_NAMED = 100


@dataclass(frozen=True)
class WriteResult:
    """How many messages a write added, changed, left and removed. ``kept_out``: taken out before, by a person."""

    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0
    kept_out: int = 0

    def __add__(self, other: "WriteResult") -> "WriteResult":
        return WriteResult(*(getattr(self, name) + getattr(other, name) for name in vars(self)))


def write_messages(
    store: Store,
    messages: Sequence[Message],
    *,
    source: str | None = None,
    mirror: bool = False,
    restore: bool = False,
) -> WriteResult:
    """Write messages by id, in one transaction: an id that is known is updated, never doubled.

    Args:
        source: the file they come from; None for messages from elsewhere.
        mirror: also remove messages of that source that are not among these.
        restore: also write those that were taken out and have not changed since.
    """
    with store.begin() as connection:
        if restore:
            let_in(connection, messages)
        return write_messages_in(store, connection, messages, source=source, mirror=mirror)


def write_messages_in(
    store: Store, connection: Connection, messages: Sequence[Message], *, source: str | None, mirror: bool
) -> WriteResult:
    """Like ``write_messages``, inside a transaction of the caller's."""
    out = kept_out(connection, messages)
    messages = [message for message in messages if message.id not in out]
    known = _known(connection, [message.id for message in messages])
    inserted = [message for message in messages if message.id not in known]
    updated = [message for message in messages if message.id in known and known[message.id] != message]
    gone: dict[str, datetime] = {}
    if mirror:
        kept = {message.id for message in messages}
        of_source = connection.execute(sa.select(_TABLE.c.id, _TABLE.c.created_at).where(_TABLE.c.source == source))
        gone = {row.id: row.created_at for row in of_source if row.id not in kept}
        ids = list(gone)
        for start in range(0, len(ids), _CHUNK):
            connection.execute(sa.delete(_TABLE).where(_TABLE.c.id.in_(ids[start : start + _CHUNK])))
    changed = inserted + updated
    write_parents(store, connection, changed)
    upsert(store, connection, _TABLE, [row_of(message, source) for message in changed])
    moments = touched_moments(inserted, [(known[message.id], message) for message in updated])
    touch_windows(connection, (*gone.values(), *moments))
    let_in(connection, inserted)
    return WriteResult(len(inserted), len(updated), len(messages) - len(changed), len(gone), len(out))


def read_messages(
    store: Store,
    window: Window | None = None,
    *,
    agent_id: str | None = None,
    channels: Iterable[str] | None = None,
    synthetic: bool = False,
    limit: int | None = None,
) -> list[Message]:
    """Return messages in order of time (then id).

    Args:
        window: None for all times.
        agent_id: only this speaker's.
        channels: only in these channels; direct messages are then left out.
        synthetic: generated messages instead of real ones, never both.
        limit: the newest so many, still in order of time.
    """
    query = sa.select(_TABLE).where(_TABLE.c.synthetic == synthetic)
    if window is not None:
        query = query.where(_TABLE.c.created_at <= window.end)
        if window.start is not None:
            query = query.where(_TABLE.c.created_at > window.start)
    if agent_id is not None:
        query = query.where(_TABLE.c.agent_id == agent_id)
    if channels is not None:
        query = query.where(_TABLE.c.channel_id.in_(list(channels)))
    query = query.order_by(_TABLE.c.created_at.desc(), _TABLE.c.id.desc()).limit(limit)
    with store.connect() as connection:
        rows = connection.execute(query).all()
    # By code point, whatever the database's locale: a judge is shown, and recordings are keyed by, this order.
    return sorted(map(message_of, rows), key=lambda message: (message.created_at, message.id))


def read_talk(store: Store, span: Window, agent_ids: Collection[str]) -> list[Message]:
    """Return, in whatever order, what some agents really said in a span of time, and all that was said in their channels then."""
    during = [_TABLE.c.synthetic.is_(False), _TABLE.c.created_at <= span.end]
    if span.start is not None:
        during.append(_TABLE.c.created_at > span.start)
    theirs = among(_TABLE.c.agent_id, agent_ids)
    channels = sa.select(_TABLE.c.channel_id).where(*during, theirs, _TABLE.c.channel_id.is_not(None)).distinct()
    query = sa.select(_TABLE).where(*during, sa.or_(theirs, _TABLE.c.channel_id.in_(channels)))
    with store.connect() as connection:
        return [message_of(row) for row in connection.execute(query)]


def speaker_counts(store: Store, *, without: Collection[str] = ()) -> dict[str, int]:
    """Return how many real messages everybody has, but for those from some files."""
    if not without:
        return {agent_id: said.all.messages for agent_id, said in said_by_agent(store).items()}
    query = sa.select(_TABLE.c.agent_id, sa.func.count()).group_by(_TABLE.c.agent_id)
    query = query.where(
        _TABLE.c.synthetic.is_(False), sa.or_(_TABLE.c.source.is_(None), _TABLE.c.source.not_in(without))
    )
    with store.connect() as connection:
        return {row[0]: row[1] for row in connection.execute(query)}


def newest_message_time(store: Store, *, until: datetime) -> datetime | None:
    """Return when the newest real message up to a moment was sent; None when there is none."""
    newest = sa.select(sa.func.max(_TABLE.c.created_at))
    with store.connect() as connection:
        return connection.execute(newest.where(_TABLE.c.synthetic.is_(False), _TABLE.c.created_at <= until)).scalar()


def message_counts(store: Store, window: Window, *, agent_id: str | None = None) -> dict[str, int]:
    """Return how many real messages each agent (or one) sent in a window; who sent none is left out."""
    query = sa.select(_TABLE.c.agent_id, sa.func.count()).where(
        _TABLE.c.synthetic.is_(False), _TABLE.c.created_at <= window.end
    )
    if window.start is not None:
        query = query.where(_TABLE.c.created_at > window.start)
    if agent_id is not None:
        query = query.where(_TABLE.c.agent_id == agent_id)
    with store.connect() as connection:
        rows = connection.execute(query.group_by(_TABLE.c.agent_id))
        return {row[0]: row[1] for row in rows}


def later_messages(store: Store, moment: datetime) -> Sequence[sa.Row]:
    """Return id, source file, line in it and time of real messages later than a moment, in order of time, at most 100."""
    columns = (_TABLE.c.id, _TABLE.c.source, _TABLE.c.line, _TABLE.c.created_at)
    query = sa.select(*columns).order_by(_TABLE.c.created_at, _TABLE.c.id).limit(_MOST_NAMED)
    with store.connect() as connection:
        return connection.execute(query.where(_TABLE.c.synthetic.is_(False), _TABLE.c.created_at > moment)).all()


def messages_hash(messages: Iterable[Message]) -> str:
    """Return a hash of what was said, by whom, where and when."""
    return content_hash(
        [[m.id, m.agent_id, m.channel, m.recipient, m.text, m.created_at.isoformat()] for m in messages]
    )


def _known(connection: Connection, ids: Sequence[str]) -> dict[str, Message]:
    known: dict[str, Message] = {}
    for start in range(0, len(ids), _CHUNK):
        rows = connection.execute(sa.select(_TABLE).where(_TABLE.c.id.in_(ids[start : start + _CHUNK])))
        known |= {row.id: message_of(row) for row in rows}
    return known


def write_parents(store: Store, connection: Connection, messages: Sequence[Message]) -> None:
    """Write whom and what messages refer to: speakers, channels, runs."""
    speakers = sorted({message.agent_id for message in messages})
    upsert(store, connection, tables.agents, [{"id": s, "display_name": s} for s in speakers], update=False)
    channels = sorted({message.channel for message in messages if message.channel is not None})
    upsert(store, connection, tables.channels, [{"id": channel} for channel in channels], update=False)
    runs = sorted({message.run_id for message in messages if message.run_id is not None})
    upsert(store, connection, tables.runs, [{"id": uuid.UUID(run)} for run in runs], update=False)


def touched_moments(inserted: Iterable[Message], updated: Iterable[tuple[Message, Message]]) -> Iterator[datetime]:
    """Yield when that was said which a window may have to be judged anew for; extras are not judged.

    Args:
        updated: messages as they were and as they are.
    """
    for was, now in updated:
        if replace(was, extras={}) != replace(now, extras={}):
            yield was.created_at
            if not now.synthetic:
                yield now.created_at
    yield from (message.created_at for message in inserted if not message.synthetic)


def row_of(message: Message, source: str | None) -> dict[str, object]:
    """Return the row of a message from a file; None: from elsewhere."""
    return {
        "id": message.id,
        "agent_id": message.agent_id,
        "channel_id": message.channel,
        "recipient_id": message.recipient,
        "text": message.text,
        "run_id": uuid.UUID(message.run_id) if message.run_id else None,
        "synthetic": message.synthetic,
        "source": source,
        "speaker": message.speaker,
        "addressee": message.addressee,
        "extras": dict(message.extras) or None,
        "created_at": message.created_at,
    }


def message_of(row: sa.Row) -> Message:
    """Return the message of a stored row."""
    return Message(
        id=row.id,
        agent_id=row.agent_id,
        text=row.text,
        created_at=row.created_at,
        channel=row.channel_id,
        recipient=row.recipient_id,
        run_id=str(row.run_id) if row.run_id else None,
        synthetic=row.synthetic,
        speaker=row.speaker,
        addressee=row.addressee,
        extras=row.extras or {},
    )
