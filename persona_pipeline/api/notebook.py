"""Results as HTML for a notebook: tables without scripts or anything remote, whatever the texts in them say."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from persona_pipeline.reporting.text import html_text, one_line

MOST_LINES = 12
_TABLE = "border-collapse:collapse;margin:4px 0"
_CELL = "padding:2px 10px 2px 0;vertical-align:top"
_TONES = {"bad": "color:#b3261e;font-weight:bold", "dim": "opacity:.65", "warn": "color:#8a5a00"}


@dataclass(frozen=True)
class Cell:
    """A table's cell. ``tone``: ``bad``, ``warn``, ``dim`` or "". Numbers stand to the right."""

    text: str
    tone: str = ""
    number: bool = False


def inline(text: str, limit: int | None = 300) -> str:
    """Return a text as it may stand in HTML, on one line."""
    return escape(html_text(one_line(text, limit)))


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell | str]]) -> str:
    """Return an HTML table; every text in it is escaped."""
    head = "".join(f'<th style="{_CELL};text-align:left">{inline(name)}</th>' for name in columns)
    body = "".join(f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in rows)
    return f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def lines(texts: Sequence[str]) -> str:
    """Return texts as a list, those beyond the first dozen counted."""
    shown = [f"<li>{inline(text)}</li>" for text in texts[:MOST_LINES]]
    if len(texts) > MOST_LINES:
        shown.append(f"<li>and {len(texts) - MOST_LINES} more</li>")
    return f'<ul style="margin:4px 0">{"".join(shown)}</ul>' if shown else ""


def block(headline: str, *parts: str) -> str:
    """Return what a notebook shows of a result: its headline, then its parts, which are HTML already."""
    return f"<div><p><b>{inline(headline)}</b></p>{''.join(parts)}</div>"


def _cell(cell: Cell | str) -> str:
    item = cell if isinstance(cell, Cell) else Cell(cell)
    style = ";".join(
        filter(None, (_CELL, "text-align:right" if item.number else "text-align:left", _TONES.get(item.tone)))
    )
    return f'<td style="{style}">{inline(item.text)}</td>'
