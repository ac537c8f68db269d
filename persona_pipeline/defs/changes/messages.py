"""Messages coming in: files that a sensor looks at from outside, and rows of somebody's asset."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from persona_pipeline.defs.platform.assets import OWNERS
from persona_pipeline.defs.platform.failures import known_failures
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import READS_MESSAGES, WorldResource, world_in_force
from persona_pipeline.defs.platform.run_tags import request_tags
from persona_pipeline.world.world import bring_rows

_MOST_NAMED = 20
# What a run could not read is not asked for again at once.
_PATIENCE = timedelta(minutes=5)
_UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
]


def build_read_messages(place: Place) -> dg.JobDefinition:
    """Return the job that reads message files."""

    @dg.op(name=place.name("read_message_files"))
    @place.bound
    def read_message_files(context: dg.OpExecutionContext, world: WorldResource) -> None:
        """Read message files from where they were read last, in bounded batches, and count what changed."""
        with known_failures():
            opened = world.open()
            result = opened.mirror_messages()
            later = opened.future_messages()
        for problem in [*result.problems, *later][:_MOST_NAMED]:
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

    read = read_message_files.alias("read_message_files")

    @dg.job(
        name=place.name(READS_MESSAGES),
        executor_def=place.executor,
        description="Brings what is new in messages/ into the store, and gives messages to the agents whose aliases they came "
        "under. Judges nothing.",
    )
    def read_messages() -> None:
        read()

    return read_messages


def build_message_files(place: Place, read_messages: dg.JobDefinition) -> dg.SensorDefinition:
    """Return the sensor of message files."""

    @dg.sensor(
        name=place.name("message_files"),
        job=read_messages,
        minimum_interval_seconds=place.orchestration.sensor_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Asks for read_messages when a message file is not as it was read, or an alias changed: one run at a time.",
    )
    @place.bound
    def message_files(context: dg.SensorEvaluationContext, world: WorldResource) -> dg.SensorResult | dg.SkipReason:
        """Look at the message files from outside; none is opened."""
        unread = world.open().unread_messages()
        if not unread:
            return dg.SkipReason("every message file is as it was read")
        under_way = dg.RunsFilter(job_name=read_messages.name, statuses=_UNDER_WAY)
        if context.instance.get_runs(under_way, limit=1):
            return dg.SkipReason("a run reads them already")
        asked, _, at = (context.cursor or "").partition(" ")
        now = datetime.now(UTC)
        if asked == unread.version and now - datetime.fromisoformat(at) < _PATIENCE:
            return dg.SkipReason("a run could not read them; the next one tries in a few minutes")
        said = "messages changed" if unread.files or unread.gone else "aliases changed"
        return dg.SensorResult(
            run_requests=[dg.RunRequest(tags=request_tags(said))], cursor=f"{unread.version} {now.isoformat()}"
        )

    return message_files


def build_message_rows(place: Place, upstream: dg.AssetKey, columns: Mapping[str, str]) -> dg.Definitions:
    """Return the asset that brings an asset's rows into the store of a place, and the sensor that has it follow that asset."""
    key = place.key("message_rows")

    @dg.asset(
        key=key,
        group_name=place.path("world"),
        ins={"rows": dg.AssetIn(key=upstream, metadata={"allow_missing_partitions": True})},
        kinds={"sql"},
        owners=OWNERS,
        # Not eager(): that waits until no partition of the other asset is missing.
        automation_condition=dg.AutomationCondition.any_deps_updated() & ~dg.AutomationCondition.in_progress(),
        description=f"The rows of `{upstream.to_user_string()}` as messages in the store, by id: they are added or updated, never "
        "removed. What is no message is left out and named in the log.",
    )
    @place.bound
    def message_rows(context: dg.AssetExecutionContext, rows: Any) -> dg.MaterializeResult:
        # That an agent is no partition yet tells sensors that it is new.
        with known_failures(), world_in_force() as world:
            result = bring_rows(world, rows, source=upstream.to_user_string(), columns=columns)
        for problem in result.problems[:_MOST_NAMED]:
            context.log.warning(f"left out: {problem}")
        written = result.written
        return dg.MaterializeResult(
            metadata={
                "added": written.inserted,
                "changed": written.updated,
                "unchanged": written.unchanged,
                "left_out": len(result.problems) + result.unnamed,
                "speakers": ", ".join(sorted(result.speakers)) or "nobody",
            }
        )

    follow = dg.AutomationConditionSensorDefinition(
        name=place.name("message_rows"),
        target=dg.AssetSelection.assets(key),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=place.orchestration.sensor_seconds,
        description=f"Brings messages into the store when {upstream.to_user_string()} was materialized. Judges nothing.",
    )
    return dg.Definitions(assets=[message_rows], sensors=[follow])
