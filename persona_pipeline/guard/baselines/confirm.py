"""The one place where a drop becomes a fall, or does not: agents compared together, and what is worth asking again."""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from persona_pipeline.guard.baselines.falls import (
    CLAIMS_SHARE,
    CONFIRMATIONS,
    DIMENSIONS_SHARE,
    LEVEL,
    DecidedFall,
    decide,
    families_named,
    levels_of,
    worth_asking,
)
from persona_pipeline.guard.baselines.models import Baseline, BaselineComparison, ClaimTest, DimensionComparison, Sight
from persona_pipeline.guard.baselines.noise import SOURCES, Drops, detectable, interval, needs, sees
from persona_pipeline.guard.baselines.regression import PROPOSITION_DELTA, REGRESSION_DELTA, TOLERANCE, UNDECIDED_DELTA
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


@dataclass(frozen=True)
class Compared:
    """One agent's comparison by the deltas, with what it compares.

    Attributes:
        provenance: of the evaluation, as ``captured`` would keep it; tells whether the baseline judged the same messages.
            None: not known; then they are taken for the same, and only the judge's part counts.
        messages: that the agent said in the window, None: unknown.
    """

    comparison: BaselineComparison
    dimensions: Mapping[str, DimensionEvaluation]
    baseline: Baseline | None
    provenance: Mapping[str, Any] | None = None
    messages: int | None = None


@dataclass(frozen=True)
class Tabled:
    """The fleet's table with the names of its rows: (agent, dimension) and (agent, dimension, claim).

    ``agents``: those of the run first, then those that are only watched.
    """

    fleet: Fleet
    dimensions: list[tuple[str, str]]
    claims: list[tuple[str, str, str]]
    agents: list[str]


def tabled(run: Mapping[str, Compared], watched: Mapping[str, Baseline]) -> Tabled:
    """Return the table of the run's agents that have a baseline, and of the baselines of all that are watched."""
    compared = {agent_id: item for agent_id, item in run.items() if item.baseline is not None}
    others = {agent_id: baseline for agent_id, baseline in watched.items() if agent_id not in compared}
    agents = [*compared, *others]
    rows = _Rows()
    for number, (agent_id, item) in enumerate(compared.items()):
        for name in item.comparison.dimensions:
            if item.baseline and name in item.baseline.dimensions and name in item.dimensions:
                rows.add(agent_id, number, name, item.baseline, item.dimensions[name], item.provenance)
    for number, (agent_id, baseline) in enumerate(others.items(), start=len(compared)):
        for name in baseline.dimensions:
            rows.add(agent_id, number, name, baseline, None, None)
    return Tabled(rows.fleet(), rows.dimensions, rows.claims, agents)


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


@dataclass(frozen=True)
class _Golden:
    """A dimension of a baseline: its level, and of each claim the weight and the level."""

    whole: Level
    claims: list[tuple[str, float, Level]]


def _golden(baseline: Baseline, dimension: str, asked: Collection[str]) -> _Golden:
    known = spread_of(baseline, dimension)
    # The flat form of old files does not say whose its claims are: those that are judged now.
    flat = {key: score for key, score in baseline.proposition_scores.get("", {}).items() if key in asked}
    before = {**flat, **baseline.proposition_scores.get(dimension, {})}
    once = ClaimSpread(samples=_samples(baseline, dimension))
    weights = golden_weights(baseline, dimension, list(before))
    claims = [(key, weight, golden_level(before[key], known.claims.get(key, once))) for key, weight in weights.items()]
    return _Golden(golden_level(baseline.dimensions[dimension], known), claims)


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


class _Rows:
    """Gathers rows one after the other."""

    def __init__(self) -> None:
        self.dimensions: list[tuple[str, str]] = []
        self.claims: list[tuple[str, str, str]] = []
        self._levels: dict[str, list[Level]] = {name: [] for name in ("before", "now", "whole_before", "whole_now")}
        self._agent_of: list[int] = []
        self._dimension_of: list[int] = []
        self._weights: list[float] = []
        self._golden_weights: list[float] = []
        self._same: list[bool] = []

    def add(
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
        weights = claim_weights(evaluated) if evaluated else {}
        golden = _golden(baseline, dimension, weights) if evaluated else _watched_golden(baseline, dimension)
        self._levels["whole_before"].append(golden.whole)
        self._levels["whole_now"].append(dimension_level([evaluated] if evaluated else []))
        for key, weight, level in golden.claims:
            self.claims.append((agent_id, dimension, key))
            self._dimension_of.append(row)
            self._weights.append(weights.get(key, 0.0))
            self._golden_weights.append(weight)
            self._levels["before"].append(level)
            now = evaluated.propositions.get(key) if evaluated else None
            self._levels["now"].append(claim_level([now] if now else []))

    def fleet(self) -> Fleet:
        return Fleet(
            claims_before=_stacked(self._levels["before"]),
            claims_now=_stacked(self._levels["now"]),
            dimensions_before=_stacked(self._levels["whole_before"]),
            dimensions_now=_stacked(self._levels["whole_now"]),
            dimension_of=np.array(self._dimension_of, dtype=np.intp),
            agent_of=np.array(self._agent_of, dtype=np.intp),
            weight=np.array(self._weights, dtype=float),
            weight_before=np.array(self._golden_weights, dtype=float),
            same=np.array(self._same, dtype=bool),
        )


def _samples(baseline: Baseline, dimension: str) -> int:
    return max(1, baseline.provenance.get("dimensions", {}).get(dimension, {}).get("samples") or 1)


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


__all__ = ["CONFIRMATIONS", "Asked", "Compared", "most_confirmations", "settled", "to_confirm"]


@dataclass(frozen=True)
class Asked:
    """What of one agent is worth judging again: claims by dimension, and how many times more each."""

    claims: Mapping[str, Sequence[str]]
    times: int = CONFIRMATIONS


def settled(
    agents: Mapping[str, Compared],
    *,
    fleet: Mapping[str, Baseline] | None = None,
    watched: int | None = None,
    others: Mapping[str, float] | None = None,
    undecided_delta: float = UNDECIDED_DELTA,
) -> dict[str, BaselineComparison]:
    """Return the comparisons of a run with only those falls that judge and week do not explain.

    Dimensions and claims get the interval of their change, their corrected p-value and what could have been seen. What fell
    beyond its delta and may be chance becomes a warning; a dimension that dropped by more than ``undecided_delta`` is undecided
    then. Where baseline and run judged the same messages and nothing was judged twice, the deltas alone decide, and so they do
    where nothing is known of judge or week.

    Args:
        fleet: the baselines of all agents that are watched, whether they are in this run or not; the same on every way into
            the product, so that an agent's answer is the same on all of them.
        watched: how many agents are watched, where ``fleet`` is a part of them; None: those in it.
        others: ``BaselineComparison.p_value`` of watched agents that are not in this run; used beyond 20 agents.
    """
    table, watched = _table(agents, fleet, watched)
    decided = _decided(table, watched, agents, others)
    result = {agent_id: item.comparison.model_copy(deep=True) for agent_id, item in agents.items()}
    _write_dimensions(result, agents, table, decided, watched)
    for comparison in result.values():
        for item in comparison.dimensions.values():
            _judge(item, comparison.warnings, undecided_delta)
    for number, agent_id in enumerate(table.agents):
        if agent_id in result and any(item.sight for item in result[agent_id].dimensions.values()):
            result[agent_id].families = families_named(watched)
            result[agent_id].p_value = float(decided.p_values.agents[number])
    return result


def to_confirm(
    agents: Mapping[str, Compared],
    *,
    fleet: Mapping[str, Baseline] | None = None,
    watched: int | None = None,
    delta: float = REGRESSION_DELTA,
    proposition_delta: float = PROPOSITION_DELTA,
) -> dict[str, Asked]:
    """Return what is worth judging again before it is called a fall, by agent; nothing of those where it changes nothing.

    Args:
        fleet, watched: see ``settled``.
        delta, proposition_delta: of the comparisons.
    """
    table, watched = _table(agents, fleet, watched)
    decided = _decided(table, watched, agents, None, delta, proposition_delta)
    mask = worth_asking(table.fleet, decided, watched=watched, delta=delta, proposition_delta=proposition_delta)
    found: dict[str, dict[str, list[str]]] = {}
    for row in np.flatnonzero(mask):
        agent_id, dimension, claim = table.claims[row]
        item = agents[agent_id].comparison.dimensions[dimension]
        # A dimension whose coverage is too low is compared with nothing; only its claims may fall.
        if item.status in ("ok", "regressed") or any(drop.proposition_id == claim for drop in item.drops):
            found.setdefault(agent_id, {}).setdefault(dimension, []).append(claim)
    return {agent_id: Asked(claims) for agent_id, claims in found.items()}


def most_confirmations(judgments: Mapping[str, int], samples: int, times: int = CONFIRMATIONS) -> int:
    """Return how many judgments confirming could add at most: all agents and dimensions fallen.

    Args:
        judgments: planned judgments of each agent that has a baseline.
        samples: judgments a claim among them.
    """
    return sum(judgments.values()) // max(1, samples) * times


def _table(
    agents: Mapping[str, Compared], fleet: Mapping[str, Baseline] | None, watched: int | None
) -> tuple[Tabled, int]:
    table = tabled(agents, fleet or {})
    return table, max(1, watched or len(table.agents))


def _decided(
    table: Tabled,
    watched: int,
    agents: Mapping[str, Compared],
    others: Mapping[str, float] | None,
    delta: float = REGRESSION_DELTA,
    proposition_delta: float = PROPOSITION_DELTA,
) -> DecidedFall:
    known = np.array([p for agent_id, p in (others or {}).items() if agent_id not in agents], dtype=float)
    return decide(
        table.fleet,
        agents=watched,
        watched=watched,
        delta=delta,
        proposition_delta=proposition_delta,
        others=known,
    )


def _write_dimensions(
    result: Mapping[str, BaselineComparison],
    agents: Mapping[str, Compared],
    table: Tabled,
    decided: DecidedFall,
    watched: int,
) -> None:
    of_claims = table.fleet.agent_of[table.fleet.dimension_of]
    levels = levels_of(decided.dimensions, table.fleet.agent_of, watched=watched, share=DIMENSIONS_SHARE)
    claim_levels = levels_of(decided.claims, of_claims, watched=watched, share=CLAIMS_SHARE)
    low, high = interval(decided.dimensions)
    smallest = detectable(decided.dimensions, levels)
    for row, (agent_id, dimension) in enumerate(table.dimensions):
        if agent_id not in result or not np.isfinite(decided.dimensions.drop[row]):
            continue
        item = result[agent_id].dimensions[dimension]
        item.interval = (-float(high[row]), -float(low[row]))
        item.p_value = float(decided.p_values.dimensions[row])
        item.sight = _sight(decided.dimensions, levels, row, float(smallest[row]), agents[agent_id].messages)
    low, high = interval(decided.claims)
    smallest = detectable(decided.claims, claim_levels)
    for row, (agent_id, dimension, claim) in enumerate(table.claims):
        if agent_id in result and np.isfinite(decided.claims.drop[row]):
            result[agent_id].dimensions[dimension].claims[claim] = ClaimTest(
                delta=-float(decided.claims.fallen[row]),
                interval=(-float(high[row]), -float(low[row])),
                p_value=float(p) if np.isfinite(p := decided.p_values.claims[row]) else None,
                detectable=float(smallest[row]),
            )


def _sight(drops: Drops, levels: Numbers, row: int, smallest: float, messages: int | None) -> Sight:
    need = needs(drops, levels, row, messages)
    return Sight(
        detectable=smallest,
        judge=float(np.sqrt(drops.one[row])) or None,
        week=float(np.sqrt(drops.week[row])),
        week_from=SOURCES[drops.source[row]],
        windows=int(drops.windows[row]),
        messages=need.messages,
        judgments=need.judgments,
        windows_needed=need.windows,
        text=sees(smallest, need),
    )


def _judge(item: DimensionComparison, warnings: list[str], undecided_delta: float) -> None:
    """Turn what fell beyond its delta and may be chance into a warning, a large drop of a dimension into an open question."""
    if item.status == "regressed" and item.p_value is not None and item.p_value >= LEVEL:
        item.status = not_shown(item, undecided_delta)
        warnings.append(f"{item.dimension}: {_explained(-(item.delta or 0.0), item.p_value)}")
    kept = []
    for drop in item.drops:
        test = item.claims.get(drop.proposition_id)
        # In a dimension that fell, a claim is part of what was found: it needs no proof against being one of many.
        part = test is not None and item.status == "regressed" and test.interval[1] < 0
        if test is not None and test.p_value is not None and test.p_value >= LEVEL and not part:
            warnings.append(f"{item.dimension}/{drop.proposition_id}: {_explained(-drop.delta, test.p_value)}")
        elif test is None:
            kept.append(drop)
        else:
            kept.append(drop.model_copy(update={"interval": test.interval, "p_value": test.p_value}))
    item.drops = kept


def not_shown(item: DimensionComparison, undecided_delta: float) -> Literal["ok", "undecided"]:
    """Return what a dimension is whose drop is not shown to be more than chance: undecided where nobody could pass it over."""
    return "undecided" if -(item.delta or 0.0) > undecided_delta + TOLERANCE else "ok"


def _explained(drop: float, p_value: float) -> str:
    return (
        f"fell by {drop:.2f}, which judge and week may explain (p = {p_value:.2g}); more judgments a claim (--samples) or more "
        "windows in the baseline tell it apart"
    )
