"""Small charts as inline SVG. Colours come from CSS classes, so that one chart fits a light and a dark page."""

from persona_pipeline.reporting.charts.bars import Bar, bar_chart
from persona_pipeline.reporting.charts.bullet import bullet
from persona_pipeline.reporting.charts.cusum import AlarmMark, cusum_chart
from persona_pipeline.reporting.charts.map import Link, map_chart
from persona_pipeline.reporting.charts.sparkline import small_line, sparkline
from persona_pipeline.reporting.charts.svg import data_uri
from persona_pipeline.reporting.charts.thresholds import ShareLine, roc_chart, threshold_chart
from persona_pipeline.reporting.charts.timeline import Series, timeline
from persona_pipeline.reporting.charts.turns import Curve, turn_chart

__all__ = [
    "AlarmMark",
    "Bar",
    "Curve",
    "Link",
    "Series",
    "ShareLine",
    "bar_chart",
    "bullet",
    "cusum_chart",
    "data_uri",
    "map_chart",
    "roc_chart",
    "small_line",
    "sparkline",
    "threshold_chart",
    "timeline",
    "turn_chart",
]
