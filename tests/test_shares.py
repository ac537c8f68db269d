"""How much lower a share is than another: never less for a message that turns from in to out, and right about its level."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.base.shares import Counts, share_drop

_TALKS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 2)), min_size=1, max_size=20)


@given(before=_TALKS, now=_TALKS, place=st.integers(0, 19))
def test_one_more_message_out_never_makes_a_drop_smaller(before: list[Counts], now: list[Counts], place: int) -> None:
    n_in, n_out, unclear = now[place % len(now)]
    if not n_in:
        return
    worse = [*now]
    worse[place % len(now)] = (n_in - 1, n_out + 1, unclear)
    was, is_now = share_drop(before, now), share_drop(before, worse)
    if was is None or is_now is None:
        assert was is is_now
        return
    assert is_now.low >= was.low - 1e-9
    assert is_now.fell or not was.fell


@pytest.mark.parametrize(
    ("before", "now", "fell"),
    [
        ([(10, 0, 0)] * 16, [(0, 10, 0)] * 4, True),
        ([(10, 0, 0)] * 16, [(5, 5, 0)] * 4, True),
        ([(10, 0, 0)] * 16, [(10, 0, 0)] * 3 + [(8, 2, 0)], False),
        ([(10, 0, 0)] * 16, [(10, 0, 0)] * 4, False),
        # What a reader's error looks like.
        ([(9, 0, 0)] * 4, [(3, 1, 0)], False),
        ([(9, 0, 0)] * 4, [(1, 3, 0)], True),
        # Sure, and not much.
        ([(100, 0, 0)] * 40, [(95, 5, 0)] * 40, False),
        ([(5, 5, 0)] * 16, [(10, 0, 0)] * 4, False),
    ],
)
def test_a_share_fell_where_it_is_much_lower_and_surely_so(before: list[Counts], now: list[Counts], fell: bool) -> None:
    drop = share_drop(before, now)
    assert drop is not None and drop.fell is fell
    assert drop.low <= drop.drop <= drop.high


@pytest.mark.parametrize("before", [[], [(0, 0, 4)]])
def test_no_decided_message_has_no_drop(before: list[Counts]) -> None:
    assert share_drop(before, [(1, 1, 0)]) is None
    assert share_drop([(1, 1, 0)], before) is None


def test_the_limits_of_a_drop_hold_where_conversations_differ() -> None:
    """A lower limit of 5 % is above a true drop of 10 points at most so often."""
    generator, above = np.random.default_rng(7), 0

    def talks(share: float, number: int) -> list[Counts]:
        own = generator.binomial(10, generator.beta(share * 19, (1 - share) * 19, number))
        return [(int(count), 10 - int(count), 0) for count in own]

    for _ in range(400):
        drop = share_drop(talks(0.9, 24), talks(0.8, 6))
        above += drop is not None and drop.low > 0.1
    assert above <= 400 * 0.05 + 3 * (400 * 0.05 * 0.95) ** 0.5
