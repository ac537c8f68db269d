"""A suite file from beginning to end, as assets and schedules run it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from persona_pipeline.suites.loading.files import default_roots
from persona_pipeline.suites.loading.suite import load_suite
from persona_pipeline.suites.results import SuiteResult
from persona_pipeline.suites.running import RunOptions, run_suite

if TYPE_CHECKING:
    from persona_pipeline.suites.judges import BackedJudge, SuiteJudge

SUITES = "suites"
ENDINGS = (".eval.yaml", ".eval.yml")


def suite_files(root: Path) -> list[Path]:
    """Return the suite files of a world, sorted."""
    folder = root / SUITES
    return sorted(path for path in folder.rglob("*") if path.name.endswith(ENDINGS)) if folder.is_dir() else []


def run_suite_file(
    path: Path,
    *,
    world_root: Path,
    judge: "Callable[[], BackedJudge | SuiteJudge] | BackedJudge | None" = None,
    options: RunOptions | None = None,
) -> SuiteResult:
    """Load a suite, find its targets, run it and return the result.

    Args:
        path: the suite; its files are confined to its repository, else its folder.
        world_root: the world that persona asserts look into.
        judge: the project's judge, or a function that opens it.

    Raises:
        ConfigError: the suite, its targets or the judge's recordings are not valid.
    """
    from persona_pipeline.suites.targets import find_targets_file, load_targets

    suite = load_suite(path, default_roots(path))
    targets = find_targets_file(path)
    return run_suite(
        suite,
        targets=None if targets is None else load_targets(targets),
        judge=judge,
        options=replace(options or RunOptions(), world_root=lambda: world_root),
    )
