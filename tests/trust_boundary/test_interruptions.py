"""A few interruptions of two commands; all of them are benchmarks/interruptions.py."""

import random
from pathlib import Path

import pytest

from tests.trust_boundary.interruptions import TASKS, killed, starved

NAMED = {task.name: task for task in TASKS}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ingest", "record"])
def test_killed_at_random_points_nothing_is_corrupt_and_nothing_lost(name: str, tmp_path: Path) -> None:
    found = killed(NAMED[name], tmp_path, 2, random.Random(7))
    assert found.problems == []


@pytest.mark.parametrize(("name", "size"), [("record", 30_000), ("baseline", 2_000)])
def test_with_a_full_disk_nothing_is_corrupt_and_nothing_lost(name: str, size: int, tmp_path: Path) -> None:
    found = starved(NAMED[name], tmp_path, [size])
    assert (found.problems, found.interrupted) == ([], 1)
