"""Messages from the pieces of traces. The same pieces give the same messages, in whatever order and however often they came.

What a model answered is a message of its agent. What it was told since it last answered are messages of who told it; all that
stands before is history, which was somebody's answer or last word in its own time, and is never read.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from persona_pipeline.traces.contents import ASSISTANT, Said
from persona_pipeline.traces.pieces import Piece, last_words
from persona_pipeline.traces.words import Told, Words, told_by
from persona_pipeline.world.aliases import Aliases, same_name
from persona_pipeline.world.canonical import content_hash
from persona_pipeline.world.models import Message

PREFIX = "otel-"
Found = TypeVar("Found")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)
# Spans above a call that are looked at; they may also go round in a ring.
_MOST_ABOVE = 64


@dataclass(frozen=True)
class Turn:
    """A message, and what it takes to tell it from others.

    Attributes:
        told: the agent it was told to; None: an agent said it.
        trace_id: which trace it comes from.
    """

    message: Message
    trace_id: str
    told: str | None = None


@dataclass(frozen=True)
class _Call:
    """A span, all its pieces together."""

    span: Piece
    inputs: tuple[Said, ...]
    outputs: tuple[Said, ...]

    @property
    def answer(self) -> str:
        """The words of the first choice that has any."""
        return next((said.text for said in self.outputs if said.text.strip()), "")


def turns_of(pieces: Iterable[Piece], aliases: Aliases) -> dict[str, Turn]:
    """Return the turns of whole traces by message id, each as its agent's.

    Args:
        pieces: all that are known of each trace.
    """
    traces: dict[str, dict[str, list[Piece]]] = defaultdict(lambda: defaultdict(list))
    for piece in pieces:
        traces[piece.trace_id][piece.span_id].append(piece)
    turns: dict[str, Turn] = {}
    for trace_id, spans in sorted(traces.items()):
        for turn in _Trace(trace_id, {span_id: _call(listed) for span_id, listed in spans.items()}, aliases).turns():
            known = turns.setdefault(turn.message.id, turn)
            if turn.message.created_at < known.message.created_at:
                turns[turn.message.id] = turn
    return turns


def without_relayed(turns: Iterable[Turn]) -> tuple[dict[str, Turn], set[str]]:
    """Return turns by id without those that only hand one agent's words to another, and the ids of these."""
    listed = list(turns)
    said: dict[tuple[str | None, str], set[str]] = defaultdict(set)
    for turn in listed:
        if turn.told is None:
            said[turn.message.channel, turn.message.text.strip()].add(turn.message.agent_id)
    relayed = {turn.message.id for turn in listed if turn.told is not None and _is_relayed(turn, said)}
    return {turn.message.id: turn for turn in listed if turn.message.id not in relayed}, relayed


def wordings(turns: Iterable[Turn]) -> set[str]:
    """Return the texts that a turn's words may stand under in another: as they are, and with their speaker's name before them."""
    found: set[str] = set()
    for message, told in ((turn.message, turn.told) for turn in turns):
        names = {message.agent_id, message.agent_id.title(), message.speaker or message.agent_id}
        named = {message.text.partition(": ")[2]} if told else {f"{name}: {message.text}" for name in names}
        found |= {message.text, message.text.strip(), *named} - {""}
    return found


def _is_relayed(turn: Turn, said: Mapping[tuple[str | None, str], set[str]]) -> bool:
    """Whether another agent than the one who is told this said it in the same conversation."""
    channel, text = turn.message.channel, turn.message.text.strip()
    name, _, rest = text.partition(": ")
    by = said.get((channel, text), set()) - {turn.told}
    named = {
        agent for agent in said.get((channel, rest.strip()), set()) - {turn.told} if same_name(agent) == same_name(name)
    }
    return bool(by or named)


class _Trace:
    """One trace: its spans with those above them."""

    def __init__(self, trace_id: str, calls: Mapping[str, _Call], aliases: Aliases) -> None:
        self._id, self._calls, self._aliases = trace_id, calls, aliases

    def turns(self) -> Iterator[Turn]:
        covered = self._covered()
        words: dict[str, Words] = defaultdict(Words)
        # A call that failed says nothing; the one that is made instead has the same input.
        answered = [call for call in self._calls.values() if call.outputs]
        for call in sorted(answered, key=lambda call: (call.span.start, call.span.span_id)):
            agent = self._agent(call)
            if call.answer and call.span.span_id not in covered:
                message_id = self._answer_id(call)
                yield Turn(self._message(call, message_id, agent, call.answer, self._ended(call)), self._id)
            above = {other.span.span_id for other in self._upwards(call)}
            for told in told_by(call.span.span_id, call.inputs):
                words[self._place(call)].add(agent, told, above)
        for place, heard in words.items():
            yield from (self._told(place, message) for message in heard.messages())

    def _told(self, place: str, message: Sequence[Told]) -> Turn:
        first = min(message, key=lambda told: (self._calls[told.span_id].span.start, told.span_id))
        call = self._calls[first.span_id]
        speaker = first.said.name or self._first(call, lambda span: span.user) or "user"
        moment = _moment(call.span.start) + first.number * _TICK
        at = next((told.place for told in message if told.place.before), first.place)
        # Without a history words may well be said again in another trace: a call need not send what was said before.
        key = [place, first.said.text, *at] if at.before else [self._id, first.said.text, at.nth]
        told_to = self._aliases.agent_of(self._agent(call))
        said = self._message(call, PREFIX + content_hash(key)[:32], speaker, first.said.text, moment)
        return Turn(replace(said, extras={**said.extras, "told": told_to}), self._id, told_to)

    def _answer_id(self, call: _Call) -> str:
        # Two instrumentations of one call have spans of their own, and one response.
        return PREFIX + content_hash([self._id, call.span.response_id or call.span.span_id])[:32]

    def _message(self, call: _Call, message_id: str, speaker: str, text: str, moment: datetime) -> Message:
        span = call.span
        known = {
            "trace_id": span.trace_id,
            "span_id": span.span_id,
            "response_id": span.response_id,
            "model": span.model,
        }
        extras = {name: value for name, value in known.items() if value is not None}
        return self._aliases.owned(Message(message_id, speaker, text, moment, channel=self._place(call), extras=extras))

    def _ended(self, call: _Call) -> datetime:
        return max(_moment(call.span.end), _moment(call.span.start) + len(call.inputs) * _TICK)

    def _place(self, call: _Call) -> str:
        return self._first(call, lambda span: span.conversation) or f"trace-{self._id}"

    def _agent(self, call: _Call) -> str:
        """The agent by whichever of its names is one's, from the nearest span that names any; else the program."""
        names = self._first(call, lambda span: span.agents or None) or ()
        spoken = next((said.name for said in call.outputs if said.name), None)
        known = next((name for name in names if self._aliases.agent_of(name) in self._aliases.agent_ids), None)
        return known or next(iter(names), None) or spoken or self._first(call, lambda span: span.service) or ASSISTANT

    def _first(self, call: _Call, get: Callable[[Piece], Found | None]) -> Found | None:
        return next((found for above in self._upwards(call) if (found := get(above.span))), None)

    def _upwards(self, call: _Call) -> Iterator[_Call]:
        """Yield a call and those above it, as far as they are known, and not without end."""
        above: _Call | None = call
        for _ in range(_MOST_ABOVE):
            if above is None:
                return
            yield above
            above = self._calls.get(above.span.parent_id or "")

    def _covered(self) -> set[str]:
        """Return spans whose answer is that of one below them: an agent's span repeats what its model said."""
        found: set[str] = set()
        for call in self._calls.values():
            above = self._upwards(call) if call.answer else iter(())
            next(above, None)
            found.update(other.span.span_id for other in above if other.answer.strip() == call.answer.strip())
        return found


def _call(pieces: Sequence[Piece]) -> _Call:
    """Return the call that pieces of one span tell of: what stands on the span itself goes before what events say."""
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
            for name in ("parent_id", "conversation", "agents", "user", "service", "model", "response_id")
        },
    )
    if inputs is None:
        inputs = last_words(said for piece in events for said in piece.inputs)
    return _Call(merged, inputs, outputs or tuple(said for piece in events for said in piece.outputs))


def _moment(nanoseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)
