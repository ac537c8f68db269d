"""Many tests: dimensions and claims within an agent, and the agents that are watched."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.guard.baselines.statistics import (
    CLAIMS_SHARE,
    DIMENSIONS_SHARE,
    LEVEL,
    _found,
    corrected,
    families_named,
    holm_within,
    level_of,
)

P_VALUES = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3)), max_size=30)


def holm(p_values: list[float]) -> list[float]:
    """One family by its definition (Holm, 1979)."""
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = adjusted[index] = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
    return adjusted


@pytest.mark.parametrize(
    ("given_p", "adjusted"),
    [
        ([], []),
        ([0.04], [0.04]),
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),
        ([0.5, 0.6], [1.0, 1.0]),
        ([0.0, 1.0], [0.0, 1.0]),
    ],
)
def test_holm(given_p: list[float], adjusted: list[float]) -> None:
    found = holm_within(np.array(given_p, float), np.zeros(len(given_p), np.intp))
    assert found == pytest.approx(np.array(adjusted))


@given(P_VALUES)
def test_holm_within_groups_is_holm_of_each(pairs: list[tuple[float, int]]) -> None:
    values = np.array([p for p, _ in pairs], float)
    groups = np.array([group for _, group in pairs], dtype=np.intp)
    found = holm_within(values, groups)
    for group in set(groups.tolist()):
        own = groups == group
        assert found[own] == pytest.approx(holm(values[own].tolist()), abs=1e-9)


def test_what_is_not_tested_counts_for_nothing() -> None:
    found = holm_within(np.array([0.01, math.nan, 0.02]), np.zeros(3, np.intp))
    assert found == pytest.approx([0.02, math.nan, 0.02], nan_ok=True)


def one_dimension_each(p_values: list[float], watched: int) -> np.ndarray:
    agents = np.arange(len(p_values))
    return corrected(np.array(p_values), agents, np.zeros(0), np.zeros(0, np.intp), watched=watched).dimensions


@given(st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_who_else_is_in_the_run_does_not_matter_up_to_twenty(p_values: list[float]) -> None:
    together = one_dimension_each(p_values, 20)
    apart = [one_dimension_each([p], 20)[0] for p in p_values]
    assert together == pytest.approx(apart)
    assert together == pytest.approx(np.minimum(1.0, 20 * np.array(p_values) / DIMENSIONS_SHARE))


def test_beyond_twenty_the_more_fell_the_less_is_asked_of_each() -> None:
    quiet = [0.9] * 90
    alone = one_dimension_each([0.001, *[0.9] * 9, *quiet], 100)
    together = one_dimension_each([*[0.001] * 10, *quiet], 100)
    assert alone[0] > LEVEL > together[0]


def test_claims_get_the_smaller_part_of_the_level() -> None:
    found = corrected(np.array([0.01]), np.zeros(1, np.intp), np.array([0.01]), np.zeros(1, np.intp), watched=1)
    assert found.dimensions[0] == pytest.approx(0.01 / DIMENSIONS_SHARE)
    assert found.claims[0] == pytest.approx(0.01 / CLAIMS_SHARE)
    assert found.agents[0] == pytest.approx(0.01 / DIMENSIONS_SHARE)
    assert DIMENSIONS_SHARE + CLAIMS_SHARE <= 1


@pytest.mark.parametrize(
    ("watched", "says"),
    [(1, "claims"), (4, "Bonferroni over 4 agents"), (21, "Benjamini-Hochberg at 5% over 21 agents")],
)
def test_the_families_have_names(watched: int, says: str) -> None:
    assert families_named(watched).endswith(says)


@pytest.mark.parametrize(
    ("p_values", "watched", "found"),
    [
        ([0.9] * 25, 25, 0),
        ([0.002, *[0.9] * 24], 25, 1),
        ([0.05 / 25, *[0.9] * 24], 25, 1),
        ([0.0021, *[0.9] * 24], 25, 0),
        ([0.004, 0.004, *[0.9] * 23], 25, 2),
        ([0.0041, 0.0041, *[0.9] * 23], 25, 0),
        ([0.003, 0.9, 0.006, 0.004], 25, 3),
    ],
)
def test_benjamini_and_hochberg_report_so_many(p_values: list[float], watched: float, found: int) -> None:
    assert _found(np.array(p_values), watched) == found


def test_a_level_is_shared_by_tests_and_agents() -> None:
    assert level_of(np.array([0.0, 1.0, 4.0]), 5, 0.75) == pytest.approx([0.0075, 0.0075, 0.001875])
    assert level_of(np.array([2.0]), 0, 0.25) == pytest.approx([0.00625])
