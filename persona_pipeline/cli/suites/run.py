"""``persona-pipeline suite run``: results as they arrive, a summary and an exit code; and helpers of the suite commands."""

import gc
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from persona_pipeline.base.errors import ConfigError
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
    world_settings,
)
from persona_pipeline.cli.running import end, tell

if TYPE_CHECKING:
    from persona_pipeline.suites.format.models import Suite
    from persona_pipeline.suites.grading.results import SuiteResult, TestResult

File = Annotated[Path, typer.Argument(help="The suite: .yaml, .yml or .jsonl.", show_default=False)]
Places = Annotated[
    list[Path], typer.Argument(help="Suites: files, folders with *.eval.yaml in them, globs.", show_default=False)
]
TestIds = Annotated[
    list[str] | None, typer.Option("--test-id", help="Only tests whose id matches this glob; repeatable.")
]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="Only suites or tests with this tag; repeatable.")]


def load(path: Path, allow_path: list[Path] | None) -> "Suite":
    """Return a suite; its warnings go to stderr."""
    from persona_pipeline.base.settings import get_settings
    from persona_pipeline.suites.running.opening import load_suite, suite_roots

    suite = load_suite(path, suite_roots(path, get_settings(), allow_path or ()))
    for warning in (*suite.warnings, *suite.missing):
        typer.echo(f"warning: {warning}", err=True)
    return suite


SUITE_ENDINGS = (".jsonl", ".json", ".xml", ".html")


def run(
    places: Places,
    as_json: AsJson = False,
    responses: Annotated[
        Path | None, typer.Option(help="Grade these recorded answers; calls no target.", show_default=False)
    ] = None,
    targets: TargetsFile = None,
    target: Annotated[
        list[str] | None,
        typer.Option(help="The target that answers, instead of the suite's own; repeatable.", show_default=False),
    ] = None,
    test_id: TestIds = None,
    tag: Tags = None,
    shard: Annotated[
        str | None, typer.Option(help="Only this part of the tests, such as 2/4.", show_default=False)
    ] = None,
    changed: Annotated[
        str | None,
        typer.Option(
            help="Only tests whose files or targets changed since this commit, such as HEAD.", show_default=False
        ),
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
        list[Path] | None,
        typer.Option(help="Write results to .jsonl, .json, .xml (JUnit) or .html; repeatable.", show_default=False),
    ] = None,
    resume: Annotated[bool, typer.Option(help="Continue the run that wrote the .jsonl file of --output.")] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            help="Tests at once; by default as the target says, and 20 for recorded answers with a judge.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds one attempt may take, answer and grading together.")
    ] = 120.0,
    max_retries: Annotated[
        int, typer.Option(min=0, max=10, help="Retries after a temporary error, such as a timeout.")
    ] = 2,
    cache: Annotated[
        bool | None,
        typer.Option("--cache/--no-cache", help="Reuse earlier answers of a target.", show_default=False),
    ] = None,
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
