"""What sees that suites change, and what runs them because of it, as for agents: the one is always on, the other starts runs."""

import json
from collections.abc import Sequence
from typing import Any

import dagster as dg

from persona_pipeline.changes.suite_files import SuiteFile, open_suite, suite_files, suite_version
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.dagster_internals import DATA_VERSION
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import WorldResource
from persona_pipeline.defs.suites.assets import asset_key, partitions_name, source_key, target_partitions
from persona_pipeline.defs.suites.jobs import CHOOSE, observed_version
from persona_pipeline.errors import ConfigError

LOOK_SECONDS = 60
ACT_SECONDS = 20


def build_suite_observations(place: Place, loaded: Sequence[SuiteFile]) -> dg.SensorDefinition:
    """Return the sensor that records what changed of a place's suites; ``loaded``: those that the graph shows."""

    @dg.sensor(
        name=place.name("suite_observations"),
        asset_selection=dg.AssetSelection.assets(*(asset_key(place, file) for file in loaded)),
        minimum_interval_seconds=LOOK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Records which versions of the suites there are, so that results of an edited one show as stale, keeps the "
        "partitions in step with the targets they name, and says when the graph lacks a suite. Starts no run.",
    )
    @place.bound
    def suite_observations(
        context: dg.SensorEvaluationContext, world: WorldResource
    ) -> dg.SensorResult | dg.SkipReason:
        """Compare the suites with what was last recorded. The targets of a suite that is not valid stay."""
        root, instance = world.open().root, context.instance
        files = suite_files(root)
        note = reload_note(files, loaded)
        if note:
            context.log.warning(note)
        current = {file: suite_version(root, file) for file in files}
        changed = [file for file in files if observed_version(instance, source_key(place, file))[0] != current[file]]
        requests = [request for file in files for request in _partition_requests(place, context, file, world)]
        if not (changed or requests):
            return dg.SkipReason(f"{len(files)} suites, nothing changed{f'; {note}' if note else ''}")
        return dg.SensorResult(
            skip_reason=f"{len(changed)} versions recorded{f'; {note}' if note else ''}",
            dynamic_partitions_requests=requests,
            asset_events=[
                dg.AssetObservation(source_key(place, file), tags={DATA_VERSION: current[file]}) for file in changed
            ],
        )

    return suite_observations


def build_suite_changes(place: Place, run_eval_suites: dg.JobDefinition) -> dg.SensorDefinition:
    """Return the sensor that runs changed suites."""

    @dg.sensor(
        name=place.name("suite_changes"),
        job=run_eval_suites,
        minimum_interval_seconds=ACT_SECONDS,
        default_status=place.orchestration.sensor_status,
        description="Runs a suite when suite_observations saw that its file, or a file it names, changed: tests, prompts, targets, "
        "recorded answers, programs; or what it reads of an agent: persona, claims, baseline.",
    )
    @place.bound
    def suite_changes(context: dg.SensorEvaluationContext, world: WorldResource) -> dg.SensorResult | dg.SkipReason:
        """Request a run a suite whose recorded version is another than the one last acted upon, which the cursor holds."""
        files = suite_files(world.open().root)
        look, before = acted_upon(context.cursor)
        now = {file.label: observed_version(context.instance, source_key(place, file))[0] for file in files}
        changed = [file for file in files if now[file.label] not in (None, before.get(file.label))]
        if not changed:
            return dg.SkipReason(f"{len(files)} suites, nothing was observed to change")
        return dg.SensorResult(
            run_requests=[_request(file, look + 1) for file in changed],
            cursor=json.dumps({"look": look + 1, "acted": now}),
        )

    return suite_changes


def reload_note(there: Sequence[SuiteFile], loaded: Sequence[SuiteFile]) -> str:
    """Return what the graph lacks or has too much, and the remedy; empty when it is as the folder is."""
    new = [file.label for file in there if file not in loaded]
    gone = [file.label for file in loaded if file not in there]
    said = [f"{word}: {', '.join(names)}" for word, names in (("new", new), ("gone", gone)) if names]
    if not said:
        return ""
    return f"the graph was loaded before suites came or went ({'; '.join(said)}); reload the code location under Deployment"


def acted_upon(cursor: str | None) -> tuple[int, dict[str, str]]:
    """Return the number of the last look that led to runs, and by suite the version it acted upon."""
    try:
        found: Any = json.loads(cursor or "{}")
        return int(found.get("look", 0)), dict(found.get("acted", {}))
    except (ValueError, TypeError, AttributeError):
        # Of an older release.
        return 0, {}


def _partition_requests(
    place: Place, context: dg.SensorEvaluationContext, file: SuiteFile, world: WorldResource
) -> list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest]:
    try:
        named = open_suite(world.open().root, file).target_names
    except ConfigError as error:
        context.log.warning(str(error))
        return []
    partitions = target_partitions(place, file)
    known = context.instance.get_dynamic_partitions(partitions_name(place, file))
    added = [name for name in named if name not in known]
    removed = [name for name in known if name not in named]
    return [
        *([partitions.build_add_request(added)] if added else []),
        *([partitions.build_delete_request(removed)] if removed else []),
    ]


def _request(file: SuiteFile, look: int) -> dg.RunRequest:
    config = {"ops": {CHOOSE: {"config": {"suites": [file.label]}}}}
    tags = run_tags.request_tags(f"suite {file.name[-1]} changed"[:63])
    # The look is written in one go with the runs: a daemon that dies in between asks under the same key again.
    return dg.RunRequest(run_key=f"{file.label}@{look}", run_config=config, tags=tags)
