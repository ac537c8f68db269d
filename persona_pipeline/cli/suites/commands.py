"""``persona-pipeline suite``: check, show, explain, import, run and compare eval suites."""

from pathlib import Path
from typing import Annotated

import typer

from persona_pipeline.base.errors import EXIT_CONFIG, EXIT_COVERAGE, EXIT_OK, ConfigError, NothingError
from persona_pipeline.base.text import plural, shown_json
from persona_pipeline.cli.options import AllowEnv, AllowPath, AllowTargets, AsJson, TargetsFile, require_known
from persona_pipeline.cli.running import CommandResult, end, shows
from persona_pipeline.cli.suites.run import (
    File,
    Places,
    Tags,
    TestIds,
    load,
    run,
)

app = typer.Typer(help="Eval suites: tests in YAML, graded by asserts.", no_args_is_help=True)


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


app.command()(run)


FAIL_ON = ("worse", "interval", "none")


@app.command()
@shows()
def compare(
    a: Annotated[Path, typer.Argument(help="Results of the first run: .jsonl or .json.", show_default=False)],
    b: Annotated[Path, typer.Argument(help="Results of the second run.", show_default=False)],
    threshold: Annotated[
        float, typer.Option(min=0, max=1, help="Difference (0-1) from which a test is won or lost.")
    ] = 0.1,
    fail_on: Annotated[
        str,
        typer.Option(help="worse: the mean dropped; interval: significantly more tests lost than won; none."),
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
    file: Annotated[Path, typer.Argument(help="The eval file: .yaml, .yml or .json.", show_default=False)],
    origin: Annotated[
        str | None,
        typer.Option("--from", help="promptfoo, agentv or pydantic-evals; by default detected.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="The folder to write to; by default the file's own.", show_default=False)
    ] = None,
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
