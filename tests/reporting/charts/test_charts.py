import re
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.reporting.charts import bullet, element, small_line, timeline

START = datetime(2026, 6, 5, 17, tzinfo=UTC)
SVG = "{http://www.w3.org/2000/svg}"
SCORES = st.none() | st.floats(0, 9)


def ends(count: int) -> list[datetime]:
    return [START + timedelta(days=7 * number) for number in range(count)]


def parts(chart: str, tag: str, name: str = "") -> list[ElementTree.Element]:
    """Return the chart's elements of this tag whose class holds a name."""
    found = ElementTree.fromstring(chart).iter(SVG + tag)
    return [part for part in found if name in (part.get("class") or "").split() or not name]


def test_timeline_golden(golden) -> None:
    series = {"": [8.5, 8.6, 2.1], "d1": [8.0, None, 0.3]}
    golden("timeline.svg", timeline(ends(3), series, title="Michael") + "\n")


@given(st.lists(SCORES, min_size=1, max_size=30), st.lists(SCORES, min_size=1, max_size=30))
def test_any_series_of_scores_stays_within_the_picture(main: list[float | None], other: list[float | None]) -> None:
    other = (other * len(main))[: len(main)]
    chart = timeline(ends(len(main)), {"": main, "d1": other}, title="t")
    width, height = map(float, ElementTree.fromstring(chart).get("viewBox", "").split()[2:])
    for path in parts(chart, "path"):
        for x, y in re.findall(r"[ML](\S+) (\S+)", path.get("d", "")):
            assert 0 <= float(x) <= width and 0 <= float(y) <= height


def test_a_window_without_a_score_breaks_the_line() -> None:
    (line,) = parts(timeline(ends(4), {"": [5, 6, None, 7]}, title="t"), "path")
    assert line.get("d", "").count("M") == 2
    assert len(parts(timeline(ends(4), {"": [5, 6, None, 7]}, title="t"), "circle")) == 3


def test_a_lone_score_of_a_thin_line_is_a_dot() -> None:
    assert len(parts(timeline(ends(3), {"d1": [None, 6, None]}, title="t"), "circle")) == 1


def test_the_newest_window_is_always_dated() -> None:
    for count in range(1, 40):
        labels = [text.text for text in parts(timeline(ends(count), {}, title="t"), "text")]
        assert f"{ends(count)[-1].day} {ends(count)[-1]:%b}" in labels
        assert len(labels) <= 4 + 6


def test_series_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="one score, or None, a window"):
        timeline(ends(2), {"": [1.0]}, title="t")


@pytest.mark.parametrize(("score", "width"), [(0, "0"), (4.5, "60"), (9, "120")], ids=["worst", "middle", "best"])
def test_a_bullet_is_as_long_as_its_score(score: float, width: str) -> None:
    assert [bar.get("width") for bar in parts(bullet(score, None), "rect", "bar")] == [width]


def test_a_bullet_says_in_words_what_it_shows() -> None:
    assert ElementTree.fromstring(bullet(3.2, 7.9)).get("aria-label") == "3.20 of 9, baseline 7.90"
    assert not parts(bullet(None, None), "rect", "bar")


@given(st.lists(SCORES, max_size=20))
def test_a_small_line_is_drawn_where_there_are_two_scores(scores: list[float | None]) -> None:
    assert bool(small_line(scores)) == (sum(score is not None for score in scores) > 1)


@given(st.text())
def test_any_text_in_a_chart_is_only_text(text: str) -> None:
    chart = element("text", {"xmlns": "http://www.w3.org/2000/svg", "class": text}, text)
    parsed = ElementTree.fromstring(chart)
    assert len(list(parsed.iter())) == 1


def test_no_chart_carries_a_style_attribute_for_the_policy_forbids_it() -> None:
    charts = [bullet(5, 6), small_line([1, 2]), timeline(ends(2), {"": [1, 2]}, title="t")]
    assert not any("style=" in chart for chart in charts)
