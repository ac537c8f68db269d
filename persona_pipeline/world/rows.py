"""Messages out of rows that a program has in hand: a frame, a list of records, or one of them a partition."""

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from persona_pipeline.errors import ConfigError, did_you_mean
from persona_pipeline.world.aliases import Aliases
from persona_pipeline.world.canonical import content_hash
from persona_pipeline.world.counting import count_messages
from persona_pipeline.world.ingest import parse_message
from persona_pipeline.world.mirroring import Came, SyncResult, ingest_rows
from persona_pipeline.world.reading import FIELDS, Row
from persona_pipeline.world.world import World

_ID_CHARACTERS = 32


def bring_rows(world: World, rows: Any, *, source: str, columns: Mapping[str, str] | None = None) -> SyncResult:
    """Bring rows into the store as messages; an id that is known is updated, and nothing is removed.

    A row needs ``agent_id``, ``text`` and ``created_at``. A time without an offset counts as UTC. Without an ``id`` a message gets
    one made of what it says; without ``channel`` and ``recipient`` its channel is ``source``. Other columns are left alone.

    Args:
        rows: a frame of pandas, polars or Arrow, records, or a mapping with such for values.
        source: what the store says the messages come from.
        columns: what the rows call it, by field of a message, where they call it something else.

    Raises:
        ConfigError: the rows are none of these, or a field or column is unknown.
    """
    columns = dict(columns or {})
    for name in columns:
        if name not in FIELDS:
            raise ConfigError(f"a message has no {name!r}{did_you_mean(name, FIELDS)}; it has {', '.join(FIELDS)}")
    aliases = Aliases.of(world.names())
    result = ingest_rows(world.store, _read(records_of(rows), source, columns), Came(source, source), aliases.owned)
    count_messages(world.store)
    return result


def records_of(rows: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the records of a frame of pandas, polars or Arrow, of records, or of a mapping with such for values.

    Raises:
        ConfigError: it is none of these.
    """
    if rows is None:
        return
    if isinstance(rows, Mapping):
        for part in rows.values():
            yield from records_of(part)
    elif hasattr(rows, "to_pylist"):
        yield from rows.to_pylist()
    elif hasattr(rows, "to_dicts"):
        yield from rows.to_dicts()
    elif hasattr(rows, "to_dict"):
        yield from rows.to_dict("records")
    elif isinstance(rows, Iterable) and not isinstance(rows, str | bytes):
        yield from rows
    else:
        raise ConfigError(f"messages cannot be read from {type(rows).__name__}; give a frame or a list of records")


def _read(records: Iterable[Mapping[str, Any]], source: str, columns: Mapping[str, str]) -> Iterator[Row]:
    for line, record in enumerate(records, 1):
        if not isinstance(record, Mapping):
            yield Row(line, ValueError(f"is no record but {type(record).__name__}"))
            continue
        if missing := [column for column in columns.values() if column not in record]:
            known = [str(name) for name in record]
            hint = did_you_mean(missing[0], known) or f"; it has {', '.join(known)}"
            raise ConfigError(f"row {line} of {source} has no column {missing[0]!r}{hint}")
        values = {name: _plain(record.get(columns.get(name, name))) for name in FIELDS}
        found = {name: value for name, value in values.items() if value is not None}
        if "channel" not in found and "recipient" not in found:
            found["channel"] = source
        if "id" not in found:
            found["id"] = content_hash(sorted((name, str(value)) for name, value in found.items()))[:_ID_CHARACTERS]
        try:
            yield Row(line, parse_message(found))
        except ValueError as error:
            yield Row(line, error)


def _plain(value: Any) -> Any:
    """Return a value as a message file would have it: text; None for what frames write where nothing is."""
    if value is None or value != value or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    return str(value) if isinstance(value, int) else value
