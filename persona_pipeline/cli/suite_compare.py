"""``persona-pipeline suite compare``: two runs of a suite, by score and, with a judge, answer against answer."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from persona_pipeline.cli.options import JudgeName, judge_name
from persona_pipeline.cli.suite_options import AllowPath, AsJson, load, print_json, print_lines
from persona_pipeline.errors import ConfigError

if TYPE_CHECKING:
    from persona_pipeline.suites.results.compare import PairwiseResult

FAIL_ON = ("worse", "interval", "pairwise", "none")


def compare(
    a: Annotated[Path, typer.Argument(help="Results of the first run: .jsonl or .json.", show_default=False)],
    b: Annotated[Path, typer.Argument(help="Results of the second run.", show_default=False)],
    as_json: AsJson = False,
    threshold: Annotated[float, typer.Option(min=0, max=1, help="Difference that wins or loses a test.")] = 0.1,
    pairwise: Annotated[
        bool, typer.Option(help="Let a judge compare the answers too, each pair in both orders.")
    ] = False,
    suite: Annotated[
        list[Path] | None,
        typer.Option(
            help="The suite the runs are of, for what was asked; --pairwise needs it; repeatable.", show_default=False
        ),
    ] = None,
    allow_path: AllowPath = None,
    judge: JudgeName = None,
    record: Annotated[bool, typer.Option(help="Write the answers of a live judge to recordings/.")] = False,
    max_usd: Annotated[
        float | None, typer.Option(help="US dollars the judge may cost; what it stops is unscored.")
    ] = None,
    fail_on: Annotated[
        str,
        typer.Option(
            help="worse: the mean fell; interval: its whole 95 % interval is below 0; "
            "pairwise: that of the judge's choices is below one half; none."
        ),
    ] = "worse",
) -> None:
    """Compare two runs test by test.

    Exit codes: 0 the second is no worse, 1 it is, 2 the files do not compare, 3 a test has no score in one of them, or no judgment.
    """
    from persona_pipeline.reporting.pages.suites import comparison_lines, pairwise_lines
    from persona_pipeline.suites.results.compare import compare_rows
    from persona_pipeline.suites.results.suite_result import read_rows

    if fail_on not in FAIL_ON:
        raise ConfigError(f"--fail-on {fail_on!r} is unknown; use {', '.join(FAIL_ON[:-1])} or {FAIL_ON[-1]}")
    if fail_on == "pairwise" and not pairwise:
        raise ConfigError("--fail-on pairwise needs --pairwise")
    if pairwise and not suite:
        raise ConfigError("--pairwise needs --suite: results do not hold what was asked")
    first, second = read_rows(a), read_rows(b)
    comparison = compare_rows(first, second, threshold=threshold)
    if not comparison.pairs:
        raise ConfigError(f"{a} and {b} have no test in common")
    judged = None
    if pairwise and suite:
        judged = _judged(first, second, suite, allow_path, judge_name(judge), record=record, max_usd=max_usd)
    if as_json:
        print_json(comparison.to_dict() | ({"pairwise": judged.to_dict()} if judged else {}))
    else:
        print_lines(comparison_lines(comparison))
        print_lines(pairwise_lines(judged) if judged else ())
    if fail_on == "none":
        raise typer.Exit(0)
    if comparison.unscored or (judged and judged.unjudged):
        raise typer.Exit(3)
    worse = {
        "worse": comparison.worse,
        "interval": comparison.surely_worse,
        "pairwise": judged is not None and judged.surely_worse,
    }
    raise typer.Exit(int(worse[fail_on]))


def _judged(
    a: list[dict[str, Any]],
    b: list[dict[str, Any]],
    places: list[Path],
    allow_path: list[Path] | None,
    judge: str,
    *,
    record: bool,
    max_usd: float | None,
) -> "PairwiseResult":
    from persona_pipeline.suites.results.compare import judge_pairs
    from persona_pipeline.suites.running.opening import judge_opener
    from persona_pipeline.suites.running.suite_files import find_suites, prefixes

    suites = [load(path, allow_path) for path in find_suites(places)]
    opened = judge_opener(judge, record=record, max_usd=max_usd)()
    try:
        return judge_pairs(opened, a, b, dict(zip(prefixes(suites), suites, strict=True)))
    finally:
        opened.close()
