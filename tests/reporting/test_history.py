from persona_pipeline.reporting.charts.figures import trend_mark
from persona_pipeline.reporting.statistics import Statistics
from tests.reporting.sample import sample_report


def test_the_earliest_trend_is_marked_on_its_window() -> None:
    told = Statistics.of(sample_report())
    points, found = told.history["michael"], told.trends["michael"]
    mark = trend_mark(points, found)
    assert mark
    assert points[mark.index].window_end == found["adherence"].began
    assert mark.label == "−4.7"
    assert trend_mark(points, {}) is None
