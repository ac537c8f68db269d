"""What was said before, as corrections need it: a handful of rows, whatever the size of the store."""

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.store import tables
from persona_pipeline.world.models import Message
from persona_pipeline.world.trajectory import Entry, Omission, Trajectory

_TABLE = tables.run_messages
EARLIER, UNDER_REVIEW = "earlier", "under review"
# Time and id of a stored message: what was said before it is what stood in the store when it was sent.
Before = tuple[datetime, str]


def action_trajectory(
    connection: Connection,
    *,
    agent_id: str,
    text: str,
    channel: str | None,
    recipient: str | None,
    whole_channel: bool,
    first_n: int,
    last_n: int,
    before: Before | None = None,
) -> Trajectory:
    """Return what was said before an action, windowed, and the action itself as the last entry.

    Args:
        whole_channel: everybody's messages of the conversation instead of the agent's own anywhere.
        first_n, last_n: of what was said before; the action is always shown.
        before: of an action that is looked at again; None: all that is stored was said before.
    """
    scope = _conversation(agent_id, channel, recipient) if whole_channel else _TABLE.c.agent_id == agent_id
    scope = sa.and_(scope, _TABLE.c.synthetic.is_(False), _said(before))
    order = (_TABLE.c.created_at, _TABLE.c.id)
    total = connection.execute(sa.select(sa.func.count()).select_from(_TABLE).where(scope)).scalar_one()
    first_n = min(first_n, total)
    last_n = min(last_n, total - first_n)
    first = _rows(connection, sa.select(_TABLE).where(scope).order_by(*order).limit(first_n))
    newest = sa.select(_TABLE).where(scope).order_by(*(column.desc() for column in order)).limit(last_n)
    last = _rows(connection, newest)[::-1]
    speakers = {agent_id, *(row.agent_id for row in (*first, *last)), *(r for r in (recipient,) if r)}
    speakers |= {row.recipient_id for row in (*first, *last) if row.recipient_id}
    names = _display_names(connection, speakers)
    items: list[Entry | Omission] = [_entry(row, names) for row in first]
    if total > len(first) + len(last):
        items.append(Omission(total - len(first) - len(last)))
    items += [_entry(row, names) for row in last]
    items.append(
        Entry(
            names.get(agent_id, agent_id),
            text,
            "",
            channel,
            recipient and names.get(recipient, recipient),
            UNDER_REVIEW,
        )
    )
    return Trajectory(tuple(items))


def recent_channel_messages(
    connection: Connection, channel: str, limit: int, before: Before | None = None
) -> list[Message]:
    """Return the newest messages of a channel, oldest first."""
    return _recent(connection, sa.and_(_TABLE.c.channel_id == channel, _said(before)), limit)


def recent_agent_messages(
    connection: Connection, agent_id: str, limit: int, before: Before | None = None
) -> list[Message]:
    """Return the newest messages of an agent in all channels and direct messages, oldest first."""
    return _recent(connection, sa.and_(_TABLE.c.agent_id == agent_id, _said(before)), limit)


def _said(before: Before | None) -> sa.ColumnElement[bool]:
    if before is None:
        return sa.true()
    moment, message_id = before
    # The first half alone is a range that an index serves.
    return sa.and_(_TABLE.c.created_at <= moment, sa.or_(_TABLE.c.created_at < moment, _TABLE.c.id < message_id))


def _recent(connection: Connection, scope: sa.ColumnElement[bool], limit: int) -> list[Message]:
    query = sa.select(_TABLE).where(scope, _TABLE.c.synthetic.is_(False))
    newest = query.order_by(_TABLE.c.created_at.desc(), _TABLE.c.id.desc()).limit(limit)
    return [
        Message(row.id, row.agent_id, row.text, row.created_at, row.channel_id, row.recipient_id)
        for row in reversed(_rows(connection, newest))
    ]


def _conversation(agent_id: str, channel: str | None, recipient: str | None) -> sa.ColumnElement[bool]:
    if channel is not None:
        return _TABLE.c.channel_id == channel
    between = [(agent_id, recipient), (recipient, agent_id)]
    return sa.or_(*(sa.and_(_TABLE.c.agent_id == a, _TABLE.c.recipient_id == b) for a, b in between))


def _rows(connection: Connection, query: sa.Select) -> Sequence[sa.Row]:
    return connection.execute(query).all()


def _display_names(connection: Connection, agent_ids: set[str]) -> dict[str, str]:
    agents = tables.agents
    rows = connection.execute(sa.select(agents.c.id, agents.c.display_name).where(agents.c.id.in_(agent_ids)))
    return {row.id: row.display_name for row in rows}


def _entry(row: sa.Row, names: dict[str, str]) -> Entry:
    recipient = None if row.recipient_id is None else names.get(row.recipient_id, row.recipient_id)
    speaker = names.get(str(row.agent_id), str(row.agent_id))
    return Entry(speaker, row.text, row.id, row.channel_id, recipient, EARLIER)
