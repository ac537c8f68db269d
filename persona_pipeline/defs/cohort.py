"""All agents at once: the job for CI, baselines, the report, scores by week, and the nightly schedule."""

import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, date, datetime, time, timedelta
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from persona_pipeline.base.database.engine import chunks
from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.options import EvaluationRequest, option_fields, with_options
from persona_pipeline.base.status import NOTHING
from persona_pipeline.defs import metadata
from persona_pipeline.defs.agents import outcomes
from persona_pipeline.defs.agents.evaluation import evaluated_or_retried
from persona_pipeline.defs.agents.specs import AGENT, WEEK, Specs
from persona_pipeline.defs.agents.verdicts import (
    AgentVerdict,
    agent_line,
    agent_lines,
    failure_of,
    verdict,
)
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.assets import AssetOutcome, reports_folder, write_texts
from persona_pipeline.defs.platform.dagster_internals import RANGE, lineage_tags, partition_tags
from persona_pipeline.defs.platform.place import EVALUATION, WORLD, Place
from persona_pipeline.defs.platform.resources import (
    RequestConfig,
    evaluation_of,
    known_agents,
    known_failures,
    opened_judge,
    world_of,
)
from persona_pipeline.defs.platform.run_tags import request_tags
from persona_pipeline.evaluation.against import fresh_world
from persona_pipeline.evaluation.run import Run, run_evaluation
from persona_pipeline.guard.report import AgentReport, RunReport
from persona_pipeline.reporting.statistics import gather
from persona_pipeline.reporting.view import ReportView
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
    RegressionConfig = with_options(RegressionConfig, option_fields())


def evaluate_by_config(
    context: dg.OpExecutionContext | dg.AssetExecutionContext, place: Place, config: RegressionConfig, **more: Any
) -> tuple[RunReport, Path]:
    """Run an evaluation as configured, write its reports and return both, the reports by their folder."""
    asked, world = {**place.asked, **config.given, **more}, world_of(place, context)
    with (
        known_failures(),
        fresh_world(world.root, asked["against"], settings=place.environment)
        if asked.get("against")
        else nullcontext(world) as opened,
    ):
        # Not settled here: a run against another commit goes by the rules of that commit.
        request = EvaluationRequest(**asked)
        name = request.judge or opened.settings.judge
        run_tags.label_run(context.instance, context.run, {**asked, "judge": name}, place)
        run = run_evaluation(opened, opened_judge(opened, request), request)
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
    """Return the scores, the findings, and the address of the HTML report."""
    page = folder / FORMATS["html"]
    return {
        "headline": ReportView(report).headline,
        "scores": metadata.scores_table(report),
        "exit_code": report.exit_code,
        **_report_links(page, world, place),
        **metadata.findings_metadata(report.all_findings()),
        **metadata.usage_metadata(report.usage),
    }


def _report_links(page: Path, world: World, place: Place) -> metadata.Metadata:
    # A browser follows no file: address from a page it got over http.
    links: metadata.Metadata = {"report_file": dg.MetadataValue.path(str(page.absolute()))}
    kept, address = reports_folder(world.root, world.settings), place.orchestration.reports_url
    if address and page.is_relative_to(kept):
        links["report"] = dg.MetadataValue.url(f"{address}/{page.relative_to(kept).as_posix()}")
    return links


def build_regression_report(place: Place) -> dg.AssetsDefinition:
    about = {GATE_PASSED: "No agent regressed, and everything that should be judged was."}

    @place.asset(REPORT, "evaluation", kinds={"sql", "html"}, checks=about, blocking=True, pool=place.judge_pool)
    def regression_report(context: dg.AssetExecutionContext, config: RegressionConfig) -> dg.MaterializeResult:
        """Every agent on one page: evaluates all agents in this process, and fails when one regressed."""
        from persona_pipeline.reporting.render import print_report

        report, folder = evaluate_by_config(context, place, config)
        print_report(report, sys.stdout, verbose=True)
        lines = [agent_line(agent) for agent in report.agents.values()]
        context.instance.add_run_tags(context.run_id, {run_tags.VERDICT: verdict(lines, report)})
        wrong = [finding.text for finding in report.all_findings()]
        if report.exit_code:
            context.log.error("\n".join([f"exit code {report.exit_code}", *wrong]))
        facts = {**metadata.conclusion_metadata(report.conclusion), "exit_code": report.exit_code}
        failed, passed = wrong if report.exit_code else [], not report.exit_code
        return dg.MaterializeResult(
            metadata=report_metadata(report, folder, world_of(place, context), place),
            check_results=[metadata.check_result(GATE_PASSED, failed, facts, passed=passed)],
        )

    return regression_report


_MOMENT, _WEEK, _LENGTH = timedelta(microseconds=1), timedelta(days=7), "7d"


def window_end(week: date, newest: datetime | None) -> datetime | None:
    """Return the end of a week's window: of the week, or the ``newest`` message; None: no message since the week began.

    A window that ends after the newest message would be newer than every evaluation until the next message.
    """
    start = datetime.combine(week, time.min, UTC)
    if newest is None or newest < start:
        return None
    # The last moment of a window is in it, the one it begins after is not.
    return min(newest, start + _WEEK - _MOMENT)


def week_outcome(report: AgentReport | None) -> AssetOutcome:
    """Return an agent's scores in a week, as numbers that Dagster plots. ``report`` None: there were no messages."""
    if report is None:
        return AssetOutcome(content_hash([]), {"messages": 0, "verdict": NOTHING.word})
    found = outcomes.verdict_outcome(report)
    # Every number is a plot: the costs would come before the scores.
    facts = {name: fact for name, fact in found.metadata.items() if not name.startswith("judge/")}
    return AssetOutcome(
        found.version, {name: fact for name, fact in facts.items() if isinstance(fact, str | int | float)}
    )


def build_weekly_scores(specs: Specs) -> list[dg.AssetsDefinition]:
    """Return the step that evaluates weeks; nothing if the settings have no first week."""
    place, weeks = specs.place, specs.weeks
    if weeks is None:
        return []

    @dg.multi_asset(
        name=place.name("evaluate_weeks"),
        specs=[weeks.scores],
        partitions_def=weeks.partitions,
        pool=place.judge_pool,
        required_resource_keys=place.names([WORLD, EVALUATION]),
        backfill_policy=dg.BackfillPolicy.single_run(),
        description="Evaluate agents as of the end of weeks, week by week, as any run does. A broken agent stops no other.",
    )
    def evaluate_weeks(context: dg.AssetExecutionContext) -> Iterator[dg.AssetMaterialization]:
        asked: dict[date, list[str]] = defaultdict(list)
        for key in context.partition_keys:
            about = weeks.partitions.get_partition_key_from_str(key).keys_by_dimension
            asked[date.fromisoformat(about[WEEK])].append(about[AGENT])
        agents = {agent_id for some in asked.values() for agent_id in some}
        whom = " ".join(agents) if len(agents) == 1 else f"{len(agents)} agents"
        when = f"{len(asked)} weeks from {min(asked)} on"
        context.instance.add_run_tags(context.run_id, {run_tags.AGENT: whom, run_tags.WINDOW: when})
        size, broken = place.orchestration.shard_size, dict[str, AgentVerdict]()
        with known_failures():
            opened, evaluation = world_of(place, context), evaluation_of(place, context)
            for problem in opened.sync_messages().problems:
                context.log.warning(f"left out: {problem}")
            for week, some in ((first, part) for first in sorted(asked) for part in chunks(asked[first], size)):
                result, end = Run(), window_end(week, opened.newest_message_time())
                if end is not None:
                    about = {"as_of": end, "window": _LENGTH, "since": None, "history": 0, "touched": False}
                    request = evaluation.request(opened, some).model_copy(update=about)
                    result = evaluated_or_retried(context, opened, evaluation, request)
                broken |= {line.agent_id: line for line in agent_lines(result) if line.broken}
                for agent_id in (agent_id for agent_id in some if agent_id not in result.broken):
                    key, outcome = weeks.key(agent_id, week), week_outcome(result.reports.get(agent_id))
                    tags = {**lineage_tags(outcome.version, None, {}), **partition_tags(key)}
                    yield dg.AssetMaterialization(weeks.scores.key, partition=key, metadata=outcome.metadata, tags=tags)
            if failure := failure_of(list(broken.values())):
                raise failure

    return [evaluate_weeks]


def build_nightly(specs: Specs, evaluate_agent: Any) -> dg.ScheduleDefinition:
    """Return the schedule that requests all agents, or those in the settings."""
    place = specs.place
    settings = place.orchestration

    @dg.schedule(
        name=place.name("nightly"),
        job=evaluate_agent,
        cron_schedule=f"0 {settings.nightly_hour} * * *",
        execution_timezone=settings.timezone,
        default_status=settings.schedule_status,
        required_resource_keys=place.names([WORLD]),
        description="Evaluates every agent, many in a run. PERSONA_NIGHTLY_HOUR and PERSONA_NIGHTLY_AGENTS say when and whom.",
    )
    def nightly(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        known = known_agents(world_of(place, context).root)
        for agent_id in settings.nightly_agent_ids:
            if agent_id not in known:
                context.log.warning(f"PERSONA_NIGHTLY_AGENTS names {agent_id!r}, which has no persona file")
        chosen = [agent_id for agent_id in settings.nightly_agent_ids or known if agent_id in known]
        # A run has a range of partitions that the instance knows.
        context.instance.add_dynamic_partitions(specs.agents_name, chosen)
        partitions = context.instance.get_dynamic_partitions(specs.agents_name)
        given = {place.name(EVALUATION): {"config": {"touched": settings.nightly_touched}}}
        for first, last in spans(partitions, chosen, settings.shard_size):
            tags = {RANGE[0]: first, RANGE[1]: last, **request_tags("nightly")}
            key = f"{context.scheduled_execution_time.isoformat()} {first}"
            yield dg.RunRequest(run_key=key, run_config={"resources": given}, tags=tags)
        if not chosen:
            yield dg.SkipReason("there are no agents")

    return nightly


def spans(partitions: Sequence[str], chosen: Collection[str], most: int) -> Iterator[tuple[str, str]]:
    """Yield the first and last of consecutive chosen partitions, at most ``most`` together."""
    for wanted, some in groupby(partitions, key=lambda name: name in chosen):
        for part in chunks(list(some) if wanted else [], most):
            yield part[0], part[-1]


def build_capture_baseline(place: Place) -> dg.JobDefinition:
    @place.job(
        "capture_baseline",
        "Take golden baselines: evaluate and write `baselines/<agent>.json`.",
        pool=place.judge_pool,
    )
    def capture_baselines(context: dg.OpExecutionContext, config: RegressionConfig) -> None:
        """Evaluate the agents and write complete scores to `baselines/`."""
        report, folder = evaluate_by_config(context, place, config, update_baseline=True)
        for agent_id, agent in report.agents.items():
            scores = {name: item.score for name, item in agent.evaluation.dimensions.items()}
            context.log.info(f"{agent_id}: {scores}")
        if refused := {
            finding.remedy: finding.text for finding in report.all_findings() if finding.kind == "known_drift"
        }:
            raise dg.Failure("\n".join(refused.values()), metadata={"reports": str(folder)}, allow_retries=False)

    return capture_baselines


def build_cohort(specs: Specs) -> dg.Definitions:
    """Return the report, the jobs and the schedule over all agents of a place."""
    place = specs.place
    report = build_regression_report(place)
    evaluate_agent = dg.define_asset_job(
        place.name("evaluate_agent"),
        dg.AssetSelection.assets(*(spec.key for spec in specs.evaluated)),
        description="One agent, or several, from the files to the verdict; fails when one is out of character.",
        partitions_def=specs.agents,
    )
    persona_regression = dg.define_asset_job(
        place.name("persona_regression"),
        dg.AssetSelection.assets(report),
        description="Every agent in one process; fails when one regressed. Made for CI: `dagster job execute`.",
    )
    return dg.Definitions(
        assets=[report],
        jobs=[evaluate_agent, persona_regression, build_capture_baseline(place)],
        schedules=[build_nightly(specs, evaluate_agent)],
    )
