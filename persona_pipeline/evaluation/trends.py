"""Slow drift, seen in the windows an agent was evaluated on so far."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from persona_pipeline.baselines.trend import FEWEST_JUDGMENTS, FEWEST_WINDOWS, Trend, WindowScore, find_trends
from persona_pipeline.evaluation.history import Point, points_of, summary_of
from persona_pipeline.evaluation.report import Finding
from persona_pipeline.evaluation.results import AgentEvaluation
from persona_pipeline.store import Store

Series = dict[tuple[str, str], list[WindowScore]]


class WatchedPoints:
    """The windows of the agents that are watched, read once for everybody who is compared with them."""

    def __init__(self, store: Store, agent_ids: Sequence[str]) -> None:
        self.store = store
        self._agent_ids = agent_ids
        self._known: dict[datetime, dict[str, list[Point]]] = {}

    def until(self, moment: datetime) -> dict[str, list[Point]]:
        """Return the windows up to a moment, by agent."""
        if moment not in self._known:
            self._known[moment] = points_of(self.store, self._agent_ids, until=moment)
        return self._known[moment]


def trends_of(evaluation: AgentEvaluation, watched: WatchedPoints) -> dict[str, Trend]:
    """Return the dimensions of an agent that are falling, this evaluation included; what is steady is learnt from those watched.

    Costs a look at the agent's own history where that is too short for a trend.
    """
    summary = summary_of(evaluation)
    newest = Point(evaluation.window_end, evaluation.overall, summary["dimensions"], tuple(summary["judged_by"]))
    known = points_of(watched.store, [evaluation.agent_id], until=evaluation.window_end)[evaluation.agent_id]
    own = series_of(evaluation.agent_id, [*(p for p in known if p.window_end < newest.window_end), newest])
    if not any(_is_long(windows) for windows in own.values()):
        return {}
    series = dict(own)
    for agent_id, points in watched.until(evaluation.window_end).items():
        if agent_id != evaluation.agent_id:
            series |= series_of(agent_id, points)
    found = find_trends(series)
    return {dimension: trend for (agent_id, dimension), trend in found.items() if agent_id == evaluation.agent_id}


def series_of(agent_id: str, points: Sequence[Point]) -> Series:
    """Return an agent's windows by dimension, those left out that were judged otherwise than the newest."""
    if not points:
        return {}
    newest = points[-1]
    return {
        (agent_id, name): [
            WindowScore(point.window_end, point.dimensions[name]["score"], point.dimensions[name]["samples"])
            for point in points
            if name in point.dimensions
            and point.dimensions[name]["claims"] == item["claims"]
            and point.judged_by == newest.judged_by
        ]
        for name, item in newest.dimensions.items()
    }


def trend_findings(agent_id: str, trends: Mapping[str, Trend]) -> list[Finding]:
    """Return a finding for each dimension that is falling: a warning."""
    return [
        Finding(kind="trend", message=trend.text(agent_id, name), agent_id=agent_id, dimension=name)
        for name, trend in trends.items()
    ]


def _is_long(windows: Sequence[WindowScore]) -> bool:
    return sum(item.score is not None and item.judgments >= FEWEST_JUDGMENTS for item in windows) > FEWEST_WINDOWS
