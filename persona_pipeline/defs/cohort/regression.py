"""All agents in one process, for CI: needs no instance state, no registered partition and no daemon."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field, create_model

from persona_pipeline.defs.agents import checks
from persona_pipeline.defs.agents.verdicts import agent_line, verdict
from persona_pipeline.defs.pictures import metadata
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.failures import known_failures
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.places import reports_folder, write_texts
from persona_pipeline.defs.platform.resources import RequestConfig, WorldResource, config_fields, logged_progress
from persona_pipeline.defs.platform.settings import orchestration
from persona_pipeline.evaluation import RunReport, run_evaluation
from persona_pipeline.evaluation.against import fresh_world
from persona_pipeline.evaluation.report import Conclusion
from persona_pipeline.judging.open import JudgeOptions, open_judge
from persona_pipeline.options import EvaluationRequest
from persona_pipeline.reporting.charts import pictures
from persona_pipeline.reporting.statistics import gather

REPORT = "regression_report"
GATE_PASSED = "gate_passed"
FORMATS = {"json": "report.json", "markdown": "comment.md", "html": "report.html", "junit": "junit.xml"}


class RegressionConfig(RequestConfig, dg.Config):
    """What to evaluate, as on the command line."""

    reports: str = Field(
        default="", description="Folder of the world that reports are written to; empty: where PERSONA_REPORTS says."
    )


if not TYPE_CHECKING:
    RegressionConfig = create_model(
        "RegressionConfig",
        __base__=RegressionConfig,
        __module__=__name__,
        __doc__=RegressionConfig.__doc__,
        **config_fields(),
    )


def evaluate_by_config(
    context: dg.OpExecutionContext, place: Place, world: WorldResource, config: RegressionConfig, **more: Any
) -> tuple[RunReport, Path]:
    """Run an evaluation as configured, write its reports and return both, the reports by their folder."""
    asked = {**place.asked, **config.given, **more}
    with (
        known_failures(),
        fresh_world(world.open().root, asked["against"])
        if asked.get("against")
        else nullcontext(world.open()) as opened,
    ):
        request = EvaluationRequest(**asked)
        name = request.judge or opened.settings.judge
        run_tags.label_run(context.instance, context.run, {**asked, "judge": name})
        judge = open_judge(name, opened, JudgeOptions.of(request, logged_progress()))
        run = run_evaluation(opened, judge, request)
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
    picture = pictures.voice_picture(report.statistics.get("voice_map", {}))
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
        report, folder = evaluate_by_config(context, place, world, config)
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
