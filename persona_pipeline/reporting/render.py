"""Write reports and pages in a given format to a given place; write a run's JSON and read it."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from pydantic import ValidationError

from persona_pipeline.base.documents.json import strict_json
from persona_pipeline.base.errors import ConfigError, Problem, not_valid
from persona_pipeline.base.text import shown_json
from persona_pipeline.guard.report import AgentEvaluation, AgentReport, RunReport
from persona_pipeline.reporting.page import Page, Table, spans
from persona_pipeline.reporting.view import ReportView, in_order

if TYPE_CHECKING:
    from persona_pipeline.suites.grading.results import SuiteResult

# The format of a file by the ending of its name.
ENDINGS = {
    ".json": "json", ".md": "markdown", ".html": "html", ".xml": "junit", ".csv": "csv",
    ".parquet": "parquet", ".txt": "table",
}  # fmt: skip
_ASCII = {"−": "-", "→": "->", "–": "-", "±": "+-", "…": "...", "━": "-", "─": "-"}


def render(report: RunReport, format: str) -> str:
    """Return a run's report as ``json``, ``markdown`` (the PR comment), ``html``, ``junit`` or ``table``.

    Raises ``ConfigError`` where the format is unknown.
    """
    if format == "json":
        return json_text(report)
    if format == "markdown":
        from persona_pipeline.reporting.markdown import render_comment

        return render_comment(report)
    if format == "html":
        from persona_pipeline.reporting.html import render_html

        return render_html(report)
    if format == "junit":
        from persona_pipeline.reporting.junit import render_junit

        return render_junit(report)
    if format == "table":
        from persona_pipeline.reporting.pages.evaluation import short_page

        return render_page(short_page(report, exits=False), format)
    raise ConfigError(f"format {format!r} is unknown; use json, markdown, html, junit or table")


def render_page(page: Page, format: str, data: Any = None) -> str:
    """Return a page as ``table``, ``json`` (``data``: the same as plain JSON), ``markdown``, ``html`` or ``notebook``."""
    if format == "json":
        return shown_json(data, 2) + "\n"
    if format == "markdown":
        from persona_pipeline.reporting.markdown import page_markdown

        return page_markdown(page)
    if format == "html":
        from persona_pipeline.reporting.html import page_html

        return page_html(page)
    if format == "notebook":
        from persona_pipeline.reporting.html import notebook_html

        return notebook_html(page)
    from persona_pipeline.reporting.terminal import page_text

    return page_text(page)


def write_page(page: Page, data: Any, format: str, output: Path | None = None) -> str:
    """Write a page as ``table``, ``json``, ``markdown`` or ``html`` to a file, or to stdout; return its title."""
    from persona_pipeline.base.documents.json import write_atomically

    if output is not None:
        write_atomically(output, render_page(page, format, data))
        print(f"report written: {output}", file=sys.stderr)
    elif format == "table":
        print_page(page)
    else:
        sys.stdout.write(transliterated(render_page(page, format, data), sys.stdout.encoding or "utf-8"))
    return "".join(part.text for part in spans(page.title))


def print_page(page: Page, file: TextIO | None = None) -> None:
    """Write a page to ``file`` (default: stdout), in colour on a terminal only and never failing on its encoding."""
    from persona_pipeline.reporting.terminal import draw, page_text

    stream: TextIO = file if file is not None else sys.stdout
    if stream.isatty():
        draw(page, stream)
    else:
        stream.write(transliterated(page_text(page), getattr(stream, "encoding", None) or "utf-8"))
    stream.flush()


def print_report(report: RunReport, file: TextIO | None = None, *, exits: bool = True, verbose: bool = False) -> None:
    """Write a run's table and its top findings (``verbose``: all findings) to ``file`` (default: stderr).

    ``exits``: the process ends with the report's exit code, which is then printed.
    """
    from persona_pipeline.reporting.pages.evaluation import short_page

    print_page(short_page(report, exits=exits, verbose=verbose), file if file is not None else sys.stderr)


def transliterated(text: str, encoding: str) -> str:
    """Return text that the encoding can hold: our own signs become ASCII, other characters a question mark."""
    try:
        text.encode(encoding)
        return text
    except UnicodeEncodeError:
        for sign, plain in _ASCII.items():
            text = text.replace(sign, plain)
        return text.encode(encoding, "replace").decode(encoding)


def table_records(table: Table) -> tuple[list[dict[str, str]], list[str]]:
    """Return a table as plain rows by column, and the columns' names: short, for Dagster's UI cuts wide tables off."""
    from persona_pipeline.reporting.terminal import cell_text

    columns = [(column.short or column.title).lower() for column in table.columns]
    return [dict(zip(columns, map(cell_text, row.cells), strict=True)) for row in table.rows], columns


def write_suites(whole: "SuiteResult", results: "Sequence[SuiteResult]", path: Path) -> None:
    """Write runs of suites to a file: ``.json``, ``.xml`` (JUnit, one by one), or a page."""
    if path.suffix == ".json":
        from persona_pipeline.suites.running.history import json_parts

        texts = json_parts(whole, results, newline="\n")
    elif path.suffix == ".xml":
        from persona_pipeline.reporting.junit import render_suite_junit

        texts = iter([render_suite_junit(*results)])
    else:
        from persona_pipeline.reporting.pages.suites import suite_page

        texts = iter([render_page(suite_page(whole), "html")])
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(texts)


MAX_BYTES = 32 * 1024 * 1024
_EVALUATION_FIELDS = tuple(AgentEvaluation.model_fields)


def to_json(report: RunReport) -> dict[str, Any]:
    """Return the run as plain JSON data in a stable order: agents and propositions by id, dimensions in their own order.

    Numbers that are not finite become null. ``from_json`` reads it back.
    """
    plain = report.model_dump(mode="json", include={"findings", "provenance", "statistics", "expenses", "terms"})
    data = {
        "exit_code": report.exit_code,
        "headline": ReportView(report).headline,
        "terms": plain["terms"],
        "conclusion": report.conclusion.model_dump(mode="json"),
        "agents": {agent_id: _agent(agent) for agent_id, agent in sorted(report.agents.items())},
        "findings": plain["findings"],
        "provenance": _sorted(plain["provenance"]),
        "statistics": _sorted(plain["statistics"]),
        "usage": vars(report.usage),
        "expenses": plain["expenses"],
    }
    return json.loads(json.dumps(data), parse_constant=lambda _: None)


def json_text(report: RunReport) -> str:
    """Return ``to_json`` as indented ASCII text, so that no terminal or code page can spoil it."""
    return json.dumps(to_json(report), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def from_json(data: dict[str, Any]) -> RunReport:
    """Return the report that ``to_json`` wrote; anything else raises ``ConfigError``."""
    if not isinstance(data, dict) or not isinstance(data.get("agents"), dict):
        raise ConfigError("not a report: no object 'agents'; write one with `persona-pipeline evaluate --format json`")
    try:
        agents = {agent_id: _read_agent(agent) for agent_id, agent in data["agents"].items()}
        fields = ("findings", "exit_code", "provenance", "statistics", "expenses", "terms")
        return RunReport(agents=agents, **{key: data[key] for key in fields if key in data})
    except ValidationError as error:
        raise not_valid(error, "report: {name}: {why}") from None


def read_json(text: str, path: str = "report") -> RunReport:
    """Return the report in a JSON text of at most 32 MiB; raises ``ConfigError`` when it is none."""
    if len(text) > MAX_BYTES:
        raise ConfigError(Problem(f"larger than {MAX_BYTES // 1024 // 1024} MiB: not a report", path))
    try:
        data = strict_json(text)
    except ValueError as error:
        raise ConfigError(Problem(f"not JSON: {error}", path)) from None
    return from_json(data)


_REGRESSION = ("dimension", "baseline", "current", "delta")


def _agent(agent: AgentReport) -> dict[str, Any]:
    evaluation, concluded = agent.evaluation.model_dump(mode="json"), agent.conclusions
    evaluation["provenance"] = _sorted(evaluation["provenance"])
    evaluation["dimensions"] = {name: evaluation["dimensions"][name] for name in in_order(evaluation["dimensions"])}
    for dimension in evaluation["dimensions"].values():
        dimension["propositions"] = dict(sorted(dimension["propositions"].items()))
        dimension["statistics"] = _sorted(dimension["statistics"])
    comparison = agent.comparison.model_dump(mode="json")
    comparison["dimensions"] = {name: comparison["dimensions"][name] for name in in_order(comparison["dimensions"])}
    return evaluation | {
        "conclusion": agent.conclusion.model_dump(mode="json"),
        "conclusions": {name: _sorted(concluded[name].model_dump(mode="json")) for name in evaluation["dimensions"]},
        "regressions": [{name: getattr(item, name) for name in _REGRESSION} for item in agent.comparison.regressions],
        "proposition_drops": [item.model_dump(mode="json") for item in agent.comparison.drops],
        "comparison": comparison,
        "findings": [finding.model_dump(mode="json") for finding in agent.findings],
    }


def _read_agent(data: Any) -> AgentReport:
    if not isinstance(data, dict):
        raise ConfigError("not a report: an agent is not an object")
    evaluation = {key: value for key, value in data.items() if key in _EVALUATION_FIELDS}
    return AgentReport.model_validate(
        {"evaluation": evaluation, "comparison": data.get("comparison"), "findings": data.get("findings", [])}
    )


def _sorted(value: Any) -> Any:
    """Return plain data with the keys of every object in order, for a store may hand them back in another."""
    return json.loads(json.dumps(value, sort_keys=True))
