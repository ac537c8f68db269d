"""What everybody has said, counted: by agent and day, kept as messages are written, so that a look costs what changed.

Triggers in the database note whose messages of which day were touched, whoever touched them; ``count_messages`` counts those days
again. A digest is a sum over messages, so it does not depend on the order in which they came, were edited or went.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from hashlib import blake2b
from time import sleep
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, pruning_time, upsert
from persona_pipeline.world.models import Window

_MESSAGES, _CHANGES = tables.run_messages, tables.message_changes
_REMEMBERED, _AGED = tables.remembered, "messages aged out before"
_DAYS, _TOTALS, _WINDOWS = tables.message_days, tables.message_totals, tables.message_windows
_MODULUS = 2**63
_ADVISORY_LOCK = 0x7065_7273_6F6E_62
# Agents whose days are counted in one transaction, and days asked for one by one.
_AT_ONCE, _MOST_SPANS = 40, 10
_ROWS, _TURN = 5000, 0.15
_DAY, _MOMENT = timedelta(days=1), timedelta(microseconds=1)
_LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Tally:
    """How many messages, and the sum of their digests modulo 2**63."""

    messages: int = 0
    digest: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.messages + other.messages, (self.digest + other.digest) % _MODULUS)

    def __sub__(self, other: "Tally") -> "Tally":
        return Tally(self.messages - other.messages, (self.digest - other.digest) % _MODULUS)


@dataclass(frozen=True)
class Said:
    """What an agent has said up to some moment.

    ``all``: its messages; ``unjudged``: what of them changed outside every window it was evaluated on; ``judged``: the rest.
    ``newest``: when the newest of them was sent; None: there is none.
    """

    all: Tally = Tally()
    unjudged: Tally = Tally()
    newest: datetime | None = None

    @property
    def judged(self) -> Tally:
        return self.all - self.unjudged


def said_by_agent(store: Store, until: datetime = _LATEST) -> dict[str, Said]:
    """Return what everybody has said up to a moment, counted to now; who has said nothing is left out.

    What is dated later is few and is counted on the spot.
    """
    count_messages(store)
    later: dict[str, Tally] = defaultdict(Tally)
    with store.connect() as connection:
        totals = _totals(connection)
        for (agent_id, _), tally in _tallies(connection, _MESSAGES.c.created_at > until).items():
            later[agent_id] += tally
        newest = {agent_id: _newest(connection, agent_id, until) for agent_id in later}
    none = Tally()
    said = {
        agent_id: replace(total, all=total.all - later.get(agent_id, none), newest=newest.get(agent_id, total.newest))
        for agent_id, total in totals.items()
    }
    return {agent_id: item for agent_id, item in said.items() if item.all.messages}


def said_on_days(store: Store, agent_ids: Sequence[str], first: date, last: date) -> dict[tuple[str, date], Tally]:
    """Return what agents have said on the UTC days of a span, by agent and day, counted to now."""
    count_messages(store)
    with store.connect() as connection:
        return _kept(connection, agent_ids, [first, last])


def count_messages(store: Store) -> int:
    """Count the days again whose messages were touched since they were counted, and return how many were."""
    counted = 0
    waiting = sa.select(_CHANGES.c.agent_id).distinct().order_by(_CHANGES.c.agent_id).limit(_AT_ONCE)
    while agent_ids := [row.agent_id for row in store.rows(waiting)]:
        with store.begin() as connection:
            _lock(connection)
            taken = sa.delete(_CHANGES).where(_CHANGES.c.agent_id.in_(agent_ids))
            days: dict[str, set[date]] = defaultdict(set)
            for row in connection.execute(taken.returning(_CHANGES.c.agent_id, _CHANGES.c.day)):
                days[row.agent_id].add(row.day)
            # Another process may have taken them; a statement after the one that took the notes sees every message they are about.
            if days:
                _count(connection, days)
            counted += sum(map(len, days.values()))
    return counted


def aged_out_before(connection: Connection) -> datetime | None:
    """Return the UTC midnight before which real messages are deleted for their age; None: all are kept."""
    kept = connection.execute(sa.select(_REMEMBERED.c.value).where(_REMEMBERED.c.name == _AGED)).scalar()
    return None if kept is None else datetime.fromisoformat(kept)


def age_out(store: Store, days: int, *, now: datetime | None = None) -> int:
    """Delete the real messages of UTC days more than some days ago, and return how many there were.

    They stay out, whoever writes them again. What was evaluated on them stays as it is and is not evaluated again. They go in
    batches, so that other writers have their turn.
    """
    midnight = _at(((now or pruning_time()) - timedelta(days=days)).date(), time.min)
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
    count_messages(store)
    return deleted


def _count(connection: Connection, days: Mapping[str, Collection[date]]) -> None:
    """Count some days of some agents and bring their totals in line."""
    touched = [(agent_id, day) for agent_id in sorted(days) for day in sorted(days[agent_id])]
    spans = [
        sa.and_(_MESSAGES.c.agent_id == agent_id, _MESSAGES.c.created_at.between(*span))
        for agent_id in sorted(days)
        for span in _spans(days[agent_id])
    ]
    newest: dict[str, datetime] = {}
    after = _tallies(connection, sa.or_(*spans), newest=newest)
    before = _kept(connection, list(days), [day for _, day in touched])
    none = Tally()
    changed = {key: after.get(key, none) - before.get(key, none) for key in touched}
    changed = {key: difference for key, difference in changed.items() if difference != none}
    if not changed:
        return
    rows = [{"agent_id": key[0], "day": key[1], **vars(after[key])} for key in changed if key in after]
    upsert(connection, _DAYS, rows)
    if gone := [{"of": agent_id, "on": day} for agent_id, day in changed if (agent_id, day) not in after]:
        one = sa.delete(_DAYS).where(_DAYS.c.agent_id == sa.bindparam("of"), _DAYS.c.day == sa.bindparam("on"))
        connection.execute(one, gone)
    known, judged = _totals(connection, list(days)), _judged_days(connection, days)
    totals: dict[str, Said] = {}
    for (agent_id, day), difference in changed.items():
        total = totals.get(agent_id) or known.get(agent_id, Said())
        aside = none if day in judged[agent_id] else difference
        totals[agent_id] = Said(total.all + difference, total.unjudged + aside, total.newest)
    for agent_id, total in totals.items():
        last = total.newest if total.newest and total.newest.date() not in days[agent_id] else None
        latest = max(filter(None, (last, newest.get(agent_id))), default=None)
        # Who lost the newest message may have any other as the newest now.
        sure = latest is not None and (total.newest is None or latest >= total.newest)
        totals[agent_id] = replace(total, newest=latest if sure else _newest(connection, agent_id))
    _write_totals(connection, totals)


def _totals(connection: Connection, agent_ids: Sequence[str] | None = None) -> dict[str, Said]:
    """Return what is counted of agents (None: of everybody)."""
    query = sa.select(_TOTALS) if agent_ids is None else sa.select(_TOTALS).where(_TOTALS.c.agent_id.in_(agent_ids))
    return {
        row.agent_id: Said(
            Tally(row.messages, row.digest), Tally(row.unjudged_messages, row.unjudged_digest), row.newest
        )
        for row in connection.execute(query)
    }


def _write_totals(connection: Connection, totals: Mapping[str, Said]) -> None:
    rows = [
        {
            "agent_id": agent_id,
            **vars(total.all),
            "newest": total.newest,
            "unjudged_messages": total.unjudged.messages,
            "unjudged_digest": total.unjudged.digest,
        }
        for agent_id, total in totals.items()
    ]
    upsert(connection, _TOTALS, rows)


def _judged_days(connection: Connection, days: Mapping[str, Collection[date]]) -> dict[str, set[date]]:
    """Return of each agent's days those a window of it reaches into, or the window before it, or that are newer than all.

    Of an agent that was never evaluated all are: its first evaluation may be about any.
    """
    bounds = (_WINDOWS.c.agent_id, _WINDOWS.c.window_start, _WINDOWS.c.window_end)
    windows: dict[str, list[Window]] = defaultdict(list)
    for row in connection.execute(sa.select(*bounds).where(_WINDOWS.c.agent_id.in_(list(days))).distinct()):
        windows[row.agent_id].append(Window(row.window_end, row.window_start))
    # What aged out changes nothing that is to be judged.
    aged = aged_out_before(connection)
    first = date.min if aged is None else aged.date()
    return {
        agent_id: {day for day in found if day >= first and _is_judged(day, windows[agent_id])}
        for agent_id, found in days.items()
    }


def _is_judged(day: date, windows: Sequence[Window]) -> bool:
    if not windows or day >= max(window.end for window in windows).date():
        return True
    for window in windows:
        before = window.previous()
        # A window's first moment is left out: one from midnight on does not reach into the day before.
        first = None if before is None or before.start is None else (before.start + _MOMENT).date()
        if day <= window.end.date() and (first is None or day >= first):
            return True
    return False


def _tallies(
    connection: Connection, *where: sa.ColumnElement[bool], newest: dict[str, datetime] | None = None
) -> dict[tuple[str, date], Tally]:
    """Return what real messages come to by agent and UTC day; a bounded number of them is in memory at a time.

    ``newest``: takes up when the newest of each agent's was sent.
    """
    columns = ("id", "agent_id", "channel_id", "recipient_id", "text", "created_at")
    query = sa.select(*(_MESSAGES.c[name] for name in columns)).where(_MESSAGES.c.synthetic.is_(False), *where)
    result: Any = connection.execute(query, execution_options={"yield_per": _ROWS})
    counts: dict[tuple[str, date], int] = defaultdict(int)
    digests: dict[tuple[str, date], int] = defaultdict(int)
    latest = {} if newest is None else newest
    for message_id, agent_id, channel, recipient, text, moment in result:
        said = "\x1f".join((message_id, channel or "", recipient or "", text, moment.isoformat()))
        digest = blake2b(said.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        key = (agent_id, moment.date())
        counts[key] += 1
        digests[key] += int.from_bytes(digest, "big")
        if agent_id not in latest or moment > latest[agent_id]:
            latest[agent_id] = moment
    return {key: Tally(count, digests[key] % _MODULUS) for key, count in counts.items()}


def _kept(connection: Connection, agent_ids: Sequence[str], days: Sequence[date] = ()) -> dict[tuple[str, date], Tally]:
    query = sa.select(_DAYS).where(_DAYS.c.agent_id.in_(agent_ids))
    if days:
        query = query.where(_DAYS.c.day.between(min(days), max(days)))
    return {(row.agent_id, row.day): Tally(row.messages, row.digest) for row in connection.execute(query)}


def _newest(connection: Connection, agent_id: str, until: datetime | None = None) -> datetime | None:
    query = sa.select(_MESSAGES.c.created_at).where(_MESSAGES.c.agent_id == agent_id, _MESSAGES.c.synthetic.is_(False))
    if until is not None:
        query = query.where(_MESSAGES.c.created_at <= until)
    return connection.execute(query.order_by(_MESSAGES.c.created_at.desc()).limit(1)).scalar()


def _spans(days: Iterable[date]) -> Sequence[tuple[datetime, datetime]]:
    """Return the spans of time some days make up, both ends included; of many, one that holds them all."""
    spans: list[tuple[date, date]] = []
    for day in sorted(days):
        if spans and day - spans[-1][1] == _DAY:
            spans[-1] = (spans[-1][0], day)
        else:
            spans.append((day, day))
    if len(spans) > _MOST_SPANS:
        spans = [(spans[0][0], spans[-1][1])]
    return [(_at(first, time.min), _at(last, time.max)) for first, last in spans]


def _at(day: date, moment: time) -> datetime:
    return datetime.combine(day, moment, UTC)


def _lock(connection: Connection) -> None:
    """Let one process count at a time; the lock goes with the transaction. SQLite has one writer anyway."""
    if connection.dialect.name != "sqlite":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
