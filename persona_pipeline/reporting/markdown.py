"""Pages as Markdown: the pull-request comment, or a file. Text from outside never becomes markup."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from persona_pipeline.base.status import STATUSES
from persona_pipeline.guard.report import RunReport
from persona_pipeline.reporting.page import (
    Agent,
    AnyCell,
    Block,
    Facts,
    Folded,
    Item,
    Items,
    Line,
    Page,
    Score,
    Table,
    spans,
)
from persona_pipeline.reporting.text import format_delta, format_score, markdown_code, markdown_text, spaced

MARKER = "<!-- persona-pipeline -->"
COMMENT_LIMIT = 65_536
_CHANGED = {"fell": " 🔻", "untold": " ❔"}
_SIGNS = {"good": "✅", "bad": "❌", "warn": "❔"}
_LEGEND = (
    "Scores are 0–9 with the change against the baseline in brackets; 🔻 dropped further than allowed, ❔ inconclusive."
)
_MOST_ID, _MOST_VALUE = 64, 300


@dataclass
class _Piece:
    """Lines at a start and an end that stay, with items between them that may be left out."""

    head: list[str] = field(default_factory=list)
    items: list[str] = field(default_factory=list)
    foot: list[str] = field(default_factory=list)


def render_comment(report: RunReport, limit: int = COMMENT_LIMIT) -> str:
    """Return the pull-request comment of at most ``limit`` characters, with a notice where items are left out.

    It starts with ``MARKER``, by which the comment is found and updated.
    """
    from persona_pipeline.reporting.pages.evaluation import comment_page

    return comment_of(comment_page(report), limit)


def comment_of(page: Page, limit: int = COMMENT_LIMIT) -> str:
    """Return a page as the comment of a pull request."""
    return f"{MARKER}\n{page_markdown(page, limit - len(MARKER) - 1)}"


def page_markdown(page: Page, limit: int | None = None) -> str:
    """Return a page as Markdown; lists and tables are cut to fit ``limit`` characters (default: the page's limit)."""
    mark = "#" * page.level
    sign = f"{_SIGNS[page.tone]} " if page.tone in _SIGNS else ""
    label = f"{page.label}: " if page.label else ""
    pieces = [_Piece([*_paragraph(item), ""]) for item in page.before]
    if page.title:
        pieces.append(_Piece([f"{mark} {sign}{label}{markdown_line(page.title)}", ""]))
    pieces += _pieces(page.top)
    for section in page.sections:
        if section.title:
            pieces.append(_Piece([f"{'#' * max(3, page.level)} {markdown_line(section.title)}", ""]))
        pieces += _pieces(section.blocks)
    return _fit(pieces, page.longest if limit is None else limit, page.shortened)


def markdown_line(line: Line) -> str:
    """Return Markdown that renders as exactly this text."""
    written = ""
    for part in spans(line):
        if part.style in ("own", "fixed"):
            piece = part.text
        elif part.style == "code":
            piece = markdown_code(part.text, part.limit)
        else:
            around = {"strong": "**", "em": "*"}.get(part.style, "")
            text = markdown_text(part.text, part.limit)
            piece = spaced(part.text, f"{around}{text}{around}" if text else "")
        # Adjacent code spans would become one.
        meet = written.endswith("`") and piece.startswith("`")
        written += f"<!-- -->{piece}" if meet else piece
    return written.strip()


def _pieces(blocks: Iterable[Block]) -> Iterator[_Piece]:
    for block in blocks:
        if isinstance(block, Item):
            yield _Piece([*_paragraph(block), ""])
        elif isinstance(block, Items):
            bullets = [f"{'  ' * item.depth}- {_said(item)}" for item in block.items]
            yield _Piece([], bullets, [""])
        elif isinstance(block, Facts):
            pairs = (
                (markdown_text(name), markdown_code(value, _MOST_VALUE, in_table=True)) for name, value in block.pairs
            )
            yield _Piece(["| | |", "|:--|:--|"], [f"| {name} | {value} |" for name, value in pairs], [""])
        elif isinstance(block, Table):
            yield _table(block)
        elif isinstance(block, Folded):
            yield _Piece(["<details>", f"<summary>{markdown_line(block.summary)}</summary>", ""])
            yield from _pieces(block.blocks)
            yield _Piece(["</details>", ""])


def _paragraph(item: Item) -> list[str]:
    return ["> [!CAUTION]", f"> {_said(item)}"] if item.tone == "bad" else [_said(item)]


def _said(item: Item) -> str:
    kind = f"**{markdown_text(item.kind)}**: " if item.kind else ""
    return f"{kind}{markdown_line(item.line)}"


def _table(table: Table) -> _Piece:
    titles = [markdown_text(column.title) for column in table.columns]
    lines = ["--:" if column.number else ":--" for column in table.columns]
    rows = [f"| {' | '.join(_cell(cell) for cell in row.cells)} |" for row in table.rows]
    scored = any(isinstance(cell, Score) for row in table.rows for cell in row.cells)
    notes = [*([_LEGEND] if scored else []), *([markdown_line(table.note)] if table.note else [])]
    return _Piece([f"| {' | '.join(titles)} |", f"|{'|'.join(lines)}|"], rows, ["", *(f"{note}\n" for note in notes)])


def _cell(cell: AnyCell) -> str:
    if isinstance(cell, Score):
        return _score(cell)
    if isinstance(cell, Agent):
        icon = f"{STATUSES[cell.state].icon} " if cell.state else ""
        return f"{icon}{markdown_text(cell.name or cell.id, _MOST_ID)}"
    if isinstance(cell, str):
        return markdown_text(cell)
    if cell.style == "code":
        return markdown_code(cell.text, _MOST_ID, in_table=True)
    text = cell.text if cell.own else markdown_text(cell.text)
    return f"{text} ⚠️" if cell.style == "blind" else text


def _score(cell: Score) -> str:
    if cell.value is None:
        return f"*{cell.why}*" if cell.why else "–"
    if cell.state == "new":
        return f"{format_score(cell.value)} (new)"
    text = format_score(cell.value) + (f" ({format_delta(cell.change)})" if cell.change is not None else "")
    mark = "" if cell.whole else _CHANGED.get(cell.state, "")
    return (f"**{text}**" if cell.state == "fell" else text) + mark


def _fit(pieces: list[_Piece], limit: int, notice: str) -> str:
    """Join the pieces in at most ``limit`` characters: heads and feet stay, the last items of each are left out."""
    fixed = sum(len(line) + 1 for piece in pieces for line in (*piece.head, *piece.foot))
    room = limit - fixed - (len(notice) + 24) * sum(bool(piece.items) for piece in pieces)
    lines: list[str] = []
    for piece in pieces:
        kept = 0
        for item in piece.items:
            if len(item) + 1 > room:
                break
            room -= len(item) + 1
            kept += 1
        lines += [*piece.head, *piece.items[:kept]]
        if kept < len(piece.items):
            lines += ["", notice.format(len(piece.items) - kept)]
        lines += piece.foot
    return "\n".join(lines).rstrip() + "\n"
