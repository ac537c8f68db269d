import math
import subprocess
import sys

import pytest

from persona_pipeline.guard.baselines.statistics import cohens_d, welch


@pytest.mark.parametrize(
    ("a", "b", "t", "p", "d"),
    [
        pytest.param([5, 5], [5, 5, 5], 0.0, 1.0, 0.0, id="equal constants"),
        pytest.param([0.1, 0.1, 0.1], [0.1, 0.1], 0.0, 1.0, 0.0, id="equal constants that do not sum exactly"),
        pytest.param([7, 7], [5, 5], math.inf, 0.0, math.inf, id="constant and higher"),
        pytest.param([3, 3], [5, 5], -math.inf, 0.0, -math.inf, id="constant and lower"),
    ],
)
def test_constant_groups(a: list[float], b: list[float], t: float, p: float, d: float) -> None:
    result = welch(a, b)
    assert (result.t_statistic, result.p_value, result.significant) == (t, p, p < 0.05)
    assert result.degrees_of_freedom == len(a) + len(b) - 2
    assert cohens_d(a, b) == d


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1], [1, 2], "group a has 1 value"),
        ([1, 2], [], "group b has 0 value"),
        ([1, math.nan], [1, 2], "not finite"),
        ([1, 2], [1, math.inf], "not finite"),
    ],
)
@pytest.mark.parametrize("compare", [welch, cohens_d])
def test_groups_that_cannot_be_compared_are_refused(compare, a, b, message) -> None:
    with pytest.raises(ValueError, match=message):
        compare(a, b)


def test_importing_the_module_does_not_import_scipy() -> None:
    code = "import sys, persona_pipeline.guard.baselines.statistics; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_just_at_alpha_is_not_significant() -> None:
    a, b = [7, 8, 6, 9, 7, 5, 8, 7], [5, 6, 4, 7, 5, 6, 3, 6]
    p = welch(a, b).p_value
    assert not welch(a, b, alpha=p).significant
    assert welch(a, b, alpha=p * (1 + 1e-9)).significant
