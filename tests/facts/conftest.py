"""A world in which ann says who she is, in four conversations."""

from pathlib import Path

import pytest

from persona_pipeline.testing.worlds import write_small_world
from persona_pipeline.world.world import World

SAID = (
    ("ann", "general", "2026-03-02T09:00:00Z", "Hello. I am 34 and I live in Leeds."),
    ("bob", "general", "2026-03-02T09:05:00Z", "I am 50, my sister Ada hates kettles."),
    ("ann", "general", "2026-03-04T09:00:00Z", "Later I call my sister Anna."),
    ("ann", None, "2026-03-09T09:00:00Z", "Between us: I am 29."),
    ("ann", "general", "2026-03-10T11:00:00Z", "I love tea, and my sister Anna does too."),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_small_world(tmp_path / "world", SAID)


@pytest.fixture
def world(root: Path) -> World:
    return World.open(root)
