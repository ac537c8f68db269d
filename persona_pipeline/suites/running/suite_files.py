"""A suite file from beginning to end: found, loaded with every type of assert there is, run."""

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.settings import get_settings
from persona_pipeline.suites.answering.base import grants_for
from persona_pipeline.suites.asserts import registry
from persona_pipeline.suites.format.files import default_roots, is_pattern
from persona_pipeline.suites.format.loading.suite import read_suite
from persona_pipeline.suites.format.models import Suite
from persona_pipeline.suites.results.suite_result import SuiteResult, TestResult
from persona_pipeline.suites.running.plan import NothingToRunError, RunOptions, select_tests
from persona_pipeline.suites.running.suite_run import run_suite
from persona_pipeline.suites.running.targets_file import find_targets_file, load_targets

if TYPE_CHECKING:
    from persona_pipeline.suites.grading.suite_judge import BackedJudge, SuiteJudge

SUITES = "suites"
ENDINGS = (".eval.yaml", ".eval.yml")


def suite_files(root: Path) -> list[Path]:
    """Return the suite files of a world, sorted."""
    folder = root / SUITES
    return sorted(path for path in folder.rglob("*") if path.name.endswith(ENDINGS)) if folder.is_dir() else []


def suite_roots(path: Path, further: Iterable[Path | str] = ()) -> list[Path]:
    """Return the folders a suite's files may be in: its repository, else its folder, what the settings allow, and further ones."""
    return [*default_roots(path), *get_settings().suite_paths, *map(Path, further)]


def load_suite(path: Path | str, roots: Iterable[Path | str] | None = None) -> Suite:
    """Load a suite from ``.yaml``, ``.yml`` or ``.jsonl``.

    Args:
        path: the file. JSON lines hold tests only; a YAML file of the same name beside them holds the rest.
        roots: folders that every file of the suite must be in, symbolic links followed. None: files are not confined.

    Returns:
        The normalised suite; ``warnings`` names what is deprecated or suspicious.

    Raises:
        ConfigError: the suite is not valid: every problem at its file, line and column.
    """
    # All that is made here stays: looking through it for garbage, again and again as it grows, takes a sixth of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return read_suite(path, roots, registry)
    finally:
        if collecting:
            gc.enable()


def run_suite_file(
    path: Path,
    *,
    world_root: Path,
    judge: "Callable[[], BackedJudge | SuiteJudge] | BackedJudge | None" = None,
    options: RunOptions | None = None,
) -> SuiteResult:
    """Load a suite, find its targets, run it and return the result.

    Args:
        path: the suite; its files are confined to its repository, else its folder, and its targets reach nothing outside.
        world_root: the world that persona asserts look into.
        judge: the project's judge, or a function that opens it.

    Raises:
        ConfigError: the suite, its targets or the judge's recordings are not valid.
    """
    suite = load_suite(path, suite_roots(path))
    targets = find_targets_file(path)
    return run_suite(
        suite,
        targets=None if targets is None else load_targets(targets, grants_for(targets, path)),
        judge=judge,
        options=replace(options or RunOptions(), world_root=lambda: world_root),
    )


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
