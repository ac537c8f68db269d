"""``persona-pipeline suite``: check, show, explain, run and compare eval suites."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from persona_pipeline.cli.options import JudgeName, judge_name
from persona_pipeline.errors import ConfigError

if TYPE_CHECKING:
    from persona_pipeline.suites import Suite, SuiteResult

app = typer.Typer(help="Eval suites: tests in YAML, graded by asserts.", no_args_is_help=True)

ENDINGS = (".jsonl", ".json", ".xml", ".html")
File = Annotated[Path, typer.Argument(help="The suite: .yaml, .yml or .jsonl.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AllowPath = Annotated[
    list[Path] | None,
    typer.Option(help="A further folder whose files the suite may name; repeatable.", show_default=False),
]
TargetsFile = Annotated[
    Path | None, typer.Option(help="The targets file; by default the nearest targets.yaml.", show_default=False)
]
TestIds = Annotated[
    list[str] | None, typer.Option("--test-id", help="Only tests whose id matches this glob; repeatable.")
]
AllowEnv = Annotated[
    list[str] | None,
    typer.Option(
        help="An environment variable that the suite's targets file may read; repeatable.", show_default=False
    ),
]
AllowTargets = Annotated[bool, typer.Option(help="Let targets that the suite names ask servers.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="Only suites or tests with this tag; repeatable.")]


def _load(path: Path, allow_path: list[Path] | None) -> "Suite":
    from persona_pipeline.suites import load_suite
    from persona_pipeline.suites.format.files import default_roots

    suite = load_suite(path, [*default_roots(path), *(allow_path or ())])
    for warning in suite.warnings:
        typer.echo(f"warning: {warning}", err=True)
    return suite


def _print_json(data: Any) -> None:
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, default=str)
    sys.stdout.write(text + "\n")


def _print_lines(lines: Iterable[str], *, err: bool = False) -> None:
    stream = sys.stderr if err else sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write("".join(f"{line}\n" for line in lines).encode(encoding, "replace").decode(encoding))


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(help="Suites: .yaml, .yml or .jsonl.", show_default=False)],
    as_json: AsJson = False,
    allow_path: AllowPath = None,
) -> None:
    """Check suites: every problem with its file, line and column. Exit code 2 if there is one."""
    from persona_pipeline.suites import load_suite
    from persona_pipeline.suites.format.files import default_roots

    rows, problems = [], []
    for path in files:
        try:
            suite = load_suite(path, [*default_roots(path), *(allow_path or ())])
        except ConfigError as error:
            problems += error.problems
            rows.append({"path": str(path), "valid": False, "problems": [vars(item) for item in error.problems]})
            continue
        warnings = [vars(item) for item in suite.warnings]
        rows.append({"path": str(path), "valid": True, "tests": len(suite.tests), "warnings": warnings})
        if not as_json:
            _print_lines((f"warning: {item}" for item in suite.warnings), err=True)
            _print_lines([f"{path}: valid, {len(suite.tests)} tests"])
    if as_json:
        _print_json(rows)
    if problems:
        raise ConfigError(problems)


@app.command()
def show(file: File, as_json: AsJson = False, allow_path: AllowPath = None) -> None:
    """Print a suite in its normalised form: one spelling, defaults filled in, asserts inherited."""
    data = _load(file, allow_path).model_dump()
    if as_json:
        _print_json(data)
    else:
        _print_lines([json.dumps(data, indent=2, ensure_ascii=False)])


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

    suite = _load(file, allow_path)
    tests = select_tests(suite, RunOptions(test_ids=tuple(test_id or ()), tags=tuple(tag or ())))
    found = open_targets(file, targets, environment=allow_env, network=allow_targets)
    explained = explain_suite(suite, tests, found)
    if as_json:
        _print_json({"suite": suite.name, "tests": [item.to_dict() for item in explained]})
    else:
        _print_lines(explanation_lines(explained))


@app.command()
def run(
    file: File,
    as_json: AsJson = False,
    responses: Annotated[
        Path | None, typer.Option(help="Grade these recorded answers; no target is asked.", show_default=False)
    ] = None,
    targets: TargetsFile = None,
    target: Annotated[
        list[str] | None,
        typer.Option(help="Who answers, instead of what the suite says; repeatable.", show_default=False),
    ] = None,
    test_id: TestIds = None,
    tag: Tags = None,
    allow_code: Annotated[bool, typer.Option(help="Let the suite run its own programs.")] = False,
    allow_path: AllowPath = None,
    allow_env: AllowEnv = None,
    allow_targets: AllowTargets = False,
    judge: JudgeName = None,
    record: Annotated[bool, typer.Option(help="Write the answers of a live judge to recordings/.")] = False,
    max_usd: Annotated[
        float | None, typer.Option(help="US dollars the judge may cost; what it stops is unscored.")
    ] = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(help="Write results to .jsonl, .json, .xml (JUnit) or .html; repeatable.", show_default=False),
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on where the run that wrote the .jsonl of --out stopped.")] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, max=256, help="Tests at once; by default what the target says, else 1.", show_default=False
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds one attempt may take, answer and grading together.")
    ] = 120.0,
    max_retries: Annotated[
        int, typer.Option(min=0, max=10, help="Further tries after what may pass, such as a timeout.")
    ] = 2,
    cache: Annotated[
        bool | None,
        typer.Option("--cache/--no-cache", help="Take answers that a target gave before.", show_default=False),
    ] = None,
    keep_workspaces: Annotated[bool, typer.Option(help="Keep the workspaces of tests that pass too.")] = False,
    save: Annotated[bool, typer.Option(help="Write the run to the store too.")] = False,
) -> None:
    """Run a suite.

    Exit codes: 0 no test failed, 1 a test failed, 2 usage or configuration, 3 something was not judged, 4 budget.
    """
    from persona_pipeline.suites import RunOptions, load_responses, run_suite
    from persona_pipeline.suites.results.result_files import RowWriter, earlier_results
    from persona_pipeline.suites.running.opening import judge_opener, open_targets, world_root

    outputs = _outputs(out or [])
    rows = next((path for path in outputs if path.suffix == ".jsonl"), None)
    if resume and rows is None:
        raise ConfigError("--resume needs --out with a .jsonl file: the one the run that stopped was writing")
    suite = _load(file, allow_path)
    options = RunOptions(
        allow_code=allow_code,
        test_ids=tuple(test_id or ()),
        tags=tuple(tag or ()),
        targets=tuple(target or ()),
        workers=workers,
        timeout=timeout,
        max_retries=max_retries,
        cache=cache,
        keep_workspaces=keep_workspaces,
        world_root=world_root,
        earlier=earlier_results(rows) if resume and rows is not None else (),
    )
    recorded = load_responses(responses) if responses is not None else None
    found = None
    if recorded is None:
        found = open_targets(file, targets, environment=allow_env, network=allow_targets)
    opener = judge_opener(judge_name(judge), record=record, max_usd=max_usd)
    writer: RowWriter | None = None
    try:
        if rows is not None:
            writer = RowWriter(rows, append=resume)
        written = writer
        result = run_suite(
            suite,
            targets=found,
            responses=recorded,
            judge=opener,
            options=options,
            on_result=None if written is None else lambda item: None if item.resumed else written.write(item),
        )
    finally:
        if writer is not None:
            writer.close()
    _report(result, as_json, outputs)
    if save:
        from persona_pipeline.store import open_store
        from persona_pipeline.suites.results.storage import save_suite_result

        save_suite_result(open_store(), result)
    raise typer.Exit(result.exit_code)


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
        _print_json(comparison.to_dict())
    else:
        _print_lines(comparison_lines(comparison))
    if fail_on == "none":
        raise typer.Exit(0)
    if comparison.unscored:
        raise typer.Exit(3)
    raise typer.Exit(int(comparison.worse if fail_on == "worse" else comparison.surely_worse))


def _outputs(paths: list[Path]) -> list[Path]:
    for path in paths:
        if path.suffix not in ENDINGS:
            raise ConfigError(f"--out {path}: the name must end in {', '.join(ENDINGS)}")
    return paths


def _report(result: "SuiteResult", as_json: bool, outputs: list[Path]) -> None:
    from persona_pipeline.reporting.suites.table import run_lines

    for path in outputs:
        _write(result, path)
    if as_json:
        _print_json(result.to_dict())
        _print_lines(run_lines(result, only_problems=True), err=True)
    else:
        _print_lines(run_lines(result))


def _write(result: "SuiteResult", path: Path) -> None:
    if path.suffix == ".jsonl":
        return
    if path.suffix == ".json":
        text = json.dumps(result.to_dict(), indent=2, ensure_ascii=True, allow_nan=False, default=str) + "\n"
    elif path.suffix == ".xml":
        from persona_pipeline.reporting.suites.junit import render_suite_junit

        text = render_suite_junit(result)
    else:
        from persona_pipeline.reporting.suites.html import render_suite_html

        text = render_suite_html(result)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
