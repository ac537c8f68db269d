"""Exports of platforms that store traces: Langfuse (pages, blob storage, API) and LangSmith (API, SDK, bulk exports)."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from persona_pipeline.importing.base import Found, ReadOptions, Skipped, Source
from persona_pipeline.importing.records import IN_CELLS, decoded, first_records, records
from persona_pipeline.importing.traced import TracedConversations, TraceStep, agent_in, moment_of

_MODEL_CALLS = ("GENERATION", "generation")
# What LangSmith itself groups runs into threads by, in its order.
_THREADS = ("session_id", "thread_id", "conversation_id")
_MODEL_RUNS = ("llm", "chat_model")


class LangfuseExport(TracedConversations):
    """A session is a conversation; a trace without one is its own."""

    name: ClassVar[str] = "langfuse"
    about: ClassVar[str] = "traces, observations or a session of Langfuse: JSON lines, JSON or CSV"
    within = ("data", "traces")

    def __init__(self) -> None:
        # Scores that are records of their own, by the trace or observation they are of.
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
        metadata = decoded(record.get("metadata"), IN_CELLS)
        listed = record.get("observations")
        steps = [step for step in listed if isinstance(step, dict)] if isinstance(listed, list) else []
        started = moment_of(given.get("created_at"), _get(record, "startTime", "start_time", "timestamp"))
        last = max((str(end) for step in steps if (end := _get(step, "endTime", "end_time"))), default=None)
        ended = moment_of(_get(record, "endTime", "end_time"), last, started.isoformat())
        beside = ("name", "version", "release", "environment", "tags", "model", "id", "traceId", "trace_id")
        yield TraceStep(
            line=line,
            id=f"{kind}:{own}",
            trace=str(trace or own),
            parent=_parent(record, trace) if kind == "observation" else None,
            calls_model=record.get("type") in _MODEL_CALLS,
            conversation=given.get("channel") or str(_get(record, "sessionId", "session_id") or trace or own),
            started=started,
            ended=max(started, ended),
            asked=decoded(record.get("input"), IN_CELLS),
            answered=decoded(record.get("output"), IN_CELLS),
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
    """Return what people, and no evaluator, think of an answer; ``about``: of scores of several steps, those of this one."""
    found = []
    for score in scores if isinstance(scores, list) else ():
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


def _parent(record: Mapping[str, Any], trace: Any) -> str | None:
    parent = _get(record, "parentObservationId", "parent_observation_id")
    return f"observation:{parent}" if parent else f"trace:{trace}"


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
        given, extra = options.given(record), decoded(record.get("extra"))
        metadata = extra.get("metadata") if isinstance(extra, dict) else None
        metadata = metadata if isinstance(metadata, dict) else {}
        own, trace = str(record.get("id")), str(record.get("trace_id") or record.get("id"))
        thread = next((metadata[key] for key in _THREADS if metadata.get(key)), record.get("thread_id"))
        started = moment_of(given.get("created_at"), record.get("start_time"))
        user = metadata.get("user_id")
        beside = ("id", "trace_id", "name", "run_type", "tags", "error", "session_name")
        yield TraceStep(
            line=line,
            id=own,
            trace=trace,
            parent=_parent_run(record),
            calls_model=record.get("run_type") in _MODEL_RUNS,
            conversation=given.get("channel") or str(thread or trace),
            started=started,
            ended=max(started, moment_of(record.get("end_time"), started.isoformat())),
            asked=decoded(record.get("inputs")),
            answered=decoded(record.get("outputs")),
            user=user if isinstance(user, str) else None,
            agent=given.get("agent_id") or agent_in(metadata),
            extras={f"langsmith_{key}": record[key] for key in beside if record.get(key)}
            | ({"langsmith_metadata": metadata} if metadata else {}),
            marks=list(_feedback(record)),
        )


def _feedback(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what people think of a run: feedback that no model gave, and what its statistics say where one gave it."""
    listed = decoded(record.get("feedback"))
    for item in listed if isinstance(listed, list) else ():
        source = item.get("feedback_source") if isinstance(item, Mapping) else None
        source = source if isinstance(source, Mapping) else {}
        if isinstance(item, Mapping) and source.get("type") != "model":
            value = item.get("value") if item.get("score") is None else item["score"]
            yield {"name": item.get("key"), "value": value, "by": source.get("user_id")}
    stats = decoded(record.get("feedback_stats"))
    for name, item in stats.items() if isinstance(stats, dict) and not listed else ():
        if isinstance(item, Mapping) and item.get("n") == 1:
            yield {"name": name, "value": item.get("avg")}


def _is_run(record: Mapping[str, Any]) -> bool:
    return "run_type" in record or ("dotted_order" in record and "trace_id" in record)


def _parent_run(record: Mapping[str, Any]) -> str | None:
    if record.get("parent_run_id"):
        return str(record["parent_run_id"])
    listed = record.get("parent_run_ids")
    return str(listed[-1]) if isinstance(listed, list) and listed else None
