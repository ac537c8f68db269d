"""Messages in the store (written idempotently, read by window, taken out for good), and a log of them in memory."""

import uuid
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, among, chunks, upsert
from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.errors import ConfigError, NothingError, did_you_mean
from persona_pipeline.world.messages.files import ENDINGS, parse_messages
from persona_pipeline.world.messages.revision import aged_out_before
from persona_pipeline.world.models import Message, Window, grouped
from persona_pipeline.world.names import AgentNames, Aliases

_TABLE, _REMOVED = tables.run_messages, tables.removed_messages
# What a source calls the speaker.
_SPEAKER = sa.func.coalesce(_TABLE.c.speaker, _TABLE.c.agent_id)


@dataclass(frozen=True)
class Selection:
    """Selected real messages: all given conditions apply; any of several values of a condition.

    ``agents``: agent ids; ``speakers``: names in the source. ``sources``: files, as ``message_source`` names them.
    ``between``: first and last time, both included.
    """

    agents: Sequence[str] = ()
    speakers: Sequence[str] = ()
    ids: Sequence[str] = ()
    sources: Sequence[str] = ()
    between: tuple[datetime, datetime] | None = None

    def where(self) -> sa.ColumnElement[bool]:
        """Return the condition."""
        named = ((_TABLE.c.agent_id, self.agents), (_SPEAKER, self.speakers))
        listed = (*named, (_TABLE.c.id, self.ids), (_TABLE.c.source, self.sources))
        conditions = [_TABLE.c.synthetic.is_(False), *(column.in_(values) for column, values in listed if values)]
        if self.between:
            conditions.append(_TABLE.c.created_at.between(*self.between))
        return sa.and_(*conditions)


@dataclass(frozen=True)
class Selected:
    """A selection's messages: number by agent and by file (None: written by a runtime), first and last time."""

    ids: tuple[str, ...] = ()
    agents: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str | None, int] = field(default_factory=dict)
    first: datetime | None = None
    last: datetime | None = None


def select_messages(store: Store, selection: Selection) -> Selected:
    """Return what a selection comes to; ConfigError: nothing is given, or no message is meant."""
    # Nothing would be everything.
    if not any(vars(selection).values()):
        raise ConfigError("say which messages: --agent, --speaker, --id, --source or --between")
    columns = (_TABLE.c.id, _TABLE.c.agent_id, _TABLE.c.source, _TABLE.c.created_at)
    query = sa.select(*columns).where(selection.where()).order_by(_TABLE.c.created_at, _TABLE.c.id)
    with store.connect() as connection:
        rows = connection.execute(query).all()
        if not rows:
            raise NothingError(f"no message is meant{_hint(connection, selection)}")
    return Selected(
        tuple(row.id for row in rows),
        Counter(row.agent_id for row in rows),
        Counter(row.source for row in rows),
        rows[0].created_at,
        rows[-1].created_at,
    )


def remove_messages(store: Store, selected: Selected) -> int:
    """Remove messages from the store for good, and return their number."""
    removed = 0
    with store.begin() as connection:
        for some in chunks(selected.ids):
            these = _TABLE.c.id.in_(some)
            rows = connection.execute(sa.select(_TABLE).where(these)).all()
            upsert(connection, _REMOVED, [{"id": row.id, "content_hash": _hash(message_of(row))} for row in rows])
            connection.execute(sa.delete(_TABLE).where(these))
            removed += len(rows)
    return removed


def kept_out(connection: Connection, messages: Sequence[Message]) -> set[str]:
    """Return the ids of messages that were removed and have not changed since, or that aged out."""
    aged = aged_out_before(connection)
    said: dict[str, str] = {}
    for these in chunks([message.id for message in messages]):
        rows = connection.execute(sa.select(_REMOVED.c.id, _REMOVED.c.content_hash).where(_REMOVED.c.id.in_(these)))
        said |= {row.id: row.content_hash for row in rows}
    out = {message.id for message in messages if message.id in said and said[message.id] == _hash(message)}
    return out | {item.id for item in messages if aged and item.created_at < aged and not item.synthetic}


def let_in(connection: Connection, messages: Sequence[Message]) -> None:
    """Forget that messages were taken out."""
    for these in chunks([message.id for message in messages]):
        connection.execute(sa.delete(_REMOVED).where(_REMOVED.c.id.in_(these)))


def _hash(message: Message) -> str:
    # By the source's names: a changed alias does not let a message in again.
    speaker, recipient = message.speaker or message.agent_id, message.addressee or message.recipient
    return content_hash([speaker, message.channel, recipient, message.text, message.created_at.isoformat()])


def _hint(connection: Connection, selection: Selection) -> str:
    for column, values in (
        (_TABLE.c.agent_id, selection.agents),
        (_SPEAKER, selection.speakers),
        (_TABLE.c.source, selection.sources),
    ):
        known = [] if not values else connection.execute(sa.select(column).distinct()).scalars().all()
        for value in values:
            if value not in known:
                return f": there is none of {value!r}{did_you_mean(value, [name for name in known if name])}"
    return ""


_MOST_NAMED = 100


@dataclass(frozen=True)
class WriteResult:
    """How many messages a write added, changed, left and removed. ``kept_out``: taken out before, by a person or for age."""

    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0
    kept_out: int = 0

    def __add__(self, other: "WriteResult") -> "WriteResult":
        return WriteResult(*(getattr(self, name) + getattr(other, name) for name in vars(self)))


def write_messages(store: Store, messages: Sequence[Message]) -> WriteResult:
    """Write messages from elsewhere than files by id, in one transaction: a known id is updated, never doubled."""
    with store.begin() as connection:
        return write_messages_in(connection, messages)


def write_messages_in(
    connection: Connection,
    messages: Sequence[Message],
    *,
    mirrored: str | None = None,
    known: Mapping[str, Message] | None = None,
) -> WriteResult:
    """Like ``write_messages``, in the caller's transaction.

    ``mirrored``: their source, whose other messages are removed. ``known``: those of them that are stored, where they were read.
    """
    out = kept_out(connection, messages)
    messages = [message for message in messages if message.id not in out]
    if known is None:
        known = {key: message_of(row) for key, row in known_rows(connection, [item.id for item in messages]).items()}
    inserted = [message for message in messages if message.id not in known]
    updated = [message for message in messages if message.id in known and known[message.id] != message]
    gone: list[str] = []
    if mirrored is not None:
        kept = {message.id for message in messages}
        of_source = connection.execute(sa.select(_TABLE.c.id).where(_TABLE.c.source == mirrored)).scalars()
        gone = [key for key in of_source if key not in kept]
        for some in chunks(gone):
            connection.execute(sa.delete(_TABLE).where(_TABLE.c.id.in_(some)))
    rows = [row_of(message, mirrored) for message in (*inserted, *updated)]
    write_rows(connection, rows, inserted)
    return WriteResult(len(inserted), len(updated), len(messages) - len(rows), len(gone), len(out))


def read_messages(
    store: Store,
    window: Window | None = None,
    *,
    agent_id: str | None = None,
    synthetic: bool = False,
    limit: int | None = None,
) -> list[Message]:
    """Return messages in order of time (then id).

    ``window``: None: all times. ``agent_id``: of this speaker only. ``synthetic``: generated messages instead of real ones.
    ``limit``: the newest messages, in order of time.
    """
    query = sa.select(_TABLE).where(*_said_during(window, synthetic=synthetic))
    if agent_id is not None:
        query = query.where(_TABLE.c.agent_id == agent_id)
    query = query.order_by(_TABLE.c.created_at.desc(), _TABLE.c.id.desc()).limit(limit)
    return sorted(map(message_of, store.rows(query)), key=_place)


def read_talk(store: Store, span: Window, agent_ids: Collection[str]) -> list[Message]:
    """Return, unordered, real messages of and to some agents in a span of time, and all messages of their channels in it."""
    during = _said_during(span)
    theirs, told = among(_TABLE.c.agent_id, agent_ids), among(_TABLE.c.recipient_id, agent_ids)
    channels = sa.select(_TABLE.c.channel_id).where(*during, theirs, _TABLE.c.channel_id.is_not(None)).distinct()
    query = sa.select(_TABLE).where(*during, sa.or_(theirs, told, _TABLE.c.channel_id.in_(channels)))
    return [message_of(row) for row in store.rows(query)]


# Lines per beginning or ending: a stock phrase at the start must not hide the rest.
_MOST_ALIKE = 128
# The first fields of a message.
_SAID = ("id", "agent_id", "text", "created_at", "channel_id")


def read_newest(store: Store, span: Window, agent_ids: Collection[str], each: int) -> list[Message]:
    """Return, unordered, the newest ``each`` real messages of each agent in a span of time.

    Only author, text, place and time are read: these are most of the rows of an evaluation in a large world.
    """
    agents, own = tables.agents, _TABLE.alias("own")
    # Looked up agent by agent, so that what the others of a large world said between is not read.
    newest = sa.select(own).where(own.c.agent_id == agents.c.id, *_said_during(span, own)).limit(each)
    query = _for_each(store, agents, own, newest.order_by(own.c.created_at.desc(), own.c.id.desc()))
    return _read_said(store, query, agents.c.id, agent_ids)


def read_alike(store: Store, span: Window, lines: Iterable[Message]) -> list[Message]:
    """Return, unordered, real messages of others in a span of time that begin or end like one of some lines.

    The first of each beginning and ending are returned. The cost does not grow with the number of speakers.
    """
    ours, others, ids = _TABLE.alias("ours"), _TABLE.alias("others"), [line.id for line in lines]
    found: list[Message] = []
    for part, alike in tables.said_alike(ours.c.text).items():
        same = tables.said_alike(others.c.text)[part] == alike
        first = sa.select(others).where(same, others.c.agent_id != ours.c.agent_id, *_said_during(span, others))
        query = _for_each(store, ours, others, first.order_by(others.c.created_at).limit(_MOST_ALIKE)).distinct()
        found += _read_said(store, query, ours.c.id, ids)
    return found


def said_most(store: Store, least: Mapping[Window, int], agent_ids: Collection[str], most: int) -> list[str]:
    """Return at most ``most`` agents that really said at least the given number of messages in each span."""
    agents, own, found = tables.agents, _TABLE.alias("own"), []
    for some in chunks(sorted(agent_ids)):
        query = sa.select(agents.c.id).where(agents.c.id.in_(some))
        for span, fewest in least.items():
            said = sa.select(sa.func.count()).where(own.c.agent_id == agents.c.id, *_said_during(span, own))
            query = query.where(said.scalar_subquery() >= fewest)
        found += [row.id for row in store.rows(query.limit(most - len(found)))]
    return found


def _for_each(store: Store, table: sa.FromClause, own: sa.FromClause, some: sa.Select[Any]) -> sa.Select[Any]:
    """Return author, text, place and time of the messages ``own`` that ``some`` selects for each row of a table."""
    if store.is_sqlite:
        ids = some.with_only_columns(own.c.id).correlate(table).scalar_subquery()
        return sa.select(*(_TABLE.c[name] for name in _SAID)).join_from(table, _TABLE, _TABLE.c.id.in_(ids))
    lateral = some.with_only_columns(*(own.c[name] for name in _SAID)).lateral()
    return sa.select(lateral).join_from(table, lateral, sa.true())


def _read_said(store: Store, query: sa.Select[Any], key: sa.ColumnElement[str], keys: Iterable[str]) -> list[Message]:
    with store.connect() as connection:
        return [
            Message(*row) for some in chunks(sorted(keys)) for row in connection.execute(query.where(key.in_(some)))
        ]


def _said_during(span: Window | None, table: Any = _TABLE, *, synthetic: bool = False) -> list[sa.ColumnElement[bool]]:
    during = [table.c.synthetic.is_(synthetic)]
    during += [table.c.created_at <= span.end] if span else []
    return [*during, table.c.created_at > span.start] if span and span.start else during


def speakers(store: Store) -> set[str]:
    """Return all authors of real messages, by index look-ups."""
    agents = tables.agents
    own = sa.exists().where(_TABLE.c.agent_id == agents.c.id, *_said_during(None))
    return {row.id for row in store.rows(sa.select(agents.c.id).where(own))}


def speaker_counts(store: Store, names: Collection[str]) -> dict[str, int]:
    """Return how many real messages some speakers have."""
    query = sa.select(_TABLE.c.agent_id, sa.func.count()).group_by(_TABLE.c.agent_id)
    query = query.where(among(_TABLE.c.agent_id, names), *_said_during(None))
    return {row[0]: row[1] for row in store.rows(query) if row[0] in names}


def newest_message_time(store: Store, *, until: datetime) -> datetime | None:
    """Return when the newest real message up to a moment was sent; None when there is none."""
    newest = sa.select(sa.func.max(_TABLE.c.created_at))
    return store.value(newest.where(_TABLE.c.synthetic.is_(False), _TABLE.c.created_at <= until))


def count_messages(store: Store, window: Window, agent_id: str) -> int:
    """Return how many real messages an agent sent in a window."""
    own = sa.select(sa.func.count()).where(*_said_during(window), _TABLE.c.agent_id == agent_id)
    return int(store.value(own) or 0)


def later_messages(store: Store, moment: datetime) -> Sequence[sa.Row]:
    """Return id, source file, line in it and time of real messages later than a moment, in order of time, at most 100."""
    columns = (_TABLE.c.id, _TABLE.c.source, _TABLE.c.line, _TABLE.c.created_at)
    query = sa.select(*columns).order_by(_TABLE.c.created_at, _TABLE.c.id).limit(_MOST_NAMED)
    return store.rows(query.where(_TABLE.c.synthetic.is_(False), _TABLE.c.created_at > moment))


def messages_hash(messages: Iterable[Message]) -> str:
    """Return a hash of author, place, time and text of messages."""
    return content_hash(
        [[m.id, m.agent_id, m.channel, m.recipient, m.text, m.created_at.isoformat()] for m in messages]
    )


def known_rows(connection: Connection, ids: Sequence[str]) -> dict[str, sa.Row]:
    """Return the rows of messages that are there, by id."""
    known: dict[str, sa.Row] = {}
    for some in chunks(ids):
        rows = connection.execute(sa.select(_TABLE).where(_TABLE.c.id.in_(some)))
        known |= {row.id: row for row in rows}
    return known


def write_rows(connection: Connection, rows: Sequence[dict[str, Any]], inserted: Sequence[Message]) -> None:
    """Write rows of messages with the rows they refer to. ``inserted``: the new messages among them."""
    parents = ((tables.agents, "agent_id"), (tables.channels, "channel_id"), (tables.runs, "run_id"))
    for table, name in parents:
        ids = sorted({row[name] for row in rows} - {None})
        more = [{"display_name": key} if table is tables.agents else {} for key in ids]
        upsert(connection, table, [{"id": key, **own} for key, own in zip(ids, more, strict=True)], update=False)
    upsert(connection, _TABLE, rows)
    let_in(connection, inserted)


def row_of(message: Message, source: str | None) -> dict[str, Any]:
    """Return the row of a message from a file; None: from elsewhere."""
    row = vars(message) | {"source": source, "extras": dict(message.extras) or None}
    row |= {"channel_id": row.pop("channel"), "recipient_id": row.pop("recipient")}
    return row | {"run_id": uuid.UUID(message.run_id) if message.run_id else None}


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


MESSAGES = "messages"


@dataclass(frozen=True)
class MessageLog:
    """Messages in order of time (then id), each id once; see ``of``."""

    messages: tuple[Message, ...] = ()

    @classmethod
    def of(cls, messages: Iterable[Message]) -> "MessageLog":
        """Return the log of messages in any order; the first of an id counts."""
        found: dict[str, Message] = {}
        for message in messages:
            found.setdefault(message.id, message)
        return cls(tuple(sorted(found.values(), key=_place)))

    def within(
        self, window: Window | None = None, *, agent_id: str | None = None, channels: Collection[str] | None = None
    ) -> list[Message]:
        """Return messages in order of time.

        ``window``: None for all times. ``agent_id``: only this speaker's; else ``channels``: only in these, direct messages left
        out.
        """
        if agent_id is not None:
            return _within(self._by_speaker.get(agent_id, ()), window)
        if channels is None:
            return _within(self.messages, window)
        parts = [_within(self._by_channel.get(channel, ()), window) for channel in dict.fromkeys(channels)]
        return parts[0] if len(parts) == 1 else sorted((message for part in parts for message in part), key=_place)

    def talk(self, agent_id: str, window: Window) -> list[Message]:
        """Return all messages in a window in the places where an agent spoke in it, in order of time."""
        places = dict.fromkeys(message.conversation for message in self.within(window, agent_id=agent_id))
        return sorted((m for place in places for m in _within(self._by_place[place], window)), key=_place)

    @property
    def newest(self) -> datetime | None:
        """When the last message was sent."""
        return self.messages[-1].created_at if self.messages else None

    @cached_property
    def _by_speaker(self) -> Mapping[str, list[Message]]:
        return grouped(self.messages, lambda message: message.agent_id)

    @cached_property
    def _by_place(self) -> Mapping[str, list[Message]]:
        return grouped(self.messages, lambda message: message.conversation)

    @cached_property
    def _by_channel(self) -> Mapping[str | None, list[Message]]:
        """``None``: direct messages."""
        return grouped(self.messages, lambda message: message.channel)


def folder_messages(root: Path, names: Mapping[str, AgentNames], *, until: datetime) -> MessageLog:
    """Return the messages of a world's folder up to a moment, aliases followed; invalid ones are left out.

    ``names``: names of every agent.
    """
    aliases = Aliases.of(names)
    said = (aliases.owned(message) for path in message_files(root) for message in parse_messages(path).messages)
    return MessageLog.of(message for message in said if message.created_at <= until)


def message_files(root: Path) -> list[Path]:
    """Return the message files of a world's folder, sorted."""
    folder = root / MESSAGES
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS) if folder.is_dir() else []


def _place(message: Message) -> tuple[datetime, str]:
    # By code point, whatever a database's locale: a judge is shown, and recordings are keyed by, this order.
    return message.created_at, message.id


def _sent(message: Message) -> datetime:
    return message.created_at


def _within(messages: Sequence[Message], window: Window | None) -> list[Message]:
    if window is None:
        return list(messages)
    # A window's start is left out, its end is in it.
    first = 0 if window.start is None else bisect_right(messages, window.start, key=_sent)
    return list(messages[first : bisect_right(messages, window.end, key=_sent)])
