"""What everybody has said, counted: by agent and day, kept as messages are written, so that a look costs what changed.

Triggers in the database note whose messages of which day were touched, whoever touched them; ``count_messages`` counts those days
again. A digest is a sum over messages, so it does not depend on the order in which they came, were edited or went.
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.store import Store, tables, upsert

_MESSAGES, _CHANGES = tables.run_messages, tables.message_changes
_DAYS, _TOTALS, _WINDOWS = tables.message_days, tables.message_totals, tables.message_windows
_MODULUS = 2**63
_ADVISORY_LOCK = 0x7065_7273_6F6E_62
# Agents whose days are counted in one transaction, and days asked for one by one.
_AT_ONCE, _MOST_SPANS = 50, 20
_ROWS = 5000
_DAY = timedelta(days=1)
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

    Attributes:
        all: its messages; ``judged``: the same without what changed outside every window it was evaluated on.
        newest: when the newest of them was sent; None: there is none.
    """

    all: Tally
    judged: Tally
    newest: datetime | None = None


def said_by_agent(store: Store, until: datetime = _LATEST) -> dict[str, Said]:
    """Return what everybody has said up to a moment, counted to now; who has said nothing is left out.

    What is dated later is few and is counted on the spot.
    """
    count_messages(store)
    later: dict[str, Tally] = defaultdict(Tally)
    with store.connect() as connection:
        rows = connection.execute(sa.select(_TOTALS)).all()
        for agent_id, _, one in _tallied(connection, _MESSAGES.c.created_at > until):
            later[agent_id] += one
        newest = {agent_id: _newest(connection, agent_id, until) for agent_id in later}
    found = {}
    for row in rows:
        everything = Tally(row.messages, row.digest) - later.get(row.agent_id, Tally())
        if everything.messages:
            judged = everything - Tally(row.unjudged_messages, row.unjudged_digest)
            found[row.agent_id] = Said(everything, judged, newest.get(row.agent_id, row.newest))
    return found


def count_messages(store: Store) -> int:
    """Count the days again whose messages were touched since they were counted, and return how many were."""
    counted = 0
    while True:
        with store.connect() as connection:
            waiting = sa.select(_CHANGES.c.agent_id).distinct().order_by(_CHANGES.c.agent_id).limit(_AT_ONCE)
            agent_ids = connection.execute(waiting).scalars().all()
        if not agent_ids:
            return counted
        with store.begin() as connection:
            _lock(store, connection)
            taken = sa.delete(_CHANGES).where(_CHANGES.c.agent_id.in_(agent_ids))
            days: dict[str, set[date]] = defaultdict(set)
            for row in connection.execute(taken.returning(_CHANGES.c.agent_id, _CHANGES.c.day)):
                days[row.agent_id].add(row.day)
            # A statement after the one that took the notes sees every message they are about.
            for agent_id in sorted(days):
                _count(store, connection, agent_id, days[agent_id])
                counted += len(days[agent_id])


def check_counts(store: Store) -> dict[str, int]:
    """Compare what is counted with all messages, mend what differs, and return how many days of which agents did.

    Memory does not grow with the messages, and writers wait for one agent's at most.
    """
    count_messages(store)
    differing: dict[str, int] = {}
    with store.connect() as connection:
        known = sa.union(sa.select(_TOTALS.c.agent_id), sa.select(_DAYS.c.agent_id), sa.select(tables.agents.c.id))
        agent_ids = sorted(connection.execute(known).scalars())
    for agent_id in agent_ids:
        with store.begin() as connection:
            _lock(store, connection)
            now: dict[date, Tally] = defaultdict(Tally)
            for _, day, one in _tallied(connection, _MESSAGES.c.agent_id == agent_id):
                now[day] += one
            kept = _kept(connection, agent_id)
            # What is noted and not counted yet is no difference.
            noted = set(connection.execute(sa.select(_CHANGES.c.day).where(_CHANGES.c.agent_id == agent_id)).scalars())
            wrong = {day for day in now.keys() | kept.keys() if now.get(day) != kept.get(day)} - noted
            total = connection.execute(sa.select(_TOTALS).where(_TOTALS.c.agent_id == agent_id)).one_or_none()
            summed = sum(kept.values(), Tally())
            if (Tally(total.messages, total.digest) if total else Tally()) != summed:
                aside = Tally(total.unjudged_messages, total.unjudged_digest) if total else Tally()
                _write_total(store, connection, agent_id, summed, aside)
                wrong = wrong or {datetime.now(UTC).date()}
            if wrong:
                differing[agent_id] = len(wrong)
                _count(store, connection, agent_id, wrong)
    return differing


def _count(store: Store, connection: Connection, agent_id: str, days: Collection[date]) -> None:
    """Count some days of an agent and bring its total in line."""
    before = _kept(connection, agent_id, days)
    after: dict[date, Tally] = defaultdict(Tally)
    spans = [_MESSAGES.c.created_at.between(*span) for span in _spans(days)]
    for _, day, one in _tallied(connection, _MESSAGES.c.agent_id == agent_id, sa.or_(*spans)):
        if day in days:
            after[day] += one
    changed = {day: after.get(day, Tally()) - before.get(day, Tally()) for day in days}
    changed = {day: difference for day, difference in changed.items() if difference != Tally()}
    if not changed:
        return
    if gone := changed.keys() - after.keys():
        connection.execute(sa.delete(_DAYS).where(_DAYS.c.agent_id == agent_id, _DAYS.c.day.in_(sorted(gone))))
    rows = [{"agent_id": agent_id, "day": day, **vars(after[day])} for day in sorted(changed.keys() & after.keys())]
    upsert(store, connection, _DAYS, rows)
    judged = _judged_days(connection, agent_id, changed)
    unjudged = sum((changed[day] for day in changed.keys() - judged), Tally())
    row = connection.execute(sa.select(_TOTALS).where(_TOTALS.c.agent_id == agent_id)).one_or_none()
    total = Tally(row.messages, row.digest) if row else Tally()
    aside = Tally(row.unjudged_messages, row.unjudged_digest) if row else Tally()
    _write_total(store, connection, agent_id, sum(changed.values(), total), aside + unjudged)


def _write_total(store: Store, connection: Connection, agent_id: str, total: Tally, unjudged: Tally) -> None:
    row = {
        "agent_id": agent_id,
        **vars(total),
        "newest": _newest(connection, agent_id),
        "unjudged_messages": unjudged.messages,
        "unjudged_digest": unjudged.digest,
    }
    upsert(store, connection, _TOTALS, [row])


def _judged_days(connection: Connection, agent_id: str, days: Iterable[date]) -> set[date]:
    """Return the days a window of the agent reaches into, or the window before it, or that are newer than all.

    Of an agent that was never evaluated all are: its first evaluation may be about any.
    """
    spans = sa.select(_WINDOWS.c.window_start, _WINDOWS.c.window_end).where(_WINDOWS.c.agent_id == agent_id).distinct()
    windows = connection.execute(spans).all()
    if not windows:
        return set(days)
    newest = max(row.window_end for row in windows).date()
    reached = [
        # A window's first moment is left out: one from midnight on does not reach into the day before.
        (start and (start - (end - start) + timedelta(microseconds=1)).date(), end.date())
        for start, end in windows
    ]
    return {
        day
        for day in days
        if day >= newest or any(day <= last and (first is None or day >= first) for first, last in reached)
    }


def _tallied(connection: Connection, *where: sa.ColumnElement[bool]) -> Iterator[tuple[str, date, Tally]]:
    """Yield agent, UTC day and tally of each real message, a bounded number of them in memory."""
    columns = ("id", "agent_id", "channel_id", "recipient_id", "text", "created_at")
    query = sa.select(*(_MESSAGES.c[name] for name in columns)).where(_MESSAGES.c.synthetic.is_(False), *where)
    result: Any = connection.execute(query, execution_options={"yield_per": _ROWS})
    for message_id, agent_id, channel, recipient, text, moment in result:
        said = "\x1f".join((message_id, channel or "", recipient or "", text, moment.isoformat()))
        digest = hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        yield agent_id, moment.date(), Tally(1, int.from_bytes(digest, "big") % _MODULUS)


def _kept(connection: Connection, agent_id: str, days: Collection[date] | None = None) -> Mapping[date, Tally]:
    query = sa.select(_DAYS).where(_DAYS.c.agent_id == agent_id)
    if days is not None:
        query = query.where(_DAYS.c.day.between(min(days), max(days)))
    rows = connection.execute(query)
    return {row.day: Tally(row.messages, row.digest) for row in rows if days is None or row.day in days}


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


def _lock(store: Store, connection: Connection) -> None:
    """Let one process count at a time; the lock goes with the transaction. SQLite has one writer anyway."""
    if not store.is_sqlite:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
