"""Which messages are out of character: the counts by claim, by place and by part of the conversation."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.scoring.messages.verdicts import KindCount, MessageVerdict, Role, count_kinds

NINE = datetime(2026, 11, 2, 9, tzinfo=UTC)
LETTERS = {"i": Role.IN, "o": Role.OUT, "u": Role.UNCLEAR}
TALKS = st.lists(
    st.tuples(st.sampled_from(["sales", "stock room"]), st.text("iou", min_size=1, max_size=30)), max_size=6
)


def said(talks: Sequence[tuple[str, str]], claims: Sequence[str] = ()) -> list[MessageVerdict]:
    """Return verdicts from a place and a text of one letter a message; each conversation begins one hour after the other."""
    return [
        MessageVerdict(
            message=f"m{talk}-{number}",
            conversation=f"{place} {(NINE + timedelta(hours=talk)).isoformat()}",
            said_at=NINE + timedelta(hours=talk, minutes=number),
            verdict=LETTERS[letter],
            claims=() if letter == "i" else tuple(claims),
        )
        for talk, (place, letters) in enumerate(talks)
        for number, letter in enumerate(letters)
    ]


@pytest.mark.parametrize(
    ("talks", "parts"),
    [
        pytest.param([("a", "iiiii")], {"1-5": (0, 5)}, id="all in character"),
        pytest.param([("a", "i" * 5 + "o")], {"1-5": (0, 5), "6-20": (1, 1)}, id="the sixth message"),
        pytest.param(
            [("a", "i" * 20 + "oo")], {"1-5": (0, 5), "6-20": (0, 15), "21+": (2, 2)}, id="the end of a long one"
        ),
        pytest.param([("a", "uuuuuo")], {"6-20": (1, 1)}, id="an unclear message has a number, and counts nowhere"),
        pytest.param([("a", "iiio"), ("a", "oii")], {"1-5": (2, 7)}, id="each conversation begins at one"),
        pytest.param([], {}, id="nothing"),
    ],
)
def test_messages_count_early_or_late_in_their_conversation(
    talks: list[tuple[str, str]], parts: dict[str, tuple[int, int]]
) -> None:
    assert count_kinds(said(talks)).parts == {part: KindCount(*count) for part, count in parts.items()}


def test_claims_count_the_messages_that_break_them_most_first() -> None:
    verdicts = [
        *said([("a", "iiuo")], ["dry"]),
        *(item.model_copy(update={"message": f"{item.message}-b"}) for item in said([("a", "oo")], ["kind", "kind"])),
        *(item.model_copy(update={"message": f"{item.message}-c"}) for item in said([("a", "o")])),
    ]
    found = count_kinds(verdicts)
    assert list(found.claims.items()) == [("kind", KindCount(2, 6)), ("", KindCount(1, 6)), ("dry", KindCount(1, 6))]


def test_places_are_told_apart_whatever_is_in_their_names() -> None:
    found = count_kinds(said([("stock room", "io"), ("sales", "i"), ("stock room", "o")]))
    assert found.places == {"stock room": KindCount(2, 3), "sales": KindCount(0, 1)}


@given(TALKS)
def test_each_decided_message_counts_once_in_any_order(talks: list[tuple[str, str]]) -> None:
    verdicts = said(talks, ["dry"])
    found = count_kinds(verdicts)
    letters = "".join(text for _, text in talks)
    expected = (letters.count("o"), letters.count("o") + letters.count("i"))
    for counts in (found.places, found.parts):
        assert (sum(item.out for item in counts.values()), sum(item.total for item in counts.values())) == expected
    assert found.claims == ({"dry": KindCount(*expected)} if expected[0] else {})
    assert count_kinds(verdicts[::-1]) == found
