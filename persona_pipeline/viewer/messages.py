"""Messages as the page lists them: filtered, the worst or the newest first, page by page, and one in its conversation."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from typing import Annotated, Any, Literal, NamedTuple, Self
from urllib.parse import urlencode

import sqlalchemy as sa
from pydantic import BaseModel, BeforeValidator, Field, model_validator
from sqlalchemy.dialects.postgresql import ARRAY

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import parse_time
from persona_pipeline.guard.labels.messages import MessageLabel, verdicts_of_people
from persona_pipeline.scoring.messages.verdicts import MessageAgreement, Role, agreement_of
from persona_pipeline.viewer.thumbs import THUMBS
from persona_pipeline.world.messages.store import message_of
from persona_pipeline.world.models import Message, Window
from persona_pipeline.world.runs import is_latest_verdict

AT_ONCE = 100
# Characters of a message that a list shows, and that its own page shows before all of it is asked for.
SHORT, LONG = 700, 20_000
# Number of earlier messages searched for the one that a message answers.
_LOOK_BACK = 20
# Channels to choose from.
MOST_CHANNELS = 300
DIRECT = "(direct)"
_TABLE, _VERDICTS = tables.run_messages, tables.message_verdicts
_NEWEST_FIRST = (_TABLE.c.created_at.desc(), _TABLE.c.id.desc())
_OLDEST_FIRST = (_TABLE.c.created_at, _TABLE.c.id)
# A form without scripts also sends empty fields.
_Day = Annotated[date | None, BeforeValidator(lambda text: text or None)]


class MessageFilter(BaseModel):
    """A filter of messages, as in the address; "" means all.

    Attributes:
        window: ``start/end``, RFC 3339; the start may be missing.
        since, until: the first and the last day, in UTC.
        channel: its id, or ``(direct)``.
        verdict: the judge's verdict on the message, of the latest run. ``claim``: id of a claim that it names, not being ``in``.
        broke: addresses of earlier releases; it means the verdict ``out``.
        thumb: people's labels: all ``up``, all ``down``, all ``unclear``, ``split``, or ``none``.
        q: words that the text must all contain; "words in quotes" must be adjacent.
        order: "" is the worst first, see ``badness``.
        older, newer: the message after which the page begins, see ``Cursor``; one of earlier releases means the newest first.
    """

    agent: str = ""
    window: str = ""
    since: _Day = None
    until: _Day = None
    channel: str = ""
    verdict: Literal["", "out", "unclear", "in"] = ""
    claim: str = ""
    broke: bool = Field(default=False, exclude=True)
    thumb: Literal["", "up", "down", "unclear", "split", "none"] = ""
    q: str = Field(default="", max_length=500)
    order: Literal["", "newest"] = ""
    older: str = ""
    newer: str = ""

    @model_validator(mode="after")
    def _read_earlier(self) -> Self:
        if self.broke and not self.verdict:
            self.verdict = "out"
        place = self.older or self.newer
        if place and not place.partition("~")[0].isdecimal():
            self.order = "newest"
        return self

    def address(self, path: str = "/messages", **changes: Any) -> str:
        """Return the address of these messages with some parameters changed; to the first page, unless that is changed."""
        said = {**self.model_dump(exclude={"older", "newer"}), **changes}
        return f"{path}?" + urlencode({name: value for name, value in said.items() if value})

    @property
    def span(self) -> Window | None:
        """The window that is wanted; ConfigError: it is none."""
        return window_of(self.window) if self.window else None

    @property
    def words(self) -> list[str]:
        """The words of the search."""
        quoted = self.q.split('"')
        parts = [[part] if place % 2 else part.split() for place, part in enumerate(quoted)]
        return [word.strip() for part in parts for word in part if word.strip()]


@dataclass(frozen=True)
class Shown:
    """A message as it is shown: cut after ``most`` characters, with its verdicts, the latest first, and people's labels.

    ``before``: the message it answers, the last by another speaker there; None: there is none, or it was not searched for.
    """

    message: Message
    most: int | None
    verdicts: Sequence[sa.Row] = ()
    labels: Sequence[MessageLabel] = ()
    before: "Shown | None" = None

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
    """Messages in the requested order. ``older``, ``newer``: the start of the next pages; "": no such page."""

    messages: Sequence[Message]
    older: str = ""
    newer: str = ""


class Cursor(NamedTuple):
    """The place of a message in a list; as text in addresses ``badness~time~id``, where the newest come first ``time~id``."""

    badness: int
    moment: datetime
    id: str

    @classmethod
    def of(cls, text: str) -> "Cursor":
        """Return the place that an address names; ConfigError: it is none."""
        badness, _, rest = text.partition("~")
        # Longer numbers are none that a list has written.
        is_ranked = badness.isdecimal() and len(badness) < 8
        moment, _, message_id = (rest if is_ranked else text).partition("~")
        return cls(int(badness) if is_ranked else 0, _moment(moment), message_id)

    def text(self, order: str) -> str:
        """Return the place as an address names it."""
        said = f"{self.moment.isoformat()}~{self.id}"
        return said if order else f"{self.badness}~{said}"


def badness(store: Store) -> sa.ColumnElement[int]:
    """Return how bad a verdict is, by which the worst messages come first: 1000 if it is ``out``, else 1, and 1 for each claim.

    Of equal ones the newest comes first, as in ``worst_messages``. Messages in character and without a verdict have 0.
    """
    count = sa.func.json_array_length if store.is_sqlite else sa.func.cardinality
    return sa.case((_VERDICTS.c.verdict == Role.OUT, 1000), else_=1) + count(_VERDICTS.c.claims)


@dataclass(frozen=True)
class _Part:
    """A part of a list: its query, and the badness that sorts it before time; None: time alone, and its badness is 0."""

    query: sa.Select
    badness: sa.ColumnElement[int] | None = None

    def after(self, place: Cursor | None, *, turned: bool) -> sa.Select | None:
        """Return its messages beyond a place, the nearest first; None: no messages. ``turned``: towards the list's beginning."""
        query, worse = self.query, self.badness
        if place is not None and (worse is None) == (place.badness == 0):
            beyond = sa.and_(*_beyond(place.moment, place.id, newer=turned))
            if worse is not None:
                further = worse > place.badness if turned else worse < place.badness
                beyond = further | ((worse == place.badness) & beyond)
            query = query.where(beyond)
        elif place is not None and turned == (worse is None):
            return None
        order = _OLDEST_FIRST if turned else _NEWEST_FIRST
        by_badness = [] if worse is None else [worse if turned else worse.desc()]
        return query.order_by(*by_badness, *order)


def list_messages(
    store: Store,
    wanted: MessageFilter,
    labels: Mapping[str, Sequence[MessageLabel]],
    *,
    at_once: int | None = None,
    most: int | None = SHORT,
) -> MessagePage:
    """Return a page of the messages that are wanted; ConfigError: a window or a place in the list cannot be read.

    ``at_once``: most messages of a page, by default 100. ``most``: characters of a text to read, plus one that shows that the text
    is longer; None: all.
    """
    # A page towards the list's beginning ends before the given message; other pages begin after it.
    size, turned = at_once or AT_ONCE, bool(wanted.newer) and not wanted.older
    at = wanted.older or wanted.newer
    place = Cursor.of(at) if at else None
    parts, rows = _parts(store, wanted, labels, most), list[sa.Row]()
    with store.connect() as connection:
        for part in reversed(parts) if turned else parts:
            query = part.after(place, turned=turned)
            if query is not None and len(rows) <= size:
                rows += connection.execute(query.limit(size + 1 - len(rows)))
    more, rows = len(rows) > size, rows[:size]
    if turned:
        rows.reverse()
    ends = [Cursor(row.badness, row.created_at, row.id).text(wanted.order) for row in (rows[-1:] + rows[:1])]
    return MessagePage(
        [message_of(row) for row in rows],
        older=ends[0] if rows and (more or turned) else "",
        newer=ends[1] if rows and (more if turned else bool(place)) else "",
    )


def _parts(
    store: Store, wanted: MessageFilter, labels: Mapping[str, Sequence[MessageLabel]], most: int | None
) -> list[_Part]:
    """Return the parts of a list: one by time; of the worst first those that are out or unclear, then the others."""
    columns = [column for column in _TABLE.c if column.name not in ("text", "extras")]
    text = _TABLE.c.text if most is None else sa.func.substr(_TABLE.c.text, 1, most + 1).label("text")
    query = sa.select(*columns, text, sa.null().label("extras")).where(*_conditions(store, wanted, labels))
    plain = query.add_columns(sa.literal(0).label("badness"))
    is_bad = _VERDICTS.c.verdict != Role.IN
    if wanted.order:
        return [_Part(plain.where(_judged(store, wanted)) if wanted.verdict or wanted.claim else plain)]
    parts = list[_Part]()
    if wanted.verdict != Role.IN:
        # The verdicts are read, which are few, and not the messages.
        worse = query.add_columns(badness(store).label("badness")).join(_VERDICTS, _on_message())
        worse = worse.where(
            *_said(wanted, _VERDICTS.c.agent_id, _VERDICTS.c.said_at), *_is_judged(store, wanted), is_bad
        )
        parts.append(_Part(worse, badness(store)))
    if not wanted.claim and wanted.verdict in ("", Role.IN):
        rest = _judged(store, wanted) if wanted.verdict else sa.not_(_judged(store, wanted, is_bad))
        parts.append(_Part(plain.where(rest)))
    return parts


def _moment(text: str) -> datetime:
    try:
        return parse_time(text, name="the address:")
    except ValueError as error:
        raise ConfigError(f"{error}; go back to all messages") from error


def window_text(window: Window) -> str:
    """Return a window as an address names it."""
    return f"{window.start.isoformat() if window.start else ''}/{window.end.isoformat()}"


def window_of(text: str) -> Window:
    """Return the window that an address names; ConfigError: it is none."""
    start, _, end = text.partition("/")
    return Window(_moment(end), _moment(start) if start else None)


def _beyond(moment: datetime, message_id: str, *, newer: bool) -> list[sa.ColumnElement[bool]]:
    """Return the conditions for messages after a place in the list. The first one can use an index."""
    time, key = _TABLE.c.created_at, _TABLE.c.id
    if newer:
        return [time >= moment, sa.or_(time > moment, key > message_id)]
    return [time <= moment, sa.or_(time < moment, key < message_id)]


def _conditions(
    store: Store, wanted: MessageFilter, labels: Mapping[str, Sequence[MessageLabel]]
) -> list[sa.ColumnElement[bool]]:
    found = [_TABLE.c.synthetic.is_(False), *_said(wanted, _TABLE.c.agent_id, _TABLE.c.created_at)]
    if wanted.channel:
        is_direct = wanted.channel == DIRECT
        found.append(_TABLE.c.channel_id.is_(None) if is_direct else _TABLE.c.channel_id == wanted.channel)
    found += [_holds(word) for word in wanted.words]
    if wanted.thumb:
        among = _one_of(store, _TABLE.c.id, _thumbed(labels, wanted.thumb))
        found.append(sa.not_(among) if wanted.thumb == "none" else among)
    return found


def _said(
    wanted: MessageFilter, agent: sa.ColumnElement[str], moment: sa.ColumnElement[datetime]
) -> list[sa.ColumnElement[bool]]:
    """Return the conditions on speaker and time, for a table with both columns."""
    found = [agent == wanted.agent] if wanted.agent else []
    if window := wanted.span:
        found.append(moment <= window.end)
        if window.start is not None:
            found.append(moment > window.start)
    if wanted.since:
        found.append(moment >= datetime.combine(wanted.since, time.min, UTC))
    if wanted.until:
        found.append(moment <= datetime.combine(wanted.until, time.max, UTC))
    return found


def _on_message() -> sa.ColumnElement[bool]:
    place = (_VERDICTS.c.agent_id == _TABLE.c.agent_id) & (_VERDICTS.c.said_at == _TABLE.c.created_at)
    return place & (_VERDICTS.c.message_id == _TABLE.c.id)


def _is_judged(store: Store, wanted: MessageFilter) -> list[sa.ColumnElement[bool]]:
    """Return the conditions that a verdict is the one that counts, the one that is wanted, and names the claim that is wanted."""
    said = [_VERDICTS.c.verdict == wanted.verdict] if wanted.verdict else []
    if wanted.claim:
        said.append(_VERDICTS.c.verdict != Role.IN)
        said.append(sa.literal(wanted.claim).in_(sa.select(_each_claim(store)).correlate(_VERDICTS)))
    return [*said, is_latest_verdict()]


def _judged(store: Store, wanted: MessageFilter, *more: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Return the condition that a message has such a verdict."""
    said = sa.select(_VERDICTS.c.message_id).where(_on_message(), *more, *_is_judged(store, wanted))
    return said.correlate(_TABLE).exists()


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


def has_verdicts(store: Store, agent_id: str = "") -> bool:
    """Return whether any message of an agent ("": of any agent) has a verdict."""
    query = sa.select(_VERDICTS.c.message_id).where(*([_VERDICTS.c.agent_id == agent_id] if agent_id else []))
    return bool(store.value(sa.select(sa.exists(query))))


def _thumbed(labels: Mapping[str, Sequence[MessageLabel]], thumb: str) -> set[str]:
    """Return the ids of messages that match a filter by thumbs; for "none", the ids of all with a thumb, to exclude."""
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


def conversation_around(store: Store, message: Message, each: int) -> tuple[list[Message], list[Message]]:
    """Return up to ``each`` messages before and after a message in its channel or direct exchange, in order of time."""
    if message.channel is not None:
        here = _TABLE.c.channel_id == message.channel
    else:
        one, other = message.agent_id, message.recipient
        there = (_TABLE.c.agent_id == one) & (_TABLE.c.recipient_id == other)
        answered = (_TABLE.c.agent_id == other) & (_TABLE.c.recipient_id == one)
        here = _TABLE.c.channel_id.is_(None) & (there | answered)
    found = []
    for newer in (False, True):
        place = _beyond(message.created_at, message.id, newer=newer)
        query = sa.select(_TABLE).where(here, _TABLE.c.synthetic == message.synthetic, *place)
        rows = store.rows(query.order_by(*(_OLDEST_FIRST if newer else _NEWEST_FIRST)).limit(each))
        found.append([message_of(row) for row in rows])
    return found[0][::-1], found[1]


def messages_by_id(store: Store, ids: Collection[str]) -> dict[str, Message]:
    """Return whole messages by id; removed messages are left out."""
    rows = store.rows(sa.select(_TABLE).where(_one_of(store, _TABLE.c.id, ids)))
    return {row.id: message_of(row) for row in rows}


def with_before(store: Store, shown: Sequence[Shown]) -> list[Shown]:
    """Return messages with the one each answers: the last by another speaker among the 20 before it there, cut."""
    other = _TABLE.alias()
    earlier = [other.c.created_at <= _TABLE.c.created_at, other.c.synthetic == _TABLE.c.synthetic]
    earlier.append(sa.or_(other.c.created_at < _TABLE.c.created_at, other.c.id < _TABLE.c.id))
    answered = (other.c.agent_id == _TABLE.c.recipient_id) & (other.c.recipient_id == _TABLE.c.agent_id)
    found = []
    # Two look-ups, each by an index; of a message one of them finds nothing at once.
    for here in (other.c.channel_id == _TABLE.c.channel_id, other.c.channel_id.is_(None) & answered):
        newest = (other.c.created_at.desc(), other.c.id.desc())
        last = sa.select(other).where(here, *earlier).order_by(*newest).limit(_LOOK_BACK).correlate(_TABLE).subquery()
        of_others = sa.select(last.c.id).where(last.c.agent_id != _TABLE.c.agent_id).correlate(_TABLE)
        found.append(of_others.order_by(last.c.created_at.desc(), last.c.id.desc()).limit(1).scalar_subquery())
    ids = _one_of(store, _TABLE.c.id, {item.message.id for item in shown})
    said = dict[str, str](store.rows(sa.select(_TABLE.c.id, sa.func.coalesce(*found)).where(ids)))
    before = messages_by_id(store, set(filter(None, said.values())))
    known = {id: Shown(before[other_id], SHORT // 2) for id, other_id in said.items() if other_id in before}
    return [replace(item, before=known.get(item.message.id)) for item in shown]


def agreement(store: Store, shown: Sequence[Shown]) -> MessageAgreement | None:
    """Return how often people agree with the judge on messages that are shown; None: none of them was labelled and judged."""
    labelled = {item.message.id: item for item in shown if item.labels and item.verdict}
    labels = [label for item in labelled.values() for label in item.labels]
    # A label belongs to the whole text, and the shown text may be cut.
    said = verdicts_of_people(labels, messages_by_id(store, labelled).values() if labelled else ())
    judged = {id: Role(item.verdict.verdict) for id, item in labelled.items() if item.verdict}
    return agreement_of(judged, {id: role for own in said.values() for id, role in own.items()})


def channels(store: Store) -> list[str]:
    """Return channels to choose from, by name."""
    return [row.id for row in store.rows(sa.select(tables.channels.c.id).order_by("id").limit(MOST_CHANNELS))]
