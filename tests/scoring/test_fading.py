"""After how many turns of a scripted conversation a character is lost."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.scoring.fading import MessageValue, fading, kaplan_meier, message_scores
from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult


def conversation(values: list[float | None]) -> list[MessageValue]:
    return [MessageValue(number, value) for number, value in enumerate(values, start=1)]


def held(turns: int) -> list[MessageValue]:
    return conversation([8.0] * turns)


def lost_at(turn: int, turns: int = 12) -> list[MessageValue]:
    return conversation([8.0] * (turn - 1) + [2.0] * (turns - turn + 1))


def test_the_survival_curve_is_that_of_kaplan_and_meier() -> None:
    """Freireich's leukaemia patients on 6-MP, as in Kalbfleisch and Prentice: the textbook example."""
    lost = [6, 6, 6, 7, 10, 13, 16, 22, 23]
    censored = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    points = {point.turn: point for point in kaplan_meier([(t, True) for t in lost] + [(t, False) for t in censored])}
    shares = {6: 0.857, 7: 0.807, 10: 0.753, 13: 0.690, 16: 0.627, 22: 0.538, 23: 0.448}
    assert {turn: round(point.share, 3) for turn, point in points.items()} == shares
    assert (points[6].at_risk, points[23].at_risk) == (21, 6)
    assert (points[10].low, points[10].high) == pytest.approx((0.503, 0.889), abs=0.001)


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=40))
def test_a_curve_only_falls_and_its_interval_holds_it(ends: list[tuple[int, bool]]) -> None:
    points = kaplan_meier(ends)
    shares = [1.0, *(point.share for point in points)]
    assert shares == sorted(shares, reverse=True)
    assert all(0 <= point.low <= point.share <= point.high <= 1 for point in points)


def test_half_of_the_characters_are_lost_after_so_many_turns() -> None:
    found = fading({str(number): lost_at(turn) for number, turn in enumerate((3, 4, 6, 6, 8, 9))})
    assert found and (found.half_life, found.lost, found.conversations) == (6, 6, 6)
    assert found.half_life_low is not None and found.half_life_low <= 6
    assert "half of the conversations have lost the character after 6 turns" in found.text


def test_a_conversation_that_ends_in_character_says_only_that_it_held() -> None:
    found = fading(
        {**{str(number): held(20) for number in range(12)}, **{f"lost {n}": lost_at(5, 20) for n in range(5)}}
    )
    assert found and found.half_life is None and (found.fades, found.lost) == (True, 5)
    assert "held to the end in 71%" in found.text


def test_one_conversation_of_nine_is_no_fading() -> None:
    found = fading({**{str(number): held(20) for number in range(8)}, "lost": lost_at(5)})
    assert found and (found.fades, found.lost, found.survival) == (False, 0, ())
    assert found.text.startswith(
        "no fading is seen: late turns are out of character no more often than early ones (5%)"
    )


def test_a_character_that_never_fades_is_not_said_to_however_often_it_slips() -> None:
    generator, said = random.Random(1), 0
    for _ in range(100):
        found = fading({str(n): conversation([generator.gauss(6, 2) for _ in range(30)]) for n in range(30)})
        assert found
        said += found.half_life is not None
    assert said <= 6


def test_a_character_that_slips_and_is_lost_for_good_is_lost_where_that_began() -> None:
    slips = conversation([8.0, 2.0, 2.0, 8.0, 8.0, 8.0, 8.0, 2.0, 6.0, 2.0, 2.0, 2.0, 2.0, 2.0])
    found = fading({str(number): slips for number in range(6)})
    assert found and (found.half_life, found.lost) == (8, 6)


def test_one_slip_is_not_the_end() -> None:
    slip = conversation([8.0, 8.0, 2.0, 8.0, 8.0, 8.0])
    found = fading({str(number): slip for number in range(5)})
    assert found and found.lost == 0


def test_a_message_scores_what_its_claims_say_of_it() -> None:
    def row(key: str, raws: dict[str, float | None], **values: Any) -> PropositionResult:
        parts = [{"part": part, "raw": raw} for part, raw in raws.items()]
        return PropositionResult(id=key, claim="c", score=5.0, parts=parts, **values)

    rows = {
        "dry": row("dry", {"m1": 9.0, "m2": None}, weight=3.0),
        "loud": row("loud", {"m1": 8.0, "m2": 2.0}, inverted=True),
    }
    found = message_scores(DimensionEvaluation(dimension="adherence", propositions=rows))
    assert found == {"m1": (9 * 3 + 1) / 4, "m2": 7.0}


@pytest.mark.parametrize(
    "conversations",
    [
        pytest.param({}, id="none"),
        pytest.param({str(number): held(30) for number in range(4)}, id="too few"),
        pytest.param({str(number): held(4) for number in range(9)}, id="too short"),
        pytest.param({str(number): conversation([None] * 9) for number in range(9)}, id="not judged"),
    ],
)
def test_too_little_says_nothing(conversations: dict[str, list[MessageValue]]) -> None:
    assert fading(conversations) is None
