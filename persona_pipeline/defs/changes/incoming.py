"""Messages coming in: a sensor that looks at the files from outside, and the run that reads them."""

from datetime import UTC, datetime, timedelta

import dagster as dg

from persona_pipeline.defs.platform.failures import known_failures
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import READS_MESSAGES, WorldResource
from persona_pipeline.defs.platform.run_tags import request_tags

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
