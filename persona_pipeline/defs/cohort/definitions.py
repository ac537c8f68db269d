"""All agents at once: the job of CI, baselines, runs over many agents in shards, and the nightly schedule."""

from collections.abc import Iterator
from dataclasses import dataclass

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field

from persona_pipeline.defs.agents.checks import all_in_character
from persona_pipeline.defs.agents.several import Event, evaluate_together
from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.agents.verdicts import AgentVerdict, agent_lines, failure_of, overview, verdict
from persona_pipeline.defs.cohort.regression import (
    COHORT_REPORTS,
    REPORT,
    RegressionConfig,
    build_evaluate_everybody,
    build_regression_report,
    evaluate_by_config,
    report_metadata,
    report_of_interest,
    write_reports,
)
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.assets import reports_folder
from persona_pipeline.defs.platform.dagster_internals import AssetJob
from persona_pipeline.defs.platform.failures import known_failures
from persona_pipeline.defs.platform.place import VALUES, Place
from persona_pipeline.defs.platform.resources import EvaluationSettings, WorldResource, known_agents
from persona_pipeline.defs.platform.run_tags import request_tags
from persona_pipeline.defs.platform.settings import orchestration


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


class Shard(BaseModel):
    """A step's share of the cohort. ``dimensions`` None: everything."""

    model_config = ConfigDict(frozen=True)

    agents: list[str]
    dimensions: list[str] | None = None
    touched: bool = False


def build_cohort_shards(place: Place) -> dg.OpDefinition:
    """Return the step that cuts a cohort."""

    @dg.op(name=place.name("cohort_shards"), out=dg.DynamicOut(dict, io_manager_key=place.name(VALUES)))
    @place.bound
    def cohort_shards(
        context: dg.OpExecutionContext, world: WorldResource, config: CohortConfig
    ) -> Iterator[dg.DynamicOutput]:
        """Cut the cohort into shards, with the messages brought into the store once."""
        with known_failures():
            opened = world.open()
            for problem in opened.sync_messages().problems:
                context.log.warning(f"left out: {problem}")
        agents = sorted(set(config.agents)) or known_agents(opened.root)
        run_tags.add_run_tags(context.instance, context.run_id, {run_tags.AGENT: f"{len(agents)} agents"})
        dimensions = [] if config.compare_only else config.dimensions or None
        size = config.shard_size or orchestration().shard_size
        for start in range(0, len(agents), size):
            shard = Shard(agents=agents[start : start + size], dimensions=dimensions, touched=config.touched)
            yield dg.DynamicOutput(
                shard.model_dump(), mapping_key=f"from_{start + 1}", metadata={"agents": ", ".join(shard.agents)}
            )

    return cohort_shards


def build_evaluate_shard(specs: Specs) -> dg.OpDefinition:
    """Return the step that evaluates a shard."""
    place = specs.place

    @dg.op(
        name=place.name("evaluate_shard"), pool=place.judge_pool, out=dg.Out(list, io_manager_key=place.name(VALUES))
    )
    @place.bound
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

    return evaluate_shard


def build_cohort_report(specs: Specs) -> dg.OpDefinition:
    """Return the step that says how a cohort did."""
    place = specs.place

    @dg.op(name=place.name("cohort_report"), out=dg.Out(dg.Nothing))
    @place.bound
    def cohort_report(
        context: dg.OpExecutionContext, world: WorldResource, evaluation: EvaluationSettings, shards: list
    ) -> Iterator[dg.AssetCheckEvaluation | dg.Output]:
        """Say how the cohort did; fails when an agent is broken, regressed or could not be judged."""
        lines = [AgentVerdict.model_validate(line) for shard in shards for line in shard]
        with known_failures():
            opened = world.open()
            fail_on = evaluation.asked(opened).fail_on
            report = report_of_interest(opened, lines, fail_on)
            folder = write_reports(report, reports_folder(opened.root) / COHORT_REPORTS)
        facts = {
            "agents": len(lines),
            "overview": dg.MetadataValue.md(overview(lines)),
            **report_metadata(report, folder, opened.root),
        }
        yield all_in_character(specs, context.instance, opened, fail_on)
        run_tags.label_verdict(context.instance, context.run_id, verdict(lines))
        if failure := failure_of(lines, report.exit_code, facts):
            raise failure
        yield dg.Output(None, metadata=facts)

    return cohort_report


def build_evaluate_cohort(specs: Specs) -> dg.JobDefinition:
    """Return the job that evaluates many agents of a place."""
    place = specs.place
    # In config and logs the steps have the same names at every place.
    shards = build_cohort_shards(place).alias("cohort_shards")
    evaluate = build_evaluate_shard(specs).alias("evaluate_shard")
    report = build_cohort_report(specs).alias("cohort_report")

    @dg.job(
        name=place.name("evaluate_cohort"),
        tags={"persona/cohort": "/".join(place.prefix) or "true"},
        executor_def=place.executor,
        description="Many agents in one run, shard by shard; each agent's assets and checks are reported as if it had run alone.",
    )
    def evaluate_cohort() -> None:
        report(shards().map(evaluate).collect())

    return evaluate_cohort


def build_persona_regression(place: Place) -> dg.JobDefinition:
    """Return the gate of CI."""
    # Its config stands under the name of the asset it reports.
    evaluate = build_evaluate_everybody(place).alias(REPORT)

    @dg.job(
        name=place.name("persona_regression"),
        executor_def=place.executor,
        description="Every agent in one process; fails when one regressed. Made for CI: `dagster job execute`.",
    )
    def persona_regression() -> None:
        evaluate()

    return persona_regression


def build_report_regressions(place: Place, report: dg.AssetsDefinition) -> AssetJob:
    """Return the job that reports how everybody did."""
    return dg.define_asset_job(
        place.name("report_regressions"),
        selection=dg.AssetSelection.assets(report),
        executor_def=place.executor,
        description="Every agent's newest comparison on one page; fails when one regressed. Judges nothing.",
    )


def build_capture_baseline(place: Place) -> dg.JobDefinition:
    """Return the job that takes baselines."""

    @dg.op(name=place.name("capture_baselines"), pool=place.judge_pool)
    @place.bound
    def capture_baselines(context: dg.OpExecutionContext, world: WorldResource, config: RegressionConfig) -> None:
        """Evaluate the agents and write what was scored in full to `baselines/`."""
        report, _ = evaluate_by_config(context, place, world, config, update_baseline=True)
        for agent_id, agent in report.agents.items():
            scores = {name: item.score for name, item in agent.evaluation.dimensions.items()}
            context.log.info(f"{agent_id}: {scores}")

    capture = capture_baselines.alias("capture_baselines")

    @dg.job(
        name=place.name("capture_baseline"),
        executor_def=place.executor,
        description="Take golden baselines: evaluate and write `baselines/<agent>.json`.",
    )
    def capture_baseline() -> None:
        capture()

    return capture_baseline


@dataclass(frozen=True)
class Cohort:
    """What other parts of a place build upon."""

    evaluate_cohort: dg.JobDefinition
    definitions: dg.Definitions


def build_cohort(specs: Specs) -> Cohort:
    """Return what is about all agents of a place."""
    place = specs.place
    report, evaluate_cohort = build_regression_report(specs), build_evaluate_cohort(specs)
    definitions = dg.Definitions(
        assets=[report],
        jobs=[
            evaluate_cohort,
            build_persona_regression(place),
            build_report_regressions(place, report),
            build_capture_baseline(place),
        ],
        schedules=[build_nightly(place, evaluate_cohort)],
    )
    return Cohort(evaluate_cohort, definitions)
