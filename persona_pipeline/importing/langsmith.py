"""Exports of LangSmith: runs, as its API and SDK give them and as bulk exports hold them once they are JSON lines."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from persona_pipeline.importing.base import ReadOptions, Skipped, Source
from persona_pipeline.importing.records import decoded, first_records
from persona_pipeline.importing.traced import TracedConversations, TraceStep, agent_in, moment_of

# What LangSmith itself groups runs into threads by, in its order.
_THREADS = ("session_id", "thread_id", "conversation_id")
_MODEL_CALLS = ("llm", "chat_model")


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
            parent=_parent(record),
            calls_model=record.get("run_type") in _MODEL_CALLS,
            conversation=given.get("channel") or str(thread or trace),
            started=started,
            ended=max(started, moment_of(record.get("end_time"), started.isoformat())),
            asked=decoded(record.get("inputs")),
            answered=decoded(record.get("outputs")),
            user=user if isinstance(user, str) else None,
            agent=given.get("agent_id") or agent_in(metadata),
            extras={f"langsmith_{key}": record[key] for key in beside if record.get(key)}
            | ({"langsmith_metadata": metadata} if metadata else {}),
            marks=list(_marks(record)),
        )


def _marks(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
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


def _parent(record: Mapping[str, Any]) -> str | None:
    if record.get("parent_run_id"):
        return str(record["parent_run_id"])
    listed = record.get("parent_run_ids")
    return str(listed[-1]) if isinstance(listed, list) and listed else None
