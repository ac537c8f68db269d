"""A small world whose agent ann has a gate."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from persona_pipeline.base.database.engine import open_store
from persona_pipeline.corrections.configuration import write_config
from persona_pipeline.testing.worlds import write_small_world
from persona_pipeline.world import World
from tests.corrections.support import GATED, answer_gate
from tests.support.clock import take_deadlines_off
from tests.support.messages_server import MessagesServer


@pytest.fixture(autouse=True)
def _in_no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    take_deadlines_off(monkeypatch)


@pytest.fixture(scope="session")
def finished_world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The world's folder and its SQLite store, to be copied."""
    root = write_small_world(tmp_path_factory.mktemp("gate") / "world")
    world = World.open(root, f"sqlite:///{root / 'gate.db'}")
    world.sync()
    write_config(world.store, "ann", GATED)
    world.store.close()
    return root


@pytest.fixture
def world(finished_world: Path, tmp_path: Path) -> Iterator[World]:
    """On SQLite."""
    root = Path(shutil.copytree(finished_world, tmp_path / "world"))
    store = open_store(f"sqlite:///{root / 'gate.db'}", migrate=False)
    yield World(root, store)
    store.close()


@pytest.fixture
def either_world(small_root: Path, database_url: str) -> Iterator[World]:
    """On SQLite and on Postgres."""
    opened = World.open(small_root, database_url)
    opened.sync()
    write_config(opened.store, "ann", GATED)
    yield opened
    opened.store.close()


@pytest.fixture
def server() -> Iterator[MessagesServer]:
    with MessagesServer(answer_gate) as running:
        yield running
    assert running.problems == []
