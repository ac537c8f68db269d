"""What starts runs by the clock. Nothing here runs until it is switched on, one by one or with PERSONA_AUTOMATION."""

from collections.abc import Iterator, Sequence

import dagster as dg

from persona_pipeline.defs.agents.jobs import evaluate_agent
from persona_pipeline.defs.cohort.jobs import evaluate_cohort
from persona_pipeline.defs.platform.resources import AGENTS, WorldResource, known_agents
from persona_pipeline.defs.platform.run_tags import request_tags
from persona_pipeline.defs.platform.settings import OrchestrationSettings, orchestration
from persona_pipeline.settings import get_settings


def nightly_schedule(settings: OrchestrationSettings, known: Sequence[str]) -> dg.ScheduleDefinition:
    """Return the nightly schedule: a run an agent, or one run for all when there are more than ``cohort_size``."""
    one_run = len(settings.nightly_agent_ids or known) > settings.cohort_size

    @dg.schedule(
        job=evaluate_cohort if one_run else evaluate_agent,
        name="nightly",
        cron_schedule=f"0 {settings.nightly_hour} * * *",
        execution_timezone=settings.timezone,
        default_status=settings.schedule_status,
        description=f"Evaluates every agent, {'all in one run' if one_run else 'a run each'}. "
        "PERSONA_NIGHTLY_HOUR and PERSONA_NIGHTLY_AGENTS say when and whom.",
    )
    def nightly(context: dg.ScheduleEvaluationContext, world: WorldResource) -> Iterator[dg.RunRequest | dg.SkipReason]:
        chosen = nightly_agents(context, world, settings)
        if not chosen:
            yield dg.SkipReason("there are no agents")
        elif one_run:
            config = {"ops": {"cohort_shards": {"config": {"agents": chosen}}}}
            yield dg.RunRequest(run_config=config, tags=request_tags("nightly"))
        else:
            for agent_id in chosen:
                # A schedule's run key lives as long as its tick: a tick that is tried again requests nothing twice.
                tags = request_tags("nightly", agent_id=agent_id)
                yield dg.RunRequest(run_key=agent_id, partition_key=agent_id, tags=tags)

    return nightly


def nightly_agents(
    context: dg.ScheduleEvaluationContext, world: WorldResource, settings: OrchestrationSettings
) -> list[str]:
    """Return whom to evaluate and register them as partitions; an agent that is named and has no file is left out."""
    known = known_agents(world.open().root)
    chosen = [agent_id for agent_id in settings.nightly_agent_ids or known if agent_id in known]
    for agent_id in settings.nightly_agent_ids:
        if agent_id not in known:
            context.log.warning(f"PERSONA_NIGHTLY_AGENTS names {agent_id!r}, which has no persona file")
    if chosen:
        context.instance.add_dynamic_partitions(AGENTS, chosen)
    return chosen


nightly = nightly_schedule(orchestration(), known_agents(get_settings().world_root))
