"""Many agents in one run: a run each costs seconds of start-up, a step each hundredths. Shards go to any host the executor has."""

from collections.abc import Iterator

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field

from persona_pipeline.defs.agents.checks import all_in_character
from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.agents.together import Event, evaluate_together
from persona_pipeline.defs.agents.verdicts import AgentLine, agent_lines, failure_of, overview, verdict
from persona_pipeline.defs.cohort.regression import report_metadata, write_reports
from persona_pipeline.defs.cohort.report import COHORT_REPORTS, report_of_interest
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.failures import known_failures
from persona_pipeline.defs.platform.place import VALUES, Place
from persona_pipeline.defs.platform.places import reports_folder
from persona_pipeline.defs.platform.resources import EvaluationSettings, WorldResource, known_agents
from persona_pipeline.defs.platform.settings import orchestration


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
        lines = [AgentLine.model_validate(line) for shard in shards for line in shard]
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
