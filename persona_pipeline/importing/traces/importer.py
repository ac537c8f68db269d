"""Files of traces: JSON lines as the collector's file exporter writes them."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar

from persona_pipeline.base.errors import ConfigError, NothingError, Problem
from persona_pipeline.importing.base import Found, Importer, ReadOptions, Skipped, Source
from persona_pipeline.importing.records import records
from persona_pipeline.importing.tables import listed
from persona_pipeline.importing.traces.calls import (
    WHY_SILENT,
    Piece,
    RefusedError,
    keys_of,
    piece_of,
    why_silent,
)
from persona_pipeline.importing.traces.messages import as_said, told_to, turns_of
from persona_pipeline.importing.traces.otlp import OtlpRecord, UnreadableError, items, parsed, require_otel
from persona_pipeline.world.messages.files import Row
from persona_pipeline.world.models import grouped
from persona_pipeline.world.names import Aliases

_SPANS, _LOGS = ("resourceSpans", "resource_spans"), ("resourceLogs", "resource_logs")


class OTLPFile(Importer):
    """Spans and events of a file, put together as the collector puts them together."""

    name: ClassVar[str] = "otlp"
    about: ClassVar[str] = "OpenTelemetry traces and events: OTLP as JSON lines"

    def recognises(self, source: Source) -> bool:
        if source.is_folder:
            return False
        start = source.beginning.lstrip()[:200]
        return start.startswith("{") and any(f'"{key}"' in start for key in (*_SPANS, *_LOGS))

    def rows(self, file: Source, options: ReadOptions) -> Iterator[Found]:
        require_otel()
        pieces: list[Piece] = []
        lines: dict[tuple[str, str], int] = {}
        silent: dict[int, str] = {}
        for line, item, piece in _read(file):
            if isinstance(piece, ValueError):
                yield Row(line, piece)
                continue
            silent.setdefault(line, "spans and events without a message")
            if piece is not None:
                pieces.append(piece)
                lines.setdefault((piece.trace_id, piece.span_id), line)
            if item and (reason := why_silent(item, piece)) == "form_not_known":
                yield Skipped(line, f"spans that {WHY_SILENT[reason]}{_in_brackets(keys_of(item, reason))}")
                silent[line] = ""
        kept, _ = as_said(turns_of(pieces, options.aliases).values())
        for turn in sorted(kept.values(), key=lambda turn: (turn.created_at, turn.id)):
            extras: Mapping[str, Any] = turn.extras
            line = lines[extras["trace_id"], extras["span_id"]]
            silent.pop(line, None)
            yield Row(line, turn)
        yield from (Skipped(line, why) for line, why in silent.items() if why)

    def explained(self, file: Source, aliases: Aliases) -> Iterator[str]:
        """Yield lines on what each instrumentation in a file of traces says and where, and why other spans have no words.

        Raises:
            ConfigError: the file cannot be read or does not hold traces; NothingError: its spans hold no words.
        """
        require_otel()
        spans, worded, pieces = Counter[str](), Counter[str](), list[Piece]()
        scopes: dict[tuple[str, str], str] = {}
        silent: dict[str, Counter[str]] = defaultdict(Counter)
        keys: dict[tuple[str, str], set[str]] = defaultdict(set)
        for line, item, piece in _read(file):
            if item is None:
                if piece:
                    raise ConfigError(Problem(str(piece), file.name, line))
                continue
            spans[item.scope] += item.is_span
            if isinstance(piece, ValueError):
                silent[item.scope][f"refused: {piece}"] += 1
                continue
            if piece is not None:
                pieces.append(piece)
                scopes.setdefault((piece.trace_id, piece.span_id), item.scope)
                worded[item.scope] += any(said.text.strip() for said in (*piece.inputs, *piece.outputs))
                keys[item.scope, ""].update(keys_of(item, None))
            if reason := why_silent(item, piece):
                silent[item.scope][WHY_SILENT[reason]] += 1
                keys[item.scope, WHY_SILENT[reason]].update(keys_of(item, reason))
        said = [*as_said(turns_of(pieces, aliases).values())[0].values()]
        by_scope = grouped(said, lambda turn: scopes[str(turn.extras["trace_id"]), str(turn.extras["span_id"])])
        for name, count in sorted(spans.items()):
            turns = by_scope.get(name, [])
            agents = ", ".join(sorted({turn.agent_id for turn in turns if told_to(turn) is None})) or "nobody"
            channels = len({turn.channel for turn in turns})
            yield f"{name}: {count} spans, {worded[name]} with words, {channels} channels; agents: {agents}"
            if read := keys[name, ""]:
                yield f"  words are read from{_in_brackets(read)}"
            for reason, amount in silent[name].most_common():
                yield f"  {amount} {reason}{_in_brackets(keys[name, reason])}"
        if spans and not worded.total():
            raise NothingError(f"no span or event in {file.name} holds words that can be read")


def _read(file: Source) -> Iterator[tuple[int, OtlpRecord | None, Piece | ValueError | None]]:
    """Yield the spans and log records of a file with their lines and pieces; for a line without any, the line alone."""
    from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    for line, record in records(file):
        if isinstance(record, ValueError):
            yield line, None, record
            continue
        kinds = [kind for kind, keys in ((TracesData, _SPANS), (LogsData, _LOGS)) if any(key in record for key in keys)]
        if not kinds:
            yield line, None, ValueError("holds neither resourceSpans nor resourceLogs; it is no line of an OTLP file")
        try:
            found = [item for kind in kinds for item in items(parsed(record, kind()))]
        except UnreadableError as error:
            yield line, None, error
            continue
        if kinds and not found:
            yield line, None, None
        for item in found:
            try:
                yield line, item, piece_of(item)
            except RefusedError as error:
                yield line, item, error


def _in_brackets(keys: Collection[str]) -> str:
    return f" ({listed(sorted(keys))})" if keys else ""
