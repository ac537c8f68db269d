"""Messages as the page lists them: filtered, searched and turned over page by page, and one in its conversation."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Self
from urllib.parse import urlencode

import sqlalchemy as sa
from pydantic import BaseModel, Field, model_validator
from sqlalchemy.dialects.postgresql import ARRAY

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, chunks
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.guard.labels.messages import MessageLabel, verdicts_of_people
from persona_pipeline.scoring.messages.verdicts import MessageAgreement, Role, agreement_of
from persona_pipeline.viewer.labels import THUMBS
from persona_pipeline.world.messages.store import message_of
from persona_pipeline.world.models import Message, Window
from persona_pipeline.world.runs import is_latest_verdict, verdict_rows_on

AT_ONCE = 100
# Characters of a message that a list shows, and that its own page shows before all of it is asked for.
SHORT, LONG = 700, 20_000
# Channels to choose from, and windows.
MOST_CHANNELS, MOST_WINDOWS = 300, 60
DIRECT = "(direct)"
_TABLE, _WINDOWS, _VERDICTS = tables.run_messages, tables.message_windows, tables.message_verdicts
_NEWEST_FIRST = (_TABLE.c.created_at.desc(), _TABLE.c.id.desc())
_OLDEST_FIRST = (_TABLE.c.created_at, _TABLE.c.id)


class MessageFilter(BaseModel):
    """What of the messages is wanted, as the address says it; "" is everything.

    Attributes:
        window: ``start/end``, RFC 3339; the start may be missing.
        channel: its id, or ``(direct)``.
        verdict: the judge's verdict on the message, of the latest run. ``claim``: id of a claim that the verdict names.
        broke: addresses of earlier releases; it means the verdict ``out``.
        thumb: what people's labels say: all ``up``, all ``down``, all ``unclear``, ``split``, or ``none``.
        q: words that all stand in the text; "words in quotes" stand there together.
        older, newer: the message after which the page begins, see ``cursor``.
    """

    agent: str = ""
    window: str = ""
    channel: str = ""
    verdict: Literal["", "out", "unclear", "in"] = ""
    claim: str = ""
    broke: bool = Field(default=False, exclude=True)
    thumb: Literal["", "up", "down", "unclear", "split", "none"] = ""
    q: str = Field("", max_length=500)
    older: str = ""
    newer: str = ""

    @model_validator(mode="after")
    def _read_broke(self) -> Self:
        if self.broke and not self.verdict:
            self.verdict = "out"
        return self

    def address(self, **changes: Any) -> str:
        """Return the address of these messages with some of it changed; from its first page on, unless that is what changes."""
        said = {**self.model_dump(exclude={"older", "newer"}), **changes}
        return "/messages?" + urlencode({name: value for name, value in said.items() if value})

    @property
    def is_turned(self) -> bool:
        """Whether the page ends with a message, where others begin with one."""
        return bool(self.newer) and not self.older

    @property
    def span(self) -> Window | None:
        """The window that is wanted; ConfigError: it is none."""
        return window_of(self.window) if self.window else None

    @property
    def words(self) -> list[str]:
        """What is searched for."""
        quoted = self.q.split('"')
        parts = [[part] if place % 2 else part.split() for place, part in enumerate(quoted)]
        return [word.strip() for part in parts for word in part if word.strip()]


@dataclass(frozen=True)
class Shown:
    """A message as it is shown: cut after ``most`` characters, with its verdicts, the latest first, and people's labels."""

    message: Message
    most: int | None
    verdicts: Sequence[sa.Row] = ()
    labels: Sequence[MessageLabel] = ()

    @property
    def verdict(self) -> sa.Row | None:
        """The verdict that counts."""
        return self.verdicts[0] if self.verdicts else None

    @property
    def text(self) -> str:
        return self.message.text[: self.most]

    @property
    def is_cut(self) -> bool:
        return self.most is not None and len(self.message.text) > self.most


@dataclass(frozen=True)
class MessagePage:
    """Messages, the newest first, long ones cut. ``older``, ``newer``: where the next pages begin; "": there is none."""

    messages: Sequence[Message]
    older: str = ""
    newer: str = ""


def list_messages(store: Store, wanted: MessageFilter, labels: Mapping[str, Sequence[MessageLabel]]) -> MessagePage:
    """Return a page of the messages that are wanted; ConfigError: a window or a place in the list cannot be read."""
    conditions = _conditions(store, wanted, labels)
    turned = wanted.is_turned
    if place := wanted.older or wanted.newer:
        conditions += _beyond(*place_of(place), newer=turned)
    columns = [column for column in _TABLE.c if column.name not in ("text", "extras")]
    # One letter more, by which it is seen that there are more.
    short = (sa.func.substr(_TABLE.c.text, 1, SHORT + 1).label("text"), sa.null().label("extras"))
    query = sa.select(*columns, *short).where(*conditions)
    query = query.order_by(*(_OLDEST_FIRST if turned else _NEWEST_FIRST)).limit(AT_ONCE + 1)
    with store.connect() as connection:
        rows = list(connection.execute(query))
    more, rows = len(rows) > AT_ONCE, rows[:AT_ONCE]
    if turned:
        rows.reverse()
    return MessagePage(
        [message_of(row) for row in rows],
        older=cursor(rows[-1]) if rows and (more or turned) else "",
        newer=cursor(rows[0]) if rows and (more if turned else bool(place)) else "",
    )


def cursor(row: Any) -> str:
    """Return the place of a message in the list."""
    return f"{row.created_at.isoformat()}~{row.id}"


def place_of(text: str) -> tuple[datetime, str]:
    """Return time and id of the message that a ``cursor`` names; ConfigError: it is none."""
    moment, _, message_id = text.partition("~")
    return _moment(moment), message_id


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ConfigError(f"the address has {text!r} where a time belongs; go back to all messages")
    return moment


def window_text(window: Window) -> str:
    """Return a window as an address names it."""
    return f"{window.start.isoformat() if window.start else ''}/{window.end.isoformat()}"


def window_of(text: str) -> Window:
    """Return the window that an address names; ConfigError: it is none."""
    start, _, end = text.partition("/")
    return Window(_moment(end), _moment(start) if start else None)


def _beyond(moment: datetime, message_id: str, *, newer: bool) -> list[sa.ColumnElement[bool]]:
    """Return the conditions of what comes after a place in the list; the first of them is what an index is read by."""
    time, key = _TABLE.c.created_at, _TABLE.c.id
    if newer:
        return [time >= moment, sa.or_(time > moment, key > message_id)]
    return [time <= moment, sa.or_(time < moment, key < message_id)]


def _conditions(
    store: Store, wanted: MessageFilter, labels: Mapping[str, Sequence[MessageLabel]]
) -> list[sa.ColumnElement[bool]]:
    found: list[sa.ColumnElement[bool]] = [_TABLE.c.synthetic.is_(False)]
    if wanted.agent:
        found.append(_TABLE.c.agent_id == wanted.agent)
    if wanted.channel:
        is_direct = wanted.channel == DIRECT
        found.append(_TABLE.c.channel_id.is_(None) if is_direct else _TABLE.c.channel_id == wanted.channel)
    if window := wanted.span:
        found.append(_TABLE.c.created_at <= window.end)
        if window.start is not None:
            found.append(_TABLE.c.created_at > window.start)
    found += [_holds(word) for word in wanted.words]
    if wanted.verdict or wanted.claim:
        found.append(_judged(store, wanted))
    if wanted.thumb:
        among = _one_of(store, _TABLE.c.id, _thumbed(labels, wanted.thumb))
        found.append(sa.not_(among) if wanted.thumb == "none" else among)
    return found


def _judged(store: Store, wanted: MessageFilter) -> sa.ColumnElement[bool]:
    """Return the condition that the verdict that counts is the one that is wanted, and names the claim that is wanted."""
    on_message = (_VERDICTS.c.agent_id == _TABLE.c.agent_id) & (_VERDICTS.c.said_at == _TABLE.c.created_at)
    said = [on_message, _VERDICTS.c.message_id == _TABLE.c.id, is_latest_verdict()]
    if wanted.verdict:
        said.append(_VERDICTS.c.verdict == wanted.verdict)
    if wanted.claim:
        said.append(sa.literal(wanted.claim).in_(sa.select(_each_claim(store)).correlate(_VERDICTS)))
    return sa.select(_VERDICTS.c.message_id).where(*said).correlate(_TABLE).exists()


def _each_claim(store: Store) -> sa.ColumnElement[str]:
    """Return each claim of a verdict as a row."""
    if store.is_sqlite:
        return sa.func.json_each(_VERDICTS.c.claims).table_valued("value", joins_implicitly=True).c.value
    return sa.func.unnest(_VERDICTS.c.claims)


def claims(store: Store, agent_id: str) -> list[str]:
    """Return the ids of the claims that verdicts on messages of an agent ("": of all) name, by name."""
    query = sa.select(_each_claim(store)).where(_VERDICTS.c.verdict != Role.IN).distinct()
    query = query.where(_VERDICTS.c.agent_id == agent_id) if agent_id else query
    return sorted(row[0] for row in store.rows(query))


def has_verdicts(store: Store) -> bool:
    """Return whether any message has a verdict."""
    return bool(store.value(sa.select(sa.exists(sa.select(_VERDICTS.c.message_id)))))


def _thumbed(labels: Mapping[str, Sequence[MessageLabel]], thumb: str) -> set[str]:
    """Return the ids of messages that a filter by thumbs means; for "none", of all that have one."""
    if thumb == "none":
        return set(labels)
    said = {key: {label.verdict for label in own} for key, own in labels.items()}
    if thumb == "split":
        return {key for key, verdicts in said.items() if len(verdicts) > 1}
    return {key for key, verdicts in said.items() if verdicts == {THUMBS[thumb]}}


def _holds(word: str) -> sa.ColumnElement[bool]:
    # SQLite knows upper and lower case of ASCII only.
    spelled = [word] if word.isascii() else dict.fromkeys((word, word.lower(), word.upper(), word.capitalize()))
    return sa.or_(*(_TABLE.c.text.icontains(text, autoescape=True) for text in spelled))


def _one_of(store: Store, column: sa.ColumnElement[Any], values: Collection[str]) -> sa.ColumnElement[bool]:
    """Return the condition that a column has one of however many values: one parameter, where a list would be too long."""
    listed = sorted(values)
    if store.is_sqlite:
        every = sa.func.json_each(sa.literal(listed, sa.JSON())).table_valued("value")
        return column.in_(sa.select(every.c.value))
    return column.in_(sa.select(sa.func.unnest(sa.literal(listed, ARRAY(sa.Text())))))


def find_message(store: Store, message_id: str) -> Message | None:
    """Return a message, whole."""
    with store.connect() as connection:
        row = connection.execute(sa.select(_TABLE).where(_TABLE.c.id == message_id)).one_or_none()
    return message_of(row) if row else None


def conversation_around(store: Store, message: Message, each: int) -> tuple[list[Message], list[Message]]:
    """Return what was said before and after a message where it was said, so many of each, in order of time."""
    if message.channel is not None:
        here = _TABLE.c.channel_id == message.channel
    else:
        one, other = message.agent_id, message.recipient
        there = (_TABLE.c.agent_id == one) & (_TABLE.c.recipient_id == other)
        answered = (_TABLE.c.agent_id == other) & (_TABLE.c.recipient_id == one)
        here = _TABLE.c.channel_id.is_(None) & (there | answered)
    found = []
    with store.connect() as connection:
        for newer in (False, True):
            place = _beyond(message.created_at, message.id, newer=newer)
            query = sa.select(_TABLE).where(here, _TABLE.c.synthetic == message.synthetic, *place)
            rows = connection.execute(query.order_by(*(_OLDEST_FIRST if newer else _NEWEST_FIRST)).limit(each))
            found.append([message_of(row) for row in rows])
    return found[0][::-1], found[1]


def messages_by_id(store: Store, ids: Collection[str]) -> dict[str, Message]:
    """Return messages by id; those that are gone are left out."""
    with store.connect() as connection:
        rows = connection.execute(sa.select(_TABLE).where(_one_of(store, _TABLE.c.id, ids)))
        return {row.id: message_of(row) for row in rows}


def agreement(store: Store, labels: Mapping[str, Sequence[MessageLabel]], agent_id: str) -> MessageAgreement | None:
    """Return how often people agree with the judge on messages of an agent ("": anybody); None: no message was labelled."""
    messages = messages_by_id(store, labels.keys())
    wanted = {id: message for id, message in messages.items() if agent_id in ("", message.agent_id)}
    labelled = verdicts_of_people((label for own in labels.values() for label in own), wanted.values())
    parts = (verdict_rows_on(store, [wanted[id] for id in ids]) for ids in chunks(list(wanted)))
    judged = {id: Role(rows[0].verdict) for part in parts for id, rows in part.items()}
    return agreement_of(judged, {id: role for own in labelled.values() for id, role in own.items()})


def channels(store: Store) -> list[str]:
    """Return channels to choose from, by name."""
    query = sa.select(tables.channels.c.id).order_by(tables.channels.c.id).limit(MOST_CHANNELS)
    with store.connect() as connection:
        return list(connection.execute(query).scalars())


def windows(store: Store, agent_id: str) -> list[Window]:
    """Return the newest windows that an agent ("": anybody) was evaluated on."""
    bounds = (_WINDOWS.c.window_start, _WINDOWS.c.window_end)
    query = sa.select(*bounds).distinct().order_by(_WINDOWS.c.window_end.desc(), _WINDOWS.c.window_start.desc())
    if agent_id:
        query = query.where(_WINDOWS.c.agent_id == agent_id)
    with store.connect() as connection:
        return [Window(row.window_end, row.window_start) for row in connection.execute(query.limit(MOST_WINDOWS))]
