import pytest

from persona_pipeline.suites.grading.statistics import t_quantile
from persona_pipeline.suites.running.history import mean_interval


@pytest.mark.parametrize(("degrees", "value"), [(1, 12.706), (29, 2.045), (30, 1.96), (500, 1.96)])
def test_quantiles(degrees: int, value: float) -> None:
    assert t_quantile(degrees) == value


def test_an_interval_is_the_mean_give_or_take_t_standard_errors() -> None:
    mean, lower, upper, spread = mean_interval([0.2, 0.4, 0.9])
    assert (mean, spread) == (pytest.approx(0.5), pytest.approx(0.13**0.5))
    assert mean - lower == pytest.approx(4.303 * (0.13 / 3) ** 0.5)
    assert upper - mean == pytest.approx(mean - lower)
