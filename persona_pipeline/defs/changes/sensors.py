"""What starts runs when files or messages change. The memory is the data versions recorded as observations.

They do not fit into a cursor, which every tick row keeps a copy of: the cursor only says which of them were acted upon. There
are no run keys, which would swallow an edit that is undone.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg

from persona_pipeline.changes.detection import Changes, Debounce, Work, find_changes
from persona_pipeline.changes.versions import source_versions
from persona_pipeline.defs.agents import assets
from persona_pipeline.defs.agents.jobs import evaluate_agent
from persona_pipeline.defs.agents.sensors import partition_requests
from persona_pipeline.defs.changes.looks import last_look, next_look
from persona_pipeline.defs.changes.observations import complete_agents, observations, recorded_versions, unfinished_work
from persona_pipeline.defs.cohort.jobs import evaluate_cohort
from persona_pipeline.defs.platform.resources import AGENTS, WorldResource
from persona_pipeline.defs.platform.run_tags import request_tags
from persona_pipeline.defs.platform.settings import OrchestrationSettings, orchestration
from persona_pipeline.errors import ConfigError
from persona_pipeline.propositions import ALL_DIMENSIONS
from persona_pipeline.world import World

MOST_NAMED = 2


@dg.sensor(
    jobs=[evaluate_agent, evaluate_cohort],
    minimum_interval_seconds=orchestration().sensor_seconds,
    default_status=orchestration().sensor_status,
    description="Evaluates exactly what changed: an edited persona its agent, an edited proposition file its dimension (of "
    "everybody for _default.yaml), an edited baseline the comparison, and new messages once there are enough of them "
    "or it is quiet. Adds and removes agents. Many agents at once become one run.",
)
def world_changes(context: dg.SensorEvaluationContext, world: WorldResource) -> dg.SensorResult | dg.SkipReason:
    """Compare files and messages with what was last acted upon and request the runs that are needed."""
    settings, instance = orchestration(), context.instance
    opened = world.open()
    _bring_in_messages(context, opened)
    last, at = last_look(context.cursor), datetime.now(UTC)
    unfinished = unfinished_work(instance, last)
    now, recorded = source_versions(opened.root, opened.store), recorded_versions(instance, unfinished)
    for name in now.misnamed:
        context.log.warning(f"personas/{name}.yaml is left out: {name!r} cannot be an agent's id")
    changes = find_changes(
        now,
        recorded,
        partitions=instance.get_dynamic_partitions(AGENTS),
        complete=complete_agents(instance),
        debounce=Debounce(settings.new_messages, timedelta(minutes=settings.quiet_minutes)),
        at=at,
    )
    if unfinished.newest and not changes.work:
        context.update_cursor(str(unfinished.newest))
    if not (changes.work or changes.added or changes.removed):
        return dg.SkipReason(describe_idle(len(now.agent_ids), changes))
    for work in changes.work[: settings.cohort_size]:
        context.log.info(f"{work.agent_id}: {', '.join(work.reasons)} changed")
    if len(changes.work) > settings.cohort_size:
        context.log.info(f"and {len(changes.work) - settings.cohort_size} agents more")
    look = next_look(max(last, unfinished.newest), at)
    return dg.SensorResult(
        run_requests=list(run_requests(changes.work, settings, look)),
        dynamic_partitions_requests=partition_requests(changes),
        asset_events=list(observations(now, recorded, changes, look)),
        cursor=str(look) if changes.work else None,
    )


def run_requests(work: Sequence[Work], settings: OrchestrationSettings, look: int) -> Iterator[dg.RunRequest]:
    """Yield a run an agent, or one run for all where there are many."""
    if len(work) > settings.cohort_size:
        yield cohort_request(work, look)
        return
    for item in work:
        yield dg.RunRequest(
            job_name=evaluate_agent.name,
            partition_key=item.agent_id,
            asset_selection=None if item.dimensions is None else selection(item.dimensions),
            tags=request_tags(_because(item.reasons), agent_id=item.agent_id, look=look),
        )


def cohort_request(work: Sequence[Work], look: int) -> dg.RunRequest:
    """Return the one run that does it all: everything if one agent needs that, else the dimensions any agent needs."""
    reasons = {reason for item in work for reason in item.reasons}
    whole = any(item.whole for item in work)
    dimensions = [name for name in ALL_DIMENSIONS if any(name in (item.dimensions or ()) for item in work)]
    config = {
        "agents": [item.agent_id for item in work],
        "dimensions": [] if whole else dimensions,
        "compare_only": not whole and not dimensions,
    }
    return dg.RunRequest(
        job_name=evaluate_cohort.name,
        run_config={"ops": {"cohort_shards": {"config": config}}},
        tags=request_tags(_because(reasons), look=look),
    )


def selection(dimensions: Sequence[str]) -> list[dg.AssetKey]:
    """Return the assets downstream of the dimensions' proposition files; of none: the comparison alone."""
    if not dimensions:
        return [assets.baseline_comparisons.key]
    scored = [asset.key for name in dimensions for asset in (assets.proposition_sets[name], assets.scores[name])]
    return [*scored, assets.evaluation_runs.key, assets.baseline_comparisons.key]


def describe_idle(count: int, changes: Changes) -> str:
    """Return why nothing is requested."""
    waiting = f"; {len(changes.waiting)} with new messages, not yet enough or quiet" if changes.waiting else ""
    return f"{count} agents, nothing changed{waiting}"


def _because(reasons: Collection[str]) -> str:
    """Return a reason that fits a label: the sources by name while there are few."""
    if set(reasons) == {"persona", "baseline", "messages", *ALL_DIMENSIONS}:
        return "first look"
    shown = sorted(reasons) if len(reasons) <= MOST_NAMED else [f"{len(reasons)} sources"]
    return f"{' and '.join(shown)} changed"


def _bring_in_messages(context: dg.SensorEvaluationContext, world: World) -> None:
    """Mirror the message files; what is wrong with them is the message asset's to report, and no reason to stop looking."""
    try:
        for problem in world.mirror_messages().problems:
            context.log.debug(f"left out: {problem}")
    except ConfigError as error:
        context.log.warning(str(error))
