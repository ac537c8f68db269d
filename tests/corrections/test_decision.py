import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.corrections.records import Action, decide
from persona_pipeline.scoring.results import weighted_mean

SCORES = st.floats(0, 9)


@pytest.mark.parametrize(
    ("score", "attempt", "max_attempts", "action"),
    [
        pytest.param(5.0, 1, 2, Action.COMMIT, id="the threshold itself passes"),
        pytest.param(
            weighted_mean([(7, 0.1), (4, 0.2)]), 1, 2, Action.COMMIT, id="a mean of 5 that is a hair below it"
        ),
        pytest.param(5.0 - 1e-9, 1, 2, Action.COMMIT, id="below by what rounding may be"),
        pytest.param(4.999, 1, 2, Action.RETRY, id="just below is rejected"),
        pytest.param(5.0 - 1e-8, 1, 2, Action.RETRY, id="more than rounding below is rejected"),
        pytest.param(4.0, 2, 2, Action.RETRY, id="the second rejection"),
        pytest.param(4.0, 3, 2, Action.FORCE, id="no third rejection"),
        pytest.param(0.0, 99, 2, Action.FORCE, id="an attempt beyond the last"),
        pytest.param(9.0, 3, 2, Action.COMMIT, id="a late pass is a pass"),
        pytest.param(0.0, 1, 0, Action.FORCE, id="no attempts allowed"),
        pytest.param(None, 1, 2, Action.COMMIT, id="no score, no rejection"),
    ],
)
def test_decide(score: float | None, attempt: int, max_attempts: int, action: Action) -> None:
    assert decide(score, 5.0, attempt=attempt, max_attempts=max_attempts) is action


@given(st.none() | SCORES, SCORES, st.integers(0, 10))
def test_every_text_goes_out_after_at_most_the_allowed_rejections(
    score: float | None, threshold: float, max_attempts: int
) -> None:
    actions = [decide(score, threshold, attempt=n, max_attempts=max_attempts) for n in range(1, max_attempts + 2)]
    rejections = actions.count(Action.RETRY)
    assert rejections in (0, max_attempts)
    assert actions[-1] is not Action.RETRY
