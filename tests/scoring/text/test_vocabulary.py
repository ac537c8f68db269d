import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.scoring.text.tokens import (
    VocabularyStats,
    pairwise_similarity,
    sampled_similarity,
    vocabulary_stats,
)

AGENTS = st.dictionaries(st.sampled_from("abcd"), st.lists(st.text(alphabet="xyz .!", max_size=20), max_size=4))


@pytest.mark.parametrize(
    ("messages", "stats"),
    [
        pytest.param([], (0, 0, 0), id="no messages"),
        pytest.param(["", "..."], (0, 0, 0), id="no words"),
        pytest.param(["yes no", "yes"], (2 / 3, 3, 0), id="a message's end ends no sentence"),
        pytest.param(["Yes. No.", "Yes."], (2 / 3, 1, 3 / 13), id="joined by one space"),
        pytest.param(["a 👍 b"], (1, 2, 0), id="an emoji is no punctuation"),
        pytest.param(["«ja» — nein"], (1, 2, 3 / 11), id="punctuation of other languages"),
        pytest.param(["5 + 5 = 10$"], (2 / 3, 3, 3 / 11), id="keyboard symbols count"),
    ],
)
def test_vocabulary_stats(messages: list[str], stats: tuple[float, float, float]) -> None:
    assert vocabulary_stats(messages) == VocabularyStats(*(pytest.approx(value) for value in stats))


@given(st.lists(st.text(max_size=40), max_size=5))
def test_vocabulary_stats_stay_in_their_ranges(messages: list[str]) -> None:
    stats = vocabulary_stats(messages)
    assert 0 <= stats.unique_word_ratio <= 1
    assert 0 <= stats.punctuation_density <= 1
    assert stats.average_sentence_length >= 0


def test_pairs_are_sorted_and_words_counted_once() -> None:
    similarity = pairwise_similarity({"b": ["yes no"], "a": ["YES, yes!"], "c": [""]})
    assert similarity == {("a", "b"): 0.5, ("a", "c"): 0.0, ("b", "c"): 0.0}
    assert list(similarity) == [("a", "b"), ("a", "c"), ("b", "c")]


@given(AGENTS)
def test_similarity_is_symmetric_and_a_share(agents: dict[str, list[str]]) -> None:
    similarity = pairwise_similarity(agents)
    assert all(0 <= value <= 1 for value in similarity.values())
    assert similarity == pairwise_similarity(dict(reversed(list(agents.items()))))


@pytest.mark.parametrize(
    ("agents", "similarity"),
    [
        ({"a": ["x y"], "b": ["x y"]}, 1.0),
        ({"a": ["x y"], "b": ["z"], "c": ["x"]}, (0 + 0.5 + 0) / 3),
        ({"a": ["x y"], "b": ["..."]}, None),
        ({}, None),
    ],
)
def test_stretches_of_one_length_are_compared(agents: dict[str, list[str]], similarity: float | None) -> None:
    assert sampled_similarity(agents) == (None if similarity is None else pytest.approx(similarity))
