"""Eval suites: a file an asset, a target a partition; the job that runs all of them, and what sees that they change.

Who answers stands in the file and, test by test, in the files it names, and definitions are made without reading any. So the
targets are dynamic partitions: a sensor keeps them in step with the files, and a run registers the one it is about. That makes a
target's score, checks and history its own, and one target can be asked again alone. ``run_eval_suites`` asks all targets of all
suites in one run, where a run each would cost seconds of start-up, and reports each as if it had run alone.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.defs import metadata
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.assets import AssetOutcome, PartitionRequest, evaluated, partition_requests
from persona_pipeline.defs.platform.dagster_internals import DATA_VERSION, lineage_tags
from persona_pipeline.defs.platform.place import EVALUATION, OWNERS, WORLD, Place
from persona_pipeline.defs.platform.resources import (
    EvaluationSettings,
    bad_input,
    evaluation_of,
    known_failures,
    world_of,
)
from persona_pipeline.judging.open import RECORDED, OpenedJudge
from persona_pipeline.reporting.text import one_line
from persona_pipeline.suites.running.opening import (
    OpenedSuite,
    SuiteFile,
    SuiteJudge,
    choose_files,
    named_judge,
    open_suite,
    suite_files,
)
from persona_pipeline.suites.running.suite_run import look_at_suite
from persona_pipeline.world.world import World

if TYPE_CHECKING:
    from persona_pipeline.suites.grading.results import SuiteResult, TestResult

MOST_ROWS = 200
ALLOW_CODE = "set PERSONA_SUITE_ALLOW_CODE=1 if you trust the programs of this suite"


@dataclass(frozen=True)
class SuiteCheck:
    """A question asked of a run. ``find`` returns what is wrong, line by line, nothing when it passes."""

    name: str
    description: str
    find: "Callable[[SuiteResult], Sequence[str]]"

    def result(self, run: "SuiteResult") -> dg.AssetCheckResult:
        """Return the check's result."""
        wrong = [one_line(line, metadata.MOST_TEXT) for line in self.find(run)]
        shown = metadata.table([{"what": line} for line in wrong[:MOST_ROWS]], ("what",))
        return metadata.check_result(self.name, wrong, {"found": len(wrong), "what_is_wrong": shown})


def run_target(
    place: Place, world: World, opened: OpenedSuite, target: str, evaluation: EvaluationSettings
) -> "SuiteResult":
    """Ask one target everything the suite has for it, grade the answers and save the run; ConfigError: it asks no such target."""
    from persona_pipeline.suites.running.history import save_suite_result
    from persona_pipeline.suites.running.plan import RunOptions
    from persona_pipeline.suites.running.suite_run import run_suite

    if target not in opened.target_names:
        known = ", ".join(opened.target_names) or "nobody"
        hint = did_you_mean(target, opened.target_names)
        raise ConfigError(f"{opened.suite.path}: {target!r} is none of its targets{hint}; it asks {known}")
    options = RunOptions(
        allow_code=place.orchestration.suite_allow_code,
        targets=(target,),
        world_root=lambda: world.root,
        settings=world.settings,
        keyed=True,
    )
    with closing(_judge(evaluation, world)) as judge:
        result = run_suite(opened.suite, targets=opened.targets, judge=judge, options=options)
    save_suite_result(world.store, result)
    return result


def suite_outcome(run: "SuiteResult") -> AssetOutcome:
    """Return the version, which changes with what was found and not with what it took, and what people see."""
    found = [
        [test.id, test.verdict.value, test.score, [[item.name, item.score] for item in test.best.results]]
        for test in run.tests
    ]
    return AssetOutcome(content_hash([run.suite_hash, found]), suite_metadata(run))


def suite_metadata(run: "SuiteResult") -> metadata.Metadata:
    """Return score and counts to plot, the tests as a table (the worst first, at most 200), and what was spent."""
    from persona_pipeline.suites.grading.results import WORST_FIRST, pass_interval

    counts = run.summary
    tests = sorted(run.tests, key=lambda test: WORST_FIRST.index(test.verdict))
    rows = [_row(test) for test in tests[:MOST_ROWS]]
    found: metadata.Metadata = {
        "verdict": run.verdict.value,
        "result": run.result.value if run.result else "nothing to run",
        **{name: counts[name] for name in ("total", "passed", "borderline", "failed", "errors")},
        "tests": metadata.table(rows, ("test", "verdict", "score", "asserts", "what is missing")),
        "suite": run.suite,
        "judge": run.judge or "nobody was asked",
    }
    if run.score is not None:
        found["score"] = round(run.score, 4)
    if interval := pass_interval(counts):
        found["pass_rate"] = counts["passed"] / counts["total"]
        found |= {"pass_rate/low": interval[0], "pass_rate/high": interval[1]}
    if "flake_rate" in counts:
        found["flake_rate"] = counts["flake_rate"]
    found |= {f"duration_ms/{name}": value for name, value in counts.get("duration_ms", {}).items()}
    if "cost_usd" in counts:
        found["answers/usd"] = counts["cost_usd"]
    if run.usage.get("calls"):
        found |= {f"judge/{name}": value for name, value in run.usage.items() if value is not None}
    if run.warnings:
        found["warnings"] = metadata.table([{"what": warning} for warning in run.warnings], ("what",))
    if needs_leave(run):
        found["remedy"] = ALLOW_CODE
    return found


def needs_leave(run: "SuiteResult") -> bool:
    """Return whether a test was not run because it brings programs of its own."""
    return "code_not_allowed" in run.summary.get("error_reasons", {})


def failed_gates(run: "SuiteResult") -> list[str]:
    """Return the required asserts that were not met, or could not be judged; a test without answer has met none."""
    lines = []
    for test in run.tests:
        if test.best.error or not test.best.results:
            lines.append(f"{test.id}: {test.error or 'it was not graded'}")
        for item in test.best.results:
            if item.gate_failed:
                lines.append(f"{test.id}: {item.name}: {'; '.join(item.misses) or f'{item.score:.2f} is too low'}")
            elif item.gate is not None and item.score is None:
                lines.append(f"{test.id}: {item.name} could not be judged ({item.error})")
    return lines


def failed_tests(run: "SuiteResult") -> list[str]:
    """Return the tests that failed or could not be judged, with the reason; borderline ones passed."""
    from persona_pipeline.suites.grading.results import reason_of

    if not run.tests:
        return ["nothing was run"]
    bad = [test for test in run.tests if test.verdict.value in ("error", "fail")]
    return [f"{test.id}: {reason_of(test) or test.verdict.value}" for test in bad]


GATES = SuiteCheck("gates", "Every required assert is met.", failed_gates)
VERDICT = SuiteCheck("verdict", "No test failed, and every test could be judged; borderline is fine.", failed_tests)
CHECKS = (GATES, VERDICT)


def _judge(evaluation: EvaluationSettings, world: World) -> SuiteJudge:
    def opened() -> OpenedJudge:
        # The run's other steps share its cache and budget.
        return evaluation.open_judge(world).without_recorded()

    return named_judge(evaluation.asked(world).judge or RECORDED, world.settings, world.root, opened)


def _row(test: "TestResult") -> dict[str, Any]:
    from persona_pipeline.suites.grading.results import reason_of

    scored, expected = test.coverage
    return {
        "test": test.id,
        "verdict": test.verdict.value,
        "score": "–" if test.score is None else f"{test.score:.2f}",
        "asserts": f"{scored} of {expected}",
        "what is missing": one_line(reason_of(test), metadata.MOST_TEXT),
    }


GROUP = "suites"


def asset_key(place: Place, file: SuiteFile) -> dg.AssetKey:
    return place.key(["suites", *file.name])


def source_key(place: Place, file: SuiteFile) -> dg.AssetKey:
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

    @dg.multi_observable_source_asset(
        name=source_key(place, file).to_python_identifier(),
        specs=[spec],
        required_resource_keys=place.names([WORLD]),
    )
    def suite_source(context: dg.AssetExecutionContext) -> dg.ObserveResult:
        opened = world_of(place, context)
        version, _ = look_at_suite(opened.root, file, opened.settings)
        return dg.ObserveResult(asset_key=spec.key, data_version=dg.DataVersion(version))

    return suite_source


def build_suite(place: Place, file: SuiteFile) -> dg.AssetsDefinition:
    """Return the asset of a suite's results. A file that is not valid fails its asset, at file and line, and nothing else."""

    @place.asset(
        ["suites", *file.name],
        GROUP,
        deps=[source_key(place, file)],
        kinds={"yaml", "sql"},
        partitions_def=target_partitions(place, file),
        checks={check.name: check.description for check in CHECKS},
        blocking=True,
        uses=[WORLD, EVALUATION],
        pool=place.judge_pool,
        code_version=place.judge_version,
        description=f"How each target does in `suites/{file.path}`, test by test: rows of `suite_runs`.",
    )
    def suite(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        with known_failures():
            world = world_of(place, context)
            opened = open_suite(world.root, file, world.settings)
            run = run_target(place, world, opened, context.partition_key, evaluation_of(place, context))
        # A blank instance (CI) knows no targets, and an output fails on a partition that is not registered.
        context.instance.add_dynamic_partitions(partitions_name(place, file), [context.partition_key])
        return suite_outcome(run).result(checks=[check.result(run) for check in CHECKS])

    return suite


# The step whose config says which suites.
CHOOSE = "choose_suites"


class SuitesConfig(dg.Config):
    """Which suites to run. One target alone is a partition of the suite's asset."""

    suites: list[str] = Field(default=[], description="Suites to run, by name, such as order_desk; empty: all.")


def build_run_eval_suites(place: Place) -> dg.JobDefinition:
    """Return the job that runs suites; its config stands under the name of its step."""

    @place.op(uses=[WORLD, EVALUATION], pool=place.judge_pool)
    def choose_suites(
        context: dg.OpExecutionContext, config: SuitesConfig
    ) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation | dg.Output]:
        """Run the suite files that are asked for; fails when one of them failed, which stops no other."""
        with known_failures():
            world = world_of(place, context)
            files = choose_files(suite_files(world.root), config.suites)
        if not files:
            context.log.warning("there is no suite: suites/ holds no *.eval.yaml")
        failed: list[str] = []
        for file in files:
            try:
                yield from run_suite_file(place, context, world, file)
            except dg.Failure as failure:
                failed.append(failure.description or file.label)
                context.log.error(failed[-1])
        if failed:
            raise dg.Failure("\n".join(failed), allow_retries=False)
        yield dg.Output(None)

    return place.job(
        "run_eval_suites",
        choose_suites,
        "Every eval suite with all its targets; fails when a test failed or could not be judged.",
    )


def run_suite_file(
    place: Place, context: dg.OpExecutionContext, world: World, file: SuiteFile
) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
    """Ask all targets of a suite, and yield what its asset would have left for each.

    A target that cannot be asked stops no other. Raises ``dg.Failure``: one failed, or the file is not valid.
    """
    with known_failures():
        opened = open_suite(world.root, file, world.settings)
        if not opened.target_names:
            raise ConfigError(Problem("the suite has no tests", str(opened.suite.path)))
    context.instance.add_dynamic_partitions(partitions_name(place, file), opened.target_names)
    problems: list[Problem] = []
    lines: list[str] = []
    remedies: set[str] = set()
    for target in opened.target_names:
        with known_failures():
            try:
                run = run_target(place, world, opened, target, evaluation_of(place, context))
            except ConfigError as error:
                problems += error.problems
                continue
        lines += [f"{target}: {line}" for line in VERDICT.find(run)]
        remedies |= {ALLOW_CODE} if needs_leave(run) else set()
        yield from _events(place, context.instance, file, target, run)
    if problems:
        raise bad_input(ConfigError(problems))
    if lines:
        text = "\n".join([f"{opened.suite.name} failed", *metadata.listed(lines, metadata.MOST_LINES), *remedies])
        raise dg.Failure(text, allow_retries=False)


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
    yield from (evaluated(asset_key(place, file), target, check.result(run)) for check in CHECKS)


LOOK_SECONDS = 60
ACT_SECONDS = 20


def build_suite_observations(place: Place, loaded: Sequence[SuiteFile]) -> dg.SensorDefinition:
    """Return the sensor that records what changed of a place's suites; ``loaded``: those that the graph shows."""

    @place.sensor(
        asset_selection=dg.AssetSelection.assets(*(asset_key(place, file) for file in loaded)),
        minimum_interval_seconds=LOOK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Records which versions of the suites there are, so that results of an edited one show as stale, keeps the "
        "partitions in step with the targets they name, and says when the graph lacks a suite. Starts no run.",
    )
    def suite_observations(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        """Compare the suites with what was last recorded. The targets of a suite that is not valid stay."""
        opened, instance = world_of(place, context), context.instance
        files = suite_files(opened.root)
        note = reload_note(files, loaded)
        if note:
            context.log.warning(note)
        seen = {file: look_at_suite(opened.root, file, opened.settings) for file in files}
        changed = [file for file in files if observed_version(instance, source_key(place, file))[0] != seen[file][0]]
        requests = [request for file in files for request in _partition_requests(place, context, file, seen[file][1])]
        if not (changed or requests):
            return dg.SkipReason(f"{len(files)} suites, nothing changed{f'; {note}' if note else ''}")
        return dg.SensorResult(
            skip_reason=f"{len(changed)} versions recorded{f'; {note}' if note else ''}",
            dynamic_partitions_requests=requests,
            asset_events=[
                dg.AssetObservation(source_key(place, file), tags={DATA_VERSION: seen[file][0]}) for file in changed
            ],
        )

    return suite_observations


def build_suite_changes(place: Place, run_eval_suites: dg.JobDefinition) -> dg.SensorDefinition:
    @place.sensor(
        job=run_eval_suites,
        minimum_interval_seconds=ACT_SECONDS,
        default_status=place.orchestration.sensor_status,
        description="Runs a suite when suite_observations saw that its file, or a file it names, changed: tests, prompts, targets, "
        "recorded answers, programs; or what it reads of an agent: persona, claims, baseline.",
    )
    def suite_changes(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        """Request a run a suite whose recorded version is another than the one last acted upon, which the cursor holds."""
        files = suite_files(world_of(place, context).root)
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
    place: Place, context: dg.SensorEvaluationContext, file: SuiteFile, opened: OpenedSuite | ConfigError
) -> list[PartitionRequest]:
    if isinstance(opened, ConfigError):
        context.log.warning(str(opened))
        return []
    known = context.instance.get_dynamic_partitions(partitions_name(place, file))
    return partition_requests(target_partitions(place, file), opened.target_names, known)


def _request(file: SuiteFile, look: int) -> dg.RunRequest:
    config = {"ops": {CHOOSE: {"config": {"suites": [file.label]}}}}
    tags = run_tags.request_tags(f"suite {file.name[-1]} changed"[:63])
    # The look is written in one go with the runs: a daemon that dies in between asks under the same key again.
    return dg.RunRequest(run_key=f"{file.label}@{look}", run_config=config, tags=tags)


def build_suites(place: Place) -> dg.Definitions:
    files = suite_files(place.environment.world_root)
    run_eval_suites = build_run_eval_suites(place)
    nightly = place.schedule(
        "nightly_suites",
        run_eval_suites,
        place.orchestration.suites_cron,
        "Runs every eval suite. PERSONA_SUITES_CRON says when.",
        tags=run_tags.request_tags("nightly"),
    )
    return dg.Definitions(
        assets=[*(build_source(place, file) for file in files), *(build_suite(place, file) for file in files)],
        jobs=[run_eval_suites],
        schedules=[nightly],
        sensors=[build_suite_observations(place, files), build_suite_changes(place, run_eval_suites)],
    )
