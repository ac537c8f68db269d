"""Eval suites: each file is an asset, each target a partition; the job ``run_eval_suites`` runs all of them.

A suite's targets are known only once its files are read, and definitions are made without reading any. So they are dynamic
partitions: the sensor ``source_changes`` keeps them in step with the files, and a run registers those it asks.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.defs import metadata
from persona_pipeline.defs.agents.automation import when_changed
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.assets import (
    AssetOutcome,
    PartitionRequest,
    evaluated,
    partition_requests,
    reported,
)
from persona_pipeline.defs.platform.dagster_internals import (
    MATERIALIZED,
    lineage_tags,
    newest_events,
    newest_versions,
)
from persona_pipeline.defs.platform.place import EVALUATION, WORLD, Place
from persona_pipeline.defs.platform.resources import (
    EvaluationSettings,
    evaluation_of,
    known_failures,
    world_of,
)
from persona_pipeline.judging.open import RECORDED, OpenedJudge
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
    from persona_pipeline.suites.grading.results import SuiteResult

ALLOW_CODE = "set PERSONA_SUITE_ALLOW_CODE=1 if you trust the programs of this suite"


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
    """Return the version, which depends on the results and not on time or cost, and the metadata."""
    found = [
        [test.id, test.verdict.value, test.score, [[item.name, item.score] for item in test.best.results]]
        for test in run.tests
    ]
    return AssetOutcome(content_hash([run.suite_hash, found]), suite_metadata(run))


def suite_metadata(run: "SuiteResult") -> metadata.Metadata:
    """Return score and counts to plot, the tests as a table (the worst first, at most 50), and the costs."""
    from persona_pipeline.reporting.pages.suites import tests_table
    from persona_pipeline.reporting.render import table_records
    from persona_pipeline.suites.grading.results import pass_interval

    counts = run.summary
    found: metadata.Metadata = {
        "verdict": run.verdict.value,
        "result": run.result.value if run.result else "nothing to run",
        **{name: counts[name] for name in ("total", "passed", "borderline", "failed", "errors")},
        "tests": metadata.table(*table_records(tests_table(run))),
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
    """Return whether a test was not run because it has programs."""
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


# By name: the description, and what returns the failures as lines.
CHECKS: "Mapping[str, tuple[str, Callable[[SuiteResult], Sequence[str]]]]" = {
    "gates": ("Every required assert is met.", failed_gates),
    "verdict": ("No test failed, and every test could be judged; borderline is fine.", failed_tests),
}


def _judge(evaluation: EvaluationSettings, world: World) -> SuiteJudge:
    def opened() -> OpenedJudge:
        # The run's other steps share its cache and budget.
        return evaluation.open_judge(world).without_recorded()

    return named_judge(evaluation.asked(world).judge or RECORDED, world.settings, world.root, opened)


@dataclass(frozen=True)
class SuiteSpecs:
    """The two assets of a suite: its files, and its results. Every target is a partition of both."""

    file: SuiteFile
    targets: dg.DynamicPartitionsDefinition
    source: dg.AssetSpec
    results: dg.AssetSpec

    @property
    def targets_name(self) -> str:
        """The name under which the instance keeps the targets."""
        return self.targets.name or ""


def suites_of(place: Place, root: Path, taken: Collection[str]) -> list[SuiteSpecs]:
    """Return the assets of the suites of a world.

    The graph labels a node with the last part of its key, so a suite whose name another node has gets a longer one. ``taken``:
    labels of other assets.
    """
    found: list[SuiteSpecs] = []
    used = set(taken)
    for file in sorted(suite_files(root), key=lambda file: len(file.name)):
        label, *longer = file.name[-1], "__".join(file.name)
        while used & {label, f"{label}_file"}:
            label = longer.pop() if longer else f"{label}_suite"
        used |= {label, f"{label}_file"}
        found.append(_suite_specs(place, file, label))
    return found


def _suite_specs(place: Place, file: SuiteFile, label: str) -> SuiteSpecs:
    targets = dg.DynamicPartitionsDefinition(name=place.path(f"suite_targets/{file.label}"))
    folders, path = file.name[:-1], f"suites/{file.path}"
    source = place.spec(
        ["suite_files", *folders, f"{label}_file"],
        "sources",
        (),
        {"yaml"},
        f"`{path}`, every file it names and what it reads of agents. The data version is a digest of them all.",
        at=path,
        partitions_def=targets,
    )
    results = place.spec(
        ["suites", *folders, label],
        "suites",
        [source],
        {"yaml", "sql"},
        f"The results of each target of `{path}`, test by test.",
        at=path,
        table="suite_runs",
        partitions_def=targets,
        code_version=place.judge_version,
        automation_condition=when_changed([source]),
    )
    return SuiteSpecs(file, targets, source, results)


def build_suite(place: Place, specs: SuiteSpecs) -> dg.AssetsDefinition:
    """Return the step of a suite. A file that is not valid fails its run, at file and line, and no other."""
    key = specs.results.key

    @dg.multi_asset(
        name=key.to_python_identifier(),
        specs=[specs.source, specs.results],
        check_specs=[
            dg.AssetCheckSpec(name, asset=key, blocking=True, description=text, partitions_def=specs.targets)
            for name, (text, _) in CHECKS.items()
        ],
        # A missing check of a target that could not be asked is not an error too.
        can_subset=True,
        pool=place.judge_pool,
        required_resource_keys=place.names([WORLD, EVALUATION]),
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def suite(context: dg.AssetExecutionContext) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
        with known_failures():
            world = world_of(place, context)
            # A single partition need not be registered yet.
            targets = context.partition_keys if context.has_partition_key_range else [context.partition_key]
            if specs.source.key in context.selected_asset_keys:
                version, _ = look_at_suite(world.root, specs.file, world.settings)
                yield from (reported(specs.source, target, version) for target in targets)
            if key in context.selected_asset_keys or context.selected_asset_check_keys:
                yield from run_suite_file(place, context, world, specs, targets)

    return suite


class SuitesConfig(dg.Config):
    """Which suites to run. One target alone is a partition of the suite's asset."""

    suites: list[str] = Field(default=[], description="Suites to run, by name, such as order_desk; empty: all.")


def build_run_eval_suites(place: Place, taken: Collection[str]) -> dg.JobDefinition:
    """Return the job that runs suites; its config is under the name of its step."""

    @place.job(
        "run_eval_suites",
        "Every eval suite with all its targets; fails when a test failed or could not be judged.",
        uses=[WORLD, EVALUATION],
        pool=place.judge_pool,
    )
    def choose_suites(
        context: dg.OpExecutionContext, config: SuitesConfig
    ) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation | dg.Output]:
        """Run the suite files that are asked for; fails when one of them failed, which stops no other."""
        with known_failures():
            world = world_of(place, context)
            there = {specs.file: specs for specs in suites_of(place, world.root, taken)}
            if not there:
                context.log.warning("there is no suite: suites/ holds no *.eval.yaml")
            failed: list[str] = []
            for file in choose_files(sorted(there, key=lambda file: file.name), config.suites):
                try:
                    yield from run_suite_file(place, context, world, there[file])
                except (ConfigError, dg.Failure) as failure:
                    failed.append(getattr(failure, "description", None) or str(failure))
                    context.log.error(failed[-1])
            if failed:
                raise dg.Failure("\n".join(failed), allow_retries=False)
        yield dg.Output(None)

    return choose_suites


def run_suite_file(
    place: Place,
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    world: World,
    specs: SuiteSpecs,
    targets: Sequence[str] = (),
) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
    """Ask targets of a suite, by default all, and yield the results of each. A target that cannot be asked stops no other.

    Raises:
        ConfigError: the file is not valid, or a target cannot be asked.
        dg.Failure: a target failed.
    """
    file, instance = specs.file, context.instance
    opened = open_suite(world.root, file, world.settings)
    if not opened.target_names:
        raise ConfigError(Problem("the suite has no tests", str(opened.suite.path)))
    instance.add_dynamic_partitions(specs.targets_name, opened.target_names)
    asked, source = list(targets or opened.target_names), specs.source.key
    versions = newest_versions(instance, source, MATERIALIZED, asked)
    events = newest_events(instance, source, MATERIALIZED, set(asked))
    problems: list[Problem] = []
    lines: list[str] = []
    remedies: set[str] = set()
    for target in asked:
        try:
            run = run_target(place, world, opened, target, evaluation_of(place, context))
        except ConfigError as error:
            problems += error.problems
            continue
        lines += [f"{target}: {line}" for line in failed_tests(run)]
        remedies |= {ALLOW_CODE} if needs_leave(run) else set()
        outcome, about = suite_outcome(run), {source: (versions.get(target), events.get(target))}
        tags = lineage_tags(outcome.version, specs.results.code_version, about)
        yield dg.AssetMaterialization(specs.results.key, partition=target, metadata=outcome.metadata, tags=tags)
        for name, (_, find) in CHECKS.items():
            yield evaluated(specs.results.key, target, metadata.check_result(name, find(run), {}))
    if problems:
        raise ConfigError(problems)
    if lines:
        text = "\n".join([f"{opened.suite.name} failed", *metadata.listed(lines, metadata.MOST_LINES), *remedies])
        raise dg.Failure(text, allow_retries=False)


@dataclass
class SuiteReports:
    """Reports on the suites of a world: versions, added or removed targets, and suites missing from the graph."""

    suites: int = 0
    events: list[dg.AssetMaterialization] = field(default_factory=list)
    partitions: list[PartitionRequest] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def report_suites(context: dg.SensorEvaluationContext, world: World, loaded: Sequence[SuiteSpecs]) -> SuiteReports:
    """Compare the suites with the last reports; ``loaded``: those in the graph.

    The targets of a suite that is not valid stay.
    """
    files, instance = suite_files(world.root), context.instance
    note = reload_note(files, [specs.file for specs in loaded])
    found = SuiteReports(len(files), notes=[note] if note else [])
    for specs in (item for item in loaded if item.file in files):
        version, opened = look_at_suite(world.root, specs.file, world.settings)
        known = instance.get_dynamic_partitions(specs.targets_name)
        targets = known
        if isinstance(opened, ConfigError):
            context.log.warning(str(opened))
        else:
            targets = opened.target_names
            found.partitions += partition_requests(specs.targets, targets, known)
        before = newest_versions(instance, specs.source.key, MATERIALIZED, targets) if targets else {}
        found.events += [reported(specs.source, name, version) for name in targets if before.get(name) != version]
    return found


def reload_note(there: Sequence[SuiteFile], loaded: Sequence[SuiteFile]) -> str:
    """Return the differences of the graph from the folder, and the remedy; empty without differences."""
    new = [file.label for file in there if file not in loaded]
    gone = [file.label for file in loaded if file not in there]
    said = [f"{word}: {', '.join(names)}" for word, names in (("new", new), ("gone", gone)) if names]
    if not said:
        return ""
    return f"the graph was loaded before suites came or went ({'; '.join(said)}); reload the code location under Deployment"


def build_suites(place: Place, suites: Sequence[SuiteSpecs], taken: Collection[str]) -> dg.Definitions:
    """Return the steps of the suites that are there now, and the job with its schedule; ``taken``: labels of other assets."""
    run_eval_suites = build_run_eval_suites(place, taken)
    nightly = place.schedule(
        "nightly_suites",
        run_eval_suites,
        place.orchestration.suites_cron,
        "Runs every eval suite. PERSONA_SUITES_CRON says when.",
        tags=run_tags.request_tags("nightly"),
    )
    steps = [build_suite(place, specs) for specs in suites]
    return dg.Definitions(assets=steps, jobs=[run_eval_suites], schedules=[nightly])
