"""Fill the packaged templates with a run. Only packaged files are templates; everything else is data and is escaped."""

import base64
import hashlib
from functools import lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from persona_pipeline.evaluation.report import RunReport
from persona_pipeline.reporting import view
from persona_pipeline.reporting.charts import bullet, small_line
from persona_pipeline.reporting.facts import agent_facts
from persona_pipeline.reporting.html.page import build_page
from persona_pipeline.reporting.pages import page_environment
from persona_pipeline.reporting.people import estimate_text
from persona_pipeline.reporting.text import html_text
from persona_pipeline.theme import theme_css

_PACKAGE = "persona_pipeline.reporting.html"


def render_html(report: RunReport) -> str:
    """Return the report as one HTML document in UTF-8: inline style, script and charts under a policy that allows nothing else."""
    style, script = theme_css() + _asset("report.css"), _asset("report.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    document = (
        _environment()
        .get_template("report.html.j2")
        .render(page=build_page(report), policy=policy, style=Markup(style), script=Markup(script))
    )
    return html_text(document)


@lru_cache
def _environment() -> Environment:
    environment = page_environment(_PACKAGE)
    environment.filters.update(
        people=estimate_text,
        score=view.format_score,
        delta=view.format_delta,
        usd=view.format_usd,
        dimension=view.dimension_label,
        unscored=view.unscored_label,
        bullet=_bullet,
        small_line=small_line,
        percent=_percent,
        plural=_plural,
        facts=agent_facts,
    )
    return environment


@lru_cache
def _asset(name: str) -> str:
    return files(_PACKAGE).joinpath("static", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """Return the CSP source of an inline element with exactly this text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _bullet(cell: view.ScoreCell) -> Markup:
    return bullet(cell.score, cell.baseline, bad=cell.drifted, interval=cell.interval)


def _percent(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:.{digits}%}"


def _plural(count: int, one: str, many: str | None = None) -> Any:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
