"""Eval suites as assets: a file an asset, a target a partition, run, saved and shown.

Who answers stands in the file and, test by test, in the files it names, and definitions are made without reading any. So the
targets are dynamic partitions: a sensor keeps them in step with the files, and a run registers the one it is about. That makes a
target's score, checks and history its own, and one target can be asked again alone. ``run_eval_suites`` asks all targets of all
suites in one run, where a run each would cost seconds of start-up, and reports each as if it had run alone.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import dagster as dg

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.errors import ConfigError, did_you_mean
from persona_pipeline.defs import metadata
from persona_pipeline.defs.platform.assets import OWNERS, AssetOutcome
from persona_pipeline.defs.platform.failures import known_failures
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import EvaluationSettings, WorldResource
from persona_pipeline.defs.platform.settings import orchestration
from persona_pipeline.judging.open import RECORDED, OpenedJudge
from persona_pipeline.reporting.text import one_line
from persona_pipeline.suites.running.opening import OpenedSuite, SharedJudge, SuiteFile, open_suite
from persona_pipeline.suites.running.suite_run import run_suite, suite_version
from persona_pipeline.world.world import World

if TYPE_CHECKING:
    from persona_pipeline.suites.grading.results import SuiteResult, TestResult

MECHANISM = "suite"
MOST_ROWS, MOST_LINES, MOST_LINE = 200, 5, 300
_WORST_FIRST = ("error", "fail", "borderline", "pass")
ALLOW_CODE = "set PERSONA_SUITE_ALLOW_CODE=1 if you trust the programs of this suite"


@dataclass(frozen=True)
class SuiteCheck:
    """A question asked of a run. ``find`` returns what is wrong, line by line, nothing when it passes."""

    name: str
    description: str
    find: "Callable[[SuiteResult], Sequence[str]]"

    def spec(self, asset: dg.AssetKey, partitions: dg.PartitionsDefinition) -> dg.AssetCheckSpec:
        """Return the check as an asset declares it."""
        return dg.AssetCheckSpec(
            self.name, asset=asset, description=self.description, blocking=True, partitions_def=partitions
        )

    def result(self, run: "SuiteResult") -> dg.AssetCheckResult:
        """Return the check's result."""
        wrong = [one_line(line, MOST_LINE) for line in self.find(run)]
        return dg.AssetCheckResult(
            check_name=self.name,
            passed=not wrong,
            severity=dg.AssetCheckSeverity.ERROR,
            description=in_short(wrong) or "Nothing is wrong.",
            metadata={
                "found": len(wrong),
                "what_is_wrong": metadata.table([{"what": line} for line in wrong[:MOST_ROWS]], ("what",)),
            },
        )


def run_target(world: World, opened: OpenedSuite, target: str, evaluation: EvaluationSettings) -> "SuiteResult":
    """Ask one target everything the suite has for it, grade the answers and save the run.

    Raises:
        ConfigError: it is none of the suite's targets, or is not valid.
    """
    from persona_pipeline.suites.running.history import save_suite_result
    from persona_pipeline.suites.running.plan import RunOptions

    require_target(opened, target)
    options = RunOptions(
        allow_code=orchestration().suite_allow_code,
        targets=(target,),
        world_root=lambda: world.root,
        state=world.settings.state,
        keyed=True,
    )
    with closing(_judge(evaluation, world)) as judge:
        result = run_suite(opened.suite, targets=opened.targets, judge=judge, options=options)
    save_suite_result(world.store, result)
    return result


def require_target(opened: OpenedSuite, target: str) -> None:
    """Check that a suite asks a target.

    Raises:
        ConfigError: it does not.
    """
    if target not in opened.target_names:
        known = ", ".join(opened.target_names) or "nobody"
        hint = did_you_mean(target, opened.target_names)
        raise ConfigError(f"{opened.suite.path}: {target!r} is none of its targets{hint}; it asks {known}")


def suite_outcome(run: "SuiteResult") -> AssetOutcome:
    """Return the version, which changes with what was found and not with what it took, and what people see."""
    found = [
        [test.id, test.verdict.value, test.score, [[item.name, item.score] for item in test.best.results]]
        for test in run.tests
    ]
    return AssetOutcome(content_hash([run.suite_hash, found]), suite_metadata(run))


def suite_metadata(run: "SuiteResult") -> metadata.Metadata:
    """Return score and counts to plot, the tests as a table (the worst first, at most 200), and what was spent."""
    counts = run.summary
    tests = sorted(run.tests, key=lambda test: _WORST_FIRST.index(test.verdict.value))
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


def in_short(lines: Sequence[str]) -> str:
    """Return the first lines as a Markdown list."""
    more = [f"- and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
    return "\n".join([*(f"- {line}" for line in lines[:MOST_LINES]), *more])


GATES = SuiteCheck("gates", "Every required assert is met.", failed_gates)
VERDICT = SuiteCheck("verdict", "No test failed, and every test could be judged; borderline is fine.", failed_tests)
CHECKS = (GATES, VERDICT)


def _judge(evaluation: EvaluationSettings, world: World) -> SharedJudge:
    def opened() -> OpenedJudge:
        # The run's other steps share its cache and budget; what suites spend is charged to them.
        return replace(evaluation.open_judge(world).without_recorded(), mechanism=MECHANISM)

    return SharedJudge.named(evaluation.asked(world).judge or RECORDED, world.settings, world.root, opened)


def _row(test: "TestResult") -> dict[str, Any]:
    from persona_pipeline.suites.grading.results import reason_of

    scored, expected = test.coverage
    return {
        "test": test.id,
        "verdict": test.verdict.value,
        "score": "–" if test.score is None else f"{test.score:.2f}",
        "asserts": f"{scored} of {expected}",
        "what is missing": one_line(reason_of(test), MOST_LINE),
    }


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
        opened = world.open()
        version = suite_version(opened.root, file, opened.settings)
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
            opened = open_suite(opened_world.root, file, opened_world.settings)
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
