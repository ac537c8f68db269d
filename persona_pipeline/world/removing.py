"""Taking messages out of the store: files stay as they are, and do not bring back what was taken out."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.errors import ConfigError, did_you_mean
from persona_pipeline.store import Store, tables, upsert
from persona_pipeline.world.canonical import content_hash
from persona_pipeline.world.evaluated_windows import touch_windows
from persona_pipeline.world.models import Message

_TABLE, _REMOVED = tables.run_messages, tables.removed_messages
_CHUNK = 5000
# What a source calls the speaker.
_SPEAKER = sa.func.coalesce(_TABLE.c.speaker, _TABLE.c.agent_id)


@dataclass(frozen=True)
class Selection:
    """Which real messages are meant: those to which everything that is given applies; of several values of one thing, any.

    Attributes:
        agents: whose they are; ``speakers``: what their source calls who wrote them.
        sources: the files they came from, as ``message_source`` names them.
        between: from when to when they were sent, both included.
    """

    agents: Sequence[str] = ()
    speakers: Sequence[str] = ()
    ids: Sequence[str] = ()
    sources: Sequence[str] = ()
    between: tuple[datetime, datetime] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is given, which would be everything."""
        return not (self.agents or self.speakers or self.ids or self.sources or self.between)

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
    """What a selection comes to: how many messages of each agent and from each file (None: written by a runtime), and of when."""

    ids: tuple[str, ...] = ()
    agents: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str | None, int] = field(default_factory=dict)
    first: datetime | None = None
    last: datetime | None = None


def select_messages(store: Store, selection: Selection) -> Selected:
    """Return what a selection comes to.

    Raises:
        ConfigError: nothing is given, or no message is meant.
    """
    if selection.is_empty:
        raise ConfigError("say which messages: --agent, --speaker, --id, --source or --between")
    columns = (_TABLE.c.id, _TABLE.c.agent_id, _TABLE.c.source, _TABLE.c.created_at)
    query = sa.select(*columns).where(selection.where()).order_by(_TABLE.c.created_at, _TABLE.c.id)
    with store.connect() as connection:
        rows = connection.execute(query).all()
        if not rows:
            raise ConfigError(f"no message is meant{_hint(connection, selection)}")
    return Selected(
        tuple(row.id for row in rows),
        Counter(row.agent_id for row in rows),
        Counter(row.source for row in rows),
        rows[0].created_at,
        rows[-1].created_at,
    )


def remove_messages(store: Store, selected: Selected) -> int:
    """Take messages out of the store, note that they stay out, mark the windows they were in, and return how many there were."""
    removed = 0
    with store.begin() as connection:
        for start in range(0, len(selected.ids), _CHUNK):
            these = _TABLE.c.id.in_(selected.ids[start : start + _CHUNK])
            rows = connection.execute(sa.select(_TABLE).where(these)).all()
            upsert(store, connection, _REMOVED, [{"id": row.id, "content_hash": _row_hash(row)} for row in rows])
            connection.execute(sa.delete(_TABLE).where(these))
            touch_windows(connection, [row.created_at for row in rows])
            removed += len(rows)
    return removed


def kept_out(connection: Connection, messages: Sequence[Message]) -> set[str]:
    """Return the ids of messages that were taken out and that say what they said then."""
    said: dict[str, str] = {}
    for these in _chunks(messages):
        rows = connection.execute(sa.select(_REMOVED.c.id, _REMOVED.c.content_hash).where(_REMOVED.c.id.in_(these)))
        said |= {row.id: row.content_hash for row in rows}
    return {message.id for message in messages if message.id in said and said[message.id] == _hash(message)}


def let_in(connection: Connection, messages: Sequence[Message]) -> None:
    """Forget that messages were taken out."""
    for these in _chunks(messages):
        connection.execute(sa.delete(_REMOVED).where(_REMOVED.c.id.in_(these)))


def _chunks(messages: Sequence[Message]) -> Iterable[list[str]]:
    for start in range(0, len(messages), _CHUNK):
        yield [message.id for message in messages[start : start + _CHUNK]]


def _hash(message: Message) -> str:
    # As the source has it: an alias that comes or goes is no reason to let a message in again.
    speaker, recipient = message.speaker or message.agent_id, message.addressee or message.recipient
    return content_hash([speaker, message.channel, recipient, message.text, message.created_at.isoformat()])


def _row_hash(row: sa.Row) -> str:
    named = {"speaker": row.speaker, "addressee": row.addressee, "recipient": row.recipient_id}
    return _hash(Message(row.id, row.agent_id, row.text, row.created_at, row.channel_id, **named))


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
