"""The nightly evaluation. It does not run until it is switched on."""

import dagster as dg

from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import WorldResource, known_agents
from persona_pipeline.defs.platform.run_tags import request_tags


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
