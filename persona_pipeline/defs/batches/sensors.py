"""What collects batches that have ended."""

import dagster as dg

from persona_pipeline.defs.batches.planning import count_open
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import WorldResource

POLL_SECONDS = 300
_UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
]


def build_open_batches(place: Place, collect_batches: dg.JobDefinition) -> dg.SensorDefinition:
    """Return the sensor of open batches."""

    @dg.sensor(
        name=place.name("open_batches"),
        job=collect_batches,
        minimum_interval_seconds=POLL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Collects message batches while there are open ones. Collecting costs nothing.",
    )
    @place.bound
    def open_batches(context: dg.SensorEvaluationContext, world: WorldResource) -> dg.RunRequest | dg.SkipReason:
        """Ask for a collection when a batch is open and none is under way."""
        count = count_open(world.open().store)
        if not count:
            return dg.SkipReason("no batch is open")
        under_way = dg.RunsFilter(job_name=collect_batches.name, statuses=_UNFINISHED)
        if context.instance.get_run_records(under_way, limit=1):
            return dg.SkipReason("a collection is under way")
        return dg.RunRequest(tags=run_tags.request_tags(f"{count} open batches"))

    return open_batches
