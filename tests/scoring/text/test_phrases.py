from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.scoring.text.repetition import find_repetition
from persona_pipeline.scoring.text.tokens import (
    LONGEST_PHRASE,
    SharedPhrase,
    maximal_repeated,
    shared_openers,
    tokenize,
)
from persona_pipeline.world.propositions.models import Catchphrase

MESSAGES = st.lists(st.text(alphabet="ab ", max_size=20), max_size=6)


def tokenized(messages: list[str]) -> list[list[str]]:
    return [tokenize(message) for message in messages]


def maximal(messages: list[str], n: int) -> list[SharedPhrase]:
    return maximal_repeated(tokenized(messages), n)


def repeated_by_definition(messages: list[str], n: int) -> set[tuple[str, int, int]]:
    """Every phrase of two or more messages that no longer such phrase holds."""
    holders: dict[tuple[str, ...], set[int]] = {}
    for number, message in enumerate(messages):
        tokens = tokenize(message)
        for start in range(len(tokens)):
            for end in range(start + 1, len(tokens) + 1):
                holders.setdefault(tuple(tokens[start:end]), set()).add(number)
    shared = {phrase: len(held_by) for phrase, held_by in holders.items() if len(held_by) > 1}

    def inside(short: tuple[str, ...], long: tuple[str, ...]) -> bool:
        return any(long[i : i + len(short)] == short for i in range(len(long) - len(short) + 1))

    return {
        (" ".join(phrase), count, len(phrase))
        for phrase, count in shared.items()
        if len(phrase) >= n and not any(len(o) > len(phrase) and inside(phrase, o) for o in shared)
    }


@pytest.mark.parametrize(
    ("messages", "phrases"),
    [
        pytest.param([], [], id="no messages"),
        pytest.param(["one two three one two three"], [], id="inside one message"),
        pytest.param(
            ["The quick brown fox jumps", "a quick, brown fox jumps!", "quick brown cat"],
            [SharedPhrase("quick brown fox jumps", 2, 4)],
            id="no part of a listed phrase",
        ),
        pytest.param(
            [
                "just wanted to say hi",
                "just wanted to say bye",
                "I just wanted to go home",
                "go home now please",
            ],
            [SharedPhrase("just wanted to say", 2, 4)],
            id="a part in more messages than its whole is left out",
        ),
        pytest.param(
            ["at the end of the day x", "at the end of the day y", "at the end of the day z"],
            [SharedPhrase("at the end of the day", 3, 6)],
            id="in all messages",
        ),
    ],
)
def test_maximal_repeated(messages: list[str], phrases: list[SharedPhrase]) -> None:
    assert maximal(messages, 3) == phrases


@given(MESSAGES, st.integers(1, 3))
def test_maximal_repeated_is_what_its_definition_says(messages: list[str], n: int) -> None:
    found = maximal(messages, n)
    assert {(item.phrase, item.messages, item.length) for item in found} == repeated_by_definition(messages, n)
    assert all((a.messages, a.length) >= (b.messages, b.length) for a, b in pairwise(found))


def test_long_equal_messages_of_one_word_share_the_longest_phrase() -> None:
    messages = ["ha " * 5000, "ha " * 4000, "ha " * 3000]
    (phrase,) = maximal(messages, 3)
    assert (phrase.messages, phrase.length) == (3, LONGEST_PHRASE)


def test_of_a_longer_phrase_only_its_beginning_is_listed() -> None:
    words = [f"w{number}" for number in range(2 * LONGEST_PHRASE)]
    found = maximal([" ".join(own) for own in (["one", *words], [*words, "two"], ["three", *words[1:5]])], 3)
    assert found == [SharedPhrase(" ".join(words[:LONGEST_PHRASE]), 2, LONGEST_PHRASE)]


def test_no_phrase_spans_a_catchphrase_that_was_taken_out() -> None:
    said = ["We really like beets bears most of days.", "We really like most of days."]
    found = find_repetition(said, [Catchphrase("beets bears", 0.1, 1.0)])
    assert {item.phrase for item in found.phrases} == {"we really like", "most of days"}


def test_n_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        maximal(["a b"], 0)


def test_openers_count_messages_that_begin_alike() -> None:
    messages = [
        "Hey everyone, just a note",
        "Hey everyone just so you know",
        "hey EVERYONE just",
        "So. Sales.",
        "Hey you",
    ]
    assert shared_openers(tokenized(messages)) == [SharedPhrase("hey everyone just", 3, 3)]


def test_openers_that_stand_once_are_not_shared() -> None:
    assert shared_openers(tokenized(["one two three", "two three four"])) == []
