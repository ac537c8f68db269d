"""A world with a Dagster instance of its own."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from persona_pipeline.defs.platform.settings import orchestration
from tests.defs.suites_support import Suites
from tests.defs.support import Project


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


@pytest.fixture
def world(small: Project) -> Suites:
    """The small world with a suite of two targets."""
    return Suites(small.root, small.instance)
