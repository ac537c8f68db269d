from collections.abc import Iterable
from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.scoring.text.repetition import (
    Level,
    excessive_repetition,
    exempt_phrases,
    find_repetition,
    ngram_score,
    phrase_uses,
    shares_of_ngrams,
    usual_repetition,
)
from persona_pipeline.scoring.text.tokens import corpus_repetition, extract_ngrams, overlap
from persona_pipeline.world.propositions.models import Catchphrase

MESSAGES = st.lists(st.text(alphabet="abc ", max_size=24), max_size=12)


def repetition_by_definition(messages: list[str], n: int) -> float:
    grams = [extract_ngrams(message, n) for message in messages]
    return fmean(overlap(a, b) for a, b in combinations(grams, 2))


@pytest.mark.parametrize("n", [0, -1])
def test_n_below_one_is_refused(n: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        extract_ngrams("a b c", n)


@pytest.mark.parametrize(
    ("messages", "shares"),
    [
        pytest.param([], [], id="no messages"),
        pytest.param(["a b c d"], [0.0], id="one message"),
        pytest.param(["a b c", "a b c"], [1.0, 1.0], id="duplicates"),
        pytest.param(["a b c d", "a b c x"], [0.5, 0.5], id="half of each"),
        pytest.param(["a b c a b c", "x y z"], [0.0, 0.0], id="repetition inside one message"),
        pytest.param(["a b c", "a b", "A, B! C?"], [1.0, 1.0], id="too short for an n-gram"),
    ],
)
def test_share_of_a_message_that_stands_elsewhere(messages: list[str], shares: list[float]) -> None:
    assert shares_of_ngrams([extract_ngrams(message, 3) for message in messages]) == shares
    assert find_repetition(messages).share == (fmean(shares) if shares else 0.0)


@given(MESSAGES)
def test_share_is_a_share_and_ignores_order(messages: list[str]) -> None:
    share = find_repetition(messages).share
    assert 0 <= share <= 1
    assert find_repetition(messages[::-1]).share == pytest.approx(share)


@given(st.lists(st.text(alphabet="abc ", max_size=24), min_size=2, max_size=12), st.integers(1, 3))
def test_corpus_repetition_is_the_mean_over_pairs(messages: list[str], n: int) -> None:
    assert corpus_repetition(messages, n) == pytest.approx(repetition_by_definition(messages, n), abs=1e-12)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        *(([*texts], 0.0) for texts in ([], ["a b c"], ["", ""], ["a", "b c d e"], ["a b"] * 200)),
        (["a b c", "A b c!", "x y z"], 1 / 3),
        (["a b c d", "a b c x", "a b c d", "p q"], (1 + 1 / 3 + 1 / 3) / 6),
    ],
)
def test_corpus_repetition_counts_a_pair_without_n_grams_as_zero(messages: list[str], expected: float) -> None:
    assert corpus_repetition(messages, 3) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("share", "score"), [(0, 9), (0.037, 8), (0.074, 7), (0.187, 5), (0.3, 3), (0.65, 1.5), (1, 0)]
)
def test_ngram_score_is_linear_between_its_points(share: float, score: float) -> None:
    assert ngram_score(share) == pytest.approx(score)


@pytest.mark.parametrize("share", [-0.01, 1.01, float("nan")])
def test_ngram_score_refuses_what_is_no_share(share: float) -> None:
    with pytest.raises(ValueError, match="not within"):
        ngram_score(share)


@given(st.floats(0, 1), st.floats(0, 1))
def test_more_repetition_never_scores_higher(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert ngram_score(low) >= ngram_score(high)


A, B, C, D = ("one two three four five six seven", "eight nine ten eleven", "la le li lo lu", "ka ke ki ko ku")


@pytest.mark.parametrize(
    ("messages", "reasons"),
    [
        pytest.param(
            [f"{C} {D} {A}", f"{B} y {C} z s t", f"w q p d m f g {C}"], ("phrase",), id="words in three messages"
        ),
        pytest.param([f"{C} {D} {A}", f"{B} y {C} z s t"], (), id="in two"),
        pytest.param([f"la le li {D}", f"la le li {B}", "la le li mo"], ("opener",), id="an opener of three"),
        pytest.param([f"la le li {D}", f"la le li {B}"], (), id="an opener of two"),
        pytest.param([f"x la le li {D}", f"y la le li {B}", "z la le li mo"], (), id="three words in three messages"),
        pytest.param(["a b c d e f g h i j", "a b c d e f g x y z"], ("copy",), id="seven words of ten in two"),
        pytest.param(["a b c d e f g h i j", "a b c d e f x y z w"], (), id="six of ten"),
        pytest.param(["a b c d e", "a b c d e"], (), id="five words are no copy"),
        pytest.param(["a b c d e f", "a b c d e f"], ("copy",), id="six are"),
    ],
)
def test_what_is_repetition_whatever_the_share(messages: list[str], reasons: tuple[str, ...]) -> None:
    assert find_repetition(messages).level.reasons(Level()) == reasons
    assert (excessive_repetition(messages, 1.0) is not None) is bool(reasons)


def test_a_share_that_is_just_the_threshold_is_not_too_much() -> None:
    messages = ["a b c d e", "a b c x y", "p q r s t"]
    share = find_repetition(messages).share
    assert share == pytest.approx(2 / 9)
    assert excessive_repetition(messages, share) is None
    assert excessive_repetition(messages, share - 1e-9) == find_repetition(messages)


def test_three_messages_of_one_template_are_copies() -> None:
    """Half of the words in the same order, with two others: one pair alone of that kind is none."""
    frame = "a b c d e {} {} {} {} {}"
    three = [frame.format(*(f"{word}{n}" for n in range(5))) for word in "xyz"]
    assert [(item.first, item.second, item.share) for item in find_repetition(three).copies] == [
        (0, 1, 0.5), (0, 2, 0.5), (1, 2, 0.5)
    ]  # fmt: skip
    assert find_repetition(three[:2]).copies == ()
    assert find_repetition(["a b c d e f g h i j", "a b c d e f g x y z"]).copies[0].share == 0.7


@pytest.mark.parametrize("count", [99, 100, 400, 450])
def test_what_is_usual_is_what_few_stretches_exceed(count: int) -> None:
    """Every tenth message begins with the same three words, and every seventh is the same six: by the stretches themselves."""
    history = [
        f"{'hey you all ' * (n % 10 < 3)}w{n}a w{n}b w{n}c w{n}d{' p q r s t u' * (n % 7 < 2)}" for n in range(count)
    ]
    found = usual_repetition(history)
    if count < 100:
        assert found == Level()
        return
    latest = history[-400:]
    each = [find_repetition(latest[start : start + 5]) for start in range(len(latest) - 4)]
    place = -1 - int(0.01 * len(each))

    def limit(values: Iterable[float]) -> float:
        return sorted(values)[place]

    assert found == Level(
        share=limit(item.share for item in each),
        opener=max(2, limit(max((o.messages for o in item.openers), default=0) for item in each)),
        phrase=max(2, limit(max((p.messages for p in item.phrases if p.length >= 4), default=0) for item in each)),
        copy=limit(max((c.share for c in item.copies), default=0.0) for item in each),
        pairs=limit(len(item.copies) for item in each),
    )
    assert found.opener == 3 and found.share > 0


@pytest.mark.parametrize(
    ("text", "phrase", "uses"),
    [
        ("ha ha ha ha", "ha ha", 2),
        ("ha ha ha", "ha ha", 1),
        ("Well, that is that. THAT is", "that is", 2),
        ("x that", "that is", 0),
        ("that is", "that is", 1),
        ("a that is", "that is", 1),
        *(("Well!!! … Hello", phrase, 0) for phrase in ("", "!!!", " … ")),
    ],
)
def test_uses_of_a_phrase_do_not_overlap(text: str, phrase: str, uses: int) -> None:
    assert phrase_uses(text, phrase) == uses


@pytest.mark.parametrize(
    ("least", "most", "exempt"), [(0.5, 0.5, True), (0.51, 1, False), (0, 0.49, False), (0, 0.5, True)]
)
def test_a_catchphrase_within_its_range_is_exempt(least: float, most: float, exempt: bool) -> None:
    phrase = Catchphrase(phrase="hey you all", min_rate=least, max_rate=most)
    messages = ["hey you all w x", "hey you all y z", "p q r", "s t u"]
    assert bool(exempt_phrases(messages, [phrase])) is exempt
    never = Catchphrase(phrase="never said", min_rate=0, max_rate=1)
    assert exempt_phrases(messages, [never]) == exempt_phrases([], [phrase]) == {}
