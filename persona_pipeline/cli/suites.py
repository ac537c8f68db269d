"""``persona-pipeline suite``: check, show, explain, import, run and compare eval suites."""

import gc
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from persona_pipeline.base.errors import EXIT_CONFIG, EXIT_COVERAGE, EXIT_OK, ConfigError, NothingError
from persona_pipeline.base.text import plural, shown_json
from persona_pipeline.cli.options import (
    AllowEnv,
    AllowPath,
    AllowTargets,
    AsJson,
    JudgeName,
    Notify,
    Record,
    TargetsFile,
    judge_name,
    require_known,
    say,
    world_settings,
)
from persona_pipeline.cli.running import CommandResult, end, shows, tell

if TYPE_CHECKING:
    from persona_pipeline.suites.format.models import Suite
    from persona_pipeline.suites.grading.results import SuiteResult, TestResult

app = typer.Typer(help="Eval suites: tests in YAML, graded by asserts.", no_args_is_help=True)


File = Annotated[Path, typer.Argument(help="The suite: .yaml, .yml or .jsonl.")]
Places = Annotated[list[Path], typer.Argument(help="Suites: files, folders with *.eval.yaml in them, globs.")]
TestIds = Annotated[
    list[str] | None, typer.Option("--test-id", help="Only tests whose id matches this glob; repeatable.")
]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="Only suites or tests with this tag; repeatable.")]


def load(path: Path, allow_path: list[Path] | None) -> "Suite":
    """Return a suite; its warnings go to stderr."""
    from persona_pipeline.base.settings import get_settings
    from persona_pipeline.suites.running.opening import load_suite, suite_roots

    suite = load_suite(path, suite_roots(path, get_settings(), allow_path or ()))
    say(*(f"warning: {warning}" for warning in (*suite.warnings, *suite.missing)))
    return suite


@app.command()
@shows()
def validate(places: Places, allow_path: AllowPath = None) -> CommandResult:
    """Check suites and their targets: every problem with its file and line.

    Exit code 2 if there is one.
    """
    from persona_pipeline.base.settings import get_settings
    from persona_pipeline.reporting.pages.suites import lines_page
    from persona_pipeline.suites.running.opening import find_suites, load_suite, open_targets, suite_roots
    from persona_pipeline.suites.running.plan import target_problems

    rows, problems, warnings = [], [], []
    for path in find_suites(places):
        try:
            suite = load_suite(path, suite_roots(path, get_settings(), allow_path or ()))
            found = open_targets(suite, None, get_settings())
            if wrong := [*suite.missing, *(target_problems(suite, found) if found else ())]:
                raise ConfigError(wrong)
        except ConfigError as error:
            problems += error.problems
            rows.append({"path": str(path), "valid": False, "problems": [vars(item) for item in error.problems]})
            continue
        warnings += suite.warnings
        told = [vars(item) for item in suite.warnings]
        rows.append({"path": str(path), "valid": True, "tests": len(suite.tests), "warnings": told})
    valid = [f"{row['path']}: valid, {row['tests']} tests" for row in rows if row["valid"]]
    return CommandResult(
        lines_page("Suites", valid),
        rows,
        EXIT_CONFIG if problems else EXIT_OK,
        summary=plural(len(problems), "problem"),
        notes=[*(f"warning: {item}" for item in warnings), *map(str, problems)],
        looked_at=len(problems) or sum(row["tests"] for row in rows),
        looked_for=f"tests in {', '.join(map(str, places))}",
    )


@app.command()
@shows("json")
def show(file: File, allow_path: AllowPath = None) -> CommandResult:
    """Print a suite in its normalised form.

    Defaults are filled in and inherited asserts are listed.
    """
    from persona_pipeline.reporting.pages.suites import lines_page

    data = load(file, allow_path).model_dump()
    return CommandResult(lines_page(str(file), shown_json(data, 2).splitlines()), data)


@app.command()
@shows()
def explain(
    file: File,
    test_id: TestIds = None,
    tag: Tags = None,
    targets: TargetsFile = None,
    allow_path: AllowPath = None,
    allow_env: AllowEnv = None,
    allow_targets: AllowTargets = False,
) -> CommandResult:
    """Print the targets, asserts and permissions of each test; runs nothing.

    Each assert is listed with its origin and weight, and with what it reads, calls or runs.
    """
    from persona_pipeline.base.settings import get_settings
    from persona_pipeline.reporting.pages.suites import lines_page
    from persona_pipeline.reporting.text import template_text
    from persona_pipeline.suites.running.opening import open_targets
    from persona_pipeline.suites.running.plan import RunOptions, select_tests
    from persona_pipeline.suites.running.plan import explain as explain_suite

    suite = load(file, allow_path)
    tests = select_tests(suite, RunOptions(test_ids=tuple(test_id or ()), tags=tuple(tag or ())))
    found = open_targets(suite, targets, get_settings(), environment=allow_env, network=allow_targets)
    explained = explain_suite(suite, tests, found)
    text = template_text("suite_explained", {"tests": explained})
    return CommandResult(
        lines_page(f"Tests of {suite.name}", text.splitlines()),
        {"suite": suite.name, "tests": explained},
        summary=f"{plural(len(explained), 'test')} of {suite.name}",
        looked_at=len(explained),
        looked_for=f"tests in {file}",
    )


SUITE_ENDINGS = (".jsonl", ".json", ".xml", ".html")


@app.command()
def run(
    places: Places,
    as_json: AsJson = False,
    responses: Annotated[Path | None, typer.Option(help="Grade these recorded answers; calls no target.")] = None,
    targets: TargetsFile = None,
    target: Annotated[
        list[str] | None, typer.Option(help="The target that answers, instead of the suite's own; repeatable.")
    ] = None,
    test_id: TestIds = None,
    tag: Tags = None,
    shard: Annotated[str | None, typer.Option(help="Only this part of the tests, such as 2/4.")] = None,
    changed: Annotated[
        str | None, typer.Option(help="Only tests whose files or targets changed since this commit, such as HEAD.")
    ] = None,
    allow_code: Annotated[bool, typer.Option(help="Allow the suite to run its own programs.")] = False,
    allow_path: AllowPath = None,
    allow_env: AllowEnv = None,
    allow_targets: AllowTargets = False,
    judge: JudgeName = None,
    record: Record = False,
    max_usd: Annotated[
        float | None, typer.Option(help="US dollars that judge and targets may cost; tests beyond it have no score.")
    ] = None,
    output: Annotated[
        list[Path] | None, typer.Option(help="Write results to .jsonl, .json, .xml (JUnit) or .html; repeatable.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Continue the run that wrote the .jsonl file of --output.")] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            help="Tests at once; by default as the target says, and 20 for recorded answers with a judge.",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds one attempt may take, answer and grading together.")
    ] = 120.0,
    max_retries: Annotated[
        int, typer.Option(min=0, max=10, help="Retries after a temporary error, such as a timeout.")
    ] = 2,
    cache: Annotated[bool | None, typer.Option("--cache/--no-cache", help="Reuse earlier answers of a target.")] = None,
    keep_workspaces: Annotated[bool, typer.Option(help="Keep the workspaces of passing tests too.")] = False,
    save: Annotated[bool, typer.Option(help="Save the run to the store.")] = False,
    notify: Notify = None,
) -> None:
    """Run suites.

    Exit codes: 0 no test failed, 1 a test failed, 2 usage or configuration, 3 none failed and some were not judged, or no test was
    run, 4 budget.
    """
    from persona_pipeline.suites.answering.base import load_responses
    from persona_pipeline.suites.grading.results import SuiteResult
    from persona_pipeline.suites.running.history import RowWriter, save_suite_result
    from persona_pipeline.suites.running.opening import find_suites, open_judge, open_targets
    from persona_pipeline.suites.running.plan import NothingToRunError, RunOptions, parse_shard, select_tests
    from persona_pipeline.suites.running.suite_run import chosen, joined, run_suites
    from persona_pipeline.world.personas import is_world

    outputs = output or []
    if wrong := next((path for path in outputs if path.suffix not in SUITE_ENDINGS), None):
        raise ConfigError(f"--output {wrong}: the name must end in {', '.join(SUITE_ENDINGS)}")
    rows = next((path for path in outputs if path.suffix == ".jsonl"), None)
    if resume and rows is None:
        raise ConfigError("--resume needs --output with the .jsonl file of the stopped run")
    settings = world_settings()
    if notify:
        from persona_pipeline.reporting.notify import require_named
        from persona_pipeline.world.settings import load_world_file

        require_named(notify, load_world_file(settings.world_root).alerts)
    options = RunOptions(
        allow_code=allow_code,
        test_ids=tuple(test_id or ()),
        tags=tuple(tag or ()),
        shard=None if shard is None else parse_shard(shard),
        targets=tuple(target or ()),
        workers=workers,
        timeout=timeout,
        max_retries=max_retries,
        cache=cache,
        keep_workspaces=keep_workspaces,
        world_root=(lambda: settings.world_root) if is_world(settings.world_root) else None,
        settings=settings,
        keyed=bool(outputs) or save or as_json,
        written=tuple(outputs),
    )
    loaded = [load(path, allow_path) for path in find_suites(places)]
    try:
        suites = chosen(loaded, options)
    except NothingToRunError as error:
        if rows is not None:
            RowWriter(rows, append=resume).close()
        nothing = [SuiteResult(suite.name, str(suite.path), [], reason=str(error)) for suite in loaded]
        _report(joined(loaded, nothing), nothing[:1], as_json, outputs)
        _tell(nothing[0], notify)
        end(nothing[0].exit_code)
    recorded = load_responses(responses) if responses is not None else None
    if recorded is not None and len(suites) > 1:
        raise ConfigError("--responses belong to one suite; name only that suite")
    answering = [
        None if recorded else open_targets(suite, targets, settings, environment=allow_env, network=allow_targets)
        for suite in suites
    ]
    # Loaded objects stay to the end, so the garbage collector need not visit them.
    gc.freeze()
    results = run_suites(
        suites,
        options,
        targets=answering,
        judge=open_judge(judge_name(judge), settings, record=record, max_usd=max_usd),
        responses=recorded,
        changed=changed,
        rows=rows,
        resume=resume,
        announce=lambda touched: typer.echo(touched, err=as_json),
        on_result=lambda test: _print_result(test, as_json),
    )
    whole = joined(suites, results)
    every, left = sum(len(suite.tests) for suite in loaded), sum(len(select_tests(suite, options)) for suite in suites)
    if left < every:
        typer.echo(f"{every - left} of {every} tests are excluded by --test-id, --tag or --shard", err=as_json)
    _report(whole, results, as_json, outputs)
    if save:
        from persona_pipeline.base.database.engine import default_url, open_store

        with closing(open_store(default_url(settings))) as store:
            for result in results:
                save_suite_result(store, result)
    _tell(whole, notify)
    end(whole.exit_code)


def _tell(whole: "SuiteResult", names: Sequence[str] | None) -> None:
    if names:
        from persona_pipeline.reporting.notify import suite_notice

        tell(suite_notice(whole), names)


def _print_result(test: "TestResult", as_json: bool) -> None:
    """Print the line of a finished test; with JSON only failures, on stderr."""
    from persona_pipeline.reporting.pages.suites import is_good, result_line

    if not (as_json and is_good(test)):
        typer.echo(result_line(test), err=as_json)


def _report(whole: "SuiteResult", results: Sequence["SuiteResult"], as_json: bool, outputs: list[Path]) -> None:
    from persona_pipeline.reporting.pages.suites import summary_line
    from persona_pipeline.suites.running.history import json_parts

    for path in outputs:
        if path.suffix != ".jsonl":
            from persona_pipeline.reporting.render import write_suites

            write_suites(whole, results, path)
    if as_json:
        sys.stdout.writelines(json_parts(whole, results))
    for result in (*(results if len(results) > 1 and whole.tests else ()), whole):
        typer.echo(summary_line(result), err=as_json)


FAIL_ON = ("worse", "interval", "none")


@app.command()
@shows()
def compare(
    a: Annotated[Path, typer.Argument(help="Results of the first run: .jsonl or .json.")],
    b: Annotated[Path, typer.Argument(help="Results of the second run.")],
    threshold: Annotated[
        float, typer.Option(min=0, max=1, help="Difference (0-1) from which a test is won or lost.")
    ] = 0.1,
    fail_on: Annotated[
        str, typer.Option(help="worse: the mean dropped; interval: significantly more tests lost than won; none.")
    ] = "worse",
) -> CommandResult:
    """Compare two runs test by test.

    Exit codes: 0 the second is not worse, 1 it is, 2 the files cannot be compared, 3 a test of the first has no score.
    """
    from persona_pipeline.reporting.pages.suites import pairs_page
    from persona_pipeline.suites.running.history import compare_rows, read_rows

    require_known("--fail-on", fail_on, FAIL_ON)
    first, second = read_rows(a), read_rows(b)
    comparison = compare_rows(first, second, threshold=threshold)
    if not comparison.pairs:
        raise NothingError(f"{a} and {b} have no test in common")
    code = int(comparison.worse if fail_on == "worse" else comparison.surely_worse)
    if comparison.unscored or comparison.only_a:
        code = EXIT_COVERAGE
    return CommandResult(pairs_page(comparison), comparison.to_dict(), EXIT_OK if fail_on == "none" else code)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="The eval file: .yaml, .yml or .json.")],
    origin: Annotated[
        str | None, typer.Option("--from", help="promptfoo, agentv or pydantic-evals; by default detected.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="The folder to write to; by default the file's own.")] = None,
    force: Annotated[bool, typer.Option(help="Replace existing files.")] = False,
    as_json: AsJson = False,
) -> None:
    """Convert an eval file of promptfoo, AgentV or pydantic-evals to a suite.

    Parts without a counterpart are listed with file and line.

    Exit codes: 0 fully converted, 1 converted except the listed parts, 2 no file was written.
    """
    from persona_pipeline.suites.importing.config import import_file, write_import
    from persona_pipeline.suites.running.opening import load_suite

    folder = output or file.parent
    imported = import_file(file, folder, origin)
    written = write_import(imported, file, folder, force=force)
    suite = load_suite(written[0])
    findings = [*imported.findings, *suite.missing]
    targets = imported.targets["targets"] if imported.targets else []
    if as_json:
        found = {"from": imported.origin, "written": [str(path) for path in written], "tests": len(suite.tests)}
        found["targets"] = [target["name"] for target in targets]
        typer.echo(shown_json({**found, "findings": [vars(item) for item in findings]}))
    else:
        lines = [*map(str, findings), *(f"wrote {path}" for path in written)]
        counts = f"{len(suite.tests)} tests, {len(targets)} targets from {imported.origin}; {len(findings)} to look at."
        typer.echo("\n".join([*lines, counts]))
    end(int(bool(findings)), looked_at=len(suite.tests) or len(findings), looked_for=f"tests in {file}")
