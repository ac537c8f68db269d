"""The growth benchmark: which curves it fails, and that a process's figures are its own."""

import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.growth import fitted, pooled
from benchmarks.scale import Place
from benchmarks.scale_table import CALLS, DOLLARS, fleet

SIZES = (1, 10, 40, 160)


@pytest.mark.parametrize(
    ("curve", "state"),
    [
        (lambda n: 2.0, "flat"),
        (lambda n: 2.0 + 0.0005 * n, "flat"),
        (lambda n: 2.0 + 0.1 * n**0.5, "ok"),
        (lambda n: 2.0 + 0.1 * n, "ok"),
        (lambda n: 2.0 + 0.1 * n**1.08, "ok"),
        (lambda n: 2.0 + 0.1 * n**1.3, "GROWS"),
        (lambda n: 2.0 + 0.001 * n**2, "GROWS"),
        # Linear, and a little that is not.
        (lambda n: 2.0 + 0.05 * n + 0.001 * n**2, "GROWS"),
        (lambda n: 2.0 + 0.002 * n, "little"),
    ],
)
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_what_grows_faster_than_its_size_is_found_above_the_start(curve, state: str, noise: float) -> None:
    draw = random.Random(1)
    values = [[curve(size) * (1 + draw.gauss(0, noise)) for _ in range(2)] for size in SIZES]
    found = fitted(SIZES, values, 0.02)
    assert found.state == state, found


@pytest.mark.parametrize(
    ("megabytes", "state"),
    [
        # Linear above 79, where the start took 84 for a moment; and a quadratic.
        ([83.7, 84.7, 101.3, 168.1], "ok"),
        ([83.7, 84.0, 88.7, 163.7], "GROWS"),
        ([83.7, 83.9, 84.0, 85.0], "flat"),
    ],
)
def test_memory_may_use_what_the_start_gave_back(megabytes: list[float], state: str) -> None:
    assert fitted(SIZES, [[value] for value in megabytes], 0.005, 0.1).state == state


def test_where_the_error_is_large_nothing_is_said_to_grow() -> None:
    values = [[2.0], [2.1], [2.4], [4.5]]
    assert fitted(SIZES, values, 0.005).state == "GROWS"
    assert fitted(SIZES, values, 0.2).state in ("not sure", "flat")


def test_the_error_is_learnt_from_what_was_repeated() -> None:
    assert pooled([[1.0], [3.0]]) == 0.0
    assert pooled([[0.9, 1.1], [10.0, 10.0]]) == pytest.approx(0.1)


def test_a_process_that_fails_is_no_measurement(tmp_path: Path) -> None:
    with ExitStack() as stack:
        place = Place(tmp_path, stack, postgres=False)
        assert place.process("-c", "raise SystemExit(3)", ends=(0, 3))["CPU seconds"] > 0
        with pytest.raises(SystemExit, match="broke"):
            place.process("-c", "raise ValueError('broke')")


def test_a_fleet_is_the_sum_of_its_parts() -> None:
    costs = {
        ("an agent of a cohort of 100", "CPU s"): 0.36, ("a call, 20 at once", "CPU ms"): 3.6,
        ("calls, 100 at once", "a second"): 100.0, ("a message brought in", "CPU us"): 36.0,
        ("a message in the store", "bytes"): 500.0, ("a saved run in the store", "KB"): 25.0,
        ("Dagster's events, an agent and night", "KB"): 200.0,
    }  # fmt: skip
    found = {what: value for what, value, _ in fleet(costs, 1000, 2_000_000)}
    assert found == pytest.approx(
        {
            "evaluating, a night": 0.1, "calls, a night": 1000 * CALLS, "calling, a night": CALLS / 1000,
            "calling in one process, a night": CALLS / 360, "judging, a night": 1000 * DOLLARS,
            "bringing in, a month": 0.02, "messages, a month": 1.0, "runs, a month": 0.75,
            "Dagster's events, a month": 6.0,
        }
    )  # fmt: skip
