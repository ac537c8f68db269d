"""Messages in the store follow the aliases in persona files: one that is added takes them in, one that goes gives them back."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.store import Store, tables, upsert
from persona_pipeline.world.aliases import Aliases
from persona_pipeline.world.evaluated_windows import touch_windows

_TABLE = tables.run_messages
_CHUNK = 5000
_FOLLOWED = "aliases that stored messages follow"
# Who it is here, and what its source says where that is another name.
_COLUMNS = ((_TABLE.c.agent_id, _TABLE.c.speaker), (_TABLE.c.recipient_id, _TABLE.c.addressee))


@dataclass(frozen=True)
class _Rename:
    """Messages that came under one name and become another's."""

    named: sa.Column[str]
    written: sa.Column[str]
    name: str
    current: str
    agent_id: str

    @property
    def where(self) -> sa.ColumnElement[bool]:
        # A message that is not renamed yet has its source's name where the agent's stands.
        came = self.written.is_(None) if self.name == self.current else self.written == self.name
        return sa.and_(self.named == self.current, came)

    def apply(self, connection: Connection) -> int:
        """Rename some of them, mark the windows the real ones fall in, and return how many it were."""
        some = sa.select(_TABLE.c.id, _TABLE.c.created_at, _TABLE.c.synthetic).where(self.where).limit(_CHUNK)
        rows = connection.execute(some).all()
        values = {self.named.name: self.agent_id, self.written.name: None if self.agent_id == self.name else self.name}
        these = sa.update(_TABLE).where(_TABLE.c.id.in_([row.id for row in rows]))
        connection.execute(these.values(values))
        touch_windows(connection, (row.created_at for row in rows if not row.synthetic))
        return len(rows)


def rename_stored(store: Store, aliases: Aliases) -> None:
    """Make stored messages those of the agents whose names or aliases they came under; windows they fall in are marked."""
    with store.connect() as connection:
        due = [item for named, written in _COLUMNS for item in _due(connection, named, written, aliases)]
    for item in due:
        with store.begin() as connection:
            row = {"id": item.agent_id, "display_name": item.agent_id}
            upsert(store, connection, tables.agents, [row], update=False)
        renamed = _CHUNK
        while renamed == _CHUNK:
            with store.begin() as connection:
                renamed = item.apply(connection)
    if not names_are_followed(store, aliases):
        with store.begin() as connection:
            upsert(store, connection, tables.remembered, [{"name": _FOLLOWED, "value": aliases.digest}])


def names_are_followed(store: Store, aliases: Aliases) -> bool:
    """Return whether stored messages were brought in line with these aliases."""
    known = sa.select(tables.remembered.c.value).where(tables.remembered.c.name == _FOLLOWED)
    with store.connect() as connection:
        return connection.execute(known).scalar() == aliases.digest


def _due(connection: Connection, named: sa.Column[str], written: sa.Column[str], aliases: Aliases) -> Iterator[_Rename]:
    # Each is answered by an index, without a look at the messages.
    plain = [name for name in _names(connection, named) if aliases.agent_of(name) != name]
    raw = sa.select(named).where(named.in_(plain), written.is_(None)).distinct()
    for name in connection.execute(raw).scalars() if plain else ():
        yield _Rename(named, written, name, name, aliases.agent_of(name))
    for name, current in connection.execute(sa.select(written, named).where(written.is_not(None)).distinct()):
        if aliases.agent_of(name) != current and current not in aliases.unread:
            yield _Rename(named, written, name, current, aliases.agent_of(name))


def _names(connection: Connection, named: sa.Column[str]) -> Collection[str]:
    if named is _TABLE.c.agent_id:
        return connection.execute(sa.select(tables.agents.c.id)).scalars().all()
    return connection.execute(sa.select(named).where(named.is_not(None)).distinct()).scalars().all()
