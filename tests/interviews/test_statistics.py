"""Agreement of sessions, intervals over scenes, and drops told from chance."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from persona_pipeline.lab.interview.statistics import changes, mean_interval, retest

# Six targets, four ratings each: the example of Shrout and Fleiss (1979), table 2.
TEXTBOOK = np.array([[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]], float)


def test_agreement_is_that_of_the_textbook() -> None:
    found = retest(TEXTBOOK)
    assert found.icc == pytest.approx(0.17, abs=0.005)
    # As other software gives the F interval of McGraw and Wong.
    assert (found.low, found.high) == (pytest.approx(-0.13, abs=0.005), pytest.approx(0.72, abs=0.005))
    assert found.sd == pytest.approx(2.5, abs=0.01)


@pytest.mark.parametrize(
    ("scores", "why"),
    [
        (TEXTBOOK[:5], "6 scenes"),
        (TEXTBOOK[:, :1], "6 scenes"),
        (np.where(TEXTBOOK == 9, np.nan, TEXTBOOK), "6 scenes"),
        (np.repeat(TEXTBOOK[:, :1], 3, axis=1), "the same score"),
        (np.full((6, 3), 9.0), "the same score"),
    ],
)
def test_agreement_that_is_not_told_has_no_number(scores: np.ndarray, why: str) -> None:
    found = retest(scores)
    assert (found.icc, found.low, found.high) == (None, None, None)
    assert why in found.why_not


def test_a_mean_has_an_interval_from_six_scenes_on() -> None:
    assert mean_interval(np.array([])) == (None, None, None)
    assert mean_interval(np.array([7.0] * 5)) == (7.0, None, None)
    mean, low, high = mean_interval(np.array([5.0, 6, 7, 8, 9, 7]))
    assert (mean, low, high) == (7.0, pytest.approx(5.516, abs=0.001), pytest.approx(8.484, abs=0.001))
    assert mean_interval(np.array([0.0] * 6 + [9.0] * 6))[1:] == (
        pytest.approx(1.51, abs=0.01),
        pytest.approx(7.49, abs=0.01),
    )


GROUPS = [list(range(18)), *([place, place + 1, place + 2] for place in range(0, 18, 3))]


def draw(
    seed: int,
    *,
    drop: float = 0.0,
    kind: int | None = None,
    missing: float = 0.0,
    tails: int = 30,
    sessions: int = 3,
) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    scene = random.normal(7, 1, (3, 18, 1))
    before, after = (scene + random.standard_t(tails, (3, 18, sessions)) * 0.6 for _ in range(2))
    after[:, GROUPS[kind] if kind else slice(None)] -= drop
    for side in (before, after):
        side[random.random(side.shape) < missing] = np.nan
    return before, after


def significant(before: np.ndarray, after: np.ndarray) -> set[tuple[int, int]]:
    found = changes(before, after, GROUPS)
    return {
        (dimension, group)
        for dimension, row in enumerate(found)
        for group, item in enumerate(row)
        if item is not None and item.p_value <= 0.05
    }


@pytest.mark.parametrize("sessions", [1, 2, 3])
def test_nothing_is_called_a_drop_more_often_than_promised(sessions: int) -> None:
    """Heavy tails and gaps: the share of comparisons in which anything is significant; 80 of them, sd .024."""
    found = [significant(*draw(seed, missing=0.1, tails=3, sessions=sessions)) for seed in range(80)]
    assert sum(map(bool, found)) <= 9


@pytest.mark.parametrize(("kind", "seen"), [(None, {(0, 0), (1, 0), (2, 0)}), (2, {(0, 2), (1, 2), (2, 2)})])
def test_a_drop_is_seen_where_it_is(kind: int | None, seen: set[tuple[int, int]]) -> None:
    found = [significant(*draw(seed, drop=4.0, kind=kind)) for seed in range(10)]
    assert all(seen <= own for own in found)
    if kind:
        # The other kinds are not blamed for it.
        assert not any((0, other) in own for own in found for other in (1, 3, 4, 5, 6))


def test_what_has_no_pair_is_none_and_claims_are_told_as_a_whole_only() -> None:
    before, after = draw(0)
    after[0, GROUPS[1]] = np.nan
    found = changes(before, after, GROUPS, whole_only=1)
    assert [len(row) for row in found] == [7, 7, 1]
    assert found[0][1] is None and found[0][0] is not None and found[0][0].scenes == 15


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4), min_size=6, max_size=12), st.integers(1, 3))
def test_equal_sides_have_not_dropped_and_order_of_sessions_is_nothing(rows: list[list[int]], split: int) -> None:
    scores = np.array([rows], float)
    before, after = scores[:, :, :split], scores[:, :, split:]
    groups = [list(range(len(rows)))]
    (item,), (turned,) = changes(before, after, groups)[0], changes(before, after[:, :, ::-1], groups)[0]
    assert item is not None and turned is not None
    assert item.after - item.before == pytest.approx(turned.after - turned.before)
    (same,) = changes(scores, scores, groups)[0]
    assert same is not None and same.p_value > 0.05
