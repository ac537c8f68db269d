"""Pages as HTML: one file without a remote asset, safe with any text in it; and tables for a notebook.

Only files of this package are templates; everything else is data and is escaped.
"""

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from persona_pipeline.guard.report import RunReport
from persona_pipeline.reporting.page import (
    Agent,
    AnyCell,
    Block,
    Cell,
    Column,
    Drawn,
    Figure,
    Items,
    Line,
    Page,
    PageCard,
    PageRow,
    Quote,
    Score,
    Table,
    spans,
)
from persona_pipeline.reporting.terminal import cell_text, plain_text
from persona_pipeline.reporting.text import (
    format_delta,
    format_score,
    format_share,
    html_text,
    one_line,
    plural,
    unscored_label,
)
from persona_pipeline.reporting.view import VERDICTS, dimension_label
from persona_pipeline.scoring.results import QuotedEvidence

_PACKAGE = "persona_pipeline.reporting"
_STATES = {**{result.value: label for result, label in VERDICTS.items()}, "nothing": "nothing to judge"}
_SPANS = {"code": "code", "strong": "b", "em": "em"}
# In a notebook there is no style sheet.
_NOTEBOOK_TABLE = "border-collapse:collapse;margin:4px 0"
_NOTEBOOK_CELL = "padding:2px 10px 2px 0;vertical-align:top"
_NOTEBOOK_TONES = {"bad": "color:#b3261e;font-weight:bold", "dim": "opacity:.65", "warn": "color:#8a5a00"}
_NOTEBOOK_LINES, _NOTEBOOK_TEXT = 12, 300


def render_html(report: RunReport) -> str:
    """Return the report of a run as one HTML document in UTF-8."""
    from persona_pipeline.reporting.pages.browser import whole_page

    return page_html(whole_page(report), script=True)


def page_html(page: Page, *, script: bool = False) -> str:
    """Return a page as one HTML document in UTF-8: inline style and charts under a policy that allows nothing else.

    Args:
        script: with ours, which turns the theme, opens what is folded and finds a row.
    """
    style, code = _theme() + _asset("report.css"), _asset("report.js") if script else ""
    allowed = f"script-src '{_digest(code)}'; " if code else ""
    policy = f"default-src 'none'; style-src '{_digest(style)}'; {allowed}base-uri 'none'; form-action 'none'"
    template = _environment().get_template("page.html.j2")
    title = plain_text(page.title)
    return html_text(template.render(page=page, title=title, policy=policy, style=Markup(style), script=Markup(code)))


def notebook_html(page: Page) -> str:
    """Return what a notebook shows of a page: its title, tables and lists, without scripts, classes or anything remote."""
    blocks = [*page.top, *(block for section in page.sections for block in section.blocks)]
    tables = [_notebook_table(block) for block in blocks if isinstance(block, Table) and block.rows]
    lists = [_notebook_list(block) for block in blocks if isinstance(block, Items)]
    return f"<div><p><b>{_inline(plain_text(page.title))}</b></p>{''.join((*tables, *lists))}</div>"


def _notebook_table(table: Table) -> str:
    head = "".join(f'<th style="{_NOTEBOOK_CELL};text-align:left">{_inline(item.title)}</th>' for item in table.columns)
    rows = []
    for row in table.rows:
        cells = []
        for column, cell in zip(table.columns, row.cells, strict=True):
            side = "text-align:right" if column.number else "text-align:left"
            style = ";".join(filter(None, (_NOTEBOOK_CELL, side, _NOTEBOOK_TONES.get(_tone(cell, row)))))
            text = cell.id if isinstance(cell, Agent) else cell_text(cell)
            cells.append(f'<td style="{style}">{_inline(text)}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return f'<table style="{_NOTEBOOK_TABLE}"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def _tone(cell: AnyCell, row: PageRow) -> str:
    if isinstance(cell, Score):
        return "warn" if cell.value is None else "bad" if cell.state == "fell" else ""
    return row.tone if isinstance(cell, Agent) else cell.tone if isinstance(cell, Cell) else ""


def _notebook_list(block: Items) -> str:
    items = [item for item in block.items if item.tone != "dim"]
    said = [f"{item.kind}: {plain_text(item.line)}" if item.kind else plain_text(item.line) for item in items]
    if not said:
        return ""
    shown = [f"<li>{_inline(text)}</li>" for text in said[:_NOTEBOOK_LINES]]
    if len(said) > _NOTEBOOK_LINES:
        shown.append(f"<li>and {len(said) - _NOTEBOOK_LINES} more</li>")
    return f'<ul style="margin:4px 0">{"".join(shown)}</ul>'


def _inline(text: str) -> str:
    return escape(html_text(one_line(text, _NOTEBOOK_TEXT)))


@lru_cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(_PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        score=format_score, delta=format_delta, dimension=dimension_label, unscored=unscored_label, percent=format_share,
        plural=plural, words=lambda state: _STATES[state].capitalize(), line=_line, cells=_cells, heads=_heads, groups=_groups,
        kind=lambda block: type(block).__name__, drawn=_drawn, as_quote=_as_quote,
    )  # fmt: skip
    return environment


@lru_cache
def _theme() -> str:
    return files("persona_pipeline.base").joinpath("theme.css").read_text(encoding="utf-8")


def _asset(name: str) -> str:
    return files(_PACKAGE).joinpath("static", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """Return the CSP source of an inline element with exactly this text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _as_quote(evidence: QuotedEvidence) -> Quote:
    return Quote(evidence.quote, evidence.message_id, evidence.verified)


def _groups(blocks: Sequence[Block]) -> Iterator[tuple[bool, list[Block]]]:
    """Yield blocks with whether they stand beside one another, as figures and cards do."""
    for beside, group in groupby(blocks, key=lambda block: isinstance(block, Figure | PageCard)):
        yield beside, list(group)


def _drawn(block: Drawn) -> Markup:
    values: Mapping[str, Any] = block.values
    return Markup(_environment().get_template(block.template).render(values))


def _line(line: Line) -> Markup:
    parts = (
        Markup("<{0}>{1}</{0}>").format(name, part.text) if (name := _SPANS.get(part.style)) else escape(part.text)
        for part in spans(line)
    )
    return Markup("").join(parts)


def _heads(table: Table) -> list[tuple[Column, bool]]:
    """Return the columns, and whether their numbers stand to the right: not above a bar or what they need."""
    first = table.rows[0].cells if table.rows else [""] * len(table.columns)
    left = {"scores": Score, "sight": Cell}.get(table.style, ())
    return [
        (column, column.number and not isinstance(cell, left))
        for column, cell in zip(table.columns, first, strict=True)
    ]


def _cells(row: PageRow, table: Table) -> Markup:
    """Return a row's cells; the first is a heading."""
    found = []
    for place, (cell, column) in enumerate(zip(row.cells, table.columns, strict=True)):
        if isinstance(cell, Score):
            found.append(_score(cell, roomy=table.style == "scores"))
            continue
        number = "number" if column.number and table.style not in ("sight", "lines") else ""
        inner, style = (_agent(cell, table.style), "") if isinstance(cell, Agent) else _text(cell, table.style)
        classes = " ".join(filter(None, (style, number if place else "")))
        tag = Markup('th scope="row"') if not place else Markup("td")
        attribute = Markup(' class="{}"').format(classes) if classes else ""
        found.append(Markup("<{}{}>{}</{}>").format(tag, attribute, inner, "td" if place else "th"))
    return Markup("").join(found)


def _agent(cell: Agent, style: str) -> Markup:
    name = Markup("<bdi>{}</bdi>").format(cell.name)
    linked = Markup('<a href="{}">{}</a>').format(cell.href, name) if cell.href else name
    if style == "scores":
        return linked + Markup('<span class="pill {}">{}</span>').format(cell.state, _STATES[cell.state].capitalize())
    return linked + (Markup("<br><code>{}</code>").format(cell.id) if style == "lines" and cell.name != cell.id else "")


def _text(cell: str | Cell, style: str) -> tuple[Markup, str]:
    """Return what stands in a cell, and its class."""
    if isinstance(cell, str):
        return Markup("<bdi>{}</bdi>").format(cell), ""
    text = Markup("<bdi>{}</bdi>").format(cell.text) if cell.text else Markup("")
    if cell.tone and style != "sight":
        text = Markup('<span class="verdict-text {}">{}</span>').format(cell.tone, text)
    if style == "sight" and cell.text:
        text = Markup('<span class="value">{}</span>').format(text)
    note = Markup("")
    if cell.note:
        note = Markup(
            "<{0}><bdi>{1}</bdi></{0}>" if style == "lines" else '<span class="muted below">{1}</span>'
        ).format("small", cell.note)
    return text + (cell.chart or "") + note, cell.style


def _score(cell: Score, *, roomy: bool) -> Markup:
    fell = cell.state == "fell" and not cell.whole
    if not roomy:
        change = Markup(" <i>{}</i>").format(format_delta(cell.change, 1)) if cell.change is not None else ""
        return Markup("<td{}>{}{}</td>").format(
            Markup(' class="bad"') if fell else "", format_score(cell.value, 1), change
        )
    style = "overall" if cell.whole else "bad" if fell else "none" if cell.value is None else ""
    if cell.value is None and not cell.whole:
        inner = Markup('<span class="missing">{}</span>').format(cell.why or "not evaluated")
        return Markup('<td class="{}">{}</td>').format(style, inner)
    parts = [Markup('<span class="value">{}</span>').format(format_score(cell.value, 1))]
    if cell.state == "new":
        parts.append(Markup('<span class="change-text">new</span>'))
    elif cell.change is not None:
        bad = " bad" if fell else ""
        change = Markup('<span class="change-text{}"><span class="visually-hidden">change </span>{}</span>')
        parts.append(change.format(bad, format_delta(cell.change)))
    if cell.state == "untold":
        parts.append(Markup('<span class="missing">cannot be told</span>'))
    if cell.people[0]:
        parts.append(Markup('<span class="muted">{}</span>').format(cell.people[0]))
    return Markup('<td class="{}">{}{}</td>').format(style, Markup("\n").join(parts), cell.chart or "")
