"""Eval suites: their assets, the job that runs all of them, and what sees that they change."""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.settings import get_settings
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.dagster_internals import DATA_VERSION, lineage_tags
from persona_pipeline.defs.platform.failures import bad_input, known_failures
from persona_pipeline.defs.platform.place import VALUES, Place
from persona_pipeline.defs.platform.resources import EvaluationSettings, WorldResource
from persona_pipeline.defs.suites.assets import (
    ALLOW_CODE,
    CHECKS,
    VERDICT,
    asset_key,
    build_source,
    build_suite,
    in_short,
    needs_leave,
    partitions_name,
    run_target,
    source_key,
    suite_outcome,
    target_partitions,
)
from persona_pipeline.suites.running.opening import SuiteFile, choose_files, open_suite, suite_files
from persona_pipeline.suites.running.suite_run import suite_version

if TYPE_CHECKING:
    from persona_pipeline.suites.grading.results import SuiteResult

# The step whose config says which suites.
CHOOSE = "choose_suites"


class SuitesConfig(dg.Config):
    """Which suites to run. One target alone is a partition of the suite's asset."""

    suites: list[str] = Field(default=[], description="Suites to run, by name, such as order_desk; empty: all.")


def build_choose_suites(place: Place) -> dg.OpDefinition:
    """Return the step that lists the suites."""

    @dg.op(name=place.name(CHOOSE), out=dg.DynamicOut(dict, io_manager_key=place.name(VALUES)))
    @place.bound
    def choose_suites(
        context: dg.OpExecutionContext, world: WorldResource, config: SuitesConfig
    ) -> Iterator[dg.DynamicOutput]:
        """List the suite files to run, one a step."""
        with known_failures():
            files = choose_files(suite_files(world.open().root), config.suites)
        if not files:
            context.log.warning("there is no suite: suites/ holds no *.eval.yaml")
        for file in files:
            value = {"name": list(file.name), "path": file.path}
            yield dg.DynamicOutput(value, mapping_key="__".join(file.name), metadata={"file": file.path})

    return choose_suites


def build_run_suite_file(place: Place) -> dg.OpDefinition:
    """Return the step that runs a suite."""

    @dg.op(name=place.name("run_suite_file"), pool=place.judge_pool, out=dg.Out(io_manager_key=place.name(VALUES)))
    @place.bound
    def run_suite_file(
        context: dg.OpExecutionContext, chosen: dict, world: WorldResource, evaluation: EvaluationSettings
    ) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation | dg.Output]:
        """Ask all targets of a suite; fails when one of them failed. A target that cannot be asked stops no other."""
        file = SuiteFile(tuple(chosen["name"]), chosen["path"])
        with known_failures():
            opened_world = world.open()
            opened = open_suite(opened_world.root, file, opened_world.settings)
            if not opened.target_names:
                raise ConfigError(Problem("the suite has no tests", str(opened.suite.path)))
        context.instance.add_dynamic_partitions(partitions_name(place, file), opened.target_names)
        problems: list[Problem] = []
        lines: list[str] = []
        remedies: set[str] = set()
        for target in opened.target_names:
            with known_failures():
                try:
                    run = run_target(opened_world, opened, target, evaluation)
                except ConfigError as error:
                    problems += error.problems
                    continue
            lines += [f"{target}: {line}" for line in VERDICT.find(run)]
            remedies |= {ALLOW_CODE} if needs_leave(run) else set()
            yield from _events(place, context.instance, file, target, run)
        if problems:
            raise bad_input(ConfigError(problems))
        if lines:
            text = "\n".join([f"{opened.suite.name} failed", in_short(lines), *remedies])
            raise dg.Failure(text, allow_retries=False)
        yield dg.Output(None)

    return run_suite_file


def build_run_eval_suites(place: Place) -> dg.JobDefinition:
    """Return the job that runs the suites of a place."""
    choose, run = build_choose_suites(place).alias(CHOOSE), build_run_suite_file(place).alias("run_suite_file")

    @dg.job(
        name=place.name("run_eval_suites"),
        executor_def=place.executor,
        description="Every eval suite with all its targets, a step a file; fails when a test failed or could not be judged.",
    )
    def run_eval_suites() -> None:
        choose().map(run)

    return run_eval_suites


def observed_version(instance: dg.DagsterInstance, key: dg.AssetKey) -> tuple[str | None, int | None]:
    """Return the version last recorded of a source and the event that records it."""
    records = instance.fetch_observations(key, limit=1).records
    if not records:
        return None, None
    observation = records[0].asset_observation
    return (observation.tags or {}).get(DATA_VERSION) if observation else None, records[0].storage_id


def _events(
    place: Place, instance: dg.DagsterInstance, file: SuiteFile, target: str, run: "SuiteResult"
) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
    """Yield what the suite's asset would have left for this target."""
    outcome = suite_outcome(run)
    version, event = observed_version(instance, source_key(place, file))
    tags = lineage_tags(outcome.version, place.judge_version, {source_key(place, file): (version, event)})
    yield dg.AssetMaterialization(asset_key(place, file), partition=target, metadata=outcome.metadata, tags=tags)
    for check in CHECKS:
        found = check.result(run)
        yield dg.AssetCheckEvaluation(
            asset_key=asset_key(place, file),
            check_name=check.name,
            passed=found.passed,
            metadata=found.metadata,
            severity=found.severity,
            description=found.description,
            # A blocking one would end the step, and with it the other targets.
            blocking=False,
            partition=target,
        )


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
        opened, instance = world.open(), context.instance
        root = opened.root
        files = suite_files(root)
        note = reload_note(files, loaded)
        if note:
            context.log.warning(note)
        current = {file: suite_version(root, file, opened.settings) for file in files}
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
        opened = world.open()
        named = open_suite(opened.root, file, opened.settings).target_names
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


def build_suites(place: Place) -> dg.Definitions:
    """Return the eval suites that the world of a place has now."""
    files = suite_files((place.settings or get_settings()).world_root)
    run_eval_suites = build_run_eval_suites(place)
    nightly = dg.ScheduleDefinition(
        name=place.name("nightly_suites"),
        job=run_eval_suites,
        cron_schedule=place.orchestration.suites_cron,
        execution_timezone=place.orchestration.timezone,
        default_status=place.orchestration.schedule_status,
        description="Runs every eval suite. PERSONA_SUITES_CRON says when.",
        tags=run_tags.request_tags("nightly"),
    )
    return dg.Definitions(
        assets=[*(build_source(place, file) for file in files), *(build_suite(place, file) for file in files)],
        jobs=[run_eval_suites],
        schedules=[nightly],
        sensors=[build_suite_observations(place, files), build_suite_changes(place, run_eval_suites)],
    )
