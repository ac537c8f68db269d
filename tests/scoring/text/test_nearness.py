import gc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from persona_pipeline.scoring.text.voices import nearness, normal_quantile, ridge
from tests.scoring.text.test_voice import DISTINCT, MERGED, conversation

HISTORY = conversation(DISTINCT, 60, 1)


def test_merged_voices_come_nearer_and_the_pairs_say_which() -> None:
    one_changed = conversation(DISTINCT | {"ann": "terse"}, 12, 2)
    found = nearness(one_changed, HISTORY)
    assert found.z is not None
    assert found.z > 2
    z = {pair: value.z or 0.0 for pair, value in found.pairs.items()}
    assert max(z, key=z.__getitem__) == ("ann", "bob")
    assert found.toward["ann", "bob"].z > 3 > found.toward["bob", "ann"].z


@pytest.mark.parametrize("count", [5, 12, 20, 50, 160])
def test_the_length_of_the_window_does_not_move_it(count: int) -> None:
    apart, merged = (nearness(conversation(voices, count, 3), HISTORY).z for voices in (DISTINCT, MERGED))
    assert apart is not None
    assert apart < 2
    assert merged is not None
    assert merged > 2.5


@pytest.mark.parametrize(
    ("current", "history", "missing"),
    [
        pytest.param({}, {}, "fewer than two speakers", id="nobody"),
        pytest.param({"ann": ["hello"]}, HISTORY, "fewer than two speakers", id="one speaker"),
        pytest.param({"ann": ["hello"], "bob": ["  "]}, HISTORY, "fewer than two", id="one who says nothing"),
        pytest.param({"ann": ["a b"] * 9, "bob": ["c d"] * 9}, {}, "ann, bob: fewer than 3", id="no history"),
        pytest.param({"ann": ["a b"] * 9, "bob": ["c d"] * 2}, HISTORY, "bob: fewer than 3", id="too little now"),
    ],
)
def test_without_a_number_it_says_what_is_missing(
    current: dict[str, list[str]], history: dict[str, list[str]], missing: str
) -> None:
    found = nearness(current, history)
    assert found.z is None
    assert missing in (found.missing or "")


def test_who_lacks_history_is_left_out_and_the_others_are_compared() -> None:
    found = nearness(conversation(DISTINCT | {"dee": "loud"}, 8, 4), HISTORY)
    assert found.z is not None
    assert list(found.pairs) == [("ann", "bob"), ("ann", "cyd"), ("bob", "cyd")]


def test_the_same_text_gives_the_same_number_whatever_the_order_of_the_speakers() -> None:
    current = conversation(DISTINCT, 8, 5)
    assert nearness(dict(reversed(current.items())), HISTORY) == nearness(current, HISTORY)


@given(st.floats(-8, 8), st.integers(5, 60))
def test_a_quantile_of_t_becomes_one_of_the_normal_distribution(t: float, degrees: int) -> None:
    assert normal_quantile(t, degrees) == pytest.approx(stats.norm.ppf(stats.t.cdf(t, degrees)), abs=0.05)


def test_a_thousand_channels_take_no_more_memory_than_the_last_two() -> None:
    def counted() -> int:
        """Return how many counts of n-grams are in memory."""
        gc.collect()
        return sum(isinstance(item, Counter) for item in gc.get_objects())

    before = counted()
    for seed in range(20):
        assert nearness(conversation(DISTINCT, 4, seed), conversation(DISTINCT, 12, 100 + seed)).z is not None
    assert counted() - before <= 10


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 30), columns=st.integers(1, 20), targets=st.integers(1, 3))
def test_the_regression_is_that_of_scikit_learn(seed: int, rows: int, columns: int, targets: int) -> None:
    from sklearn.linear_model import Ridge

    generator = np.random.default_rng(seed)
    # As the rows of messages are: of a length of about two.
    x = generator.normal(size=(rows, columns)) * 2 / np.sqrt(columns)
    y, weights = generator.normal(size=(rows, targets)), generator.integers(0, 2, size=(rows, targets))
    model = Ridge(60.0, fit_intercept=False)
    weights[0] = 1
    theirs = [model.fit(x, own, sample_weight=share).coef_ for own, share in zip(y.T, weights.T, strict=True)]
    assert ridge(x, y, weights, 60.0) == pytest.approx(np.transpose(theirs), abs=1e-3)
