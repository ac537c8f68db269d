"""Several suites in one run: found by file, folder and glob; one result, one summary, one exit code."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.suites.format.files import is_pattern
from persona_pipeline.suites.format.models import Suite
from persona_pipeline.suites.results.suite_result import SuiteResult, TestResult
from persona_pipeline.suites.running.options import RunOptions
from persona_pipeline.suites.running.plan import NothingToRunError, select_tests
from persona_pipeline.suites.running.suite_files import ENDINGS


def find_suites(places: Iterable[Path | str]) -> list[Path]:
    """Return the suites at these places, each once: a file as it is, of a folder every suite in it, of a glob what it matches.

    Raises:
        ConfigError: a place holds no suite.
    """
    found: dict[Path, None] = {}
    problems: list[Problem] = []
    for place in map(Path, places):
        if place.is_dir():
            files = sorted(file for file in place.rglob("*") if file.name.endswith(ENDINGS) and file.is_file())
        elif not place.exists() and is_pattern(str(place)):
            files = sorted(file for file in _matches(place) if file.is_file())
        else:
            files = [place]
        if not files:
            problems.append(Problem(f"holds no suite; their names end in {' or '.join(ENDINGS)}", str(place)))
        found |= dict.fromkeys(files)
    if problems:
        raise ConfigError(problems)
    return list(found)


def _matches(pattern: Path) -> Iterator[Path]:
    try:
        yield from Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))
    except (ValueError, NotImplementedError) as error:
        raise ConfigError(Problem(f"is no usable pattern ({error})", str(pattern))) from error


def chosen(suites: Sequence[Suite], options: RunOptions) -> list[Suite]:
    """Return the suites of which the filters leave a test.

    Raises:
        NothingToRunError: they leave none of any suite.
    """
    left: list[Suite] = []
    problems: list[Problem] = []
    for suite in suites:
        try:
            select_tests(suite, options)
            left.append(suite)
        except NothingToRunError as error:
            problems += error.problems
    if not left:
        raise NothingToRunError(problems)
    return left


def prefixes(suites: Sequence[Suite]) -> list[str]:
    """Return what the ids of each suite's tests begin with in a joined result: its name, its path where two have one name."""
    if len(suites) == 1:
        return [""]
    names = Counter(suite.name for suite in suites)
    return [f"{suite.name if names[suite.name] == 1 else suite.path}/" for suite in suites]


def with_prefix(test: TestResult, prefix: str) -> TestResult:
    """Return a suite's test as it stands in a joined result."""
    return replace(test, id=f"{prefix}{test.id}") if prefix else test


def without_prefix(rows: Iterable[TestResult], prefix: str) -> Iterator[TestResult]:
    """Yield the rows of a joined result that are one suite's, under their own ids."""
    for row in rows:
        if row.id.startswith(prefix):
            yield replace(row, id=row.id.removeprefix(prefix))


def joined(suites: Sequence[Suite], results: Sequence[SuiteResult]) -> SuiteResult:
    """Return the results of several suites as one; that of a single suite stays as it is."""
    if len(results) == 1:
        return results[0]
    usage: Counter[str] = Counter()
    for result in results:
        usage.update(result.usage)
    return SuiteResult(
        f"{len(results)} suites",
        ", ".join(result.path for result in results),
        [
            with_prefix(test, prefix)
            for prefix, result in zip(prefixes(suites), results, strict=True)
            for test in result.tests
        ],
        " ".join(result.suite_hash for result in results),
        [warning for result in results for warning in result.warnings],
        next((result.judge for result in results if result.judge), None),
        dict(usage),
        "; ".join(dict.fromkeys(result.reason for result in results if result.reason)),
    )
