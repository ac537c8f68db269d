"""What starts runs by the clock. Nothing here runs until it is switched on."""

from collections.abc import Iterator, Sequence

import dagster as dg

from persona_pipeline.defs import jobs
from persona_pipeline.defs.resources import WorldResource, known_agents
from persona_pipeline.defs.run_tags import request_tags
from persona_pipeline.defs.settings import OrchestrationSettings, orchestration
from persona_pipeline.settings import get_settings


def nightly_schedule(settings: OrchestrationSettings, known: Sequence[str]) -> dg.ScheduleDefinition:
    """Return the nightly schedule: a run an agent, or one run for all when there are more than ``cohort_size``."""
    count = len(settings.nightly_agent_ids or known)
    options = {
        "name": "nightly",
        "cron_schedule": f"0 {settings.nightly_hour} * * *",
        "execution_timezone": settings.timezone,
    }
    if count > settings.cohort_size:

        @dg.schedule(
            job=jobs.evaluate_cohort,
            description="Evaluates every agent, all in one run. PERSONA_NIGHTLY_HOUR and PERSONA_NIGHTLY_AGENTS say when and whom.",
            **options,
        )
        def nightly(context: dg.ScheduleEvaluationContext, world: WorldResource) -> dg.RunRequest | dg.SkipReason:
            chosen = nightly_agents(context, world, settings)
            if not chosen:
                return dg.SkipReason("there are no agents")
            config = {"ops": {"cohort_shards": {"config": {"agents": chosen}}}}
            return dg.RunRequest(run_config=config, tags=request_tags("nightly"))

        return nightly

    @dg.schedule(
        job=jobs.evaluate_agent,
        description="Evaluates every agent, a run each. PERSONA_NIGHTLY_HOUR and PERSONA_NIGHTLY_AGENTS say when and whom.",
        **options,
    )
    def nightly_by_agent(
        context: dg.ScheduleEvaluationContext, world: WorldResource
    ) -> Iterator[dg.RunRequest | dg.SkipReason]:
        chosen = nightly_agents(context, world, settings)
        if not chosen:
            yield dg.SkipReason("there are no agents")
        for agent_id in chosen:
            # A schedule's run key lives as long as its tick: a tick that is retried requests nothing twice.
            yield dg.RunRequest(
                run_key=agent_id, partition_key=agent_id, tags=request_tags("nightly", agent_id=agent_id)
            )

    return nightly_by_agent


def nightly_agents(
    context: dg.ScheduleEvaluationContext, world: WorldResource, settings: OrchestrationSettings
) -> list[str]:
    """Return whom to evaluate and register them as partitions; an agent that is named and has no file is left out."""
    known = known_agents(world.open().root)
    chosen = [agent_id for agent_id in settings.nightly_agent_ids or known if agent_id in known]
    for agent_id in settings.nightly_agent_ids:
        if agent_id not in known:
            context.log.warning(f"PERSONA_NIGHTLY_AGENTS names {agent_id!r}, which has no persona file")
    context.instance.add_dynamic_partitions(jobs.agents.name, chosen)
    return chosen


nightly = nightly_schedule(orchestration(), known_agents(get_settings().world_root))

SCHEDULES = [nightly]
