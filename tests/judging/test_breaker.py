"""When no more calls are made."""

import pytest

from persona_pipeline.base.calls import Breaker

DOWN, UP, AGAIN, GIVEN_UP = ("500", "HTTP 500"), "succeeded", "again", "abandoned"
IN_A_ROW = "not asked after 3 identical failures in a row: HTTP 500"


@pytest.mark.parametrize(
    ("steps", "refused"),
    [
        ([DOWN, DOWN, ("502", "HTTP 502"), DOWN, DOWN], None),
        ([DOWN, DOWN, UP, DOWN], None),
        ([DOWN] * 3, IN_A_ROW),
        ([DOWN] * 3 + [29.0], IN_A_ROW),
        ([DOWN] * 3 + [30.0], None),
        # One call tries, and its outcome decides.
        ([DOWN] * 3 + [30.0, AGAIN], IN_A_ROW),
        ([DOWN] * 3 + [30.0, AGAIN, UP], None),
        ([DOWN] * 3 + [30.0, AGAIN, GIVEN_UP], None),
        ([DOWN] * 3 + [30.0, AGAIN, GIVEN_UP, AGAIN], IN_A_ROW),
        ([DOWN] * 3 + [30.0, AGAIN, DOWN, 29.0], "not asked after 4 identical failures in a row: HTTP 500"),
        ([DOWN] * 3 + [30.0, AGAIN, DOWN, 31.0], None),
    ],
)
def test_identical_failures_in_a_row_open_it_until_a_trial_succeeds(steps: list, refused: str | None) -> None:
    now = 0.0
    breaker = Breaker(threshold=3, cooldown=30.0, clock=lambda: now)
    for step in steps:
        if isinstance(step, float):
            now += step
        elif step == AGAIN:
            assert breaker.refusal() is None
        elif isinstance(step, tuple):
            breaker.failed(*step)
        else:
            getattr(breaker, step)()
    assert breaker.refusal() == refused


def test_one_fatal_failure_opens_it() -> None:
    breaker = Breaker()
    breaker.failed("401", "HTTP 401", fatal=True)
    assert breaker.refusal() == "not asked, because the judge cannot be used: HTTP 401"


def test_a_failure_of_a_call_that_began_before_a_success_does_not_count() -> None:
    breaker = Breaker(threshold=1, clock=lambda: 5.0)
    breaker.succeeded()
    breaker.failed("timeout", "slow", started=4.0)
    assert breaker.refusal() is None
    breaker.failed("timeout", "slow", started=6.0)
    assert breaker.refusal() is not None
