"""All eval suites in one run, which leaves the events that a run of each suite and target would have left."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from persona_pipeline.changes.suite_files import SuiteFile, choose_files, open_suite, suite_files
from persona_pipeline.defs.platform.dagster_internals import DATA_VERSION, lineage_tags
from persona_pipeline.defs.platform.failures import bad_input, known_failures
from persona_pipeline.defs.platform.place import VALUES, Place
from persona_pipeline.defs.platform.resources import EvaluationSettings, WorldResource
from persona_pipeline.defs.suites.assets import asset_key, partitions_name, source_key
from persona_pipeline.defs.suites.results import (
    ALLOW_CODE,
    CHECKS,
    VERDICT,
    in_short,
    needs_leave,
    run_target,
    suite_outcome,
)
from persona_pipeline.errors import ConfigError, Problem

if TYPE_CHECKING:
    from persona_pipeline.suites import SuiteResult


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
            opened = open_suite(opened_world.root, file)
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
