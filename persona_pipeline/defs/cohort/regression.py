"""All agents in one process, for CI: needs no instance state, no registered partition and no daemon."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import dagster as dg

from persona_pipeline.defs.agents import checks
from persona_pipeline.defs.agents.verdicts import agent_line, verdict
from persona_pipeline.defs.pictures import metadata, plots
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.failures import known_failures
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import WorldResource, logged_progress, moment_of
from persona_pipeline.defs.platform.settings import orchestration
from persona_pipeline.evaluation import EvaluationRequest, RunReport, run_evaluation
from persona_pipeline.evaluation.against import fresh_world
from persona_pipeline.evaluation.report import Conclusion
from persona_pipeline.judging.open import JudgeOptions, open_judge
from persona_pipeline.reporting.gathering import gather
from persona_pipeline.reporting.places import reports_folder, write_texts

REPORT = "regression_report"
GATE_PASSED = "gate_passed"
FORMATS = {"json": "report.json", "markdown": "comment.md", "html": "report.html", "junit": "junit.xml"}


class RegressionConfig(dg.Config):
    """What to evaluate, as on the command line. Empty lists mean all; an empty ``as_of`` the newest message.

    ``reports`` is a folder of the world; empty: where PERSONA_REPORTS says. ``against``: a commit whose baselines, labels, judge
    changes and lexicons decide, in a store of its own.
    """

    agents: list[str] = []
    dimensions: list[str] = []
    window: str = "7d"
    as_of: str = ""
    judge: str = "recorded"
    samples: int = 1
    history: int = 0
    regression_delta: float = 1.0
    proposition_delta: float = 3.0
    min_coverage: float | None = None
    threshold: float | None = None
    max_usd: float | None = None
    fresh: bool = False
    grouping: int | None = None
    fail_on: list[str] | None = None
    require_calibration: bool | None = None
    update_baseline: bool = False
    against: str = ""
    accept_baseline: bool = False
    reports: str = ""

    def request(self) -> EvaluationRequest:
        """Return what is asked of the run.

        Raises:
            ConfigError: ``as_of`` is no time.
        """
        return EvaluationRequest(
            agents=self.agents or None,
            dimensions=self.dimensions or None,
            window=self.window,
            as_of=moment_of(self.as_of, "as_of"),
            samples=self.samples,
            threshold=self.threshold,
            regression_delta=self.regression_delta,
            proposition_delta=self.proposition_delta,
            min_coverage=self.min_coverage,
            fail_on=self.fail_on,
            require_calibration=self.require_calibration,
            history=self.history,
            update_baseline=self.update_baseline,
            against=self.against or None,
            accept_baseline=self.accept_baseline,
        )


def evaluate_by_config(
    context: dg.OpExecutionContext | dg.AssetExecutionContext, world: WorldResource, config: RegressionConfig
) -> tuple[RunReport, Path]:
    """Run an evaluation as configured, write its reports and return both, the reports by their folder."""
    run_tags.label_run(context.instance, context.run, judge=config.judge, window=config.window, as_of=config.as_of)
    with known_failures(), fresh_world(world.open().root) if config.against else nullcontext(world.open()) as opened:
        judge = open_judge(
            config.judge,
            opened,
            JudgeOptions(
                max_usd=config.max_usd, fresh=config.fresh, grouping=config.grouping, progress=logged_progress()
            ),
        )
        run = run_evaluation(opened, judge, config.request())
        gather(opened, run.report)
        folder = opened.root / config.reports if config.reports else reports_folder(opened.root)
    for problem in run.problems:
        context.log.warning(f"left out: {problem}")
    return run.report, write_reports(run.report, folder)


def write_reports(report: RunReport, folder: Path) -> Path:
    """Write a run's reports, one file a format, and return their folder."""
    from persona_pipeline.reporting.render import render

    return write_texts(folder, {file: render(report, name) for name, file in FORMATS.items()})


def report_metadata(report: RunReport, folder: Path, root: Path) -> metadata.Metadata:
    """Return the scores, the voices, what is wrong, and where the HTML report is."""
    page = folder / FORMATS["html"]
    found: metadata.Metadata = {
        "scores": metadata.scores_table(report),
        "exit_code": report.exit_code,
        **_report_links(page, root),
        **metadata.findings_metadata(report.all_findings()),
        **metadata.usage_metadata(report.usage),
        **metadata.costs_metadata(report),
    }
    picture = plots.voice_picture(report.statistics.get("voice_map", {}))
    return {**found, "voice_map_plot": dg.MetadataValue.md(picture)} if picture else found


def _report_links(page: Path, root: Path) -> metadata.Metadata:
    # A browser follows no file: address from a page it got over http.
    links: metadata.Metadata = {"report_file": dg.MetadataValue.path(str(page.absolute()))}
    kept = reports_folder(root)
    if orchestration().reports_url and page.is_relative_to(kept):
        links["report"] = dg.MetadataValue.url(f"{orchestration().reports_url}/{page.relative_to(kept).as_posix()}")
    return links


def gate_fields(wrong: Sequence[str], exit_code: int, conclusion: Conclusion) -> dict[str, Any]:
    """Return what the report's check says, as both an asset and an op can say it."""
    return {
        "check_name": GATE_PASSED,
        "passed": not exit_code,
        "severity": dg.AssetCheckSeverity.ERROR,
        "description": checks.summary(wrong if exit_code else []),
        "metadata": {**metadata.conclusion_metadata(conclusion), "exit_code": dg.MetadataValue.int(exit_code)},
    }


def build_evaluate_everybody(place: Place) -> dg.OpDefinition:
    """Return the one step of the gate of CI."""

    @dg.op(name=place.name("evaluate_everybody"), pool=place.judge_pool)
    @place.bound
    def evaluate_everybody(
        context: dg.OpExecutionContext, world: WorldResource, config: RegressionConfig
    ) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation | dg.Output]:
        """Evaluate every agent in this process and report it as the asset regression_report; fails when one regressed."""
        from persona_pipeline.reporting.terminal import print_report

        key = place.key(REPORT)
        report, folder = evaluate_by_config(context, world, config)
        print_report(report, sys.stdout)
        lines = [agent_line(agent) for agent in report.agents.values()]
        run_tags.label_verdict(context.instance, context.run_id, verdict(lines))
        wrong = [finding.text for finding in report.all_findings()]
        if report.exit_code:
            context.log.error("\n".join([f"exit code {report.exit_code}", *wrong]))
        yield dg.AssetMaterialization(key, metadata=report_metadata(report, folder, world.open().root))
        yield dg.AssetCheckEvaluation(
            asset_key=key, blocking=True, **gate_fields(wrong, report.exit_code, report.conclusion)
        )
        yield dg.Output(None)

    return evaluate_everybody
