"""A world with a Dagster instance of its own."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from persona_pipeline.defs.platform.settings import orchestration
from persona_pipeline.testing.worlds import write_small_world
from tests.defs.suites_support import Suites
from tests.defs.support import BEFORE_THE_DRIFT, Project
from tests.support.worlds import copy_sample


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance in memory: the same storage as on disk, without a second of setting up."""
    with dg.DagsterInstance.ephemeral() as opened:
        yield opened


@pytest.fixture
def instance_on_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    """An instance on SQLite files, which another process or a restart can open."""
    with dg.instance_for_test(temp_dir=str(tmp_path_factory.mktemp("dagster"))) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _fresh_settings() -> Iterator[None]:
    """What a test puts into the environment is read, and forgotten after it."""
    orchestration.cache_clear()
    yield
    orchestration.cache_clear()


@pytest.fixture
def sample(sample_root: Path, instance: dg.DagsterInstance) -> Project:
    """The sample world, watched."""
    return Project(sample_root, instance)


@pytest.fixture
def small(small_root: Path, instance: dg.DagsterInstance) -> Project:
    """The world of ann and bob, watched; nothing is recorded, so nothing is judged."""
    return Project(small_root, instance)


@pytest.fixture(scope="session")
def _remembered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    with dg.DagsterInstance.ephemeral() as instance:
        small = Project(write_small_world(tmp_path_factory.mktemp("remembered") / "small"), instance)
        small.remember()
        yield small


@pytest.fixture
def settled(_remembered: Project, tmp_path: Path, instance: dg.DagsterInstance) -> Project:
    """The small world, watched, in which everybody was evaluated on what is there."""
    return _remembered.copied(tmp_path / "small", instance)


@pytest.fixture(scope="session")
def drifted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, dg.ExecuteInProcessResult]]:
    """The sample world, watched, and the run that found michael out of character; to be read, or copied."""
    with dg.DagsterInstance.ephemeral() as instance:
        sample = Project(copy_sample(tmp_path_factory.mktemp("drifted") / "world"), instance)
        sample.observe()
        yield sample, sample.evaluate("michael")


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, dg.ExecuteInProcessResult]]:
    """The sample world and the run of everybody before the drift; to be read, or copied."""
    with dg.DagsterInstance.ephemeral() as instance:
        sample = Project(copy_sample(tmp_path_factory.mktemp("healthy") / "world"), instance)
        yield sample, sample.evaluate_all(as_of=BEFORE_THE_DRIFT)


@pytest.fixture(scope="session")
def everybody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, dg.ExecuteInProcessResult]]:
    """The sample world and the run of everybody on the newest week; to be read, or copied."""
    with dg.DagsterInstance.ephemeral() as instance:
        sample = Project(copy_sample(tmp_path_factory.mktemp("everybody") / "world"), instance)
        yield sample, sample.evaluate_all()


@pytest.fixture
def world(small: Project) -> Suites:
    """The small world with a suite of two targets."""
    return Suites(small.root, small.instance)
