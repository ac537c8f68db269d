"""All agents at once: the job of CI, baselines, runs over many agents in shards with a report, and the nightly schedule."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import BaseModel, Field

from persona_pipeline.base.options import EvaluationRequest, with_fields
from persona_pipeline.defs import metadata
from persona_pipeline.defs.agents.checks import all_in_character
from persona_pipeline.defs.agents.several import Event, evaluate_together
from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.agents.verdicts import (
    MOST_LISTED,
    AgentVerdict,
    agent_line,
    agent_lines,
    compared_lines,
    failure_of,
    overview,
    verdict,
)
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.assets import evaluated, reports_folder, write_texts
from persona_pipeline.defs.platform.place import VALUES, Place
from persona_pipeline.defs.platform.resources import (
    EvaluationSettings,
    RequestConfig,
    WorldResource,
    config_fields,
    known_agents,
    known_failures,
    logged_progress,
)
from persona_pipeline.defs.platform.run_tags import request_tags
from persona_pipeline.evaluation.against import fresh_world
from persona_pipeline.evaluation.history import kept_terms, saved_run
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.guard.gate import counted, nothing_evaluated, weighed
from persona_pipeline.guard.report import Conclusion, Finding, Result, RunReport, worst_exit_code
from persona_pipeline.judging.open import JudgeOptions, open_judge
from persona_pipeline.reporting.pages import evaluation as pages
from persona_pipeline.reporting.statistics import gather
from persona_pipeline.reporting.view import ReportView
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
    RegressionConfig = with_fields(RegressionConfig, config_fields())


def evaluate_by_config(
    context: dg.OpExecutionContext, place: Place, world: WorldResource, config: RegressionConfig, **more: Any
) -> tuple[RunReport, Path]:
    """Run an evaluation as configured, write its reports and return both, the reports by their folder."""
    asked = {**place.asked, **config.given, **more}
    with (
        known_failures(),
        fresh_world(world.open().root, asked["against"], settings=place.environment)
        if asked.get("against")
        else nullcontext(world.open()) as opened,
    ):
        request = EvaluationRequest(**asked)
        name = request.judge or opened.settings.judge
        run_tags.label_run(context.instance, context.run, {**asked, "judge": name}, place)
        judge = open_judge(name, opened, JudgeOptions.of(request, logged_progress()))
        run = run_evaluation(opened, judge, request)
        gather(opened, run.report)
        folder = opened.root / config.reports if config.reports else reports_folder(opened.root, opened.settings)
    for problem in run.problems:
        context.log.warning(f"left out: {problem}")
    return run.report, write_reports(run.report, folder)


def write_reports(report: RunReport, folder: Path) -> Path:
    """Write a run's reports, one file a format, and return their folder."""
    from persona_pipeline.reporting.render import render

    return write_texts(folder, {file: render(report, name) for name, file in FORMATS.items()})


def report_metadata(report: RunReport, folder: Path, world: World, place: Place) -> metadata.Metadata:
    """Return the scores, the voices, what is wrong, and where the HTML report is."""
    page = folder / FORMATS["html"]
    found: metadata.Metadata = {
        "headline": ReportView(report).headline,
        "scores": metadata.scores_table(report),
        "exit_code": report.exit_code,
        **_report_links(page, world, place),
        **metadata.findings_metadata(report.all_findings()),
        **metadata.usage_metadata(report.usage),
        **metadata.costs_metadata(report),
    }
    closest = pages.closest_voices(report.statistics.get("voice_map", {}))
    return {**found, "voices": closest} if closest else found


def _report_links(page: Path, world: World, place: Place) -> metadata.Metadata:
    # A browser follows no file: address from a page it got over http.
    links: metadata.Metadata = {"report_file": dg.MetadataValue.path(str(page.absolute()))}
    kept, address = reports_folder(world.root, world.settings), place.orchestration.reports_url
    if address and page.is_relative_to(kept):
        links["report"] = dg.MetadataValue.url(f"{address}/{page.relative_to(kept).as_posix()}")
    return links


def gate_result(wrong: Sequence[str], exit_code: int, conclusion: Conclusion) -> dg.AssetCheckResult:
    """Return what the report's check says."""
    facts = {**metadata.conclusion_metadata(conclusion), "exit_code": dg.MetadataValue.int(exit_code)}
    return metadata.check_result(GATE_PASSED, wrong if exit_code else [], facts, passed=not exit_code)


def build_persona_regression(place: Place) -> dg.JobDefinition:
    """Return the gate of CI; its config stands under the name of the asset it reports."""

    @place.op(known_as=REPORT, pool=place.judge_pool)
    def evaluate_everybody(
        context: dg.OpExecutionContext, world: WorldResource, config: RegressionConfig
    ) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation | dg.Output]:
        """Evaluate every agent in this process and report it as the asset regression_report; fails when one regressed."""
        from persona_pipeline.reporting.render import print_report

        key = place.key(REPORT)
        report, folder = evaluate_by_config(context, place, world, config)
        print_report(report, sys.stdout, verbose=True)
        lines = [agent_line(agent) for agent in report.agents.values()]
        run_tags.label_verdict(context.instance, context.run_id, verdict(lines, report))
        wrong = [finding.text for finding in report.all_findings()]
        if report.exit_code:
            context.log.error("\n".join([f"exit code {report.exit_code}", *wrong]))
        yield dg.AssetMaterialization(key, metadata=report_metadata(report, folder, world.open(), place))
        yield evaluated(key, None, gate_result(wrong, report.exit_code, report.conclusion), blocking=True)
        yield dg.Output(None)

    return place.job(
        "persona_regression",
        evaluate_everybody,
        "Every agent in one process; fails when one regressed. Made for CI: `dagster job execute`.",
    )


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


def report_of_interest(world: World, lines: Sequence[AgentVerdict], asked: EvaluationRequest) -> RunReport:
    """Return the full report of the agents with findings, filled up with others: a page of 50 can be read, one of 1,000 cannot."""
    report = RunReport()
    for line in sorted(lines, key=lambda line: not line.findings)[:MOST_LISTED]:
        if run := saved_run(find_run(world.store, line.run_id)) if line.run_id else None:
            # Another process may be judging the same run again; its verdict is made.
            own = run if run.finished else replace(run, findings=line.findings, finished=True)
            report.agents[line.agent_id] = own.report
    report.findings = nothing_evaluated(report.agents.values())
    report.expenses = [expense for item in report.agents.values() for expense in item.expenses]
    report.exit_code = worst_exit_code(
        {finding.exit_code for finding in weighed(report.all_findings(), counted(asked))}
    )
    left_out = [name for name in world.agent_ids() if name in world.written.leave_out]
    report.terms = kept_terms(report).model_copy(update={"left_out": left_out, "only_fail_on": asked.only_fail_on})
    return gather(world, report)


def build_regression_report(specs: Specs) -> dg.AssetsDefinition:
    about = {GATE_PASSED: "No agent regressed, and everything that should be judged was."}

    @specs.place.asset(
        REPORT, "evaluation", deps=[specs.comparisons], kinds={"sql", "html"}, checks=about, blocking=True
    )
    def regression_report(
        context: dg.AssetExecutionContext, world: WorldResource, evaluation: EvaluationSettings
    ) -> dg.MaterializeResult:
        """Every agent's newest comparison with its baseline on one page, as `baseline_comparisons` left it. Judges nothing."""
        with known_failures():
            opened = world.open()
            asked = evaluation.asked(opened)
            lines = newest_lines(opened, known_agents(opened.root), counted(asked))
            report = report_of_interest(opened, lines, asked)
            folder = write_reports(report, reports_folder(opened.root, opened.settings) / COHORT_REPORTS)
        said = verdict(lines, report)
        run_tags.label_verdict(context.instance, context.run_id, said)
        wrong = [text for line in lines for text in line.wrong] + [finding.text for finding in report.findings]
        exit_code = worst_exit_code({code for line in lines for code in line.exit_codes} | {report.exit_code})
        return dg.MaterializeResult(
            metadata={
                "verdict": said,
                "overview": dg.MetadataValue.md(overview(lines)),
                **report_metadata(report, folder, opened, specs.place),
                "exit_code": exit_code,
            },
            check_results=[gate_result(wrong, exit_code, report.conclusion)],
        )

    return regression_report


def build_nightly(place: Place, evaluate_cohort: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Return the schedule that evaluates everybody there is when it ticks, or whom the settings name, in one run."""
    settings = place.orchestration

    @dg.schedule(
        name=place.name("nightly"),
        job=evaluate_cohort,
        cron_schedule=f"0 {settings.nightly_hour} * * *",
        execution_timezone=settings.timezone,
        default_status=settings.schedule_status,
        description="Evaluates every agent in one run. PERSONA_NIGHTLY_HOUR and PERSONA_NIGHTLY_AGENTS say when and whom.",
    )
    @place.bound
    def nightly(context: dg.ScheduleEvaluationContext, world: WorldResource) -> dg.RunRequest | dg.SkipReason:
        known = known_agents(world.open().root)
        for agent_id in settings.nightly_agent_ids:
            if agent_id not in known:
                context.log.warning(f"PERSONA_NIGHTLY_AGENTS names {agent_id!r}, which has no persona file")
        chosen = [agent_id for agent_id in settings.nightly_agent_ids or known if agent_id in known]
        if not chosen:
            return dg.SkipReason("there are no agents")
        config = {"ops": {"cohort_shards": {"config": {"agents": chosen, "touched": settings.nightly_touched}}}}
        return dg.RunRequest(run_config=config, tags=request_tags("nightly"))

    return nightly


class CohortConfig(dg.Config):
    """Whom to evaluate, and what."""

    agents: list[str] = Field(default=[], description="Agents to evaluate; empty: everybody with a persona file.")
    dimensions: list[str] = Field(
        default=[],
        description="Score only these again, on each agent's last window; empty: everything, on the newest window.",
    )
    compare_only: bool = Field(
        default=False, description="Score nothing, only compare each agent's last run with its baseline again."
    )
    touched: bool = Field(
        default=False, description="Also evaluate earlier windows again whose messages came, changed or went since."
    )
    shard_size: int = Field(default=0, ge=0, description="Agents a step evaluates together; 0: PERSONA_SHARD_SIZE.")


class Shard(BaseModel, frozen=True):
    """A step's share of the cohort. ``dimensions`` None: everything."""

    agents: list[str]
    dimensions: list[str] | None = None
    touched: bool = False


def build_evaluate_cohort(specs: Specs) -> dg.JobDefinition:
    place = specs.place

    @place.op(out=dg.DynamicOut(dict, io_manager_key=place.name(VALUES)))
    def cohort_shards(
        context: dg.OpExecutionContext, world: WorldResource, config: CohortConfig
    ) -> Iterator[dg.DynamicOutput]:
        """Cut the cohort into shards, with the messages brought into the store once."""
        with known_failures():
            opened = world.open()
            for problem in opened.sync_messages().problems:
                context.log.warning(f"left out: {problem}")
        agents = sorted(set(config.agents)) or known_agents(opened.root)
        context.instance.add_run_tags(context.run_id, {run_tags.AGENT: f"{len(agents)} agents"})
        dimensions = [] if config.compare_only else config.dimensions or None
        size = config.shard_size or place.orchestration.shard_size
        for start in range(0, len(agents), size):
            shard = Shard(agents=agents[start : start + size], dimensions=dimensions, touched=config.touched)
            yield dg.DynamicOutput(
                shard.model_dump(), mapping_key=f"from_{start + 1}", metadata={"agents": ", ".join(shard.agents)}
            )

    @place.op(pool=place.judge_pool, out=dg.Out(list, io_manager_key=place.name(VALUES)))
    def evaluate_shard(
        context: dg.OpExecutionContext, shard: dict, world: WorldResource, evaluation: EvaluationSettings
    ) -> Iterator[Event | dg.Output]:
        """Evaluate a shard's agents with their judgments pooled. A broken agent is reported and stops no other."""
        part = Shard.model_validate(shard)
        opened = world.open()
        asked = evaluation.request(opened, part.agents, part.dimensions, touched=part.touched)
        result = yield from evaluate_together(specs, context, opened, evaluation, asked)
        lines = agent_lines(result)
        for line in lines:
            for problem in line.broken:
                context.log.error(f"{line.agent_id}: {problem}")
        yield dg.Output(
            [line.model_dump() for line in lines], metadata={"overview": dg.MetadataValue.md(overview(lines))}
        )

    @place.op(out=dg.Out(dg.Nothing))
    def cohort_report(
        context: dg.OpExecutionContext, world: WorldResource, evaluation: EvaluationSettings, shards: list
    ) -> Iterator[dg.AssetCheckEvaluation | dg.Output]:
        """Say how the cohort did; fails when an agent is broken, regressed or could not be judged."""
        lines = [AgentVerdict.model_validate(line) for shard in shards for line in shard]
        with known_failures():
            opened = world.open()
            asked = evaluation.asked(opened)
            report = report_of_interest(opened, lines, asked)
            folder = write_reports(report, reports_folder(opened.root, opened.settings) / COHORT_REPORTS)
        facts = {
            "agents": len(lines),
            "overview": dg.MetadataValue.md(overview(lines)),
            **report_metadata(report, folder, opened, place),
        }
        yield all_in_character(specs, context.instance, opened, counted(asked))
        run_tags.label_verdict(context.instance, context.run_id, verdict(lines, report))
        if failure := failure_of(lines, report.exit_code, facts):
            raise failure
        yield dg.Output(None, metadata=facts)

    return place.job(
        "evaluate_cohort",
        lambda: cohort_report(cohort_shards().map(evaluate_shard).collect()),
        "Many agents in one run, shard by shard; each agent's assets and checks are reported as if it had run alone.",
        tags={"persona/cohort": "/".join(place.prefix) or "true"},
    )


def build_capture_baseline(place: Place) -> dg.JobDefinition:
    @place.op(pool=place.judge_pool)
    def capture_baselines(context: dg.OpExecutionContext, world: WorldResource, config: RegressionConfig) -> None:
        """Evaluate the agents and write what was scored in full to `baselines/`."""
        report, folder = evaluate_by_config(context, place, world, config, update_baseline=True)
        for agent_id, agent in report.agents.items():
            scores = {name: item.score for name, item in agent.evaluation.dimensions.items()}
            context.log.info(f"{agent_id}: {scores}")
        if refused := {
            finding.remedy: finding.text for finding in report.all_findings() if finding.kind == "known_drift"
        }:
            raise dg.Failure("\n".join(refused.values()), metadata={"reports": str(folder)}, allow_retries=False)

    about = "Take golden baselines: evaluate and write `baselines/<agent>.json`."
    return place.job("capture_baseline", capture_baselines, about)


@dataclass(frozen=True)
class Cohort:
    """What other parts of a place build upon."""

    evaluate_cohort: dg.JobDefinition
    definitions: dg.Definitions


def build_cohort(specs: Specs) -> Cohort:
    place = specs.place
    report, evaluate_cohort = build_regression_report(specs), build_evaluate_cohort(specs)
    definitions = dg.Definitions(
        assets=[report],
        jobs=[evaluate_cohort, build_persona_regression(place), build_capture_baseline(place)],
        schedules=[build_nightly(place, evaluate_cohort)],
    )
    return Cohort(evaluate_cohort, definitions)
