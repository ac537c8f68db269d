"""What starts eval suites: a changed file, or the clock. Nothing here runs until it is switched on, but for the partitions."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from persona_pipeline.changes.suite_files import SuiteFile, open_suite, suite_files, suite_version
from persona_pipeline.defs.changes.looks import last_look, next_look, requested_runs, unfinished_looks
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.dagster_internals import DATA_VERSION
from persona_pipeline.defs.platform.resources import WorldResource
from persona_pipeline.defs.platform.settings import orchestration
from persona_pipeline.defs.suites.assets import SUITE_ASSETS, partitions_name, source_key, target_partitions
from persona_pipeline.defs.suites.jobs import choose_suites, observed_version, run_eval_suites
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
    description="Runs a suite when its file, or a file it names, changed: tests, prompts, targets, recorded answers, programs; "
    "or what it reads of an agent: persona, claims, baseline.",
)
def suite_changes(context: dg.SensorEvaluationContext, world: WorldResource) -> dg.SensorResult | dg.SkipReason:
    """Request a run a changed suite. The memory is the data versions recorded as observations, as for agents."""
    root, instance = world.open().root, context.instance
    files = suite_files(root)
    last = last_look(context.cursor)
    unfinished = {file: look for file in files for look in unfinished_looks(instance, source_key(file), last).values()}
    started = _started_suites(instance, unfinished.values())
    current = {file: suite_version(root, file) for file in files}
    changed = [
        file
        for file in files
        if observed_version(instance, source_key(file))[0] != current[file]
        or (file in unfinished and (unfinished[file], file.label) not in started)
    ]
    newest = max(unfinished.values(), default=0)
    if not changed:
        if newest:
            context.update_cursor(str(newest))
        return dg.SkipReason(f"{len(files)} suites, nothing changed")
    look = next_look(max(last, newest), datetime.now(UTC))
    tags = {run_tags.LOOK: str(look)}
    return dg.SensorResult(
        run_requests=[_request(file, look) for file in changed],
        asset_events=[
            dg.AssetObservation(source_key(file), tags={DATA_VERSION: current[file], **tags}) for file in changed
        ],
        cursor=str(look),
    )


def _started_suites(instance: dg.DagsterInstance, looks: Collection[int]) -> set[tuple[int, str]]:
    started: set[tuple[int, str]] = set()
    for look, run in requested_runs(instance, looks):
        config: Any = run.run_config
        started |= {(look, label) for label in config["ops"][choose_suites.name]["config"]["suites"]}
    return started


def _request(file: SuiteFile, look: int) -> dg.RunRequest:
    config = {"ops": {choose_suites.name: {"config": {"suites": [file.label]}}}}
    tags = run_tags.request_tags(f"suite {file.name[-1]} changed"[:63], look=look)
    return dg.RunRequest(run_config=config, tags=tags)
