"""Every way of starting an evaluation finds the same: a drop by chance is asked again by all of them, or by none."""

from pathlib import Path

import pytest

from tests.support.every_way import found_by_every_way
from tests.support.noise import NoisyJudge

BEFORE_THE_DRIFT, THE_DRIFT = "2026-06-14T23:59:59Z", "2026-06-21T23:59:59Z"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "spread", "as_of"),
    [(0, 1.0, BEFORE_THE_DRIFT), (1, 1.5, BEFORE_THE_DRIFT), (2, 1.5, THE_DRIFT)],
)
def test_a_noisy_judge_finds_the_same_on_every_way(sample_root: Path, seed: int, spread: float, as_of: str) -> None:
    judge = NoisyJudge(sample_root / "recordings", spread, seed)
    found = found_by_every_way(sample_root, judge, as_of)
    first = found.pop("run_evaluation")
    assert first.keys() == {"dwight", "jim", "michael", "pam"}
    for way, its in found.items():
        assert its == first, way
