"""The lines of a transcript that quotes stand in: who said it where and when, and in which line of which file."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from persona_pipeline.reporting.text import one_line
from persona_pipeline.store import tables
from persona_pipeline.world import World

MOST_TEXT = 300


@dataclass(frozen=True)
class Transcript:
    """Messages by id, each as one line."""

    lines: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, world: World | None, message_ids: Sequence[str]) -> "Transcript":
        """Return the lines of some messages; those that are not in the store any more are left out."""
        if world is None or not message_ids:
            return cls()
        table = tables.run_messages
        with world.store.connect() as connection:
            rows = connection.execute(sa.select(table).where(table.c.id.in_(set(message_ids)))).all()
        names = world.display_names()
        return cls({row.id: _line(world, row, names) for row in rows})

    def line(self, message_id: str) -> str | None:
        """Return a message's line, None where it is not known."""
        return self.lines.get(message_id)


def _line(world: World, row: sa.Row, names: dict[str, str]) -> str:
    where = f"#{row.channel_id}" if row.channel_id else f"to {names.get(row.recipient_id, row.recipient_id)}"
    source = _place(world, row.source, row.id) or row.id
    said = f"{names.get(row.agent_id, row.agent_id)}: {one_line(row.text, MOST_TEXT)}"
    return f"{one_line(source)}: {one_line(where)} {row.created_at:%Y-%m-%d %H:%MZ} {said}"


def _place(world: World, source: str | None, message_id: str) -> str | None:
    """Return ``file:line`` of a message, the file alone where the line is not found."""
    if source is None:
        return None
    path = world.root / source
    known = re.compile(rf"(?<![\w-]){re.escape(message_id)}(?![\w-])")
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            number = next((number for number, line in enumerate(file, start=1) if known.search(line)), None)
    except OSError:
        return source
    return source if number is None else f"{source}:{number}"
