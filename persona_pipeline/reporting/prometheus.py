"""The newest scores in Prometheus' text format, for node exporter's textfile collector or any other scraper of files."""

from persona_pipeline.evaluation.report import EXIT_OK, RunReport


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
