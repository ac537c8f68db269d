import pytest

from persona_pipeline.suites.running.history import mean_interval


def test_an_interval_is_the_mean_give_or_take_t_standard_errors() -> None:
    mean, lower, upper, spread = mean_interval([0.2, 0.4, 0.9])
    assert (mean, spread) == (pytest.approx(0.5), pytest.approx(0.13**0.5))
    assert mean - lower == pytest.approx(4.303 * (0.13 / 3) ** 0.5)
    assert upper - mean == pytest.approx(mean - lower)
