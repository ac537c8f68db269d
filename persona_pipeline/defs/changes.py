"""What sees that files, messages or voices change, reads message files, and starts runs because of it."""

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

import dagster as dg

from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.defs.agents.definitions import Agents
from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.agents.weeks import week_observations
from persona_pipeline.defs.platform.assets import partition_requests
from persona_pipeline.defs.platform.dagster_internals import (
    DATA_VERSION,
    MATERIALIZED,
    OBSERVED,
    newest_events,
    newest_versions,
)
from persona_pipeline.defs.platform.place import EVALUATION, Place
from persona_pipeline.defs.platform.resources import READS_MESSAGES, WorldResource, known_agents, known_failures
from persona_pipeline.defs.platform.run_tags import is_under_way, request_tags
from persona_pipeline.evaluation.changes import (
    MESSAGES,
    PERSONA,
    SOURCES,
    Debounce,
    SourceChange,
    Work,
    find_changes,
    message_versions,
    source_versions,
    work_of,
)
from persona_pipeline.evaluation.read import WorldReader, voice_state
from persona_pipeline.evaluation.voice import VoiceState, alarm_window
from persona_pipeline.judging.money import daily_limit
from persona_pipeline.judging.open import RECORDED
from persona_pipeline.scoring.style.monitor import VoiceChange
from persona_pipeline.world.messages.revision import revisions
from persona_pipeline.world.models import Window
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS
from persona_pipeline.world.runs import evaluated_since, note_asked
from persona_pipeline.world.world import World


def observation(specs: Specs, change: SourceChange) -> dg.AssetObservation:
    key = specs.sources.by_name[change.source].key
    return dg.AssetObservation(key, partition=change.agent_id, tags={DATA_VERSION: change.version})


def recorded_versions(specs: Specs, instance: dg.DagsterInstance) -> dict[str, Mapping[str, str]]:
    """Return the last recorded version of every source of every agent."""
    return {name: newest_versions(instance, spec.key, OBSERVED) for name, spec in specs.sources.by_name.items()}


def new_events(specs: Specs, instance: dg.DagsterInstance, after: int | None) -> dict[str, dict[str, int]]:
    """Return by agent which sources were observed since an event, with the newest event of each.

    ``after`` None: since the agent's last comparison with its baseline.
    """
    found: dict[str, dict[str, int]] = defaultdict(dict)
    compared = newest_events(instance, specs.comparisons.key, MATERIALIZED) if after is None else {}
    for name, spec in specs.sources.by_name.items():
        for agent_id, event in newest_events(instance, spec.key, OBSERVED, after=after).items():
            if event > compared.get(agent_id, 0):
                found[agent_id][name] = event
    return found


def find_work(
    specs: Specs, instance: dg.DagsterInstance, store: Store, changed: Mapping[str, Collection[str]]
) -> list[Work]:
    """Return what to evaluate of agents, by name; ``changed``: the sources by agent."""
    in_parts = _complete_agents(specs, instance) & _settled_agents(specs, instance, store, changed)
    return [work_of(agent_id, names, in_parts=agent_id in in_parts) for agent_id, names in sorted(changed.items())]


def _complete_agents(specs: Specs, instance: dg.DagsterInstance) -> set[str]:
    """Return the agents whose last whole evaluation was finished after it was asked for: only of those a part can be made."""
    finished = newest_events(instance, specs.runs.key, MATERIALIZED)
    asked = [newest_events(instance, specs.sources.by_name[name].key, OBSERVED) for name in (PERSONA, MESSAGES)]
    return {
        agent_id for agent_id, event in finished.items() if all(event > asking.get(agent_id, 0) for asking in asked)
    }


def _settled_agents(specs: Specs, instance: dg.DagsterInstance, store: Store, agent_ids: Iterable[str]) -> set[str]:
    """Return the agents that have said nothing since their messages were recorded: a part belongs to those messages."""
    heard = newest_versions(instance, specs.sources.message_windows.key, OBSERVED)
    now = message_versions(store, agent_ids)
    return {agent_id for agent_id, version in now.items() if str(version) == heard.get(agent_id)}


MOST_NAMED = 2
# A look has a minute, and Dagster writes what it records event by event; of whom is left the next look records all.
MOST_RECORDED = 1000
_CURSOR = "event "


def build_source_observations(specs: Specs) -> dg.SensorDefinition:
    place = specs.place

    @place.sensor(
        asset_selection=dg.AssetSelection.assets(*(spec.key for spec in specs.evaluated)),
        minimum_interval_seconds=place.orchestration.sensor_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Records which versions of files and messages there are, so that scores of an edited persona show as stale, "
        "and keeps the partitions in step with personas/. Starts no run.",
    )
    def source_observations(
        context: dg.SensorEvaluationContext, world: WorldResource
    ) -> dg.SensorResult | dg.SkipReason:
        """Compare files and messages with what was last recorded and record what changed."""
        settings, instance, opened = place.orchestration, context.instance, world.open()
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
            is_settled=partial(debounce.settled, at=datetime.now(UTC)),
            reading=reading,
        )
        changed = list(dict.fromkeys(change.agent_id for change in changes))
        later = set(changed[MOST_RECORDED:])
        changes = [change for change in changes if change.agent_id not in later]
        # Who is no partition yet is new also at the next look.
        there = [agent_id for agent_id in now.agent_ids if agent_id in known or agent_id not in later]
        partitions = partition_requests(specs.agents, there, known)
        if not (changes or partitions):
            why = "which are being read" if reading else "not yet enough or quiet"
            more = f"; {len(waiting)} with new messages, {why}" if waiting else ""
            return dg.SkipReason(f"{len(now.agent_ids)} agents, nothing changed{more}")
        heard = [change.agent_id for change in changes if change.source == MESSAGES]
        late = list(week_observations(specs.weeks, instance, opened.store, heard)) if specs.weeks else []
        for change in changes[: settings.cohort_size]:
            context.log.info(f"{change.agent_id}: {change.source} changed")
        return dg.SensorResult(
            # Nothing is started; without it the page says that the result was empty.
            skip_reason=f"{len(changes)} versions of {len(changed) - len(later)} agents recorded"
            + (f", {len(later)} agents are left for the next looks" if later else ""),
            dynamic_partitions_requests=partitions,
            asset_events=[*(observation(specs, change) for change in changes), *late],
        )

    return source_observations


def build_world_changes(agents: Agents, evaluate_cohort: dg.JobDefinition) -> dg.SensorDefinition:
    specs, place = agents.specs, agents.specs.place

    @place.sensor(
        jobs=[agents.evaluate_agent, evaluate_cohort],
        minimum_interval_seconds=max(1, place.orchestration.sensor_seconds // 3),
        default_status=place.orchestration.sensor_status,
        description="Evaluates exactly what source_observations saw change: an edited persona its agent, an edited claim "
        "its dimension (of everybody for _default.yaml), an edited baseline the comparison, new messages their "
        "agent. Many agents at once become one run.",
    )
    def world_changes(context: dg.SensorEvaluationContext, world: WorldResource) -> dg.SensorResult | dg.SkipReason:
        """Request the runs that are needed for what was observed since the last look."""
        settings, instance, opened = place.orchestration, context.instance, world.open()
        daily = daily_limit(opened.settings, opened.store) if opened.settings.judge != RECORDED else None
        if daily and not daily.remaining:
            return dg.SkipReason(f"today's {daily.max_usd:g} dollars are spent; what changes is evaluated tomorrow")
        after, waiting = acted_upon(context.cursor)
        found = new_events(specs, instance, None if after is None else min([after, *waiting.values()]))
        if after is not None:
            # Nobody has acted upon these: of agents that had to wait, from where they had to.
            found = {
                agent_id: newer
                for agent_id, seen in found.items()
                if (newer := {name: event for name, event in seen.items() if event > waiting.get(agent_id, after)})
            }
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
            cursor=f"{_CURSOR}{newest}{f' {json.dumps(resting)}' if resting else ''}",
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


def run_requests(
    agents: Agents, evaluate_cohort: dg.JobDefinition, work: Sequence[Work], events: Mapping[str, Mapping[str, int]]
) -> Iterator[dg.RunRequest]:
    """Yield a run an agent, or one run for all where there are many."""
    keys = {item.agent_id: f"{item.agent_id}@{max(events[item.agent_id].values())}" for item in work}
    if len(work) > agents.specs.place.orchestration.cohort_size:
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


# A look has a minute; who is left is looked at in the next one.
MOST_SECONDS = 20.0
# Runs that learn a voice, asked for in one look.
MOST_LEARNING = 10


def build_voice_alarms(agents: Agents) -> dg.SensorDefinition:
    place = agents.specs.place

    @place.sensor(
        jobs=[agents.evaluate_agent, agents.follow_voices],
        minimum_interval_seconds=place.orchestration.sensor_seconds,
        default_status=place.orchestration.sensor_status,
        description="Follows what agents say and, when one no longer sounds like itself, has the judge evaluate the messages of "
        "that alarm, once. A voice that is not learnt is learnt first, by follow_voices. No alarm, no judgment.",
    )
    def voice_alarms(context: dg.SensorEvaluationContext, world: WorldResource) -> dg.SensorResult | dg.SkipReason:
        """Look at the agents with new messages and request a run for each new alarm."""
        opened = world.open()
        now = {name: f"r{item.revision}" for name, item in revisions(opened.store, opened.horizon).items()}
        looked = _looked(context.cursor)
        partitions = set(context.instance.get_dynamic_partitions(agents.specs.sources.agents_name))
        there = [name for name in known_agents(opened.root) if name in partitions]
        waiting = [name for name in there if now.get(name) != looked.get(name)]
        if not waiting or opened.newest_message_time() is None:
            return dg.SkipReason(f"{len(there)} agents, nobody has said anything new")
        window = WorldReader(opened).window(opened.settled(EvaluationRequest(**place.asked)).window)
        done = {name: looked[name] for name in there if name in looked}
        requests: list[dg.RunRequest] = []
        learning = 0
        ends = time.monotonic() + MOST_SECONDS
        for name in waiting:
            if time.monotonic() > ends:
                break
            state = _state(context, opened, name, window)
            if state is not None and state.learnable:
                if learning < MOST_LEARNING:
                    requests.append(_learning(agents, state, str(now.get(name))))
                    learning += 1
                continue
            done[name] = now.get(name)
            if state is not None:
                requests += [_judging(agents, found) for found in state.alarms]
        said = f"{len(waiting)} of {len(there)} agents have said something new, each in its own voice as far as that is learnt"
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else said,
            cursor=json.dumps(done, sort_keys=True),
        )

    return voice_alarms


def _state(context: dg.SensorEvaluationContext, world: World, agent_id: str, window: Window) -> VoiceState | None:
    """Return how a voice stands; None for an agent whose file is broken, which its own run will say."""
    try:
        world.sync_persona(agent_id)
        state = voice_state(world, agent_id, window)
    except ConfigError as error:
        context.log.warning(str(error))
        return None
    if state.learnt.note:
        context.log.info(state.learnt.note)
    return state


def _learning(agents: Agents, state: VoiceState, version: str) -> dg.RunRequest:
    return dg.RunRequest(
        job_name=agents.follow_voices.name,
        run_key=f"{state.agent_id}/{state.learnt.persona_hash[:16]}@{version}",
        partition_key=state.agent_id,
        tags=request_tags("voice not learnt yet", agent_id=state.agent_id),
    )


def _judging(agents: Agents, found: VoiceChange) -> dg.RunRequest:
    """Return the one run an alarm is worth: an evaluation of its messages and of no others."""
    window, agent_id = alarm_window(found), found.alarm.agent_id
    assert window.start is not None
    since, as_of = (moment.astimezone(UTC).isoformat() for moment in (window.start, window.end))
    config = {"since": since, "as_of": as_of}
    return dg.RunRequest(
        job_name=agents.evaluate_agent.name,
        run_key=f"{agent_id}/{found.alarm.raised_at.id}",
        partition_key=agent_id,
        run_config={"resources": {agents.specs.place.name(EVALUATION): {"config": config}}},
        tags=request_tags("voice alarm", agent_id=agent_id),
    )


def _looked(cursor: str | None) -> Mapping[str, str | None]:
    """Return which revision of each agent's messages was there at the last look; a cursor that cannot be read is none."""
    try:
        found = json.loads(cursor or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


MOST_LEFT_OUT = 20
# What a run could not read is not asked for again at once.
_PATIENCE = timedelta(minutes=5)


def build_reading(place: Place) -> dg.Definitions:
    """Return the job that reads message files, and the sensor that asks for it."""

    @place.op()
    def read_message_files(context: dg.OpExecutionContext, world: WorldResource) -> None:
        """Read message files from where they were read last, in bounded batches, and count what changed."""
        with known_failures():
            opened = world.open()
            result = opened.mirror_messages()
            later = opened.future_messages()
        for problem in [*result.problems, *later][:MOST_LEFT_OUT]:
            context.log.warning(f"left out: {problem}")
        written = result.written
        context.add_output_metadata(
            {
                "added": written.inserted,
                "changed": written.updated,
                "removed": written.removed,
                "left_out": len(result.problems) + result.unnamed,
            }
        )

    read_messages = place.job(
        READS_MESSAGES,
        read_message_files,
        "Brings what is new in messages/ into the store, and gives messages to the agents whose aliases they came under. Judges "
        "nothing.",
    )

    @place.sensor(
        job=read_messages,
        minimum_interval_seconds=place.orchestration.sensor_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Asks for read_messages when a message file is not as it was read, or an alias changed: one run at a time.",
    )
    def message_files(context: dg.SensorEvaluationContext, world: WorldResource) -> dg.SensorResult | dg.SkipReason:
        """Compare the message files with what was read; none that looks as it did is opened."""
        unread = world.open().unread_messages()
        if not unread:
            return dg.SkipReason("every message file is as it was read")
        if is_under_way(context.instance, read_messages.name):
            return dg.SkipReason("a run reads them already")
        asked, _, at = (context.cursor or "").partition(" ")
        now = datetime.now(UTC)
        if asked == unread.version and abs(now - datetime.fromisoformat(at)) < _PATIENCE:
            return dg.SkipReason("a run could not read them; the next one tries in a few minutes")
        said = "messages changed" if unread.files or unread.gone else "aliases changed"
        return dg.SensorResult(
            run_requests=[dg.RunRequest(tags=request_tags(said))], cursor=f"{unread.version} {now.isoformat()}"
        )

    return dg.Definitions(jobs=[read_messages], sensors=[message_files])


def build_changes(agents: Agents, evaluate_cohort: dg.JobDefinition) -> dg.Definitions:
    sensors = [
        build_source_observations(agents.specs),
        build_world_changes(agents, evaluate_cohort),
        build_voice_alarms(agents),
    ]
    return dg.Definitions.merge(build_reading(agents.specs.place), dg.Definitions(sensors=sensors))
