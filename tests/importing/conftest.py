"""The world into which exports are read."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from persona_pipeline.world import World


@pytest.fixture
def empty_world(small_root: Path) -> Iterator[World]:
    """The small world without messages."""
    for path in (small_root / "messages").iterdir():
        path.unlink()
    world = World.open(small_root)
    yield world
    world.store.close()
