"""``persona-pipeline suite``: check, show, explain, run and compare eval suites."""

import json
from dataclasses import asdict

import typer

from persona_pipeline.cli.suite_compare import compare
from persona_pipeline.cli.suite_import import import_
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
    from persona_pipeline.suites.running.suite_files import find_suites, load_suite, suite_roots

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
    from persona_pipeline.reporting.pages.suites import explanation_lines
    from persona_pipeline.suites.running.explain import explain as explain_suite
    from persona_pipeline.suites.running.opening import open_targets
    from persona_pipeline.suites.running.plan import RunOptions, select_tests

    suite = load(file, allow_path)
    tests = select_tests(suite, RunOptions(test_ids=tuple(test_id or ()), tags=tuple(tag or ())))
    found = open_targets(file, targets, environment=allow_env, network=allow_targets, folders=suite.roots or ())
    explained = explain_suite(suite, tests, found)
    if as_json:
        print_json({"suite": suite.name, "tests": [asdict(item) for item in explained]})
    else:
        print_lines(explanation_lines(explained))


app.command()(run)


app.command()(compare)
app.command("import")(import_)
