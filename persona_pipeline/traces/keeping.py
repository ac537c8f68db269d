"""Writing what traces say into the store, in one transaction with the pieces that say it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.store import Store, tables, upsert
from persona_pipeline.traces.pieces import Piece
from persona_pipeline.traces.turns import PREFIX, Turn, turns_of, without_relayed, wordings
from persona_pipeline.world.aliases import Aliases
from persona_pipeline.world.messages import WriteResult, message_of, write_messages_in
from persona_pipeline.world.models import Message
from persona_pipeline.world.runs import touch_windows
from persona_pipeline.world.world import World

_PIECES, _MESSAGES = tables.trace_pieces, tables.run_messages
_CHUNK = 500
# Under this key, beside no span, stands which messages a trace was written as.
_WRITTEN = "messages"
# Serialises collectors that share a Postgres database: each must see the pieces that the others wrote of the same trace.
_ADVISORY_LOCK = 5_318_008_713


@dataclass(frozen=True)
class Kept:
    """How many pieces were new, and what became of messages."""

    pieces: int
    written: WriteResult


def keep_pieces(world: World, pieces: Sequence[Piece]) -> Kept:
    """Write pieces of traces and the messages that follow from all that is known of these traces. Nothing is doubled."""
    store, aliases = world.store, Aliases.of(world.names())
    with store.begin() as connection:
        if not store.is_sqlite:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
        trace_ids = sorted({piece.trace_id for piece in pieces})
        before = _count(connection, trace_ids)
        rows = [
            {"trace_id": item.trace_id, "span_id": item.span_id, "key": item.key, "piece": item.to_json()}
            for item in pieces
        ]
        upsert(store, connection, _PIECES, rows, update=False)
        new = _count(connection, trace_ids) - before
        if not new:
            return Kept(0, WriteResult())
        return Kept(new, _write(store, connection, trace_ids, aliases))


def forget_pieces(store: Store, older_than: timedelta, now: datetime) -> int:
    """Drop the pieces of traces of which none came since, and return how many; their messages stay."""
    old = sa.select(_PIECES.c.trace_id).group_by(_PIECES.c.trace_id)
    old = old.having(sa.func.max(_PIECES.c.received_at) < now - older_than)
    with store.begin() as connection:
        return connection.execute(sa.delete(_PIECES).where(_PIECES.c.trace_id.in_(old))).rowcount


def _write(store: Store, connection: Connection, trace_ids: Sequence[str], aliases: Aliases) -> WriteResult:
    turns = turns_of(_pieces(connection, trace_ids), aliases)
    written = {trace_id: [] for trace_id in trace_ids}
    for turn in turns.values():
        written[turn.trace_id].append(turn.message.id)
    former = _replace_written(store, connection, written)
    known = _known(connection, turns, former)
    # While not all of a trace is known it may seem to say what another one does say: that is the other's.
    gone = {key for key, trace_id in former.items() if key in known and known[key].trace_id == trace_id}
    for message_id, turn in known.items():
        new = turns.get(message_id)
        # What another trace has of the same words stands where they were said first.
        other = new is not None and turn.trace_id != new.trace_id and turn.message.created_at <= new.message.created_at
        if other or (new is None and message_id not in gone):
            turns[message_id] = turn
    kept, relayed = without_relayed(turns.values())
    removed = _remove(connection, [known[key].message for key in (gone | relayed) - kept.keys() if key in known])
    changed = [turn.message for turn in kept.values() if turn != known.get(turn.message.id)]
    return WriteResult(removed=removed) + write_messages_in(store, connection, changed, source=None, mirror=False)


def _replace_written(store: Store, connection: Connection, written: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Note which messages traces are written as, and return those that they were written as before, with their traces."""
    mine = (_PIECES.c.span_id == "") & (_PIECES.c.key == _WRITTEN)
    before: dict[str, str] = {}
    for chunk in _chunks(sorted(written)):
        columns = sa.select(_PIECES.c.trace_id, _PIECES.c.piece)
        for row in connection.execute(columns.where(_PIECES.c.trace_id.in_(chunk), mine)):
            before |= dict.fromkeys(row.piece["ids"], row.trace_id)
    rows = [{"trace_id": name, "span_id": "", "key": _WRITTEN, "piece": {"ids": ids}} for name, ids in written.items()]
    upsert(store, connection, _PIECES, rows)
    now = {message_id for ids in written.values() for message_id in ids}
    return {message_id: trace_id for message_id, trace_id in before.items() if message_id not in now}


def _pieces(connection: Connection, trace_ids: Sequence[str]) -> list[Piece]:
    return [
        Piece.from_json(piece)
        for chunk in _chunks(trace_ids)
        for piece in connection.execute(
            sa.select(_PIECES.c.piece).where(_PIECES.c.trace_id.in_(chunk), _PIECES.c.span_id != "")
        ).scalars()
    ]


def _count(connection: Connection, trace_ids: Sequence[str]) -> int:
    count = sa.select(sa.func.count()).select_from(_PIECES).where(_PIECES.c.span_id != "")
    return sum(
        connection.execute(count.where(_PIECES.c.trace_id.in_(chunk))).scalar_one() for chunk in _chunks(trace_ids)
    )


def _known(connection: Connection, turns: Mapping[str, Turn], former: Collection[str]) -> dict[str, Turn]:
    """Return stored turns that are, or may be, the same as some of these, or that these were before."""
    by_place: dict[str, list[Turn]] = {}
    for turn in turns.values():
        by_place.setdefault(turn.message.channel or "", []).append(turn)
    conditions = [_MESSAGES.c.id.in_(chunk) for chunk in _chunks(sorted({*turns, *former}))]
    ours = _MESSAGES.c.id.like(f"{PREFIX}%")
    for places in _chunks(sorted(by_place)):
        texts = sorted(wordings(turn for place in places for turn in by_place[place]))
        there = ours & _MESSAGES.c.channel_id.in_(places)
        conditions += [there & _MESSAGES.c.text.in_(chunk) for chunk in _chunks(texts)]
    found = {}
    for condition in conditions:
        for row in connection.execute(sa.select(_MESSAGES).where(condition)):
            message = message_of(row)
            found[message.id] = Turn(message, message.extras.get("trace_id", ""), message.extras.get("told"))
    return found


def _remove(connection: Connection, messages: Sequence[Message]) -> int:
    for chunk in _chunks([message.id for message in messages]):
        connection.execute(sa.delete(_MESSAGES).where(_MESSAGES.c.id.in_(chunk)))
    touch_windows(connection, [message.created_at for message in messages])
    return len(messages)


def _chunks(values: Sequence[str]) -> Iterable[Sequence[str]]:
    return (values[start : start + _CHUNK] for start in range(0, len(values), _CHUNK))
