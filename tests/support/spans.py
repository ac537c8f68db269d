"""Spans and events as OTLP has them, written by hand."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

# 2 March 2026, nine o'clock, in nanoseconds; numbers of seconds in tests count from there.
BEGIN = 1_772_442_000 * 10**9


def any_value(value: Any) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, Mapping):
        return AnyValue(kvlist_value=KeyValueList(values=pairs(value)))
    if isinstance(value, list | tuple):
        return AnyValue(array_value=ArrayValue(values=[any_value(item) for item in value]))
    return AnyValue(string_value=value)


def pairs(values: Mapping[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=any_value(value)) for key, value in values.items()]


def trace_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def span_id(number: int) -> bytes:
    return number.to_bytes(8, "big")


def span(
    number: int,
    attributes: Mapping[str, Any] | None = None,
    *,
    trace: int = 1,
    parent: int | None = None,
    at: float = 0,
    events: Sequence[tuple[str, Mapping[str, Any]]] = (),
) -> Span:
    """Return a span that takes half a second, ``at`` seconds after the beginning."""
    start = BEGIN + int(at * 10**9)
    return Span(
        trace_id=trace_id(trace),
        span_id=span_id(number),
        parent_span_id=span_id(parent) if parent else b"",
        name="span",
        start_time_unix_nano=start,
        end_time_unix_nano=start + 5 * 10**8,
        attributes=pairs(attributes or {}),
        events=[Span.Event(name=name, attributes=pairs(given), time_unix_nano=start) for name, given in events],
    )


def chat(
    number: int, heard: Sequence[str], answer: str | None, *, given: Mapping[str, Any] | None = None, **place: Any
) -> Span:
    """Return a span of the current conventions. ``heard``: what user and assistant said by turns, the user first."""
    roles = ("user", "assistant")
    inputs = [
        {"role": roles[place % 2], "parts": [{"type": "text", "content": text}]} for place, text in enumerate(heard)
    ]
    outputs = [] if answer is None else [{"role": "assistant", "parts": [{"type": "text", "content": answer}]}]
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(inputs), **(given or {})}
    if outputs:
        attributes["gen_ai.output.messages"] = json.dumps(outputs)
    return span(number, attributes, **place)


def agent(number: int, name: str, conversation: str | None = None, **place: Any) -> Span:
    """Return an agent's span, under which it calls models."""
    known = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
    return span(number, known | ({"gen_ai.conversation.id": conversation} if conversation else {}), **place)


def request(*spans: Span, service: str = "") -> ExportTraceServiceRequest:
    made = ExportTraceServiceRequest()
    group = made.resource_spans.add()
    group.resource.attributes.extend(pairs({"service.name": service} if service else {}))
    group.scope_spans.add().spans.extend(spans)
    return made


def event(number: int, name: str, body: Any = None, *, trace: int = 1, at: float = 0, **attributes: Any) -> LogRecord:
    """Return an event about a span."""
    return LogRecord(
        trace_id=trace_id(trace),
        span_id=span_id(number),
        event_name=name,
        observed_time_unix_nano=BEGIN + int(at * 10**9),
        body=None if body is None else any_value(body),
        attributes=pairs(attributes),
    )


def logs(*records: LogRecord) -> ExportLogsServiceRequest:
    made = ExportLogsServiceRequest()
    made.resource_logs.add().scope_logs.add().log_records.extend(records)
    return made
