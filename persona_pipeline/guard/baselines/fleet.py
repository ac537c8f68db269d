"""The fleet's table: every claim and dimension of the agents that are watched, before and now, as rows to calculate with."""

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from persona_pipeline.guard.baselines.models import Baseline, Compared
from persona_pipeline.guard.baselines.spread import (
    ClaimSpread,
    claim_level,
    claim_weights,
    dimension_level,
    golden_level,
    golden_weights,
    spread_of,
)
from persona_pipeline.guard.baselines.variance import Fleet, Level, Numbers, Repeats
from persona_pipeline.scoring.results import DimensionEvaluation

WEEK = timedelta(days=7)


class FleetTable:
    """The rows of the run's agents that have a baseline, and of the baselines of all that are watched.

    Attributes:
        dimensions, claims: names of the rows: (agent, dimension) and (agent, dimension, claim).
        agents: those of the run first, then those that are only watched.
    """

    def __init__(self, run: Mapping[str, Compared], watched: Mapping[str, Baseline]) -> None:
        compared = {agent_id: item for agent_id, item in run.items() if item.baseline is not None}
        others = {agent_id: baseline for agent_id, baseline in watched.items() if agent_id not in compared}
        self.agents = [*compared, *others]
        self.dimensions: list[tuple[str, str]] = []
        self.claims: list[tuple[str, str, str]] = []
        self._levels: dict[str, list[Level]] = {name: [] for name in ("before", "now", "whole_before", "whole_now")}
        self._agent_of: list[int] = []
        self._dimension_of: list[int] = []
        self._weights: list[tuple[float, float]] = []
        self._same: list[bool] = []
        self._week: list[int] = []
        for number, (agent_id, item) in enumerate(compared.items()):
            for name in item.comparison.dimensions:
                if item.baseline and name in item.baseline.dimensions and name in item.dimensions:
                    self._add(agent_id, number, name, item.baseline, item.dimensions[name], item.provenance)
        for number, (agent_id, baseline) in enumerate(others.items(), start=len(compared)):
            for name in baseline.dimensions:
                self._add(agent_id, number, name, baseline, None, None)

    def fleet(self) -> Fleet:
        """Return the rows."""
        weights = np.array(self._weights, dtype=float).reshape(-1, 2)
        return Fleet(
            claims_before=_stacked(self._levels["before"]),
            claims_now=_stacked(self._levels["now"]),
            dimensions_before=_stacked(self._levels["whole_before"]),
            dimensions_now=_stacked(self._levels["whole_now"]),
            dimension_of=np.array(self._dimension_of, dtype=np.intp),
            agent_of=np.array(self._agent_of, dtype=np.intp),
            weight=weights[:, 0].copy(),
            weight_before=weights[:, 1].copy(),
            same=np.array(self._same, dtype=bool),
            week=np.array(self._week, dtype=float),
        )

    def _add(
        self,
        agent_id: str,
        number: int,
        dimension: str,
        baseline: Baseline,
        evaluated: DimensionEvaluation | None,
        provenance: Mapping[str, Any] | None,
    ) -> None:
        row = len(self.dimensions)
        self.dimensions.append((agent_id, dimension))
        self._agent_of.append(number)
        self._same.append(evaluated is not None and same_messages(baseline, evaluated, provenance))
        self._week.append(weeks_since(baseline, dimension, provenance))
        weights = claim_weights(evaluated) if evaluated else {}
        whole, claims = _golden(baseline, dimension, weights) if evaluated else _watched_golden(baseline, dimension)
        self._levels["whole_before"].append(whole)
        self._levels["whole_now"].append(dimension_level([evaluated] if evaluated else []))
        for key, weight, level in claims:
            self.claims.append((agent_id, dimension, key))
            self._dimension_of.append(row)
            self._weights.append((weights.get(key, 0.0), weight))
            self._levels["before"].append(level)
            now = evaluated.propositions.get(key) if evaluated else None
            self._levels["now"].append(claim_level([now] if now else []))


def same_messages(baseline: Baseline, evaluated: DimensionEvaluation, provenance: Mapping[str, Any] | None) -> bool:
    """Return whether a baseline's one window judged the very messages that were judged now, whatever was asked of them."""
    known = baseline.provenance.get("dimensions", {}).get(evaluated.dimension, {})
    if known.get("windows", 1) > 1:
        return False
    if provenance is None:
        return True
    if known.get("input_hash") and known["input_hash"] == evaluated.input_hash:
        return True
    if known.get("messages_hash") and provenance.get("messages_hash"):
        return known["messages_hash"] == provenance["messages_hash"]
    window = ("window_start", "window_end", "messages")
    return bool(known.get("window_end")) and all(known.get(key) == provenance.get(key) for key in window)


def weeks_since(baseline: Baseline, dimension: str, provenance: Mapping[str, Any] | None) -> int:
    """Return in which week after a dimension's baseline a window ends: 1 up to seven days after it, or where it is not known."""
    known = baseline.provenance.get("dimensions", {}).get(dimension, {})
    ends = [item.get("window_end") for item in (known, provenance or {})]
    if None in ends:
        return 1
    before, now = (datetime.fromisoformat(str(end)) for end in ends)
    return max(1, -(-(now - before) // WEEK))


# A dimension of a baseline: its level, and of each claim the weight and the level.
_Golden = tuple[Level, list[tuple[str, float, Level]]]


def _golden(baseline: Baseline, dimension: str, asked: Collection[str]) -> _Golden:
    known = spread_of(baseline, dimension)
    # The flat form of old files does not say whose its claims are: those that are judged now.
    flat = {key: score for key, score in baseline.proposition_scores.get("", {}).items() if key in asked}
    before = {**flat, **baseline.proposition_scores.get(dimension, {})}
    samples = baseline.provenance.get("dimensions", {}).get(dimension, {}).get("samples")
    once = ClaimSpread(samples=max(1, samples or 1))
    weights = golden_weights(baseline, dimension, list(before))
    claims = [(key, weight, golden_level(before[key], known.claims.get(key, once))) for key, weight in weights.items()]
    return golden_level(baseline.dimensions[dimension], known), claims


# By the identity of baselines that are kept here too: the same forty stand beside every agent of a run.
_WATCHED: OrderedDict[tuple[int, str], tuple[Baseline, _Golden]] = OrderedDict()
_MOST_WATCHED = 1000


def _watched_golden(baseline: Baseline, dimension: str) -> _Golden:
    key = (id(baseline), dimension)
    if key not in _WATCHED:
        _WATCHED[key] = (baseline, _golden(baseline, dimension, ()))
        while len(_WATCHED) > _MOST_WATCHED:
            _WATCHED.popitem(last=False)
    return _WATCHED[key][1]


def _stacked(levels: list[Level]) -> Level:
    """Return the rows of several levels as one."""

    def column(parts: list[Numbers]) -> Numbers:
        return np.concatenate(parts) if parts else np.zeros(0)

    judge = {item.name: column([getattr(level.judge, item.name) for level in levels]) for item in fields(Repeats)}
    own = {
        item.name: column([getattr(level, item.name) for level in levels])
        for item in fields(Level)
        if item.name != "judge"
    }
    return Level(**own, judge=Repeats(**judge))
