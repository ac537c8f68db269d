"""What keeps the partitions in step with the persona files."""

import dagster as dg

from persona_pipeline.changes.detection import Changes
from persona_pipeline.defs.agents.assets import AGENT_ASSETS
from persona_pipeline.defs.agents.partitions import agents
from persona_pipeline.defs.platform.resources import AGENTS, WorldResource, known_agents
from persona_pipeline.defs.platform.settings import orchestration


@dg.sensor(
    asset_selection=dg.AssetSelection.assets(*AGENT_ASSETS),
    minimum_interval_seconds=orchestration().sensor_seconds,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Keeps the partitions in step with personas/, so that there is something to click on. Starts no run.",
)
def agent_partitions(context: dg.SensorEvaluationContext, world: WorldResource) -> dg.SensorResult | dg.SkipReason:
    """Add an agent for each persona file and remove those whose file is gone."""
    known = known_agents(world.open().root)
    partitions = context.instance.get_dynamic_partitions(AGENTS)
    changes = Changes(
        added=tuple(agent_id for agent_id in known if agent_id not in partitions),
        removed=tuple(sorted(set(partitions) - set(known))),
    )
    if not (changes.added or changes.removed):
        return dg.SkipReason(f"{len(known)} agents, none added or removed")
    return dg.SensorResult(dynamic_partitions_requests=partition_requests(changes))


def partition_requests(
    changes: Changes,
) -> list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest]:
    """Return the partitions to add and to remove."""
    requests: list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest] = []
    if changes.added:
        requests.append(agents.build_add_request(list(changes.added)))
    if changes.removed:
        requests.append(agents.build_delete_request(list(changes.removed)))
    return requests
