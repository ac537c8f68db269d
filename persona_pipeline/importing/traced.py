"""Conversations out of traces: every call of a model repeats what was said before it; what is new in each was said then."""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from persona_pipeline.base.documents.json import rfc3339
from persona_pipeline.base.turns import ASSISTANT, USER, Turn, find_turns
from persona_pipeline.importing.base import (
    Found,
    Importer,
    ReadOptions,
    Skipped,
    Source,
    TurnIds,
    as_text,
    message_row,
)
from persona_pipeline.importing.marks import MARKS
from persona_pipeline.importing.records import each_record, records
from persona_pipeline.world.messages.files import Row, parse_time

_AGENTS = ("agent_id", "agent_name", "agent", "character", "ls_agent_name", "langgraph_agent")


@dataclass(frozen=True)
class TraceStep:
    """A trace or a step of one.

    Attributes:
        trace, parent: ids; ``calls_model``: it is a call of a model, where nothing around it says what was said.
        asked, answered: its input and output, in whatever form.
        marks: what users think of what it answered.
    """

    line: int
    id: str
    trace: str
    parent: str | None
    calls_model: bool
    conversation: str
    started: datetime
    ended: datetime
    asked: Any
    answered: Any
    user: str | None = None
    agent: str | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)
    marks: Sequence[Mapping[str, Any]] = ()
    turns: tuple[tuple[Turn, ...], tuple[Turn, ...]] = ((), ())


class TracedConversations(Importer):
    """A format of traces. Those of one conversation are put together; of each, the outermost step that has messages is read."""

    # Keys of an object under which its records may be listed.
    within: Sequence[str] = ()

    @abstractmethod
    def units(self, line: int, record: Mapping[str, Any], options: ReadOptions) -> Iterator[TraceStep | Skipped]:
        """Yield what a record holds; ValueError says what is wrong with it."""

    def rows(self, file: Source, options: ReadOptions) -> Iterator[Found]:
        traces: dict[str, list[TraceStep]] = defaultdict(list)
        for found in each_record(records(file, self.within), lambda line, record: self.units(line, record, options)):
            if isinstance(found, TraceStep):
                traces[found.trace].append(found)
            else:
                yield found
        conversations: dict[str, list[TraceStep]] = defaultdict(list)
        for steps in traces.values():
            for item in _outermost(steps):
                if isinstance(item, TraceStep):
                    conversations[item.conversation].append(item)
                else:
                    yield item
        ids = TurnIds()
        for conversation, steps in conversations.items():
            yield from _told(conversation, sorted(steps, key=lambda unit: (unit.started, unit.ended, unit.id)), ids)


def _outermost(steps: Sequence[TraceStep]) -> Iterator[TraceStep | Found]:
    """Yield the outermost steps of a trace in which somebody says something, and what becomes of the others."""
    ids = {unit.id for unit in steps}
    roots = [unit for unit in steps if unit.parent is None or unit.parent not in ids]
    read, wrong = {}, None
    for candidates in (roots, [unit for unit in steps if unit.calls_model]):
        for unit in candidates:
            try:
                asked, answered = turns_in(unit.asked, USER), turns_in(unit.answered, ASSISTANT)
            except ValueError as error:
                wrong = wrong or Row(unit.line, error)
                continue
            if any(not turn.silence for turn in answered) or (asked and len(steps) == 1):
                read[unit.id] = replace(unit, turns=(tuple(asked), tuple(answered)))
        if read:
            break
    yield from read.values()
    if not read and wrong:
        yield wrong
    for unit in steps:
        if unit.id not in read and not (wrong and not read and unit.line == wrong.line):
            yield Skipped(unit.line, "step within a trace" if read else "trace without messages")


def _told(conversation: str, steps: Sequence[TraceStep], ids: TurnIds) -> Iterator[Found]:
    """Yield what is new in each step of a conversation; the history that a step repeats is told apart."""
    known: list[tuple[str, str]] = []
    for unit in steps:
        for turns, moment in ((unit.turns[0], unit.started), (unit.turns[1], unit.ended)):
            said = [turn for turn in turns if not turn.silence]
            yield from (Skipped(unit.line, turn.silence) for turn in turns if turn.silence)
            told = [(turn.role, turn.text or "") for turn in said]
            repeated = overlap(known, told)
            yield from (Skipped(unit.line, "said before") for _ in range(repeated))
            known += told[repeated:]
            for place, turn in enumerate(said[repeated:]):
                own = {"user": unit.user, "assistant": unit.agent}.get(turn.role)
                speaker, text = turn.speaker or own or turn.role, turn.text or ""
                marks = {MARKS: list(unit.marks)} if unit.marks and turn is unit.turns[1][-1] else {}
                values = {
                    **unit.extras, **_extras(turn), **marks, "role": turn.role, "id": ids.next(conversation, speaker, text),
                    "agent_id": speaker, "channel": conversation, "recipient": None, "run_id": None, "text": text,
                    "created_at": rfc3339(moment + timedelta(microseconds=place), exact=True),
                }  # fmt: skip
                yield message_row(unit.line, values)


def _extras(turn: Turn) -> dict[str, Any]:
    """Return what is kept of a turn next to its words."""
    called = [{"tool": call.name, **call.given} for call in turn.calls or ()]
    kept = {**turn.extras, "tool_calls": called, "thinking": turn.thinking, "attachments": turn.attachments}
    return {key: item for key, item in kept.items() if key != "name" and item not in (None, "", [], {})}


def overlap(known: Sequence[tuple[str, str]], told: Sequence[tuple[str, str]]) -> int:
    """Return how many turns at the start of what is told are the last ones known; takes time linear in what is told."""
    tail = known[max(0, len(known) - len(told)) :]
    line = [*told, None, *tail]
    borders = [0] * len(line)
    for place in range(1, len(line)):
        length = borders[place - 1]
        while length and line[place] != line[length]:
            length = borders[length - 1]
        borders[place] = length + 1 if line[place] == line[length] else 0
    return borders[-1] if tail else 0


def turns_in(value: Any, role: str) -> list[Turn]:
    """Return the turns of an input or output of any form; ``role``: whose a text is.

    Raises:
        ValueError: no turns are found in it, or something in it cannot be read.
    """
    side = "input" if role == USER else "output"
    turns = find_turns(value, role, side)
    if not turns and value not in (None, "", [], {}):
        held = ", ".join(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
        raise ValueError(f"no messages were found in its {side} ({held[:100]})")
    return turns


def moment_of(*values: Any) -> datetime:
    """Return the first of some times that there is, UTC where it has no offset; ValueError: there is none, or it is no time."""
    value = as_text("created_at", next((value for value in values if value not in (None, "")), None))
    if not isinstance(value, str):
        raise ValueError("says no time")
    try:
        return parse_time(value)
    except ValueError:
        return parse_time(f"{value}Z")


def agent_in(*found: Any) -> str | None:
    """Return the agent that metadata names."""
    listed = [item for item in found if isinstance(item, Mapping)]
    names = (item.get(key) for key in _AGENTS for item in listed)
    return next((name for name in names if isinstance(name, str) and name), None)
