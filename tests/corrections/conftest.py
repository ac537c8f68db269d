"""A small world whose agent ann has a gate."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from persona_pipeline.corrections.configuration import write_config
from persona_pipeline.world import World
from tests.corrections.support import GATED
from tests.support.messages_server import MessagesServer


@pytest.fixture
def world(small_root: Path, database_url: str) -> Iterator[World]:
    """On SQLite and on Postgres."""
    opened = World.open(small_root, database_url)
    opened.sync()
    write_config(opened.store, "ann", GATED)
    yield opened
    opened.store.close()


@pytest.fixture
def sqlite_world(small_root: Path, tmp_path: Path) -> Iterator[World]:
    opened = World.open(small_root, f"sqlite:///{tmp_path / 'gate.db'}")
    opened.sync()
    write_config(opened.store, "ann", GATED)
    yield opened
    opened.store.close()


@pytest.fixture
def server() -> Iterator[MessagesServer]:
    from tests.corrections.support import answer_gate

    with MessagesServer(answer_gate) as running:
        yield running
    assert running.problems == []
