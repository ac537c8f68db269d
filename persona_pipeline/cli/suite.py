"""``persona-pipeline suite``: check, show, explain, run and compare eval suites."""

import json
from pathlib import Path
from typing import Annotated

import typer

from persona_pipeline.cli.suite_options import (
    AllowEnv,
    AllowPath,
    AllowTargets,
    AsJson,
    File,
    Places,
    Tags,
    TargetsFile,
    TestIds,
    load,
    print_json,
    print_lines,
)
from persona_pipeline.cli.suite_run import run
from persona_pipeline.errors import ConfigError

app = typer.Typer(help="Eval suites: tests in YAML, graded by asserts.", no_args_is_help=True)


@app.command()
def validate(places: Places, as_json: AsJson = False, allow_path: AllowPath = None) -> None:
    """Check suites: every problem with its file, line and column. Exit code 2 if there is one."""
    from persona_pipeline.suites.running.several import find_suites
    from persona_pipeline.suites.running.suite_files import load_suite, suite_roots

    rows, problems = [], []
    for path in find_suites(places):
        try:
            suite = load_suite(path, suite_roots(path, allow_path or ()))
            if suite.missing:
                raise ConfigError(suite.missing)
        except ConfigError as error:
            problems += error.problems
            rows.append({"path": str(path), "valid": False, "problems": [vars(item) for item in error.problems]})
            continue
        warnings = [vars(item) for item in suite.warnings]
        rows.append({"path": str(path), "valid": True, "tests": len(suite.tests), "warnings": warnings})
        if not as_json:
            print_lines((f"warning: {item}" for item in suite.warnings), err=True)
            print_lines([f"{path}: valid, {len(suite.tests)} tests"])
    if as_json:
        print_json(rows)
    if problems:
        raise ConfigError(problems)


@app.command()
def show(file: File, as_json: AsJson = False, allow_path: AllowPath = None) -> None:
    """Print a suite in its normalised form: one spelling, defaults filled in, asserts inherited."""
    data = load(file, allow_path).model_dump()
    if as_json:
        print_json(data)
    else:
        print_lines([json.dumps(data, indent=2, ensure_ascii=False)])


@app.command()
def explain(
    file: File,
    as_json: AsJson = False,
    test_id: TestIds = None,
    tag: Tags = None,
    targets: TargetsFile = None,
    allow_path: AllowPath = None,
    allow_env: AllowEnv = None,
    allow_targets: AllowTargets = False,
) -> None:
    """Print who would answer, which asserts would run, where they come from, what they weigh and what all of it needs.

    Names what a suite would read, call and run, and what of it needs leave. Nothing is run.
    """
    from persona_pipeline.reporting.suites.table import explanation_lines
    from persona_pipeline.suites.running.explain import explain as explain_suite
    from persona_pipeline.suites.running.opening import open_targets
    from persona_pipeline.suites.running.options import RunOptions
    from persona_pipeline.suites.running.plan import select_tests

    suite = load(file, allow_path)
    tests = select_tests(suite, RunOptions(test_ids=tuple(test_id or ()), tags=tuple(tag or ())))
    found = open_targets(file, targets, environment=allow_env, network=allow_targets)
    explained = explain_suite(suite, tests, found)
    if as_json:
        print_json({"suite": suite.name, "tests": [item.to_dict() for item in explained]})
    else:
        print_lines(explanation_lines(explained))


app.command()(run)


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(help="Results of the first run: .jsonl or .json.", show_default=False)],
    b: Annotated[Path, typer.Argument(help="Results of the second run.", show_default=False)],
    as_json: AsJson = False,
    threshold: Annotated[float, typer.Option(min=0, max=1, help="Difference that wins or loses a test.")] = 0.1,
    fail_on: Annotated[
        str, typer.Option(help="worse: the mean fell; interval: its whole 95 % interval is below 0; none.")
    ] = "worse",
) -> None:
    """Compare two runs test by test.

    Exit codes: 0 the second is no worse, 1 it is, 2 the files do not compare, 3 a test has no score in one of them.
    """
    from persona_pipeline.reporting.suites.table import comparison_lines
    from persona_pipeline.suites.results.compare import compare_rows
    from persona_pipeline.suites.results.result_files import read_rows

    if fail_on not in ("worse", "interval", "none"):
        raise ConfigError(f"--fail-on {fail_on!r} is unknown; use worse, interval or none")
    comparison = compare_rows(read_rows(a), read_rows(b), threshold=threshold)
    if not comparison.pairs:
        raise ConfigError(f"{a} and {b} have no test in common")
    if as_json:
        print_json(comparison.to_dict())
    else:
        print_lines(comparison_lines(comparison))
    if fail_on == "none":
        raise typer.Exit(0)
    if comparison.unscored:
        raise typer.Exit(3)
    raise typer.Exit(int(comparison.worse if fail_on == "worse" else comparison.surely_worse))
