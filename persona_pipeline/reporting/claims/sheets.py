"""A page of lines and tables, and how it is written for a terminal, for Markdown and as HTML."""

import base64
import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files

from jinja2 import Environment
from markupsafe import Markup
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from persona_pipeline.reporting.pages import page_environment
from persona_pipeline.reporting.text import html_text, markdown_text, one_line

_PACKAGE = "persona_pipeline.reporting.claims"
# A matrix is wider than a telephone; its names stay whole.
_WIDE = """.wide { overflow-x: auto; } .wide th, .wide td { overflow-wrap: normal; } .wide .number { white-space: normal; }
.charts { display: grid; gap: 24px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 380px), 1fr)); }
figure { margin: 0; } figcaption { font-weight: 600; margin: 0 0 6px; }
.chart { display: block; width: 100%; height: auto; } .chart text { font: 12px var(--sans); fill: var(--muted); }
.chart .grid { stroke: var(--line); } .chart .axis { stroke: var(--muted); stroke-opacity: .5; }
.chart .line { fill: none; stroke: var(--ink); stroke-width: 2.5; stroke-linejoin: round; }
.chart .line.d1 { stroke: var(--good); stroke-dasharray: 6 3; } .chart .line.d2 { stroke: var(--bad); stroke-dasharray: 2 3; }
.chart .change { stroke: var(--muted); stroke-width: 1.5; stroke-dasharray: 4 3; }
.chart .limit { stroke: var(--warn); stroke-width: 1.5; }
@media (max-width: 640px) { .chart text { font-size: 15px; } }"""


@dataclass(frozen=True)
class Sheet:
    """A table. The first column is what a row is about; ``note`` explains its marks."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Page:
    """``facts`` first, then what was found as (kind, text), then the tables; ``charts`` (title, SVG) stand in HTML alone."""

    title: str
    facts: Sequence[str] = ()
    findings: Sequence[tuple[str, str]] = ()
    sheets: Sequence[Sheet] = field(default_factory=tuple)
    charts: Sequence[tuple[str, Markup]] = ()


def text_of(page: Page, width: int | None = None) -> str:
    """Return the page for a terminal ``width`` columns wide (None: a log): tables first, what follows from them last."""
    stream = io.StringIO()
    console = Console(file=stream, width=width or 10_000, color_system=None, legacy_windows=False)
    for sheet in page.sheets:
        console.print(Text(one_line(sheet.title)))
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        for place, column in enumerate(sheet.columns):
            table.add_column(
                Text(one_line(column)), justify="right" if place else "left", no_wrap=width is None, overflow="fold"
            )
        for row in sheet.rows:
            table.add_row(*(Text(one_line(cell)) for cell in row))
        console.print(table)
        console.print(Text(f"{one_line(sheet.note)}\n"), soft_wrap=True)
    for kind, said in page.findings:
        console.print(Text(f"{kind}: {one_line(said)}"), soft_wrap=True)
    for fact in page.facts:
        console.print(Text(one_line(fact)), soft_wrap=True)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def markdown_of(page: Page) -> str:
    """Return the page as Markdown."""
    lines = [f"## {markdown_text(page.title)}", ""]
    lines += [f"- {markdown_text(fact)}" for fact in page.facts]
    lines += ["", *(f"- **{markdown_text(kind)}**: {markdown_text(said)}" for kind, said in page.findings)]
    for sheet in page.sheets:
        lines += ["", f"### {markdown_text(sheet.title)}", "", _row(sheet.columns)]
        lines += [_row(["---", *["--:"] * (len(sheet.columns) - 1)], escape=False), *map(_row, sheet.rows)]
        lines += ["", markdown_text(sheet.note)] if sheet.note else []
    return "\n".join(lines) + "\n"


def html_of(page: Page) -> str:
    """Return the page as one HTML document in UTF-8: inline style under a policy that allows nothing else, no script."""
    style = (
        files("persona_pipeline.reporting.suites").joinpath("static", "suite.css").read_text(encoding="utf-8") + _WIDE
    )
    digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return html_text(_environment().get_template("page.html.j2").render(page=page, policy=policy, style=Markup(style)))


@lru_cache
def _environment() -> Environment:
    return page_environment(_PACKAGE)


def _row(cells: Sequence[str], *, escape: bool = True) -> str:
    return f"| {' | '.join(markdown_text(cell) if escape else cell for cell in cells)} |"
