"""A suite file from beginning to end: found, loaded with every type of assert there is, run."""

import gc
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from persona_pipeline.settings import get_settings
from persona_pipeline.suites.asserts import registry
from persona_pipeline.suites.format.files import default_roots
from persona_pipeline.suites.format.loading.suite import read_suite
from persona_pipeline.suites.format.models import Suite
from persona_pipeline.suites.results.suite_result import SuiteResult
from persona_pipeline.suites.running.options import RunOptions
from persona_pipeline.suites.running.suite_run import run_suite
from persona_pipeline.suites.targets.config import find_targets_file, load_targets
from persona_pipeline.suites.targets.grants import grants_for

if TYPE_CHECKING:
    from persona_pipeline.suites.asserts.suite_judge import BackedJudge, SuiteJudge

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
