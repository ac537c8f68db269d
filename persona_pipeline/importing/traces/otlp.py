"""Requests of the OpenTelemetry protocol as they come over the wire: protobuf or JSON, packed or not, within bounds."""

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from persona_pipeline.base.documents.json import strict_json
from persona_pipeline.base.errors import ConfigError

if TYPE_CHECKING:
    from google.protobuf.message import Message as Proto

PROTOBUF, JSON = "application/x-protobuf", "application/json"
_HEX_IDS = frozenset({"traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id"})


class NotTakenError(ValueError):
    """A request that is not taken: the status of the answer, and the reason in the metrics."""

    status, reason = 500, "internal_error"

    def __init__(self, message: str, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status, self.reason = status or self.status, reason or self.reason


class UnreadableError(NotTakenError):
    """A body in the wrong format. Sending it again does not help."""

    status, reason = 400, "unreadable"


class TooLargeError(NotTakenError):
    """A body that is larger than is taken."""

    status, reason = 413, "too_large"


@dataclass(frozen=True)
class OtlpRecord:
    """A span or a log record (protobuf messages of OpenTelemetry) with the attributes of its resource."""

    record: Any
    resource: Mapping[str, Any]
    is_span: bool
    scope: str = "unnamed"

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Its own attributes, as JSON values."""
        return attributes(self.record.attributes)

    @cached_property
    def events(self) -> list[tuple[str, dict[str, Any]]]:
        """The names and attributes of a span's events."""
        return [(event.name, attributes(event.attributes)) for event in self.record.events]


def require_otel() -> None:
    """Raise ``ConfigError`` where the packages are missing that read and write OpenTelemetry."""
    from importlib import import_module

    try:
        import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
        import_module("google.rpc.status_pb2")
    except ImportError as error:
        raise ConfigError(
            f"OpenTelemetry needs a package that is not installed ({error.name}); pip install 'persona-pipeline[otel]'"
        ) from error


def unpack(body: bytes, encoding: str, most: int) -> bytes:
    """Return a body without its content encoding.

    Args:
        most: bytes that it may have then.

    Raises:
        UnreadableError: the encoding is neither gzip nor deflate, or the body is not written in it.
        TooLargeError: it has more bytes.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        unpacked = body
    elif encoding in ("gzip", "deflate"):
        # zlib detects both kinds of header. Data beyond the limit is never unpacked.
        stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
        try:
            unpacked = stream.decompress(body, most + 1)
        except zlib.error as error:
            raise UnreadableError(f"the body is not {encoding} ({error})") from error
        if len(unpacked) <= most and (not stream.eof or stream.unused_data):
            raise UnreadableError(f"the body is not one whole {encoding} stream")
    else:
        raise UnreadableError(f"content encoding {encoding[:40]!r} is not known; use gzip or none")
    if len(unpacked) > most:
        raise TooLargeError(f"the body unpacked is larger than {most:,} bytes")
    return unpacked


def read_request(body: bytes, content_type: str, *, logs: bool = False) -> list[OtlpRecord]:
    """Return the spans (or log records) of an export request; UnreadableError: it is not one."""
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportLogsServiceRequest() if logs else ExportTraceServiceRequest()
    return items(parsed(body, request, is_json=content_type == JSON))


def parsed(body: bytes | Mapping[str, Any], request: "Proto", *, is_json: bool = True) -> "Proto":
    """Return a request read from protobuf, or from OTLP's JSON, where ids are hexadecimal; raises ``UnreadableError``."""
    from google.protobuf.json_format import ParseDict, ParseError
    from google.protobuf.message import DecodeError

    try:
        if isinstance(body, bytes) and not is_json:
            request.ParseFromString(body)
            return request
        value = strict_json(body.decode("utf-8")) if isinstance(body, bytes) else body
        if not isinstance(value, dict):
            raise UnreadableError("it is not an object")
        return ParseDict(_with_ids(value), request, ignore_unknown_fields=True)
    except (DecodeError, ParseError, ValueError, RecursionError, TypeError, AttributeError) as error:
        form = "JSON" if is_json else "protobuf"
        raise UnreadableError(f"the body is no {type(request).__name__} in {form} ({str(error)[:200]})") from error


def _with_ids(value: Any) -> Any:
    """Return JSON with ids as protobuf's own JSON has them."""
    if isinstance(value, dict):
        return {
            key: base64.b64encode(bytes.fromhex(item)).decode("ascii")
            if key in _HEX_IDS and isinstance(item, str)
            else _with_ids(item)
            for key, item in value.items()
        }
    return [_with_ids(item) for item in value] if isinstance(value, list) else value


def items(request: Any) -> list[OtlpRecord]:
    """Return what a request, or a file's ``TracesData`` or ``LogsData``, holds."""
    is_span = hasattr(request, "resource_spans")
    found: list[OtlpRecord] = []
    for group in request.resource_spans if is_span else request.resource_logs:
        resource = attributes(group.resource.attributes)
        for scope in group.scope_spans if is_span else group.scope_logs:
            listed = scope.spans if is_span else scope.log_records
            name = "".join(char for char in scope.scope.name[:100] if char.isprintable())
            found += [OtlpRecord(record, resource, is_span, name or "unnamed") for record in listed]
    return found


def attributes(pairs: Any) -> dict[str, Any]:
    """Return OTLP's key-value pairs as a dictionary of JSON values."""
    return {pair.key: plain(pair.value) for pair in pairs}


def plain(value: Any) -> Any:
    """Return an ``AnyValue`` as a JSON value; how deeply it nests is bounded by protobuf."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: plain(pair.value) for pair in value.kvlist_value.values}
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode("ascii")
    return getattr(value, kind)
