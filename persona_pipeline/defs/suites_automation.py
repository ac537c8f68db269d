"""What starts eval suites: a changed file, or the clock. Nothing here runs until it is switched on, but for the partitions."""

import dagster as dg

from persona_pipeline.defs import run_tags
from persona_pipeline.defs.observations import DATA_VERSION
from persona_pipeline.defs.resources import WorldResource
from persona_pipeline.defs.settings import orchestration
from persona_pipeline.defs.suites import SUITE_ASSETS, partitions_name, source_key, target_partitions
from persona_pipeline.defs.suites_files import SuiteFile, open_suite, suite_files, suite_version
from persona_pipeline.defs.suites_job import choose_suites, observed_version, run_eval_suites
from persona_pipeline.errors import ConfigError

LOOK_SECONDS = 60


@dg.sensor(
    asset_selection=dg.AssetSelection.assets(*SUITE_ASSETS),
    minimum_interval_seconds=LOOK_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Keeps the suites' partitions in step with the targets they name. Starts no run.",
)
def suite_targets(context: dg.SensorEvaluationContext, world: WorldResource) -> dg.SensorResult | dg.SkipReason:
    """Add the targets a suite names and remove the others; those of a suite that is not valid stay."""
    root = world.open().root
    requests: list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest] = []
    for file in suite_files(root):
        try:
            named = open_suite(root, file).target_names
        except ConfigError as error:
            context.log.warning(str(error))
            continue
        partitions = target_partitions(file)
        known = context.instance.get_dynamic_partitions(partitions_name(file))
        added = [name for name in named if name not in known]
        removed = [name for name in known if name not in named]
        requests += [partitions.build_add_request(added)] if added else []
        requests += [partitions.build_delete_request(removed)] if removed else []
    if not requests:
        return dg.SkipReason("no target was added or removed")
    return dg.SensorResult(dynamic_partitions_requests=requests)


@dg.sensor(
    job=run_eval_suites,
    minimum_interval_seconds=LOOK_SECONDS,
    default_status=orchestration().sensor_status,
    description="Runs a suite when its file, or a file it names, changed: tests, prompts, targets, recorded answers, programs.",
)
def suite_changes(context: dg.SensorEvaluationContext, world: WorldResource) -> dg.SensorResult | dg.SkipReason:
    """Request a run a changed suite. The memory is the data versions recorded as observations, as for agents."""
    root = world.open().root
    files = suite_files(root)
    current = {file: suite_version(root, file) for file in files}
    changed = [file for file in files if observed_version(context.instance, source_key(file))[0] != current[file]]
    if not changed:
        return dg.SkipReason(f"{len(files)} suites, nothing changed")
    return dg.SensorResult(
        run_requests=[_request(file) for file in changed],
        asset_events=[dg.AssetObservation(source_key(file), tags={DATA_VERSION: current[file]}) for file in changed],
    )


nightly_suites = dg.ScheduleDefinition(
    name="nightly_suites",
    job=run_eval_suites,
    cron_schedule=orchestration().suites_cron,
    execution_timezone=orchestration().timezone,
    default_status=orchestration().schedule_status,
    description="Runs every eval suite. PERSONA_SUITES_CRON says when.",
    tags=run_tags.request_tags("nightly"),
)


def _request(file: SuiteFile) -> dg.RunRequest:
    config = {"ops": {choose_suites.name: {"config": {"suites": [file.label]}}}}
    return dg.RunRequest(run_config=config, tags=run_tags.request_tags(f"suite {file.name[-1]} changed"[:63]))
