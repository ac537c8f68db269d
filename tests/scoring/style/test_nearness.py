import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from persona_pipeline.scoring.convergence import nearness_score
from persona_pipeline.scoring.style import likeness as voices
from persona_pipeline.scoring.style.likeness import nearness, normal_quantile
from persona_pipeline.scoring.style.rivals import gram_counts, speaker_scores, voice_similarity
from tests.scoring.style.samples import DISTINCT, MERGED, conversation
from tests.support.waiting import PATIENCE

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
    apart, merged = (nearness(conversation(styles, count, 3), HISTORY).z for styles in (DISTINCT, MERGED))
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
    # Who can be compared with nobody before can be with one another.
    assert (found.similarity is None) == ("two" in missing) and 0 <= (found.similarity or 0) < 0.1


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


@pytest.mark.parametrize("pairs", [1, 3, 10])
def test_what_is_expected_of_a_mean_of_pairs_is_what_correlated_values_of_one_variance_give(pairs: int) -> None:
    covariances = np.full((pairs, pairs), 0.4)
    np.fill_diagonal(covariances, 1.0)
    assert voices._prior(pairs) == pytest.approx(1.8 * covariances.mean())


def test_few_blocks_that_are_alike_by_chance_make_no_small_change_large() -> None:
    few, now = np.array([0.0, 0.001, 0.002]), np.array([0.1])
    assert voices._quantiles(few, now, 1.0)[0] < 0.2
    assert voices._quantiles(np.tile(few, 200), now, 1.0)[0] > 0.3


def test_without_history_as_many_of_each_ones_newest_messages_are_compared() -> None:
    assert nearness({"ann": ["x y", "c d"], "bob": ["c d"]}, {}).similarity == pytest.approx(1)


@pytest.mark.parametrize(("z", "score"), [(-3.0, 9.0), (1.2, 9.0), (1.95, 4.5), (2.7, 0.0), (8.0, 0.0)])
def test_the_score_of_nearness_is_linear_between_its_ends(z: float, score: float) -> None:
    assert nearness_score(z) == pytest.approx(score)


@pytest.mark.parametrize(("alone", "close"), [(0.3, True), (0.31, False)])
def test_two_are_close_by_the_one_who_is_less_alike_to_itself(
    alone: float, close: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = voices.measure_blocks

    def measured(*given: Any) -> Any:
        before, now, _ = measure(*given)
        return before, replace(now, alike=np.full((1, 3), 0.18)), [alone, 0.9, 0.9]

    monkeypatch.setattr(voices, "measure_blocks", measured)
    found = nearness(conversation(DISTINCT, 12, 2), HISTORY)
    assert {pair for pair, value in found.pairs.items() if value.close} == (
        {("ann", "bob"), ("ann", "cyd")} if close else set()
    )


def test_each_part_is_scored_without_itself() -> None:
    said = conversation(DISTINCT, 20, 7)
    counts = gram_counts([text for own in said.values() for text in own])
    speakers, parts = np.repeat(np.arange(3), 20), np.tile(np.repeat(np.arange(4), 5), 3)
    found = speaker_scores(counts, speakers, parts)
    assert (found.argmax(axis=1) == speakers).all()
    # Other speakers in one part change the scores of the other parts, and not its own.
    again = speaker_scores(counts, np.where(parts == 0, (speakers + 1) % 3, speakers), parts)
    assert again[parts == 0] == pytest.approx(found[parts == 0])
    assert again[parts == 1] != pytest.approx(found[parts == 1])


def test_agents_who_write_alike_are_more_similar_and_case_counts() -> None:
    similarity = voice_similarity(conversation({"ann": "loud", "bob": "loud", "cyd": "terse"}, 12, 1))
    assert list(similarity) == [("ann", "bob"), ("ann", "cyd"), ("bob", "cyd")]
    assert similarity["ann", "bob"] > 2 * similarity["ann", "cyd"]
    quiet, loud = ["the paper is here"], ["THE PAPER IS HERE"]
    assert voice_similarity({"a": quiet, "b": quiet})["a", "b"] == pytest.approx(1)
    assert voice_similarity({"a": quiet, "b": loud})["a", "b"] < 0.1
    assert voice_similarity({"ann": ["hello"], "bob": [" "]}) == {}


def test_scipy_is_imported_when_voices_are_first_compared() -> None:
    program = (
        "import sys; from persona_pipeline.scoring.style import likeness; "
        "print(sorted({'pandas', 'scipy'} & {name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout.strip() == "[]"


def test_messages_that_share_nothing_say_so() -> None:
    letters = iter("abcdefghijklmnopqrstuvwxyz0123456789ABCDEF")
    history = {name: [next(letters) for _ in range(9)] for name in ("ann", "bob")}
    found = nearness({"ann": list("!?;"), "bob": list(",.:")}, history)
    assert (found.z, found.missing) == (None, "no two earlier messages have anything in common")
