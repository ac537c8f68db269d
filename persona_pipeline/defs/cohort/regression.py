"""All agents in one process, for CI, and the report of those in a cohort to look at."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field, create_model

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.defs import metadata
from persona_pipeline.defs.agents import checks
from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.agents.verdicts import (
    MOST_LISTED,
    AgentVerdict,
    agent_line,
    compared_lines,
    overview,
    verdict,
)
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.assets import OWNERS, reports_folder, write_texts
from persona_pipeline.defs.platform.failures import known_failures
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import (
    EvaluationSettings,
    RequestConfig,
    WorldResource,
    config_fields,
    known_agents,
    logged_progress,
)
from persona_pipeline.defs.platform.settings import orchestration
from persona_pipeline.evaluation.against import fresh_world
from persona_pipeline.evaluation.history import saved_run
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.guard.gate import nothing_evaluated, weighed
from persona_pipeline.guard.report import Conclusion, Finding, Result, RunReport, worst_exit_code
from persona_pipeline.judging.open import JudgeOptions, open_judge
from persona_pipeline.reporting.charts import pictures
from persona_pipeline.reporting.statistics import gather
from persona_pipeline.world.runs import find_run
from persona_pipeline.world.world import World

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


# In the folder of the reports.
COHORT_REPORTS = "cohort"


def newest_lines(world: World, agent_ids: Sequence[str], fail_on: Sequence[str] | None) -> list[AgentVerdict]:
    """Return how each agent did when it was last compared with its baseline; one that never was is not fully judged."""
    compared = {line.agent_id: line for line in compared_lines(world, fail_on)}
    return [compared.get(agent_id) or _never_compared(agent_id, fail_on) for agent_id in agent_ids]


def _never_compared(agent_id: str, fail_on: Sequence[str] | None) -> AgentVerdict:
    finding = Finding(
        kind="coverage",
        message=f"{agent_id} was never compared with its baseline",
        remedy="materialize baseline_comparisons, or run evaluate_cohort",
        command="dagster job execute -m persona_pipeline.definitions -j evaluate_cohort",
        agent_id=agent_id,
    )
    told = Conclusion(verdict=Result.CANNOT_TELL, reason=finding.message, command=finding.command)
    return AgentVerdict(agent_id=agent_id, conclusion=told, findings=weighed([finding], fail_on))


def report_of_interest(world: World, lines: Sequence[AgentVerdict], fail_on: Sequence[str] | None) -> RunReport:
    """Return the full report of the agents with findings, filled up with others: a page of 50 can be read, one of 1,000 cannot."""
    report = RunReport()
    for line in sorted(lines, key=lambda line: not line.findings)[:MOST_LISTED]:
        run = saved_run(find_run(world.store, line.run_id)) if line.run_id else None
        if run and run.report:
            report.agents[line.agent_id] = run.report
    report.findings = nothing_evaluated(report.agents.values())
    report.expenses = [expense for item in report.agents.values() for expense in item.expenses]
    report.exit_code = worst_exit_code({finding.exit_code for finding in weighed(report.all_findings(), fail_on)})
    return gather(world, report)


def build_regression_report(specs: Specs) -> dg.AssetsDefinition:
    """Return the report over all agents of a place."""
    key = specs.place.key(REPORT)

    @dg.asset(
        key=key,
        group_name=specs.place.path("evaluation"),
        deps=[specs.comparisons],
        kinds={"sql", "html"},
        owners=OWNERS,
        check_specs=[
            dg.AssetCheckSpec(
                GATE_PASSED,
                asset=key,
                blocking=True,
                description="No agent regressed, and everything that should be judged was.",
            )
        ],
    )
    @specs.place.bound
    def regression_report(
        context: dg.AssetExecutionContext, world: WorldResource, evaluation: EvaluationSettings
    ) -> dg.MaterializeResult:
        """Every agent's newest comparison with its baseline on one page, as `baseline_comparisons` left it. Judges nothing."""
        with known_failures():
            opened = world.open()
            fail_on = evaluation.asked(opened).fail_on
            lines = newest_lines(opened, known_agents(opened.root), fail_on)
            report = report_of_interest(opened, lines, fail_on)
            folder = write_reports(report, reports_folder(opened.root) / COHORT_REPORTS)
        said = verdict(lines)
        run_tags.label_verdict(context.instance, context.run_id, said)
        wrong = [text for line in lines for text in line.wrong] + [finding.text for finding in report.findings]
        exit_code = worst_exit_code({code for line in lines for code in line.exit_codes} | {report.exit_code})
        return dg.MaterializeResult(
            metadata={
                "verdict": said,
                "overview": dg.MetadataValue.md(overview(lines)),
                **report_metadata(report, folder, opened.root),
                "exit_code": exit_code,
            },
            check_results=[dg.AssetCheckResult(**gate_fields(wrong, exit_code, report.conclusion))],
        )

    return regression_report
