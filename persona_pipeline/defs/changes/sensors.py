"""What sees that files or messages change, and what starts runs because of it.

``source_observations`` is always on and starts nothing: it records data versions, which is what turns scores stale.
``world_changes`` reads what was recorded and asks for runs. Its cursor is the newest event it acted upon, written by Dagster in
one go with the runs; each run is asked for under a key made of its agent and event, so that a daemon that dies in between asks
for none twice. Nothing but looking happens in either: message files are read by a run of their own (``incoming``).
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg

from persona_pipeline.changes.detection import Debounce, Work, evaluated_since, find_changes, note_asked
from persona_pipeline.changes.versions import SOURCES, source_versions
from persona_pipeline.defs.agents.definitions import Agents
from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.changes.observations import find_work, new_events, observation, recorded_versions
from persona_pipeline.defs.platform.resources import WorldResource, known_agents
from persona_pipeline.defs.platform.run_tags import request_tags
from persona_pipeline.defs.platform.settings import orchestration
from persona_pipeline.judging.money import daily_limit
from persona_pipeline.judging.open import RECORDED
from persona_pipeline.propositions import ALL_DIMENSIONS

MOST_NAMED = 2
_CURSOR = "event "


def build_source_observations(specs: Specs) -> dg.SensorDefinition:
    """Return the sensor that records what changed of a place's agents."""
    place = specs.place

    @dg.sensor(
        name=place.name("source_observations"),
        asset_selection=dg.AssetSelection.assets(*(spec.key for spec in specs.evaluated)),
        minimum_interval_seconds=place.orchestration.sensor_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Records which versions of files and messages there are, so that scores of an edited persona show as stale, "
        "and keeps the partitions in step with personas/. Starts no run.",
    )
    @place.bound
    def source_observations(
        context: dg.SensorEvaluationContext, world: WorldResource
    ) -> dg.SensorResult | dg.SkipReason:
        """Compare files and messages with what was last recorded and record what changed."""
        settings, instance, opened = orchestration(), context.instance, world.open()
        now, known = (
            source_versions(opened.root, opened.store),
            instance.get_dynamic_partitions(specs.sources.agents_name),
        )
        for name in now.misnamed:
            context.log.warning(f"personas/{name}.yaml is left out: {name!r} cannot be an agent's id")
        debounce = Debounce(settings.new_messages, timedelta(minutes=settings.quiet_minutes))
        reading = opened.is_reading_messages
        changes, waiting = find_changes(
            now,
            recorded_versions(specs, instance),
            known=known,
            debounce=debounce,
            at=datetime.now(UTC),
            reading=reading,
        )
        partitions = partition_requests(specs.agents, now.agent_ids, known)
        if not (changes or partitions):
            why = "which are being read" if reading else "not yet enough or quiet"
            more = f"; {len(waiting)} with new messages, {why}" if waiting else ""
            return dg.SkipReason(f"{len(now.agent_ids)} agents, nothing changed{more}")
        for change in changes[: settings.cohort_size]:
            context.log.info(f"{change.agent_id}: {change.source} changed")
        return dg.SensorResult(
            # Nothing is started; without it the page says that the result was empty.
            skip_reason=f"{len(changes)} versions of {len({change.agent_id for change in changes})} agents recorded",
            dynamic_partitions_requests=partitions,
            asset_events=[observation(specs, change) for change in changes],
        )

    return source_observations


def build_world_changes(agents: Agents, evaluate_cohort: dg.JobDefinition) -> dg.SensorDefinition:
    """Return the sensor that asks for what recorded changes need."""
    specs, place = agents.specs, agents.specs.place

    @dg.sensor(
        name=place.name("world_changes"),
        jobs=[agents.evaluate_agent, evaluate_cohort],
        minimum_interval_seconds=max(1, place.orchestration.sensor_seconds // 3),
        default_status=place.orchestration.sensor_status,
        description="Evaluates exactly what source_observations saw change: an edited persona its agent, an edited proposition "
        "file its dimension (of everybody for _default.yaml), an edited baseline the comparison, new messages their "
        "agent. Many agents at once become one run.",
    )
    @place.bound
    def world_changes(context: dg.SensorEvaluationContext, world: WorldResource) -> dg.SensorResult | dg.SkipReason:
        """Request the runs that are needed for what was observed since the last look."""
        settings, instance, opened = orchestration(), context.instance, world.open()
        daily = daily_limit(opened.settings, opened.store) if opened.settings.judge != RECORDED else None
        if daily and not daily.remaining:
            return dg.SkipReason(f"today's {daily.max_usd:g} dollars are spent; what changes is evaluated tomorrow")
        after, waiting = acted_upon(context.cursor)
        found = new_events(specs, instance, None if after is None else min([after, *waiting.values()]))
        if after is not None:
            found = _unanswered(found, after, waiting)
        if not found:
            return dg.SkipReason("nothing was observed to change")
        cooldown = timedelta(minutes=settings.cooldown_minutes)
        early = evaluated_since(opened.store, found, datetime.now(UTC) - cooldown) if cooldown else set()
        # Whoever was evaluated just now waits: what changes meanwhile is one run then.
        resting = {agent_id: min(found[agent_id].values()) - 1 for agent_id in sorted(early)}
        there = known_agents(opened.root)
        events = {agent_id: found[agent_id] for agent_id in there if agent_id in found and agent_id not in resting}
        work = find_work(specs, instance, opened.store, events)
        added = sorted(events.keys() - set(instance.get_dynamic_partitions(specs.sources.agents_name)))
        newest = max([after or 0, *(event for seen in found.values() for event in seen.values())])
        note_asked(opened.store, [item.agent_id for item in work])
        return dg.SensorResult(
            run_requests=list(run_requests(agents, evaluate_cohort, work, events)),
            skip_reason=None if work else f"{len(resting)} agents were evaluated less than {cooldown} ago",
            # Of a new agent: the sensor that saw it may not have come as far as its partition.
            dynamic_partitions_requests=[specs.agents.build_add_request(added)] if added else [],
            cursor=_cursor(newest, resting),
        )

    return world_changes


def acted_upon(cursor: str | None) -> tuple[int | None, Mapping[str, int]]:
    """Return the newest event a cursor says was acted upon (None: none was), and by agent the earlier one for who has to wait."""
    text = cursor or ""
    number, _, waiting = text.removeprefix(_CURSOR).partition(" ")
    if not (text.startswith(_CURSOR) and number.isdigit()):
        return None, {}
    try:
        found = json.loads(waiting or "{}")
    except ValueError:
        return None, {}
    return int(number), found


def _cursor(newest: int, waiting: Mapping[str, int]) -> str:
    return f"{_CURSOR}{newest}{f' {json.dumps(waiting)}' if waiting else ''}"


def _unanswered(
    found: Mapping[str, Mapping[str, int]], after: int, waiting: Mapping[str, int]
) -> dict[str, dict[str, int]]:
    """Return the events nobody has acted upon: of agents that had to wait, from where they had to."""
    newer = {
        agent_id: {name: event for name, event in seen.items() if event > waiting.get(agent_id, after)}
        for agent_id, seen in found.items()
    }
    return {agent_id: seen for agent_id, seen in newer.items() if seen}


def partition_requests(
    agents: dg.DynamicPartitionsDefinition, agent_ids: Sequence[str], known: Sequence[str]
) -> list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest]:
    """Return what brings the partitions in step with the agents."""
    added = sorted(set(agent_ids) - set(known))
    removed = sorted(set(known) - set(agent_ids))
    return [
        *([agents.build_add_request(added)] if added else []),
        *([agents.build_delete_request(removed)] if removed else []),
    ]


def run_requests(
    agents: Agents, evaluate_cohort: dg.JobDefinition, work: Sequence[Work], events: Mapping[str, Mapping[str, int]]
) -> Iterator[dg.RunRequest]:
    """Yield a run an agent, or one run for all where there are many."""
    keys = {item.agent_id: f"{item.agent_id}@{max(events[item.agent_id].values())}" for item in work}
    if len(work) > orchestration().cohort_size:
        yield cohort_request(evaluate_cohort, work, hashlib.sha256(" ".join(keys.values()).encode()).hexdigest())
        return
    for item in work:
        yield dg.RunRequest(
            job_name=agents.evaluate_agent.name,
            run_key=keys[item.agent_id],
            partition_key=item.agent_id,
            asset_selection=None if item.dimensions is None else selection(agents.specs, item.dimensions),
            tags=request_tags(_because(item.reasons), agent_id=item.agent_id),
        )


def cohort_request(evaluate_cohort: dg.JobDefinition, work: Sequence[Work], run_key: str) -> dg.RunRequest:
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


def selection(specs: Specs, dimensions: Sequence[str]) -> list[dg.AssetKey]:
    """Return the assets downstream of the dimensions' proposition files; of none: the comparison alone."""
    if not dimensions:
        return [specs.comparisons.key, specs.in_character.key]
    scored = [spec.key for name in dimensions for spec in (specs.propositions[name], specs.scores[name])]
    return [*scored, specs.runs.key, specs.comparisons.key, specs.in_character.key]


def _because(reasons: Collection[str]) -> str:
    """Return a reason that fits a label: the sources by name while there are few."""
    if set(reasons) == set(SOURCES):
        return "first look"
    shown = sorted(reasons) if len(reasons) <= MOST_NAMED else [f"{len(reasons)} sources"]
    return f"{' and '.join(shown)} changed"
