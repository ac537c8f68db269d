"""Every way of starting an evaluation finds the same: a drop by chance is asked again by all of them, or by none."""

from pathlib import Path

import pytest

from tests.support.every_way import found_by_every_way
from tests.support.noise import NoisyJudge


@pytest.mark.slow
def test_a_noisy_judge_finds_the_same_on_every_way(sample_root: Path) -> None:
    judge = NoisyJudge(sample_root / "recordings", 1.5, 2)
    found = found_by_every_way(sample_root, judge, "2026-06-21T23:59:59Z")
    first = found.pop("run_evaluation")
    assert first.keys() == {"dwight", "jim", "michael", "pam"}
    for way, its in found.items():
        assert its == first, way
