"""Which tests of a suite differ from how they stand in a commit: what a change makes worth running."""

import io
import json
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from persona_pipeline.errors import ConfigError
from persona_pipeline.suites.format.files import repository_root
from persona_pipeline.suites.format.models import Suite, Test
from persona_pipeline.suites.running.suite_files import load_suite
from persona_pipeline.world.changes import ask_git


def changed_ids(suite: Suite, commit: str | None) -> frozenset[str] | None:
    """Return the ids of ``changed_tests``, None for all where no commit is named."""
    return None if commit is None else frozenset(test.id for test in changed_tests(suite, commit))


def changed_tests(suite: Suite, commit: str) -> list[Test]:
    """Return the tests that are new or differ since a commit, uncommitted changes included; a doubt counts as a difference.

    All of them where something else changed that the suite may rest on: its settings, a prompt, or any other file in its folder.

    Args:
        commit: such as ``HEAD`` or ``origin/main``.

    Raises:
        ConfigError: the suite stands in no repository, or there is no such commit.
    """
    top = repository_root(suite.path.parent)
    if top is None:
        raise ConfigError(f"--changed: {suite.path} stands in no git repository")
    commit = (
        ask_git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}").decode().strip()
    )
    changed = _changed_files(top, commit)
    folder = suite.path.resolve().parent
    own = {Path(test.entry.source.path).resolve() for test in suite.tests if test.entry} | {suite.path.resolve()}
    read = {path.resolve() for path in suite.files}
    if not changed & (own | read) and not any(path.is_relative_to(folder) for path in changed):
        return []
    if any((path in read or path.is_relative_to(folder)) and path not in own for path in changed):
        return list(suite.tests)
    before = _before(suite, commit, top)
    if before is None or _settings(before[0], before[1]) != _settings(suite, top):
        return list(suite.tests)
    known = {test.id: _text(test.model_dump(), before[1]) for test in before[0].tests}
    return [test for test in suite.tests if known.get(test.id) != _text(test.model_dump(), top)]


def _changed_files(top: Path, commit: str) -> set[Path]:
    differing = ask_git(
        top, "diff", "--no-ext-diff", "--name-only", "-z", "--no-renames", "--end-of-options", commit, "--"
    )
    new = ask_git(top, "ls-files", "--others", "--exclude-standard", "-z")
    return {
        (top / name.decode("utf-8", "surrogateescape")).resolve() for name in (differing + new).split(b"\0") if name
    }


def _before(suite: Suite, commit: str, top: Path) -> tuple[Suite, Path] | None:
    """Return the suite as it stands in a commit, with the folder it was read in; None where it cannot be read."""
    places = {path.resolve().parent.relative_to(top.resolve()) for path in (*suite.files, suite.path)}
    with tempfile.TemporaryDirectory(prefix="persona-suite-") as name:
        folder = Path(name).resolve()
        try:
            archive = ask_git(top, "archive", "--format=tar", commit, *(f"./{path}" for path in _outermost(places)))
            with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                tar.extractall(folder, filter="data")
            return load_suite(folder / suite.path.resolve().relative_to(top.resolve()), [folder]), folder
        except (ConfigError, OSError, tarfile.TarError):
            return None


def _outermost(folders: Iterable[Path]) -> list[Path]:
    found = sorted(folders)
    return [path for path in found if not any(path != other and path.is_relative_to(other) for other in found)]


def _settings(suite: Suite, top: Path) -> str:
    return _text({key: value for key, value in suite.model_dump().items() if key != "tests"}, top)


def _text(data: Any, top: Path) -> str:
    """Return data as text in which the folder it was read in does not show."""
    return json.dumps(data, sort_keys=True, default=str).replace(str(top.resolve()), "").replace(str(top), "")
