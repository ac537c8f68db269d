"""What is built of the project: every file of the package is in the wheel, and the sdist builds that same wheel."""

import re
import subprocess
import tarfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

from persona_pipeline.version import __version__

PROJECT = Path(__file__).parents[1]
# Kinds of files that the package reads while it runs: one of each has to be there, or this test looks in the wrong place.
READ_AT_RUNTIME = {".j2", ".css", ".js", ".yaml", ".toml", ".txt", ".jsonl", ".py", ".typed"}


@pytest.fixture(scope="module")
def tracked() -> set[str]:
    if not (PROJECT / ".git").exists():
        pytest.skip("no checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    named = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    return {name for name in named.split("\0") if name and (PROJECT / name).is_file()}


def wheel_files(root: Path) -> set[str]:
    return paths(WheelBuilder(str(root)).recurse_included_files())


def paths(files: Iterable[object]) -> set[str]:
    return {str(getattr(file, "distribution_path", "")).replace("\\", "/") for file in files}


def test_the_wheel_holds_the_package_and_nothing_else(tracked: set[str]) -> None:
    package = {name for name in tracked if name.startswith("persona_pipeline/")}
    assert wheel_files(PROJECT) == package
    assert {Path(name).suffix or Path(name).name for name in package} >= READ_AT_RUNTIME
    assert "persona_pipeline/py.typed" in package


def test_the_sdist_holds_the_project_and_builds_the_same_wheel(tracked: set[str], tmp_path: Path) -> None:
    (built,) = SdistBuilder(str(PROJECT)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(built) as archive:
        archive.extractall(tmp_path, filter="data")
    root = tmp_path / f"persona_pipeline-{__version__}"
    held = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert held - tracked == {"PKG-INFO"}
    assert tracked - held == set()
    assert wheel_files(root) == wheel_files(PROJECT)
    told = (root / "PKG-INFO").read_text(encoding="utf-8")
    assert f"\nVersion: {__version__}\n" in told and "\nLicense-File: LICENSE\n" in told


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "version" not in project
    assert ProjectMetadata(str(PROJECT), PluginManager()).version == __version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


def test_the_pythons_that_are_promised_are_those_that_ci_installs_on() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    workflow = (PROJECT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    matrix = re.findall(r"python: \[(.*)\]\n(?:.*\n)*?.*install\.py matrix", workflow[workflow.index("  install:") :])
    assert re.findall(r"3\.\d+", matrix[0]) == promised
    assert project["requires-python"] == f">={promised[0]}"
