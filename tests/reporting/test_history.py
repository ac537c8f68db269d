import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.reporting import sections
from persona_pipeline.reporting.history import change_point, trend_mark
from tests.reporting.sample import sample_report


def test_the_earliest_trend_is_marked_on_its_window() -> None:
    report = sample_report()
    points, found = sections.history(report)["michael"], sections.trends(report)["michael"]
    mark = trend_mark(points, found)
    assert mark
    assert points[mark.index].window_end == found["adherence"].began
    assert mark.label == "−4.7"
    assert trend_mark(points, {}) is None


@pytest.mark.parametrize(
    ("scores", "index"),
    [
        pytest.param([], None, id="nothing"),
        pytest.param([8.0], None, id="one window"),
        pytest.param([8.5, 8.6, 2.1], 2, id="a drop in the newest window"),
        pytest.param([8.5, 2.1], 1, id="two windows"),
        pytest.param([8, 8, 8, 4, 4, 4], 3, id="a drop in the middle"),
        pytest.param([4, 4, 8, 8], 2, id="a rise"),
        pytest.param([8, 8, 7.2, 7.2], None, id="a drop of less than a point"),
        pytest.param([8, 8, 7, 7], 2, id="a drop of exactly a point"),
        pytest.param([8, 6, 8, 6, 8, 6], None, id="going up and down is no level"),
        pytest.param([8, None, 8, None, 3, 3], 4, id="windows without a score are skipped"),
        pytest.param([None, None], None, id="never scored"),
        pytest.param([8, 8, 8, 8], None, id="constant"),
    ],
)
def test_change_point(scores: list[float | None], index: int | None) -> None:
    found = change_point(scores)
    assert (found.index if found else None) == index


def test_it_tells_the_two_levels() -> None:
    found = change_point([8.0, 9.0, 3.0, 4.0])
    assert found and (found.before, found.after, found.change) == (8.5, 3.5, -5.0)


@given(st.lists(st.none() | st.floats(0, 9), max_size=30))
def test_a_change_is_never_smaller_than_asked_for_and_never_before_the_first_score(scores: list[float | None]) -> None:
    found = change_point(scores)
    if found:
        assert abs(found.change) >= 1.0
        assert scores[found.index] is not None and any(score is not None for score in scores[: found.index])
