"""When no more calls are made."""

from persona_pipeline.base.calls import Breaker


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_different_failures_and_successes_between_keep_it_closed() -> None:
    breaker = Breaker(threshold=3)
    for signature in ("500", "500", "502", "500", "500"):
        breaker.failed(signature, "detail")
    assert breaker.refusal() is None
    breaker.succeeded()
    breaker.failed("500", "detail")
    assert breaker.refusal() is None


def test_identical_failures_in_a_row_open_it_and_are_named() -> None:
    breaker = Breaker(threshold=3)
    for _ in range(3):
        breaker.failed("500", "HTTP 500")
    assert breaker.refusal() == "not asked after 3 identical failures in a row: HTTP 500"


def test_one_fatal_failure_opens_it() -> None:
    breaker = Breaker()
    breaker.failed("401", "HTTP 401", fatal=True)
    assert breaker.refusal() == "not asked, because the judge cannot be used: HTTP 401"


def test_after_the_cool_down_one_call_tries_and_its_outcome_decides() -> None:
    clock = Clock()
    breaker = Breaker(threshold=1, cooldown=30.0, clock=clock)
    breaker.failed("500", "HTTP 500")
    clock.now = 30.0
    assert breaker.refusal() is None
    assert breaker.refusal() is not None
    breaker.failed("500", "HTTP 500")
    clock.now = 59.0
    assert breaker.refusal() is not None
    clock.now = 61.0
    assert breaker.refusal() is None
    breaker.succeeded()
    assert breaker.refusal() is None
