"""The sensors: they report changed files, messages and suites, have message files read, and follow voices."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

import dagster as dg

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.defs.agents.automation import build_automation
from persona_pipeline.defs.agents.evaluation import named_agents
from persona_pipeline.defs.agents.freshness import overdue, report_freshness
from persona_pipeline.defs.agents.outcomes import voice_outcome
from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.platform.assets import partition_requests, reported
from persona_pipeline.defs.platform.dagster_internals import MATERIALIZED, newest_versions
from persona_pipeline.defs.platform.place import EVALUATION, WORLD, Place
from persona_pipeline.defs.platform.resources import evaluation_of, known_agents, known_failures, world_of
from persona_pipeline.defs.platform.run_tags import is_under_way, request_tags
from persona_pipeline.defs.suites import SuiteSpecs, report_suites
from persona_pipeline.evaluation.changes import (
    MESSAGES,
    Debounce,
    MessageVersion,
    find_changes,
    source_versions,
)
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.evaluation.voice import VoiceState, alarm_window, voice_state
from persona_pipeline.judging.money import daily_limit
from persona_pipeline.judging.open import RECORDED
from persona_pipeline.scoring.style.monitor import VoiceAlarm
from persona_pipeline.world.messages.revision import revisions
from persona_pipeline.world.models import Window
from persona_pipeline.world.runs import evaluated_since, note_asked
from persona_pipeline.world.world import World


def recorded_versions(specs: Specs, instance: dg.DagsterInstance) -> dict[str, Mapping[str, str]]:
    """Return the last recorded version of every source of every agent."""
    return {name: newest_versions(instance, spec.key, MATERIALIZED) for name, spec in specs.sources.items()}


# A look has a minute, and Dagster writes event by event; the next look reports the other agents.
MOST_RECORDED = 1000


def build_source_changes(specs: Specs, suites: Sequence[SuiteSpecs]) -> dg.SensorDefinition:
    """Return the sensor that reports the versions of sources."""
    place = specs.place

    @place.sensor(
        asset_selection=dg.AssetSelection.assets(
            place.key(READING),
            *(spec.key for spec in specs.evaluated),
            *(item.source.key for item in suites),
        ),
        minimum_interval_seconds=place.orchestration.sensor_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reports the versions of files and messages, so that scores of an edited persona show as stale, and keeps "
        "partitions in step with personas/ and suites/. It starts only runs of message_files, one at a time, when a message file "
        "or an alias changed.",
    )
    def source_changes(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        """Compare files and messages with the last reports, and report the changes."""
        instance, opened = context.instance, world_of(place, context)
        now, known = source_versions(opened.root, opened.store), instance.get_dynamic_partitions(specs.agents_name)
        for name in now.misnamed:
            context.log.warning(f"personas/{name}.yaml is left out: {name!r} cannot be an agent's id")
        debounce = Debounce(place.orchestration.new_messages, timedelta(minutes=place.orchestration.quiet_minutes))
        reading = opened.is_reading_messages
        changes, waiting = find_changes(
            now,
            recorded_versions(specs, instance),
            known=known,
            is_settled=partial(debounce.settled, at=datetime.now(UTC)),
            reading=reading,
        )
        changed = list(dict.fromkeys(change.agent_id for change in changes))
        why, resting = agents_to_rest(place, opened, changed)
        later = {*changed[MOST_RECORDED:], *resting}
        changes = [change for change in changes if change.agent_id not in later]
        # An agent that is not a partition yet is new in the next look too.
        there = [agent_id for agent_id in now.agent_ids if agent_id in known or agent_id not in later]
        partitions = partition_requests(specs.agents, there, known)
        if waiting:
            why.append(
                f"{len(waiting)} with new messages, {'which are being read' if reading else 'not yet enough or quiet'}"
            )
        requests, late_before = reading_requests(place, instance, opened), _remembered(context.cursor)
        overdue_now = overdue(specs, instance)
        newly_late = [
            name
            for name, severity in overdue_now.items()
            if name in now.agent_ids and late_before.get(name) != severity
        ]
        report_freshness(specs, instance, newly_late, overdue_now)
        cursor = json.dumps(overdue_now)
        of_suites = report_suites(context, opened, suites)
        partitions += of_suites.partitions
        why += of_suites.notes
        if not (changes or partitions or requests or of_suites.events or newly_late):
            context.update_cursor(cursor)
            there_are = f"{len(now.agent_ids)} agents" + (f", {of_suites.suites} suites" if of_suites.suites else "")
            return dg.SkipReason("; ".join([f"{there_are}, nothing changed", *why]))
        note_asked(opened.store, [agent_id for agent_id in changed if agent_id not in later])
        recorded = f"{len(changes)} versions of {len(changed) - len(later)} agents recorded"
        recorded += f", {len(of_suites.events)} of suites" if of_suites.events else ""
        left = [f"{len(later)} agents are left for the next looks"] if later else []
        return dg.SensorResult(
            run_requests=requests,
            cursor=cursor,
            # Nothing is started; without it the page says that the result was empty.
            skip_reason=None if requests else "; ".join([recorded, *left, *why]),
            dynamic_partitions_requests=partitions,
            asset_events=[
                # Messages last: until then automation requests no new agent.
                *(
                    reported(specs.sources[item.source], item.agent_id, item.version)
                    for item in sorted(changes, key=lambda item: item.source == MESSAGES)
                ),
                *of_suites.events,
            ],
        )

    return source_changes


def agents_to_rest(place: Place, world: World, changed: Sequence[str]) -> tuple[list[str], set[str]]:
    """Return why changes are not reported yet, and the agents concerned: automation evaluates every reported change."""
    daily = daily_limit(world.settings, world.store) if world.settings.judge != RECORDED else None
    if daily and not daily.remaining:
        return [f"today's {daily.max_usd:g} dollars are spent; what changes is evaluated tomorrow"], set(changed)
    cooldown = timedelta(minutes=place.orchestration.cooldown_minutes)
    early = evaluated_since(world.store, changed, datetime.now(UTC) - cooldown) if cooldown else set()
    return ([f"{len(early)} agents were evaluated less than {cooldown} ago"] if early else []), early


# A look has a minute; the other agents are looked at in the next one.
MOST_SECONDS = 20.0


def build_voice_alarms(specs: Specs) -> dg.SensorDefinition:
    """Return the sensor that follows voices."""
    place = specs.place

    @place.sensor(
        asset_selection=dg.AssetSelection.assets(*(spec.key for spec in (*specs.evaluated, specs.voices))),
        minimum_interval_seconds=place.orchestration.sensor_seconds,
        default_status=place.orchestration.sensor_status,
        description="Follows what agents say and, when one no longer sounds like itself, has the judge evaluate the messages of "
        "that alarm, once. A voice that is not learnt is learnt first. No alarm, no judgment.",
    )
    def voice_alarms(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        """Look at the agents with new messages and request a run for each new alarm."""
        opened = world_of(place, context)
        now = {name: str(MessageVersion(number)) for name, number in revisions(opened.store, opened.horizon).items()}
        looked = _remembered(context.cursor)
        partitions = set(context.instance.get_dynamic_partitions(specs.agents_name))
        there = [name for name in known_agents(opened.root) if name in partitions]
        waiting = [name for name in there if now.get(name) != looked.get(name)]
        if not waiting or opened.newest_message_time() is None:
            return dg.SkipReason(f"{len(there)} agents, nobody has said anything new")
        window = WorldReader(opened).window(opened.settled(EvaluationRequest(**place.asked)).window)
        done = {name: looked[name] for name in there if name in looked}
        requests: list[dg.RunRequest] = []
        ends = time.monotonic() + MOST_SECONDS
        for name in waiting:
            if time.monotonic() > ends:
                break
            done[name] = now.get(name)
            try:
                requests += [_judging(specs, found) for found in _state(context, opened, name, window).alarms]
            except ConfigError as error:
                # The agent's run reports it.
                context.log.warning(str(error))
        said = f"{len(waiting)} of {len(there)} agents have said something new, each in its own voice as far as that is learnt"
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else said,
            cursor=json.dumps(done, sort_keys=True),
        )

    return voice_alarms


def _state(
    context: dg.SensorEvaluationContext | dg.AssetExecutionContext, world: World, agent_id: str, window: Window
) -> VoiceState:
    """Return the state of a voice, which is learnt first where it is not; ConfigError: the agent's file is broken."""
    world.sync_persona(agent_id)
    state = voice_state(world, agent_id, window, learn=True)
    if state.learnt.note:
        context.log.info(state.learnt.note)
    return state


def build_voices(specs: Specs) -> dg.AssetsDefinition:
    """Return the step that learns and follows voices."""

    @dg.multi_asset(
        name=specs.place.name("follow_voice"),
        specs=[specs.voices],
        partitions_def=specs.agents,
        required_resource_keys=specs.place.names([WORLD, EVALUATION]),
        description="Learn the agent's voice from what it said before the window, if it is not learnt, and follow what it said "
        "since.",
    )
    def follow_voice(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
        with known_failures():
            world = world_of(specs.place, context)
            [agent_id] = named_agents(context, world)
            for problem in world.sync_messages().problems:
                context.log.warning(f"left out: {problem}")
            asked = evaluation_of(specs.place, context).request(world)
            state = _state(context, world, agent_id, WorldReader(world).window(asked.window, asked.as_of, asked.since))
        for found in state.alarms:
            context.log.warning(found.text)
        yield voice_outcome(state).result(specs.voices)

    return follow_voice


def _judging(specs: Specs, alarm: VoiceAlarm) -> dg.RunRequest:
    """Return the one run an alarm is worth: an evaluation of its messages and of no others."""
    window, agent_id = alarm_window(alarm), alarm.agent_id
    assert window.start is not None
    since, as_of = (moment.astimezone(UTC).isoformat() for moment in (window.start, window.end))
    config = {"since": since, "as_of": as_of}
    return dg.RunRequest(
        asset_selection=[spec.key for spec in specs.judged],
        run_key=f"{agent_id}/{alarm.raised_at.id}",
        partition_key=agent_id,
        run_config={"resources": {specs.place.name(EVALUATION): {"config": config}}},
        tags=request_tags("voice alarm", agent_id=agent_id),
    )


def _remembered(cursor: str | None) -> Mapping[str, str | None]:
    """Return what the last look left, by agent; a cursor that cannot be read is empty."""
    try:
        found = json.loads(cursor or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


MOST_LEFT_OUT = 20
READING = "message_files"
# Seconds after which files that a run could not read are requested again.
_PATIENCE = 300


def build_message_files(place: Place) -> dg.AssetsDefinition:
    """Return the asset that reads message files."""

    @place.asset(READING, "sources", kinds={"jsonl", "sql"})
    def message_files(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        """Reads new lines of `messages/` into the store, and assigns messages to agents by their aliases. Judges nothing."""
        with known_failures():
            opened = world_of(place, context)
            result = opened.mirror_messages()
            later = opened.future_messages()
        for problem in [*result.problems, *later][:MOST_LEFT_OUT]:
            context.log.warning(f"left out: {problem}")
        return dg.MaterializeResult(
            metadata={
                "added": result.written.inserted,
                "changed": result.written.updated,
                "removed": result.written.removed,
                "left_out": len(result.problems) + result.unnamed,
            }
        )

    return message_files


def reading_requests(place: Place, instance: dg.DagsterInstance, world: World) -> list[dg.RunRequest]:
    """Return the run that reads message files, if it is due: one at a time, and once in a while for the same files."""
    unread = world.unread_messages()
    if not unread or is_under_way(instance, READING):
        return []
    said = "messages changed" if unread.files or unread.gone else "aliases changed"
    key = f"{READING} {unread.version} {int(time.time() / _PATIENCE)}"
    return [dg.RunRequest(key, asset_selection=[place.key(READING)], tags=request_tags(said, asked=READING))]


def build_changes(specs: Specs, suites: Sequence[SuiteSpecs]) -> dg.Definitions:
    """Return the sensors."""
    automation = build_automation(specs.place, [*specs.judged, *(item.results for item in suites)])
    return dg.Definitions(sensors=[build_source_changes(specs, suites), automation, build_voice_alarms(specs)])
