"""Exports of platforms that store traces: Langfuse (pages, blob storage, API) and LangSmith (API, SDK, bulk exports).

Every call of a model repeats the earlier turns; the new turns of a call are its messages.
"""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

from persona_pipeline.base.documents.json import rfc3339
from persona_pipeline.base.turn_forms import ASSISTANT, USER, unpacked
from persona_pipeline.base.turns import Turn, find_turns
from persona_pipeline.importing.base import (
    Found,
    Importer,
    ReadOptions,
    Skipped,
    Source,
    TurnIds,
    as_text,
    extras_of,
    list_of,
    message_row,
    object_of,
)
from persona_pipeline.importing.marks import MARKS
from persona_pipeline.importing.records import each_record, first_records, records
from persona_pipeline.importing.traces.spans import NAMES
from persona_pipeline.world.messages.files import Row, parse_time


@dataclass(frozen=True)
class TraceStep:
    """A trace or one step in it.

    Attributes:
        trace, parent: ids; ``calls_model``: it is a call of a model, read where no outer step has messages.
        asked, answered: its input and output in any form.
        marks: users' marks on its answer.
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
    """A format of traces. The traces of a conversation are put together; in each, the outermost step with messages is read."""

    # Keys of an object under which its records may be listed.
    within: Sequence[str] = ()

    @abstractmethod
    def units(self, line: int, record: Mapping[str, Any], options: ReadOptions) -> Iterator[TraceStep | Skipped]:
        """Yield the steps of a record; ValueError: it cannot be read."""

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
    """Yield the outermost steps of a trace that have messages, and the other steps as skipped."""
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
    """Yield the new messages of each step of a conversation, without the history that a step repeats."""
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
                called = [{"tool": call.name, **call.given} for call in turn.calls or ()]
                own_extras = extras_of(turn, tool_calls=called, thinking=turn.thinking, attachments=turn.attachments)
                values = {
                    **unit.extras, **own_extras, **marks, "role": turn.role, "id": ids.next(conversation, speaker, text),
                    "agent_id": speaker, "channel": conversation, "recipient": None, "run_id": None, "text": text,
                    "created_at": rfc3339(moment + timedelta(microseconds=place), exact=True),
                }  # fmt: skip
                yield message_row(unit.line, values)


def overlap(known: Sequence[tuple[str, str]], said: Sequence[tuple[str, str]]) -> int:
    """Return how many turns at the start of a step repeat the last known ones, in time linear in the step."""
    tail = known[max(0, len(known) - len(said)) :]
    line = [*said, None, *tail]
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
    """Return the first time that is given, in UTC where it has no offset; ValueError: none is given, or it is not a time."""
    value = as_text("created_at", next((value for value in values if value not in (None, "")), None))
    if not isinstance(value, str):
        raise ValueError("says no time")
    return parse_time(value)


def agent_in(metadata: Any) -> str | None:
    """Return the agent that metadata names."""
    names = (object_of(metadata).get(key) for key in NAMES["agent"])
    return next((name for name in names if isinstance(name, str) and name), None)


_ABOVE = ("parentObservationId", "parent_observation_id")
_MODEL_CALLS = ("GENERATION", "generation")
# Keys by which LangSmith groups runs into threads, in its order.
_THREADS = ("session_id", "thread_id", "conversation_id")
_MODEL_RUNS = ("llm", "chat_model")


class LangfuseExport(TracedConversations):
    """A session is a conversation; a trace without one is its own."""

    name: ClassVar[str] = "langfuse"
    about: ClassVar[str] = "traces, observations or a session of Langfuse: JSON lines, JSON or CSV"
    within = ("data", "traces")

    def __init__(self) -> None:
        # Scores in separate records, by their trace or observation.
        self._scores: dict[str, list[Mapping[str, Any]]] = {}

    def recognises(self, source: Source) -> bool:
        if source.is_folder:
            return False
        return any(_kind(record) in ("trace", "observation") for record in first_records(source, self.within)[:3])

    def rows(self, file: Source, options: ReadOptions) -> Iterator[Found]:
        for _, record in records(file, self.within):
            if isinstance(record, dict) and _kind(record) == "score":
                about = _get(record, "observationId", "observation_id", "traceId", "trace_id")
                self._scores.setdefault(str(about), []).append(record)
        return super().rows(file, options)

    def units(self, line: int, record: Mapping[str, Any], options: ReadOptions) -> Iterator[TraceStep | Skipped]:
        kind = _kind(record)
        if kind == "score":
            yield Skipped(line, "score")
            return
        if kind is None:
            raise ValueError("is neither a trace nor an observation of Langfuse")
        if isinstance(inner := record.get("trace"), dict) and "id" in inner:
            record = {**inner, **{key: value for key, value in record.items() if key != "trace"}}
        own, given = _get(record, "id"), options.given(record)
        trace = _get(record, "traceId", "trace_id") if kind == "observation" else own
        metadata, above = unpacked(record.get("metadata")), _get(record, *_ABOVE)
        steps = [step for step in list_of(record.get("observations")) if isinstance(step, dict)]
        started = moment_of(given.get("created_at"), _get(record, "startTime", "start_time", "timestamp"))
        last = max((str(end) for step in steps if (end := _get(step, "endTime", "end_time"))), default=None)
        ended = moment_of(_get(record, "endTime", "end_time"), last, started.isoformat())
        beside = ("name", "version", "release", "environment", "tags", "model", "id", "traceId", "trace_id")
        yield TraceStep(
            line=line,
            id=f"{kind}:{own}",
            trace=str(trace or own),
            parent=(f"observation:{above}" if above else f"trace:{trace}") if kind == "observation" else None,
            calls_model=record.get("type") in _MODEL_CALLS,
            conversation=given.get("channel") or str(_get(record, "sessionId", "session_id") or trace or own),
            started=started,
            ended=max(started, ended),
            asked=record.get("input"),
            answered=record.get("output"),
            user=_get(record, "userId", "user_id"),
            agent=given.get("agent_id") or agent_in(metadata),
            extras={f"langfuse_{key}": record[key] for key in beside if record.get(key)}
            | ({"langfuse_metadata": metadata} if metadata else {}),
            marks=[*_marks(record.get("scores"), own), *_marks(self._scores.get(str(own)))],
        )
        for step in steps:
            whole = {
                "traceId": own,
                "sessionId": _get(record, "sessionId", "session_id"),
                "metadata": record.get("metadata"),
            }
            told = {key: value for key, value in step.items() if value is not None}
            yield from self.units(line, {**whole, "userId": _get(record, "userId", "user_id"), **told}, options)


def _marks(scores: Any, about: Any = None) -> list[dict[str, Any]]:
    """Return users' marks among scores, without those of evaluators. ``about``: only scores of this step."""
    found = []
    for score in list_of(scores):
        if not isinstance(score, Mapping) or score.get("source") == "EVAL":
            continue
        if about is not None and _get(score, "observationId", "observation_id") not in (None, about):
            continue
        value = _get(score, "stringValue", "string_value") if score.get("value") is None else score["value"]
        found.append(
            {"name": score.get("name"), "value": value, "by": _get(score, "authorUserId", "userId", "user_id")}
        )
    return found


def _kind(record: Mapping[str, Any]) -> str | None:
    if "traceId" in record or "trace_id" in record:
        if "dotted_order" in record or "run_type" in record:
            return None
        return "score" if "value" in record and "input" not in record and "type" not in record else "observation"
    if isinstance(record.get("trace"), dict) or "observations" in record:
        return "trace"
    return "trace" if "id" in record and "timestamp" in record and ("input" in record or "output" in record) else None


def _get(record: Mapping[str, Any], *keys: str) -> Any:
    return next((record[key] for key in keys if record.get(key)), None)


class LangSmithExport(TracedConversations):
    """A thread is a conversation; a trace without one is its own."""

    name: ClassVar[str] = "langsmith"
    about: ClassVar[str] = "runs of LangSmith: JSON lines, JSON or CSV"
    within = ("runs", "data")

    def recognises(self, source: Source) -> bool:
        return not source.is_folder and any(_is_run(record) for record in first_records(source, self.within)[:3])

    def units(self, line: int, record: Mapping[str, Any], options: ReadOptions) -> Iterator[TraceStep | Skipped]:
        if not _is_run(record):
            raise ValueError("is no run of LangSmith: it has no run_type")
        given, extra = options.given(record), unpacked(record.get("extra"))
        metadata = object_of(object_of(extra).get("metadata"))
        own, trace = str(record.get("id")), str(record.get("trace_id") or record.get("id"))
        thread = next((metadata[key] for key in _THREADS if metadata.get(key)), record.get("thread_id"))
        started = moment_of(given.get("created_at"), record.get("start_time"))
        user = metadata.get("user_id")
        beside = ("id", "trace_id", "name", "run_type", "tags", "error", "session_name")
        yield TraceStep(
            line=line,
            id=own,
            trace=trace,
            parent=str(record.get("parent_run_id") or (list_of(record.get("parent_run_ids")) or [""])[-1]) or None,
            calls_model=record.get("run_type") in _MODEL_RUNS,
            conversation=given.get("channel") or str(thread or trace),
            started=started,
            ended=max(started, moment_of(record.get("end_time"), started.isoformat())),
            asked=record.get("inputs"),
            answered=record.get("outputs"),
            user=user if isinstance(user, str) else None,
            agent=given.get("agent_id") or agent_in(metadata),
            extras={f"langsmith_{key}": record[key] for key in beside if record.get(key)}
            | ({"langsmith_metadata": metadata} if metadata else {}),
            marks=list(_feedback(record)),
        )


def _feedback(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield users' feedback on a run, without that of models; from its statistics where they count a single user."""
    listed = unpacked(record.get("feedback"))
    for item in list_of(listed):
        if isinstance(item, Mapping) and (source := object_of(item.get("feedback_source"))).get("type") != "model":
            value = item.get("value") if item.get("score") is None else item["score"]
            yield {"name": item.get("key"), "value": value, "by": source.get("user_id")}
    stats = unpacked(record.get("feedback_stats"))
    for name, item in stats.items() if isinstance(stats, dict) and not listed else ():
        if isinstance(item, Mapping) and item.get("n") == 1:
            yield {"name": name, "value": item.get("avg")}


def _is_run(record: Mapping[str, Any]) -> bool:
    return "run_type" in record or ("dotted_order" in record and "trace_id" in record)
