"""A report in the format that was asked for."""

from persona_pipeline.errors import ConfigError
from persona_pipeline.evaluation.report import RunReport


def render(report: RunReport, format: str) -> str:
    """Return the report as ``json``, ``markdown`` (the PR comment), ``html``, ``junit`` or ``prometheus``.

    Raises:
        ConfigError: the format is unknown.
    """
    if format == "json":
        from persona_pipeline.reporting.json_report import json_text

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
    if format == "prometheus":
        from persona_pipeline.reporting.prometheus import render_prometheus

        return render_prometheus(report)
    raise ConfigError(f"format {format!r} is unknown; use json, markdown, html, junit or prometheus")
