"""A report in the format that was asked for, and the page of whatever was found."""

import json
from collections.abc import Mapping
from typing import Any

from persona_pipeline.errors import ConfigError
from persona_pipeline.evaluation.report import EXIT_OK, RunReport
from persona_pipeline.reporting.page import Page

PAGE_FORMATS = ("table", "json", "markdown", "html")


def render(report: RunReport, format: str) -> str:
    """Return a run's report as ``json``, ``markdown`` (the PR comment), ``html``, ``junit`` or ``prometheus``.

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
        return render_prometheus(report)
    raise ConfigError(f"format {format!r} is unknown; use json, markdown, html, junit or prometheus")


def render_page(page: Page, data: Mapping[str, Any], format: str) -> str:
    """Return a page (``data``: the same as plain JSON) as ``table``, ``json``, ``markdown`` or ``html``."""
    if format == "json":
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    if format == "markdown":
        from persona_pipeline.reporting.markdown import page_markdown

        return page_markdown(page)
    if format == "html":
        from persona_pipeline.reporting.html import page_html

        return page_html(page)
    from persona_pipeline.reporting.terminal import page_text

    return page_text(page)


def render_prometheus(report: RunReport) -> str:
    """Return gauges of every agent of a report. What is unscored has no score, and says so in its coverage.

    Claims are left out: their number has no bound, and a time series each is what Prometheus bears worst.
    """
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()

    def gauge(name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"persona_{name}", text, ("agent", *labels), registry=registry)

    overall = gauge("score_overall", "Mean of the dimensions' scores, 0 to 9.")
    score = gauge("score", "Score of a dimension, 0 to 9.", "dimension")
    baseline = gauge("baseline_score", "Baseline of a dimension, 0 to 9.", "dimension")
    coverage = gauge("score_coverage_ratio", "Share of the expected judgments that were scored, 0 to 1.", "dimension")
    findings = gauge("findings", "Findings of the newest evaluation by kind that are no mere warnings.", "kind")
    messages = gauge("evaluated_messages", "Messages of the agent in the newest evaluated window.")
    ended = gauge("window_end_timestamp_seconds", "When the newest evaluated window ended.")
    for agent_id, agent in sorted(report.agents.items()):
        evaluation = agent.evaluation
        if evaluation.overall is not None:
            overall.labels(agent_id).set(evaluation.overall)
        messages.labels(agent_id).set(evaluation.sample_size)
        ended.labels(agent_id).set(evaluation.window_end.timestamp())
        for name, dimension in sorted(evaluation.dimensions.items()):
            coverage.labels(agent_id, name).set(dimension.coverage)
            if dimension.score is not None:
                score.labels(agent_id, name).set(dimension.score)
        for name, comparison in sorted(agent.comparison.dimensions.items()):
            if comparison.baseline is not None:
                baseline.labels(agent_id, name).set(comparison.baseline)
        for finding in agent.findings:
            if finding.exit_code != EXIT_OK:
                findings.labels(agent_id, finding.kind).inc()
    return generate_latest(registry).decode("utf-8")
