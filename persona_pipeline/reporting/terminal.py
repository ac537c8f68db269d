"""Pages for a terminal or a log: details first, the most important lines last."""

import io
from collections.abc import Iterator
from enum import IntEnum
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from persona_pipeline.base.status import ACCEPTED, BROKEN, STATUSES, VERDICTS
from persona_pipeline.reporting.page import (
    Agent,
    AnyCell,
    Block,
    Facts,
    Item,
    Items,
    Line,
    Page,
    Score,
    Table,
    Tone,
    spans,
)
from persona_pipeline.reporting.text import format_delta, format_score, one_line, printable, spaced

_CHANGED = {"fell": "*", "untold": "?"}
_STYLES: dict[Tone, str] = {"bad": "red", "warn": "yellow", "dim": "dim", "good": "", "": ""}
_ROWS: dict[Tone, str] = {**_STYLES, "bad": "bold red"}
# Explained only in tables that have them.
_RARE = (ACCEPTED, BROKEN)
_SHOWN = "   ".join(
    f"{status.mark} {status.word}" for status in VERDICTS if status.mark.strip() and status not in _RARE
)
_LEGEND = f"{_SHOWN}   * dropped beyond what is allowed   n/m: judgments scored of expected"
_ANY_WIDTH = 10_000
_FACT = 34
# The reason of a missing score is cut in the table, and printed in full below it.
_WHY = 16


def page_text(page: Page) -> str:
    """Return a page as plain text without colour, ending in a new line."""
    stream = io.StringIO()
    _draw(page, Console(file=stream, width=_ANY_WIDTH, color_system=None, legacy_windows=False))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def draw(page: Page, terminal: TextIO) -> None:
    """Write a page in the colours and the width of a terminal."""
    _draw(page, Console(file=terminal))


def plain_text(line: Line) -> str:
    """Return a line as printable text on one line."""
    written = ""
    for part in spans(line):
        is_fixed = part.style == "fixed"
        written += printable(part.text) if is_fixed else spaced(part.text, one_line(part.text, part.limit))
    return written.strip()


class Room(IntEnum):
    """How much of a table fits: all of it, short headings without reasons, or scores without their changes."""

    WIDE, SHORT, NARROW = range(3)


def cell_text(cell: AnyCell, room: Room = Room.WIDE) -> str:
    """Return a cell as text."""
    if isinstance(cell, Score):
        if cell.value is None:
            return "–" if room > Room.WIDE or not cell.why else one_line(cell.why, _WHY)
        mark = "" if cell.whole else _CHANGED.get(cell.state, "")
        if room is Room.NARROW and not cell.whole:
            return f"{format_score(cell.value, 1)}{mark}"
        change = "new" if cell.state == "new" else format_delta(cell.change, 1)
        return f"{format_score(cell.value, 1)} {change}{mark}".strip()
    if isinstance(cell, Agent):
        return f"{STATUSES[cell.state].mark if cell.state else ' '} {one_line(cell.id, 40)}"
    if isinstance(cell, str):
        return one_line(cell)
    text = one_line(cell.short if room is Room.NARROW and cell.short else cell.text)
    return f"{text} {one_line(cell.note)}" if cell.note else text


def _draw(page: Page, console: Console) -> None:
    for section in page.sections:
        if section.title:
            console.print(Text(plain_text(section.title)), soft_wrap=True)
        for block in section.blocks:
            _block(block, console)
    for block in reversed(page.top):
        _block(block, console)


def _block(block: Block, console: Console) -> None:
    if isinstance(block, Table):
        _table(block, console)
    elif isinstance(block, Item | Items | Facts):
        for text, tone in _lines(block):
            console.print(Text(text, style=_STYLES[tone]), soft_wrap=True)


def _lines(block: Item | Items | Facts) -> Iterator[tuple[str, Tone]]:
    if isinstance(block, Facts):
        width = max(_FACT, *(len(name) + 2 for name, _ in block.pairs))
        for name, value in block.pairs:
            yield f"{'  ' * block.depth}{one_line(name):<{width}}{one_line(value)}", ""
    for item in [block] if isinstance(block, Item) else block.items if isinstance(block, Items) else ():
        kind = f"{one_line(item.kind)}: " if item.kind else ""
        yield f"{'  ' * item.depth}{kind}{plain_text(item.line)}", item.tone


def _table(table: Table, console: Console) -> None:
    wanted = console.options.update(width=_ANY_WIDTH)
    drawn = (_rich(table, room) for room in Room)
    fitting = (item for item in drawn if Measurement.get(console, wanted, item).maximum <= console.width)
    console.print(next(fitting, None) or _rich(table, Room.NARROW, fold=True))
    scores = [cell for row in table.rows for cell in row.cells if isinstance(cell, Score)]
    if table.note:
        console.print(Text(f"{plain_text(table.note)}\n"), soft_wrap=True)
    if scores:
        states = {cell.state for row in table.rows for cell in row.cells if isinstance(cell, Agent)}
        rare = "".join(f"   {status.mark} {status.word}" for status in _RARE if status.name in states)
        console.print(Text(f"{_LEGEND}{rare}", style="dim"), soft_wrap=True)


def _rich(table: Table, room: Room, *, fold: bool = False) -> RichTable:
    found = RichTable(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for column in table.columns:
        title = column.short if room and column.short else column.title[:1].lower() + column.title[1:]
        side = "right" if column.number else "left"
        found.add_column(Text(one_line(title)), justify=side, no_wrap=not fold, overflow="fold")
    for row in table.rows:
        found.add_row(*(Text(cell_text(cell, room)) for cell in row.cells), style=_ROWS[row.tone])
    return found
