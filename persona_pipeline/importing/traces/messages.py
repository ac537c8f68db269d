"""Messages from calls in traces, written with them in one transaction; the same calls give the same messages in any order.

An answer of a model is a message of its agent. New input since its last answer are messages of their speakers. The input before
that is history: it was new in an earlier call, and is never read.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import zip_longest
from typing import NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, chunks, upsert
from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.turn_forms import ASSISTANT, USER
from persona_pipeline.importing.traces.calls import PIECE, Piece, exchange, last_words, without_answer
from persona_pipeline.importing.traces.spans import SaidMessage
from persona_pipeline.world.messages.revision import touch_windows
from persona_pipeline.world.messages.store import WriteResult, message_of, write_messages_in
from persona_pipeline.world.models import Message
from persona_pipeline.world.names import Aliases, same_name
from persona_pipeline.world.world import World


class InputPlace(NamedTuple):
    """Place of words in a call's input: the digest of the history before them (None: none), and their number among equal words."""

    before: str | None
    nth: int


@dataclass(frozen=True)
class Told:
    """Words in a call's input, ``number`` counted from 0."""

    span_id: str
    said: SaidMessage
    number: int
    place: InputPlace


def told_by(span_id: str, inputs: Iterable[SaidMessage]) -> Iterator[Told]:
    """Yield the words in a call's input."""
    listed = list(inputs)
    before = next((said.text for said in listed if said.role == ASSISTANT), None)
    count: Counter[str] = Counter()
    for number, said in enumerate(said for said in listed if said.role != ASSISTANT):
        yield Told(span_id, said, number, InputPlace(before, count[said.text]))
        count[said.text] += 1


class TraceWords:
    """The words of a conversation in a trace, gathered call by call in the order of time.

    For an agent, words are the same message after the same history, and where a span repeats those of a span above it. Words to
    several agents are the same message as often as each of them gets them.
    """

    def __init__(self) -> None:
        # By agent and text: the number of messages, and the message at each place.
        self._count: Counter[tuple[str, str]] = Counter()
        self._places: dict[tuple[str, str, InputPlace], int] = {}
        # Words of spans that no span below has repeated yet.
        self._unrepeated: dict[tuple[str, str, str], int] = {}
        # Each message as all its recipients have it.
        self.messages: dict[tuple[str, int], list[Told]] = defaultdict(list)

    def add(self, agent: str, told: Told, above: Collection[str]) -> None:
        """Take words in; ``above``: the spans above the call."""
        text = told.said.text
        number = self._places.get((agent, text, told.place))
        if number is None:
            repeated = next((key for span_id in above if (key := (agent, text, span_id)) in self._unrepeated), None)
            number = self._count[agent, text] if repeated is None else self._unrepeated.pop(repeated)
            if repeated is None:
                self._count[agent, text] += 1
                self._unrepeated[agent, text, told.span_id] = number
            self._places[agent, text, told.place] = number
        self.messages[text, number].append(told)


PREFIX = "otel-"
Found = TypeVar("Found")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)
# A speaker at the start of a line.
_VOICE = re.compile(r"^[ \t]*(\w[^:\n]{0,63}):[ \t]+", re.MULTILINE)
# Spans above a call that are looked at; they may also go round in a ring.
_MOST_ABOVE = 64


def trace_of(message: Message) -> str:
    """Return the id of the trace that a message comes from."""
    return str(message.extras.get("trace_id", ""))


def told_to(message: Message) -> str | None:
    """Return the agent that a message was sent to; None: it is an agent's answer."""
    return message.extras.get("told")


def turns_of(pieces: Iterable[Piece], aliases: Aliases) -> dict[str, Message]:
    """Return the turns of whole traces by message id, each as its agent's; ``pieces``: all that are known of each trace."""
    traces: dict[str, dict[str, list[Piece]]] = defaultdict(lambda: defaultdict(list))
    for piece in pieces:
        traces[piece.trace_id][piece.span_id].append(piece)
    turns: dict[str, Message] = {}
    for trace_id, spans in sorted(traces.items()):
        for turn in _Trace(trace_id, {span_id: _call(listed) for span_id, listed in spans.items()}, aliases).turns():
            known = turns.setdefault(turn.id, turn)
            if turn.created_at < known.created_at:
                turns[turn.id] = turn
    return turns


def as_said(turns: Iterable[Message]) -> tuple[dict[str, Message], set[str]]:
    """Return turns by id without relayed words of other agents and abandoned answers, and the ids of the latter."""
    listed = list(turns)
    said: dict[tuple[str | None, str], set[str]] = defaultdict(set)
    for turn in listed:
        if told_to(turn) is None:
            said[turn.channel, turn.text.strip()].add(turn.agent_id)
    left_out = {turn.id for turn in listed if told_to(turn) is not None and _is_relayed(turn, said)}
    left_out |= _made_anew(listed)
    return {turn.id: turn for turn in listed if turn.id not in left_out}, left_out


def _made_anew(turns: Sequence[Message]) -> set[str]:
    """Return the ids of answers that were regenerated before the conversation went on, and of the words sent for them."""
    went_on: dict[tuple[str | None, str], datetime] = {}
    answers: dict[tuple[str | None, str, str], list[Message]] = defaultdict(list)
    for turn in turns:
        if behind := turn.extras.get("behind"):
            key = turn.channel, str(behind)
            went_on[key] = min(went_on.get(key, turn.created_at), turn.created_at)
        elif asked := turn.extras.get("asked"):
            answers[turn.channel, turn.agent_id, str(asked)].append(turn)
    found: set[str] = set()
    # Traces that hold only an abandoned answer, with its agent.
    traces: set[tuple[str, str]] = set()
    for (channel, agent_id, _), listed in answers.items():
        then = {turn.id: went_on.get((channel, str(turn.extras["continued"]))) for turn in listed}
        first = min((moment for moment in then.values() if moment), default=None)
        anew = [turn for turn in listed if first and not then[turn.id] and turn.created_at < first]
        kept = {trace_of(turn) for turn in listed} - {trace_of(turn) for turn in anew}
        found |= {turn.id for turn in anew}
        traces |= {(trace_of(turn), agent_id) for turn in anew if trace_of(turn) not in kept}
    alone = (turn for turn in turns if (trace_of(turn), told_to(turn)) in traces and "behind" not in turn.extras)
    return found | {turn.id for turn in alone}


def _is_relayed(turn: Message, said: Mapping[tuple[str | None, str], set[str]]) -> bool:
    """Whether another agent than the recipient said this in the same conversation."""
    channel, text = turn.channel, turn.text.strip()
    name, _, rest = text.partition(": ")
    by = said.get((channel, text), set()) - {told_to(turn)}
    named = {
        agent
        for agent in said.get((channel, rest.strip()), set()) - {told_to(turn)}
        if same_name(agent) == same_name(name)
    }
    return bool(by or named)


class _Trace:
    """One trace: its spans with those above them."""

    def __init__(self, trace_id: str, calls: Mapping[str, Piece], aliases: Aliases) -> None:
        self._id, self._calls, self._aliases = trace_id, calls, aliases

    def turns(self) -> Iterator[Message]:
        covered = self._covered()
        words: dict[str, TraceWords] = defaultdict(TraceWords)
        # A failed call has no answer; its retry has the same input.
        answered = [call for call in self._calls.values() if call.outputs]
        for call in sorted(answered, key=lambda call: (call.start, call.span_id)):
            agent = self._agent(call)
            if call.answer and call.span_id not in covered:
                # Two instrumentations of a call have separate spans and the same response.
                message_id = PREFIX + content_hash([self._id, call.response_id or call.span_id])[:32]
                ended = max(_moment(call.end), _moment(call.start) + len(call.inputs) * _TICK)
                said = self._message(call, message_id, agent, call.answer, ended)
                digests = {"asked": call.asked, "continued": call.continued} if call.asked else {}
                yield replace(said, extras={**said.extras, **digests})
            above = {other.span_id for other in self._upwards(call)}
            for told in told_by(call.span_id, self._heard(call, agent)):
                words[self._place(call)].add(agent, told, above)
        for place, heard in words.items():
            yield from (self._told(place, message) for message in heard.messages.values())

    def _told(self, place: str, message: Sequence[Told]) -> Message:
        first = min(message, key=lambda told: (self._calls[told.span_id].start, told.span_id))
        call = self._calls[first.span_id]
        speaker = first.said.name or self._first(call, lambda span: span.user) or "user"
        moment = _moment(call.start) + first.number * _TICK
        at = next((told.place for told in message if told.place.before), first.place)
        # Without a history, equal words in another trace may be new: a call need not send earlier turns.
        key = [place, first.said.text, *at] if at.before else [self._id, first.said.text, at.nth]
        told = self._aliases.agent_of(self._agent(call))
        said = self._message(call, PREFIX + content_hash(key)[:32], speaker, first.said.text, moment)
        behind = {"behind": at.before} if at.before else {}
        return replace(said, extras={**said.extras, "told": told, **behind})

    def _heard(self, call: Piece, agent: str) -> Sequence[SaidMessage]:
        """Return a call's input; of a text with several speakers, the words since the agent last spoke."""
        parts = [part for said in call.inputs for part in self._voices(said, agent)]
        if len(parts) == len(call.inputs):
            return call.inputs
        # An agent's words are read from its own calls.
        return [part for part in last_words(parts) if part.role == ASSISTANT or not self._named(part.name or "")]

    def _voices(self, said: SaidMessage, agent: str) -> list[SaidMessage]:
        marks = list(_VOICE.finditer(said.text)) if said.role == USER else []
        names = [mark[1].strip() for mark in marks]
        if len(marks) < 2 or marks[0].start() or not any(map(self._named, names)):
            return [said]
        own, ends = self._named(agent) or agent, [*(mark.start() for mark in marks[1:]), len(said.text)]
        return [
            SaidMessage(ASSISTANT if self._named(name) == own else USER, said.text[mark.end() : end].strip(), name)
            for name, mark, end in zip(names, marks, ends, strict=True)
        ]

    def _named(self, name: str) -> str | None:
        """The agent that a name in a text means, capitals or not."""
        found = {self._aliases.agent_of(name), same_name(name)} & self._aliases.agent_ids
        return min(found, default=None)

    def _message(self, call: Piece, message_id: str, speaker: str, text: str, moment: datetime) -> Message:
        names = ("trace_id", "span_id", "response_id", "model")
        extras = {name: value for name in names if (value := getattr(call, name)) is not None}
        return self._aliases.owned(Message(message_id, speaker, text, moment, channel=self._place(call), extras=extras))

    def _place(self, call: Piece) -> str:
        return self._first(call, lambda span: span.conversation) or f"trace-{self._id}"

    def _agent(self, call: Piece) -> str:
        """The agent by whichever of its names is one's, from the nearest span that has any; else a part of the program, or all."""
        named: list[str] = []
        for span in self._upwards(call):
            names = (*span.agents, *span.parts, *([span.span_name] if span.span_name else ()))
            if known := next(filter(self._is_agent, names), None):
                return known
            if span.agents:
                named.append(span.agents[0])
                break
        service, part = self._first(call, lambda span: span.service), self._first(call, lambda span: span.parts or None)
        named += [said.name for said in call.outputs if said.name]
        named += [service] if service and self._is_agent(service) else []
        return next((name for name in (*named, *(part or ()), service) if name), ASSISTANT)

    def _is_agent(self, name: str) -> bool:
        return self._aliases.agent_of(name) in self._aliases.agent_ids

    def _first(self, call: Piece, get: Callable[[Piece], Found | None]) -> Found | None:
        return next((found for above in self._upwards(call) if (found := get(above))), None)

    def _upwards(self, call: Piece) -> Iterator[Piece]:
        """Yield a call and the known spans above it, within a limit."""
        above: Piece | None = call
        for _ in range(_MOST_ABOVE):
            if above is None:
                return
            yield above
            above = self._calls.get(above.parent_id or "")

    def _covered(self) -> set[str]:
        """Return spans that repeat the answer of a span below them, as an agent's span does."""
        found: set[str] = set()
        for call in self._calls.values():
            above = self._upwards(call) if call.answer else iter(())
            next(above, None)
            found.update(other.span_id for other in above if other.answer.strip() == call.answer.strip())
        return found


# Fields that are taken from the first piece with a value.
_FIRST_KNOWN = (
    *("parent_id", "conversation", "agents", "parts", "span_name"),
    *("user", "service", "model", "response_id", "asked", "continued"),
)


def _call(pieces: Sequence[Piece]) -> Piece:
    """Return the call of a span from its pieces. Fields of the span itself take precedence over those of events."""
    listed = sorted(pieces, key=lambda piece: (piece.key != "span", piece.key != "details", piece.key))
    whole = [piece for piece in listed if piece.key in ("span", "details")]
    events = [piece for piece in listed if piece not in whole]
    inputs = next((piece.inputs for piece in whole if piece.inputs or piece.outputs), None)
    outputs = next((piece.outputs for piece in whole if piece.outputs), None)
    first, spanned = listed[0], [piece for piece in listed if piece.key == "span"] or listed
    merged = replace(
        first,
        start=min(piece.start for piece in spanned),
        end=max(piece.end for piece in spanned),
        **{
            name: next((found for piece in listed if (found := getattr(piece, name))), getattr(first, name))
            for name in _FIRST_KNOWN
        },
    )
    outputs = outputs or tuple(said for piece in events for said in piece.outputs)
    if inputs is None:
        heard = [said for piece in events for said in piece.inputs]
        inputs = last_words(heard)
        asked, continued = exchange(heard, list(map(without_answer, outputs)))
        merged = replace(merged, asked=asked, continued=continued)
    return replace(merged, inputs=inputs, outputs=outputs)


def _moment(nanoseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)


_PIECES, _MESSAGES = tables.trace_pieces, tables.run_messages
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
    as_json = partial(PIECE.dump_python, mode="json", exclude_defaults=True)
    with store.begin() as connection:
        if not store.is_sqlite:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
        trace_ids = sorted({piece.trace_id for piece in pieces})
        known = {(item.trace_id, item.span_id, item.key): item for item in _pieces(connection, trace_ids)}
        whole = {(item.trace_id, item.span_id, item.key): item for item in reversed(pieces)} | known
        new = [
            {"trace_id": key[0], "span_id": key[1], "key": key[2], "piece": as_json(item)}
            for key, item in whole.items()
            if key not in known
        ]
        if not new:
            return Kept(0, WriteResult())
        upsert(connection, _PIECES, new, update=False)
        before, now = (turns_of(items.values(), aliases) for items in (known, whole))
        return Kept(len(new), _write(connection, now, before))


def forget_pieces(store: Store, older_than: timedelta, now: datetime) -> int:
    """Drop the pieces of traces without recent ones, and return their number; messages stay."""
    old = sa.select(_PIECES.c.trace_id).group_by(_PIECES.c.trace_id)
    old = old.having(sa.func.max(_PIECES.c.received_at) < now - older_than)
    with store.begin() as connection:
        return connection.execute(sa.delete(_PIECES).where(_PIECES.c.trace_id.in_(old))).rowcount


def _write(connection: Connection, turns: dict[str, Message], before: Mapping[str, Message]) -> WriteResult:
    """Write the turns of traces; ``before``: what these traces were before."""
    former = {message_id: trace_of(turn) for message_id, turn in before.items() if message_id not in turns}
    known = _known(connection, turns, former)
    # An incomplete trace may seem to contain a message of another trace; it then stays with the other.
    gone = {key for key, trace_id in former.items() if key in known and trace_of(known[key]) == trace_id}
    for message_id, turn in known.items():
        new = turns.get(message_id)
        # Words that two traces share keep the earlier time and trace.
        other = new is not None and trace_of(turn) != trace_of(new) and turn.created_at <= new.created_at
        if other or (new is None and message_id not in gone):
            turns[message_id] = turn
    kept, left_out = as_said(turns.values())
    removed = _remove(connection, [known[key] for key in (gone | left_out) - kept.keys() if key in known])
    changed = [turn for turn in kept.values() if turn != known.get(turn.id)]
    return WriteResult(removed=removed) + write_messages_in(connection, changed, known=known)


def _pieces(connection: Connection, trace_ids: Sequence[str]) -> list[Piece]:
    return [
        PIECE.validate_python(piece)
        for chunk in chunks(trace_ids)
        for piece in connection.execute(
            # Release 0.2 also kept rows without a span.
            sa.select(_PIECES.c.piece).where(_PIECES.c.trace_id.in_(chunk), _PIECES.c.span_id != "")
        ).scalars()
    ]


def _known(connection: Connection, turns: Mapping[str, Message], former: Collection[str]) -> dict[str, Message]:
    """Return the stored turns of these conversations, and those that these were before.

    A whole conversation is needed to find repeated, relayed and abandoned turns.
    """
    places = sorted({turn.channel or "" for turn in turns.values()})
    ours = _MESSAGES.c.id.like(f"{PREFIX}%")
    each = zip_longest(chunks(sorted({*turns, *former})), chunks(places), fillvalue=())
    conditions = [_MESSAGES.c.id.in_(ids) | (ours & _MESSAGES.c.channel_id.in_(some)) for ids, some in each]
    found = (connection.execute(sa.select(_MESSAGES).where(condition)) for condition in conditions)
    return {row.id: message_of(row) for rows in found for row in rows}


def _remove(connection: Connection, messages: Sequence[Message]) -> int:
    for chunk in chunks([message.id for message in messages]):
        connection.execute(sa.delete(_MESSAGES).where(_MESSAGES.c.id.in_(chunk)))
    touch_windows(connection, [message.created_at for message in messages])
    return len(messages)
