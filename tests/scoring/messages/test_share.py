"""The share in character, the date of a change and the sentence: what they are, and what they do not depend on."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.base.shares import FEWEST_CONVERSATIONS, LEAST_OUT, Share, share_of_counts
from persona_pipeline.scoring.messages.verdicts import (
    FEWEST_ON_A_SIDE,
    MessageVerdict,
    Role,
    ShareChange,
    sentence,
    share_in_character,
    since_when,
)

NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC)
LETTERS = {"i": Role.IN, "o": Role.OUT, "u": Role.UNCLEAR}
TALKS = st.lists(st.text("iou", min_size=1, max_size=12), min_size=1, max_size=16)


def said(*talks: str, ids: str = "m") -> list[MessageVerdict]:
    """Return verdicts from one text a conversation, a letter a message, five minutes apart."""
    placed = [(talk, letter) for talk, letters in enumerate(talks) for letter in letters]
    return [
        MessageVerdict(
            message=f"{ids}{number}",
            conversation=f"{ids}{talk}",
            said_at=NOVEMBER + timedelta(minutes=5 * number),
            verdict=LETTERS[letter],
        )
        for number, (talk, letter) in enumerate(placed)
    ]


def worse(talks: Sequence[str], place: int) -> list[str]:
    """Return conversations in which one message in character is out of character."""
    letters = [(talk, letter) for talk, own in enumerate(talks) for letter in own]
    inside = [number for number, (_, letter) in enumerate(letters) if letter == "i"]
    chosen = inside[place % len(inside)]
    changed = [(talk, "o" if number == chosen else letter) for number, (talk, letter) in enumerate(letters)]
    return ["".join(letter for _, letter in own) for _, own in groupby(changed, key=lambda item: item[0])]


@pytest.mark.parametrize(
    ("talks", "expected"),
    [
        pytest.param(["iio", "iu"], (3, 1, 1, 2, 0.75), id="unclear messages are counted and not part of the share"),
        pytest.param(["uu", "i"], (1, 0, 2, 1, 1.0), id="a conversation with unclear messages only is not counted"),
        pytest.param(["uuu"], (0, 0, 3, 0, None), id="no share without a message in or out"),
        pytest.param([], (0, 0, 0, 0, None), id="no share of nothing"),
    ],
)
def test_the_share_counts_messages_in_and_out(talks: list[str], expected: tuple[object, ...]) -> None:
    found = share_in_character(said(*talks))
    assert (found.n_in, found.n_out, found.n_unclear, found.conversations, found.share) == expected


@pytest.mark.parametrize("letter", ["i", "o"])
@pytest.mark.parametrize("talks", [1, 4, 5, 10, 11, 40])
def test_where_all_are_alike_the_interval_is_not_empty(letter: str, talks: int) -> None:
    found = share_in_character(said(*[letter * 4] * talks))
    assert found.share == float(letter == "i")
    assert 0 < (found.low if letter == "i" else 1 - found.high) < 1
    assert (found.high if letter == "i" else 1 - found.low) == pytest.approx(1)


def test_messages_that_cluster_by_conversation_say_less() -> None:
    spread = share_in_character(said(*["iiio"] * 40))
    clustered = share_in_character(said(*["iiii", "iiii", "iiii", "oooo"] * 10))
    assert spread.share == clustered.share
    assert clustered.high - clustered.low > 1.5 * (spread.high - spread.low)


def test_few_conversations_say_less_than_many() -> None:
    one, many = share_in_character(said("i" * 36 + "oo")), share_in_character(said(*["iiii"] * 9, "oo"))
    assert one.share == many.share
    assert one.high - one.low > 1.4 * (many.high - many.low)


@given(TALKS)
def test_the_share_lies_in_its_interval(talks: list[str]) -> None:
    found = share_in_character(said(*talks))
    assert 0 <= found.low <= found.high <= 1
    assert found.share is None or found.low - 1e-9 <= found.share <= found.high + 1e-9


@given(TALKS.filter(lambda talks: any("i" in talk for talk in talks)), st.integers(0, 500))
def test_a_message_that_becomes_worse_raises_nothing(talks: list[str], place: int) -> None:
    before, after = share_in_character(said(*talks)), share_in_character(said(*worse(talks, place)))
    assert before.share is not None and after.share is not None
    assert after.share < before.share
    assert after.low <= before.low + 1e-9 and after.high <= before.high + 1e-9


@given(TALKS, st.randoms())
def test_the_order_of_the_input_changes_nothing(talks: list[str], dice: object) -> None:
    verdicts = said(*talks)
    mixed = list(verdicts)
    dice.shuffle(mixed)  # pyright: ignore[reportAttributeAccessIssue]
    assert share_in_character(mixed) == share_in_character(verdicts)
    assert since_when(mixed) == since_when(verdicts)


@given(TALKS)
def test_counts_by_conversation_give_the_same_share(talks: list[str]) -> None:
    counts = [(talk.count("i"), talk.count("o"), talk.count("u")) for talk in talks]
    assert share_of_counts(counts) == share_in_character(said(*talks))


CHANGES = [
    pytest.param(["iiii"] * 20 + ["oooo"] * 8, 80, 0, id="the first message of a conversation, many conversations"),
    pytest.param(["iiii"] * 20 + ["iioo"] + ["oooo"] * 8, 82, 0, id="the middle of a conversation"),
    pytest.param(["i" * 40 + "o" * 20], 40, 0, id="the middle of the only conversation"),
    pytest.param(["i" * 40, "i" * 40, "i" * 25 + "o" * 15, "o" * 30], 105, 0, id="the middle of one of four"),
    pytest.param(["uiii"] * 20 + ["oouo"] * 8, 60, 0, id="unclear messages are left out"),
    pytest.param(["oooo"] * 12 + ["iiii"] * 12, 48, 48, id="the agent came back"),
]


@pytest.mark.parametrize(("talks", "place", "inside"), CHANGES)
def test_a_change_is_dated_by_its_first_message(talks: list[str], place: int, inside: int) -> None:
    verdicts = said(*talks)
    decided = [item for item in verdicts if item.verdict is not Role.UNCLEAR]
    found = since_when(verdicts)
    assert found is not None
    assert (found.message, found.since) == (decided[place].message, decided[place].said_at)
    assert found.after == (inside, len(decided) - place) and found.before[1] == place
    assert found.is_drift is (inside == 0)
    assert found.p < 0.01 and found.give_or_take <= 1


@pytest.mark.parametrize(
    "talks",
    [
        pytest.param(["iiii"] * 30, id="all in"),
        pytest.param(["oooo"] * 30, id="all out"),
        pytest.param(["iiii"] * 40 + ["oooo"], id="too few messages after it"),
        pytest.param(["ii"] * 40 + ["o", "o", "i", "i", "i"], id="two messages out: a reader may misread as many"),
        pytest.param(["i", "o", "i", "o", "i"] + ["ii"] * 40, id="two messages out before it"),
        pytest.param(["i" * 19 + "o"] * 6 + ["i" * 17 + "ooo"] * 6, id="less than 20 points"),
        pytest.param(["i" * 40] * 3 + ["o" * 40], id="one conversation of four, whole: it may be that conversation"),
        pytest.param(["i" * 25 + "o" * 15] * 4, id="the agent fades in each conversation"),
        pytest.param(["iiii", "oooo"] * 20, id="conversations in turn"),
        pytest.param([], id="nothing"),
    ],
)
def test_no_change_is_reported(talks: list[str]) -> None:
    assert since_when(said(*talks)) is None


@given(st.lists(st.text("io", min_size=1, max_size=30), min_size=1, max_size=8), st.integers(1, 30))
def test_what_every_change_has(talks: list[str], length: int) -> None:
    talks = [*talks, "i" * length, "o" * 10, *["o" * length] * 8]
    found = since_when(said(*talks))
    assert found == since_when(said(*talks)), "the same verdicts have the same date"
    other = since_when(said(*talks, ids="another"))
    assert (found is None) is (other is None)
    if found is None or other is None:
        return
    assert found.message.removeprefix("m") == other.message.removeprefix("another"), "ids change nothing"
    assert (found.p, found.before, found.after) == (other.p, other.before, other.after)
    first = next(item for item in said(*talks) if item.message == found.message)
    assert first.verdict is (Role.OUT if found.is_drift else Role.IN)
    assert min(found.before[1], found.after[1]) >= FEWEST_ON_A_SIDE
    assert abs(found.before[0] / found.before[1] - found.after[0] / found.after[1]) >= 0.2 - 1e-9
    inside, number = found.after if found.is_drift else found.before
    assert number - inside >= LEAST_OUT


@pytest.mark.parametrize("length", [4, 30])
def test_no_date_where_verdicts_only_cluster(length: int) -> None:
    """Whole conversations out of character, at random: at most one of 60 such agents has a date."""
    dice = np.random.default_rng(length)
    talks = [["io"[int(dice.random() < 0.3)] * length for _ in range(120 // length)] for _ in range(60)]
    assert sum(since_when(said(*own)) is not None for own in talks) <= 1


ALL_IN = Share(36, 2, 0, 9, 36 / 38, 0.82, 0.99)
DRIFT = ShareChange(
    datetime(2026, 11, 24, 10, 12, tzinfo=UTC), "m812", before=(159, 162), after=(16, 38), give_or_take=2, p=0.001
)
NEAR = ShareChange(DRIFT.since, "m812", before=(159, 162), after=(16, 38), give_or_take=5, p=0.001)
BACK = ShareChange(DRIFT.since, "m812", before=(16, 38), after=(159, 162), give_or_take=2, p=0.001)
LATE = ShareChange(DRIFT.since, "m812", before=(159, 162), after=(16, 38), give_or_take=9, p=0.001)


@pytest.mark.parametrize(
    ("share", "change", "not_judged", "expected"),
    [
        (ALL_IN, None, 0, "Léo: 36 of 38 messages in character (95 %, 82-99)"),
        (ALL_IN, BACK, 0, "Léo: 36 of 38 messages in character (95 %, 82-99)"),
        (
            Share(36, 2, 3, 1, 36 / 38, 0.82, 0.99), None, 4,
            "Léo: 36 of 38 messages in character (95 %, 82-99), 3 unclear, 4 not judged, one conversation only",
        ),
        (
            Share(36, 2, 0, FEWEST_CONVERSATIONS - 1, 36 / 38, 0.82, 0.99), None, 0,
            "Léo: 36 of 38 messages in character (95 %, 82-99), 4 conversations only",
        ),
        (
            Share(36, 2, 0, FEWEST_CONVERSATIONS, 36 / 38, 0.82, 0.99), None, 0,
            "Léo: 36 of 38 messages in character (95 %, 82-99)",
        ),
        (Share(0, 0, 3, 0, None, 0, 1), None, 2, "Léo: no message judged in or out of character, 3 unclear, 2 not judged"),
        (
            ALL_IN, DRIFT, 0,
            "Léo has been out of character since 2026-11-24 10:12 UTC (message m812): 22 of 38 messages, before 3 of 162.",
        ),
        (
            ALL_IN, NEAR, 0,
            "Léo has been out of character since 2026-11-24 10:12 UTC (message m812): 22 of 38 messages, before 3 of 162.",
        ),
        (
            ALL_IN, LATE, 0,
            "Léo has been out of character since 2026-11-24 10:12 UTC (message m812, give or take 9 messages): "
            "22 of 38 messages, before 3 of 162.",
        ),
    ],
)  # fmt: skip
def test_the_sentence(share: Share, change: ShareChange | None, not_judged: int, expected: str) -> None:
    assert sentence("Léo", share, change, not_judged=not_judged) == expected
