"""Eval suites: an asset a file, a partition a target.

Who answers stands in the file and, test by test, in the files it names, and definitions are made without reading any. So the
targets are dynamic partitions: a sensor keeps them in step with the files, and a run registers the one it is about. That makes a
target's score, checks and history its own, and one target can be asked again alone. ``run_eval_suites`` asks all targets of all
suites in one run, where a run each would cost seconds of start-up, and reports each as if it had run alone.
"""

import dagster as dg

from persona_pipeline.changes.suite_files import SuiteFile, open_suite, suite_version
from persona_pipeline.defs.platform.failures import known_failures
from persona_pipeline.defs.platform.labels import OWNERS
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import EvaluationSettings, WorldResource
from persona_pipeline.defs.suites.results import CHECKS, run_target, suite_outcome

GROUP = "suites"


def asset_key(place: Place, file: SuiteFile) -> dg.AssetKey:
    """Return the key of a suite's results."""
    return place.key(["suites", *file.name])


def source_key(place: Place, file: SuiteFile) -> dg.AssetKey:
    """Return the key of a suite's files."""
    return place.key(["suite_files", *file.name])


def partitions_name(place: Place, file: SuiteFile) -> str:
    """Return what the instance keeps a suite's targets under."""
    return place.path(f"suite_targets/{file.label}")


def target_partitions(place: Place, file: SuiteFile) -> dg.DynamicPartitionsDefinition:
    """Return the partitions of a suite: its targets."""
    return dg.DynamicPartitionsDefinition(name=partitions_name(place, file))


def build_source(place: Place, file: SuiteFile) -> dg.AssetsDefinition:
    """Return the files of a suite as an observable asset.

    An external asset without partitions has to be one: for others Dagster compares what it reads of observations with what it
    does not, and everything downstream stays stale for ever.
    """
    spec = dg.AssetSpec(
        source_key(place, file),
        group_name=place.path("sources"),
        kinds={"yaml"},
        owners=OWNERS,
        description=f"`suites/{file.path}`, every file it names and what it reads of agents. The data version is a digest of "
        "them all.",
    )

    @dg.multi_observable_source_asset(name=source_key(place, file).to_python_identifier(), specs=[spec])
    @place.bound
    def suite_source(world: WorldResource) -> dg.ObserveResult:
        version = suite_version(world.open().root, file)
        return dg.ObserveResult(asset_key=spec.key, data_version=dg.DataVersion(version))

    return suite_source


def build_suite(place: Place, file: SuiteFile) -> dg.AssetsDefinition:
    """Return the asset of a suite's results. A file that is not valid fails its asset, at file and line, and nothing else."""
    key, partitions = asset_key(place, file), target_partitions(place, file)

    @dg.asset(
        key=key,
        group_name=place.path(GROUP),
        deps=[source_key(place, file)],
        kinds={"yaml", "sql"},
        partitions_def=partitions,
        check_specs=[check.spec(key, partitions) for check in CHECKS],
        pool=place.judge_pool,
        code_version=place.judge_version,
        owners=OWNERS,
        description=f"How each target does in `suites/{file.path}`, test by test: rows of `suite_runs`.",
    )
    @place.bound
    def suite(
        context: dg.AssetExecutionContext, world: WorldResource, evaluation: EvaluationSettings
    ) -> dg.MaterializeResult:
        with known_failures():
            opened_world = world.open()
            opened = open_suite(opened_world.root, file)
            run = run_target(opened_world, opened, context.partition_key, evaluation)
        # A blank instance (CI) knows no targets, and an output fails on a partition that is not registered.
        context.instance.add_dynamic_partitions(partitions_name(place, file), [context.partition_key])
        outcome = suite_outcome(run)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(outcome.version),
            metadata=outcome.metadata,
            check_results=[check.result(run) for check in CHECKS],
        )

    return suite
