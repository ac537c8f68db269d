"""Where the end of a character is decided, and by how little."""

import pytest

from persona_pipeline.scoring.adherence import MessageValue, character_end


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
