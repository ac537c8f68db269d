"""Pages as HTML: one file without a remote asset, safe with any text in it; and tables for a notebook.

Only files of this package are templates; everything else is data and is escaped.
"""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import groupby

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from persona_pipeline.base.status import STATUSES
from persona_pipeline.guard.report import RunReport
from persona_pipeline.judging.verdict import unscored_label
from persona_pipeline.reporting.page import (
    Agent,
    AnyCell,
    Block,
    Cell,
    Column,
    Drawn,
    Figure,
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
    asset,
    format_delta,
    format_p,
    format_score,
    format_share,
    html_text,
    one_line,
    plural,
)
from persona_pipeline.reporting.view import dropped
from persona_pipeline.world.propositions.models import dimension_label

_PACKAGE = "persona_pipeline.reporting"
_SPANS = {"code": "code", "strong": "b", "em": "em"}
_NOTEBOOK_LINES, _NOTEBOOK_TEXT = 12, 300


def render_html(report: RunReport) -> str:
    """Return the report of a run as one HTML document in UTF-8."""
    from persona_pipeline.reporting.pages.browser import whole_page

    return page_html(whole_page(report), script=True)


def page_html(page: Page, *, script: bool = False) -> str:
    """Return a page as one HTML document in UTF-8: inline style and charts under a policy that allows nothing else.

    ``script``: adds our script, which switches the theme, opens folded blocks and finds a row.
    """
    style, code = page_style(), asset("report.js") if script else ""
    policy = page_policy(style, code)
    template = _environment().get_template("page.html.j2")
    title = plain_text(page.title)
    return html_text(template.render(page=page, title=title, policy=policy, style=Markup(style), script=Markup(code)))


def notebook_html(page: Page) -> str:
    """Return the notebook form of a page: its title, tables and lists, without scripts, classes or anything remote."""
    blocks = [*page.top, *(block for section in page.sections for block in section.blocks)]
    return _environment().get_template("notebook.html.j2").render(page=page, blocks=blocks, most=_NOTEBOOK_LINES)


def _tone(cell: AnyCell, row: PageRow) -> str:
    if isinstance(cell, Score):
        return "warn" if cell.value is None else "bad" if cell.state == "fell" else ""
    return row.tone if isinstance(cell, Agent) else cell.tone if isinstance(cell, Cell) else ""


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
        plural=plural, words=lambda state: STATUSES[state].word.capitalize(), line=_line, heads=_heads, groups=_groups,
        p_value=format_p, dropped=lambda row: "; ".join(dropped(row)),
        kind=lambda block: type(block).__name__, drawn=_drawn, plain=plain_text, cell=cell_text, tone=_tone,
        as_quote=lambda evidence: Quote(evidence.quote, evidence.message_id, evidence.verified),
        short=lambda text: html_text(one_line(text, _NOTEBOOK_TEXT)),
    )  # fmt: skip
    return environment


def templates_beside(package: str) -> Environment:
    """Return the templates of another package, with the filters and the templates of reports."""
    return _environment().overlay(loader=ChoiceLoader([PackageLoader(package), PackageLoader(_PACKAGE)]))


def page_style() -> str:
    """Return the style sheet that all pages share."""
    return files("persona_pipeline.base").joinpath("theme.css").read_text(encoding="utf-8") + asset("report.css")


def page_policy(style: str, script: str = "") -> str:
    """Return a policy that allows an inline style and an inline script of exactly these texts, and nothing else."""
    allowed = f"script-src '{_digest(script)}'; " if script else ""
    return f"default-src 'none'; style-src '{_digest(style)}'; {allowed}base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    """Return the CSP source of an inline element with exactly this text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _groups(blocks: Sequence[Block]) -> Iterator[tuple[bool, list[Block]]]:
    """Yield groups of adjacent blocks, and whether a group is laid out side by side, as figures and cards are."""
    for beside, group in groupby(blocks, key=lambda block: isinstance(block, Figure | PageCard)):
        yield beside, list(group)


def _drawn(block: Drawn) -> Markup:
    return Markup(_environment().get_template(block.template).render(block.values))


def _line(line: Line) -> Markup:
    parts = (
        Markup("<{0}>{1}</{0}>").format(name, part.text) if (name := _SPANS.get(part.style)) else escape(part.text)
        for part in spans(line)
    )
    return Markup("").join(parts)


def _heads(table: Table) -> list[tuple[Column, bool]]:
    """Return the columns, and whether their numbers are aligned right: not in cells of scores or of detection limits."""
    first = table.rows[0].cells if table.rows else [""] * len(table.columns)
    left = {"scores": Score, "power": Cell}.get(table.style, ())
    heads = zip(table.columns, first, strict=True)
    return [(column, column.number and not isinstance(cell, left)) for column, cell in heads]
