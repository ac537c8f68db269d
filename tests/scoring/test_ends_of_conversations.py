"""Where a character's end, a curve's interval and people who leave are decided: by how little, and from how many on."""

import pytest

from persona_pipeline.scoring import fading as module
from persona_pipeline.scoring.fading import MessageValue, character_end, fading


def turns(*values: float) -> list[MessageValue]:
    return [MessageValue(number, value) for number, value in enumerate(values, start=1)]


@pytest.mark.parametrize(
    ("values", "end"),
    [
        ((8, 8, 8, 4.8, 4.9), (4, True)),
        ((8, 8, 8, 5.0, 5.0), (5, False)),
        ((8, 8, 8, 5.1, 4.9), (5, False)),
        ((4.9, 4.9, 4.9, 4.9, 4.9), (1, True)),
    ],
    ids=["a little below", "at the middle", "as much above as below", "never there"],
)
def test_a_character_is_lost_however_little_it_lies_below(values: tuple[float, ...], end: tuple[int, bool]) -> None:
    assert character_end(turns(*values)) == end


def test_a_turn_has_an_interval_from_two_conversations_on() -> None:
    found = fading(
        {str(n): turns(8, 7, 8, 7 + n % 2, 8, *([6.0, 7.0] if n < 2 else [5.0] if n == 2 else [])) for n in range(5)}
    )
    assert found is not None
    seen = {point.turn: point for point in found.curve}
    assert (seen[6].conversations, seen[7].conversations) == (3, 2)
    assert seen[6].low is not None and seen[6].high is not None and seen[6].low < seen[6].mean < seen[6].high
    # Two that agree are sure of it; one alone says nothing.
    assert (seen[7].low, seen[7].high) == (7.0, 7.0)
    alone = fading({str(n): turns(8, 7, 8, 7, 8, *([6.0] if n == 0 else [])) for n in range(5)})
    assert alone is not None
    last = alone.curve[-1]
    assert (last.turn, last.mean, last.low, last.high, last.conversations) == (6, 6.0, None, None, 1)


@pytest.mark.parametrize(
    ("broken", "leave"),
    [(1, False), (2, True), (10, False)],
    ids=["one that ended so is none", "two of ten do not by chance", "where all broke nothing tells"],
)
def test_whoever_leaves_leaves_at_a_broken_turn(broken: int, leave: bool) -> None:
    talks = [(turns(8, 1 if n < broken else 8), 2 if n < broken else 9) for n in range(10)]
    assert module._leaves_when_broken(talks) is leave
