from persona_pipeline.reporting import statistics as sections
from persona_pipeline.reporting.charts.figures import trend_mark
from tests.reporting.sample import sample_report


def test_the_earliest_trend_is_marked_on_its_window() -> None:
    report = sample_report()
    points, found = sections.history(report)["michael"], sections.trends(report)["michael"]
    mark = trend_mark(points, found)
    assert mark
    assert points[mark.index].window_end == found["adherence"].began
    assert mark.label == "−4.7"
    assert trend_mark(points, {}) is None
