"""A suite's run: lines as its tests come, and pages of it and of its comparison with another."""

from collections.abc import Iterable, Mapping
from itertools import chain

from persona_pipeline.reporting.page import (
    Cell,
    Column,
    Drawn,
    Item,
    Items,
    Page,
    PageRow,
    Section,
    Span,
    Table,
    verdict_tone,
)
from persona_pipeline.reporting.text import format_share, one_line
from persona_pipeline.suites.grading.results import (
    WORST_FIRST,
    SuiteResult,
    SuiteVerdict,
    TestResult,
    by_target,
    reason_of,
)
from persona_pipeline.suites.running.history import Comparison, Pair

_REASON, _ID, MOST_REASON = 160, 60, 1000
# Most rows in a notebook, failures first: a long run is cut.
_MOST_TESTS, _MOST_PAIRS = 50, 20


def is_good(test: TestResult) -> bool:
    """Return whether a test needs no look: it passed, or nearly."""
    return test.verdict in (SuiteVerdict.PASS, SuiteVerdict.BORDERLINE)


def result_line(test: TestResult) -> str:
    """Return a test in one line: verdict, score, id, why it did not pass."""
    score = "  -  " if test.score is None else f"{test.score:.3f}"
    reason = one_line(reason_of(test), _REASON)
    return f"{test.verdict.value:<10} {score}  {one_line(test.id, _ID)}" + (f"  {reason}" if reason else "")


def counted(result: SuiteResult) -> str:
    """Return how many tests passed and did not, the mean score and the cost, in words."""
    summary = result.summary
    words = (("borderline", "borderline"), ("failed", "failed"), ("errors", "not judged"))
    counts = [f"{summary['passed']} of {summary['total']} passed"]
    counts += [f"{summary[key]} {word}" for key, word in words if summary[key]]
    counts += [f"mean score {summary['mean']:.3f}"] if "mean" in summary else []
    return ", ".join([*counts, *([f"${summary['cost_usd']:.4f}"] if "cost_usd" in summary else [])])


def summary_line(result: SuiteResult) -> str:
    if not result.tests and result.reason:
        done = result.reason if result.unchanged else f"nothing was run: {result.reason}. Exit code {result.exit_code}."
        return one_line(done, MOST_REASON)
    return f"{one_line(result.suite)}: {counted(result)}. Exit code {result.exit_code}."


def suite_page(result: SuiteResult) -> Page:
    """Return the verdict and one line per test, each with its asserts, its answer and its attempts."""
    judge = f" · judge {result.judge}" if result.judge else ""
    tone = verdict_tone(result.verdict.value)
    before = [Item(result.verdict.value, tone=tone)]
    tests = Section("Tests", [Drawn("suite.html.j2", {"tests": result.tests, "reason": reason_of})])
    parts = by_target(result)
    sides = [Section("Targets side by side", [_targets_table(parts)])] if len(parts) > 1 else []
    return Page(result.suite, [Item(f"{counted(result)}{judge}")], [*sides, tests], before, tone)


def _targets_table(parts: Mapping[str | None, SuiteResult]) -> Table:
    """Return a row for each test, with its verdict and score of each target."""
    found = [
        {
            test.test_id: Cell(f"{test.verdict.value} {format_share(test.score)}", verdict_tone(test.verdict.value))
            for test in part.tests
        }
        for part in parts.values()
    ]
    rows = [[name, *(own.get(name, "–") for own in found)] for name in dict.fromkeys(chain(*found))]
    return Table.plain("Verdicts by target", ["Test", *map(str, parts)], rows)


def tests_page(result: SuiteResult, headline: str) -> Page:
    """Return a run for a notebook: a row a test."""
    left = len(result.tests) - _MOST_TESTS
    return _notebook_page(headline, tests_table(result), left, map(str, result.warnings))


def tests_table(result: SuiteResult) -> Table:
    """Return a row for each test, the worst first, at most 50."""
    told = sorted(result.tests, key=lambda test: WORST_FIRST.index(test.verdict))[:_MOST_TESTS]
    columns = [Column(title, number=title == "Score") for title in ("Test", "Verdict", "Score", "What is missing")]
    return Table("Tests", columns, [_test_row(test) for test in told])


def lines_page(title: str, lines: Iterable[str]) -> Page:
    """Return a page of lines as they are."""
    items = [Item([Span(line.lstrip(), "fixed")], (len(line) - len(line.lstrip())) // 2) for line in lines]
    return Page(title, sections=[Section("", [Items(items)])])


def pairs_page(comparison: Comparison) -> Page:
    """Return two runs: a row a test that both have."""
    told = sorted(comparison.pairs, key=lambda pair: (pair.delta is not None, pair.delta or 0.0))[:_MOST_PAIRS]
    rows = [[pair.id, _score(pair.a), _score(pair.b), _change(pair, comparison.threshold)] for pair in told]
    only = (("before", comparison.only_a), ("after", comparison.only_b))
    notes = [f"only {when}: {name}" for when, names in only for name in names]
    table = Table.plain("Tests", ["Test", "Before", "After", "Change"], rows)
    return _notebook_page(comparison.headline, table, len(comparison.pairs) - _MOST_PAIRS, notes)


def _notebook_page(headline: str, table: Table, left: int, notes: Iterable[str]) -> Page:
    more = [f"{left} more tests"] if left > 0 else []
    return Page(headline, sections=[Section("", [table, Items.of(*more, *notes)])])


def _test_row(test: TestResult) -> PageRow:
    tone = "" if is_good(test) else verdict_tone(test.verdict.value)
    score = "–" if test.score is None else f"{test.score:.2f}"
    return PageRow([test.id, Cell(test.verdict.value, tone), Cell(score, tone), reason_of(test)])


def _score(score: float | None) -> Cell:
    return Cell("–", "warn") if score is None else Cell(f"{score:.2f}")


def _change(pair: Pair, threshold: float) -> Cell:
    if pair.delta is None:
        return Cell("not scored", "warn")
    return Cell(f"{pair.delta:+.2f}", "bad" if pair.delta <= -threshold + 1e-9 < 0 else "")
