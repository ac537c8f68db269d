"""What sees that files or messages change, and what starts runs because of it.

``source_observations`` is always on and starts nothing: it records data versions, which is what turns scores stale.
``world_changes`` reads what was recorded and asks for runs. Its cursor is the newest event it acted upon, written by Dagster in
one go with the runs; each run is asked for under a key made of its agent and event, so that a daemon that dies in between asks
for none twice.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg

from persona_pipeline.changes.detection import Debounce, Work, find_changes
from persona_pipeline.changes.versions import SOURCES, source_versions
from persona_pipeline.defs.agents import specs
from persona_pipeline.defs.agents.jobs import evaluate_agent
from persona_pipeline.defs.agents.partitions import agents
from persona_pipeline.defs.changes.observations import find_work, new_events, observation, recorded_versions
from persona_pipeline.defs.cohort.jobs import evaluate_cohort
from persona_pipeline.defs.platform.resources import AGENTS, WorldResource, known_agents
from persona_pipeline.defs.platform.run_tags import request_tags
from persona_pipeline.defs.platform.settings import OrchestrationSettings, orchestration
from persona_pipeline.errors import ConfigError
from persona_pipeline.propositions import ALL_DIMENSIONS
from persona_pipeline.world import World

MOST_NAMED = 2
_CURSOR = "event "


@dg.sensor(
    asset_selection=dg.AssetSelection.assets(*(spec.key for spec in specs.ALL)),
    minimum_interval_seconds=orchestration().sensor_seconds,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Records which versions of files and messages there are, so that scores of an edited persona show as stale, and "
    "keeps the partitions in step with personas/. Starts no run.",
)
def source_observations(context: dg.SensorEvaluationContext, world: WorldResource) -> dg.SensorResult | dg.SkipReason:
    """Compare files and messages with what was last recorded and record what changed."""
    settings, instance, opened = orchestration(), context.instance, world.open()
    _bring_in_messages(context, opened)
    now, known = source_versions(opened.root, opened.store), instance.get_dynamic_partitions(AGENTS)
    for name in now.misnamed:
        context.log.warning(f"personas/{name}.yaml is left out: {name!r} cannot be an agent's id")
    debounce = Debounce(settings.new_messages, timedelta(minutes=settings.quiet_minutes))
    changes, waiting = find_changes(
        now, recorded_versions(instance), known=known, debounce=debounce, at=datetime.now(UTC)
    )
    partitions = partition_requests(now.agent_ids, known)
    if not (changes or partitions):
        more = f"; {len(waiting)} with new messages, not yet enough or quiet" if waiting else ""
        return dg.SkipReason(f"{len(now.agent_ids)} agents, nothing changed{more}")
    for change in changes[: settings.cohort_size]:
        context.log.info(f"{change.agent_id}: {change.source} changed")
    return dg.SensorResult(
        # Nothing is started; without it the page says that the result was empty.
        skip_reason=f"{len(changes)} versions of {len({change.agent_id for change in changes})} agents recorded",
        dynamic_partitions_requests=partitions,
        asset_events=[observation(change) for change in changes],
    )


@dg.sensor(
    jobs=[evaluate_agent, evaluate_cohort],
    minimum_interval_seconds=max(1, orchestration().sensor_seconds // 3),
    default_status=orchestration().sensor_status,
    description="Evaluates exactly what source_observations saw change: an edited persona its agent, an edited proposition file "
    "its dimension (of everybody for _default.yaml), an edited baseline the comparison, new messages their agent. Many agents "
    "at once become one run.",
)
def world_changes(context: dg.SensorEvaluationContext, world: WorldResource) -> dg.SensorResult | dg.SkipReason:
    """Request the runs that are needed for what was observed since the last look."""
    instance, opened = context.instance, world.open()
    found = new_events(instance, acted_upon(context.cursor))
    if not found:
        return dg.SkipReason("nothing was observed to change")
    there = known_agents(opened.root)
    events = {agent_id: found[agent_id] for agent_id in there if agent_id in found}
    work = find_work(instance, opened.store, events)
    added = [agent_id for agent_id in events if agent_id not in instance.get_dynamic_partitions(AGENTS)]
    newest = max(event for seen in found.values() for event in seen.values())
    return dg.SensorResult(
        run_requests=list(run_requests(work, events, orchestration())),
        # Of a new agent: the sensor that saw it may not have come as far as its partition.
        dynamic_partitions_requests=[agents.build_add_request(added)] if added else [],
        cursor=f"{_CURSOR}{newest}",
    )


def acted_upon(cursor: str | None) -> int | None:
    """Return the newest event a cursor says was acted upon; None: none was."""
    number = (cursor or "").removeprefix(_CURSOR)
    return int(number) if cursor and cursor.startswith(_CURSOR) and number.isdigit() else None


def partition_requests(
    agent_ids: Sequence[str], known: Sequence[str]
) -> list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest]:
    """Return what brings the partitions in step with the agents."""
    added = [agent_id for agent_id in agent_ids if agent_id not in known]
    removed = sorted(set(known) - set(agent_ids))
    return [
        *([agents.build_add_request(added)] if added else []),
        *([agents.build_delete_request(removed)] if removed else []),
    ]


def run_requests(
    work: Sequence[Work], events: Mapping[str, Mapping[str, int]], settings: OrchestrationSettings
) -> Iterator[dg.RunRequest]:
    """Yield a run an agent, or one run for all where there are many."""
    keys = {item.agent_id: f"{item.agent_id}@{max(events[item.agent_id].values())}" for item in work}
    if len(work) > settings.cohort_size:
        yield cohort_request(work, hashlib.sha256(" ".join(keys.values()).encode()).hexdigest())
        return
    for item in work:
        yield dg.RunRequest(
            job_name=evaluate_agent.name,
            run_key=keys[item.agent_id],
            partition_key=item.agent_id,
            asset_selection=None if item.dimensions is None else selection(item.dimensions),
            tags=request_tags(_because(item.reasons), agent_id=item.agent_id),
        )


def cohort_request(work: Sequence[Work], run_key: str) -> dg.RunRequest:
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
        run_key=run_key,
        run_config={"ops": {"cohort_shards": {"config": config}}},
        tags=request_tags(_because(reasons)),
    )


def selection(dimensions: Sequence[str]) -> list[dg.AssetKey]:
    """Return the assets downstream of the dimensions' proposition files; of none: the comparison alone."""
    if not dimensions:
        return [specs.COMPARISONS.key]
    scored = [spec.key for name in dimensions for spec in (specs.PROPOSITIONS[name], specs.SCORES[name])]
    return [*scored, specs.RUNS.key, specs.COMPARISONS.key]


def _because(reasons: Collection[str]) -> str:
    """Return a reason that fits a label: the sources by name while there are few."""
    if set(reasons) == set(SOURCES):
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
