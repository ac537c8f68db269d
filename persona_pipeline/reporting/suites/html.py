"""A suite run as one HTML page: no remote asset, no script, safe with any text in it."""

import base64
import hashlib
from functools import lru_cache
from importlib.resources import files

from jinja2 import Environment
from markupsafe import Markup

from persona_pipeline.reporting.pages import page_environment
from persona_pipeline.reporting.text import html_text
from persona_pipeline.suites.results.suite_result import SuiteResult, reason_of

_PACKAGE = "persona_pipeline.reporting.suites"


def render_suite_html(result: SuiteResult) -> str:
    """Return the page: the verdict, a line a test, and behind each its asserts, its answer and its attempts."""
    style = files(_PACKAGE).joinpath("static", "suite.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    template = _environment().get_template("suite.html.j2")
    return html_text(template.render(result=result, summary=result.summary, policy=policy, style=Markup(style)))


@lru_cache
def _environment() -> Environment:
    environment = page_environment(_PACKAGE)
    environment.filters.update(percent=_percent, reason=reason_of)
    return environment


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"
