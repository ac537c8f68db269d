"""What makes a drop a fall: its delta, then chance, then further judgments of what may have fallen. Deltas are of unrounded values
(spec/2).
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import PROPOSITION_DELTA, REGRESSION_DELTA, bounds_of, bounds_text
from persona_pipeline.base.settings import Settings
from persona_pipeline.guard.baselines.fleet import FleetTable
from persona_pipeline.guard.baselines.models import (
    Baseline,
    BaselineComparison,
    ClaimTest,
    Compared,
    DimensionComparison,
    PropositionDrop,
    Regression,
)
from persona_pipeline.guard.baselines.noise import Drops, drops_of
from persona_pipeline.guard.baselines.sight import detectable, interval, sight_of
from persona_pipeline.guard.baselines.statistics import (
    CLAIMS_SHARE,
    DIMENSIONS_SHARE,
    LEVEL,
    MOST_TOGETHER,
    Corrected,
    corrected,
    families_named,
    level_of,
    year_share,
)
from persona_pipeline.guard.baselines.variance import Fleet, Indices, Mask, Numbers, special
from persona_pipeline.scoring.results import DimensionEvaluation

# Judgments from which the share counts: below that one of them is more than the share.
COUNTED_FROM = 20
TOLERANCE = 1e-9
# A dimension that drops further than this is never green, however much its scores are said to vary.
UNDECIDED_DELTA: float = Settings.model_fields["undecided_delta"].default
CONFIRMATIONS = 5
# Among so many judgments two outlier verdicts do not decide.
TRUSTED = 5
# How far further judgments may still move a drop, in their standard errors.
REACH = 2.0


def dropped(current: float, baseline: float, delta: float) -> bool:
    """Return whether ``current < baseline - delta``, strictly, beyond 1e-9."""
    return current < baseline - delta - TOLERANCE


def check_option(name: str, value: float | None) -> None:
    """Check a number that may be asked for; ConfigError: it is not within the bounds that its option has."""
    if value is None:
        return
    least, most = bounds_of(name)
    if isinstance(value, bool) or not (least or 0.0) <= value <= (most or math.inf) or math.isinf(value):
        finite = "a finite number of " if most is None else ""
        raise ConfigError(f"--{name.replace('_', '-')} must be {finite}{bounds_text((least, most))}, not {value!r}")


def find_regressions(
    current: Mapping[str, float | None], baseline: Mapping[str, float] | Baseline, delta: float = REGRESSION_DELTA
) -> list[Regression]:
    """Return the dimensions that fell by more than ``delta``, in baseline order.

    A dimension without a current score is no regression (coverage reports it); one without a baseline is not compared. Raises
    ``ConfigError``: ``delta`` is negative or not finite, or a score is not finite: it would compare as no drop.
    """
    check_option("regression_delta", delta)
    golden = baseline.dimensions if isinstance(baseline, Baseline) else baseline
    regressions = []
    for name, before in golden.items():
        now = current.get(name)
        if now is None:
            continue
        if not math.isfinite(now) or not math.isfinite(before):
            raise ConfigError(f"the score of {name} must be a finite number, not {now!r} with a baseline of {before!r}")
        if dropped(now, before, delta):
            regressions.append(Regression(dimension=name, baseline=before, current=now, delta=now - before))
    return regressions


def is_covered(items: Collection[DimensionEvaluation], min_coverage: float, *, as_recorded: bool = True) -> bool:
    """Whether enough of the judgments that were due in these dimensions are scored.

    Args:
        min_coverage, as_recorded: see ``least_coverage``; below 1, one failed judgment of fewer than 20 is no failed run either.
    """
    scored, expected = sum(item.n_scored for item in items), sum(item.n_expected for item in items)
    least = least_coverage(items, min_coverage, as_recorded=as_recorded)
    if least < 1 and expected < COUNTED_FROM and expected - scored <= 1:
        return True
    return expected == 0 or scored / expected >= least - TOLERANCE


def least_coverage(items: Iterable[DimensionEvaluation], min_coverage: float, *, as_recorded: bool = True) -> float:
    """Return the share (0-1) of the judgments of these dimensions that must be scored.

    ``min_coverage``: what this run asks for. ``as_recorded``: where all that failed is recorded, what was asked for then is
    enough.
    """
    asked = [item.min_coverage for item in items if item.failed]
    if not as_recorded or not asked or None in asked:
        return min_coverage
    return min(min_coverage, max(least for least in asked if least is not None))


def compare(
    agent_id: str,
    dimensions: Mapping[str, DimensionEvaluation],
    baseline: Baseline | None,
    *,
    delta: float = REGRESSION_DELTA,
    proposition_delta: float = PROPOSITION_DELTA,
    min_coverage: float = 1.0,
    as_recorded: bool = True,
    provenance: Mapping[str, object] | None = None,
) -> BaselineComparison:
    """Compare what was evaluated with the baseline; dimensions that were not evaluated are left out.

    Args:
        min_coverage, as_recorded: see ``least_coverage``.
        provenance: what judged the current scores (``judge_model``, ``prompt_version``), to warn when it is not comparable.
    """
    check_option("regression_delta", delta)
    check_option("proposition_delta", proposition_delta)
    golden = baseline.dimensions if baseline else {}
    order = [name for name in golden if name in dimensions] + [name for name in dimensions if name not in golden]
    comparison = BaselineComparison(agent_id=agent_id)
    for name in order:
        evaluated = dimensions[name]
        item = DimensionComparison(dimension=name, status="ok", current=evaluated.score, baseline=golden.get(name))
        if item.current is None:
            item.status = "unscored"
        elif not is_covered([evaluated], min_coverage, as_recorded=as_recorded):
            item.status = "incomplete"
        elif item.baseline is None:
            item.status = "no_baseline"
        elif dropped(item.current, item.baseline, delta):
            item.status = "regressed"
        if item.current is not None and item.baseline is not None:
            item.delta = item.current - item.baseline
        if baseline is not None:
            item.drops = _drops(name, evaluated, baseline, proposition_delta)
        comparison.dimensions[name] = item
    if baseline is not None:
        comparison.warnings = _warnings(dimensions, baseline, provenance or {})
    return comparison


def golden_propositions(baseline: Baseline, dimension: str) -> dict[str, float]:
    """Return the baseline's proposition scores of a dimension; the flat form keeps them all under no dimension."""
    return {**baseline.proposition_scores.get("", {}), **baseline.proposition_scores.get(dimension, {})}


def _drops(dimension: str, evaluated: DimensionEvaluation, baseline: Baseline, delta: float) -> list[PropositionDrop]:
    # Computed parts move in steps (one catchphrase of two is 4.5 points); the dimension's own rule covers them.
    before = golden_propositions(baseline, dimension)
    return [
        PropositionDrop(
            dimension=dimension,
            proposition_id=key,
            baseline=before[key],
            current=row.score,
            delta=row.score - before[key],
            claim=row.claim,
            recommendation=row.recommendation,
        )
        for key, row in evaluated.propositions.items()
        if row.score is not None and not row.algorithmic and key in before and dropped(row.score, before[key], delta)
    ]


def _warnings(
    dimensions: Mapping[str, DimensionEvaluation], baseline: Baseline, provenance: Mapping[str, object]
) -> list[str]:
    warnings = []
    for name, evaluated in dimensions.items():
        known = baseline.provenance.get("dimensions", {}).get(name, {})
        for key, label in (("judge_model", "judge model"), ("prompt_version", "prompt version")):
            then, now = known.get(key), provenance.get(key)
            if then and now and then != now:
                warnings.append(
                    f"{name}: the {label} was {then} for the baseline and is {now} now; re-capture the baseline"
                )
        # The flat form does not say which of its propositions are this dimension's.
        before = baseline.proposition_scores.get(name, {})
        gone = sorted(before.keys() - evaluated.propositions.keys())
        new = sorted(
            key for key, row in evaluated.propositions.items() if before and key not in before and not row.algorithmic
        )
        if gone:
            warnings.append(f"{name}: in the baseline and no longer evaluated: {', '.join(gone)}")
        if new:
            warnings.append(f"{name}: evaluated and not in the baseline: {', '.join(new)}")
    return warnings


@dataclass(frozen=True)
class TestedDrops:
    """The drops of a run, their corrected p-values, and which are beyond their delta.

    ``levels``, ``claim_levels``: that each row must pass if no other row of its agent does. ``delta``, ``proposition_delta``:
    points a dimension and a claim may fall.
    """

    dimensions: Drops
    claims: Drops
    p_values: Corrected
    levels: Numbers
    claim_levels: Numbers
    delta: float
    proposition_delta: float

    @property
    def beyond_dimensions(self) -> Mask:
        return self.dimensions.fallen > self.delta + TOLERANCE

    @property
    def beyond_claims(self) -> Mask:
        return self.claims.fallen > self.proposition_delta + TOLERANCE


def tested(
    fleet: Fleet,
    *,
    watched: int,
    delta: float = REGRESSION_DELTA,
    proposition_delta: float = PROPOSITION_DELTA,
    others: Numbers | None = None,
    moved: Mapping[str, Sequence[float]] | None = None,
) -> TestedDrops:
    """Test what dropped in a run.

    ``watched``, ``others``: see ``corrected``; agents of the fleet that are not in the run have no ``now`` and no test.
    ``delta``, ``proposition_delta``: points a dimension and a claim may fall. ``moved``: see ``drops_of``.
    """
    dimensions, claims = drops_of(fleet, moved)
    at, shares = fleet.dimension_of, year_share(fleet.week)
    agents = fleet.agent_of[at]
    p_values = corrected(
        dimensions.p_value,
        fleet.agent_of,
        claims.p_value,
        agents,
        watched=watched,
        others=others,
        shares=shares,
        claim_shares=shares[at],
    )
    levels = level_of(_tests(dimensions, fleet.agent_of), watched, DIMENSIONS_SHARE) * shares
    claim_levels = level_of(_tests(claims, agents), watched, CLAIMS_SHARE) * shares[at]
    return TestedDrops(dimensions, claims, p_values, levels, claim_levels, delta, proposition_delta)


def worth_asking(fleet: Fleet, drops: TestedDrops, *, watched: int, times: int = CONFIRMATIONS) -> Mask:
    """Return the claims to judge again: those that fell beyond their delta, and all of a dimension that did, unless ``times``
    further judgments could not change the answer.

    They could not where the drop would not be significant even if they all spoke for it, nor where it would stay a fall
    even if they all spoke against it.
    """
    at = fleet.dimension_of
    counts = fleet.claims_now.count
    fewest = np.full(len(fleet.agent_of), np.inf)
    np.minimum.at(fewest, at, np.where(fleet.weight > 0, counts, np.inf))
    # Beyond so many agents the level depends on how many fell; at best all of them did.
    best = watched if watched > MOST_TOGETHER else 1
    open_dimensions = drops.beyond_dimensions & _open(drops.dimensions, fewest, drops.levels, best, drops.delta, times)
    open_claims = drops.beyond_claims & _open(
        drops.claims, counts, drops.claim_levels, best, drops.proposition_delta, times
    )
    judged = (counts > 0) & np.isfinite(fleet.claims_before.mean)
    return judged & (open_claims | (open_dimensions[at] & (fleet.weight > 0)))


def _tests(drops: Drops, agent_of: Indices) -> Numbers:
    """Return how many rows of each row's agent are tested."""
    return np.bincount(agent_of, np.isfinite(drops.drop))[agent_of].astype(np.float64)


def _open(drops: Drops, counts: Numbers, strictest: Numbers, best: int, delta: float, times: int) -> Mask:
    """Return which answers are still open. What cannot be tested, or rests on a verdict or two, always is."""
    known = np.isfinite(drops.drop) & (drops.judge_now > 0) & np.isfinite(counts)
    safe = np.where(known, drops.judge_now, 0.0)
    # The mean of all judgments then: those made now keep their share of it.
    total = np.where(known, counts, 1.0) + times
    reach = REACH * np.sqrt(safe * times / total)
    left = np.sqrt(np.maximum(drops.variance - safe + safe * (total - times) / total, 1e-12))
    with np.errstate(invalid="ignore"):
        possible = special().stdtr(drops.degrees, -(drops.drop + reach) / left) < strictest * best
        certain = (drops.fallen - reach > delta) & (
            special().stdtr(drops.degrees, -(drops.drop - reach) / left) < strictest
        )
    certain &= counts >= TRUSTED
    return ~known | (possible & ~certain)


def settled(
    agents: Mapping[str, Compared],
    *,
    fleet: Mapping[str, Baseline] | None = None,
    watched: int | None = None,
    others: Mapping[str, float] | None = None,
    moved: Mapping[str, Sequence[float]] | None = None,
    delta: float = REGRESSION_DELTA,
    proposition_delta: float = PROPOSITION_DELTA,
    undecided_delta: float = UNDECIDED_DELTA,
) -> dict[str, BaselineComparison]:
    """Return the comparisons of a run with only those drops that judge noise and weekly variation do not explain.

    Dimensions and claims get the interval of their change, their corrected p-value and what could have been seen. What fell
    beyond its delta and may be chance becomes a warning; a dimension that dropped by more than ``undecided_delta`` is undecided
    then. Where baseline and run judged the same messages and nothing was judged twice, the deltas alone decide, and so they do
    where nothing is known of judge or week. ``fleet``: the baselines of all agents that are watched, whether they are in this run
    or not; the same on every way into the product, so that an agent's answer is the same on all of them. ``watched``: how many
    agents are watched, where ``fleet`` is a part of them; None: those in it. ``others``: ``BaselineComparison.p_value`` of
    watched agents that are not in this run; used beyond 20 agents. ``moved``: by how much the dimensions of other agents fell, by
    agent; used for baselines of fewer than 4 windows. ``delta``, ``proposition_delta``: of the comparisons.
    """
    table = FleetTable(agents, fleet or {})
    rows, watched = table.fleet(), max(1, watched or len(table.agents))
    known = np.array([p for agent_id, p in (others or {}).items() if agent_id not in agents], dtype=float)
    drops = tested(rows, watched=watched, delta=delta, proposition_delta=proposition_delta, others=known, moved=moved)
    result = {agent_id: item.comparison.model_copy(deep=True) for agent_id, item in agents.items()}
    _write_tests(result, table, drops)
    for comparison in result.values():
        for item in comparison.dimensions.values():
            _judge(item, comparison.warnings, undecided_delta)
    for number, agent_id in enumerate(table.agents):
        if agent_id in result and any(item.sight for item in result[agent_id].dimensions.values()):
            week = int(rows.week[rows.agent_of == number].max())
            result[agent_id].families = families_named(watched, week)
            result[agent_id].p_value = float(drops.p_values.agents[number])
    return result


def to_confirm(
    agents: Mapping[str, Compared],
    *,
    fleet: Mapping[str, Baseline] | None = None,
    watched: int | None = None,
    delta: float = REGRESSION_DELTA,
    proposition_delta: float = PROPOSITION_DELTA,
) -> dict[str, dict[str, list[str]]]:
    """Return what is worth judging again before it is called a fall, claims by agent and dimension; nothing of
    those where it changes nothing.

    How far others moved does not count: who is evaluated first is asked the same as who is evaluated last. ``fleet``,
    ``watched``, ``delta``, ``proposition_delta``: see ``settled``.
    """
    table = FleetTable(agents, fleet or {})
    rows, watched = table.fleet(), max(1, watched or len(table.agents))
    drops = tested(rows, watched=watched, delta=delta, proposition_delta=proposition_delta)
    mask = worth_asking(rows, drops, watched=watched)
    found: dict[str, dict[str, list[str]]] = {}
    for row in np.flatnonzero(mask):
        agent_id, dimension, claim = table.claims[row]
        item = agents[agent_id].comparison.dimensions[dimension]
        # A dimension whose coverage is too low is compared with nothing; only its claims may fall.
        if item.status in ("ok", "regressed") or any(drop.proposition_id == claim for drop in item.drops):
            found.setdefault(agent_id, {}).setdefault(dimension, []).append(claim)
    return found


def most_confirmations(judgments: Mapping[str, int], samples: int, times: int = CONFIRMATIONS) -> int:
    """Return how many judgments confirming could add at most: all agents and dimensions fallen.

    ``judgments``: planned judgments of each agent that has a baseline. ``samples``: judgments a claim among them.
    """
    return sum(judgments.values()) // max(1, samples) * times


def _write_tests(result: Mapping[str, BaselineComparison], table: FleetTable, drops: TestedDrops) -> None:
    low, high = interval(drops.dimensions)
    for row, (agent_id, dimension) in enumerate(table.dimensions):
        if agent_id not in result or not np.isfinite(drops.dimensions.drop[row]):
            continue
        item = result[agent_id].dimensions[dimension]
        item.interval = (-float(high[row]), -float(low[row]))
        item.p_value = float(drops.p_values.dimensions[row])
        item.sight = sight_of(drops.dimensions, drops.levels, row, drops.delta)
    low, high = interval(drops.claims)
    smallest = detectable(drops.claims, drops.claim_levels, drops.proposition_delta)
    for row, (agent_id, dimension, claim) in enumerate(table.claims):
        if agent_id in result and np.isfinite(drops.claims.drop[row]):
            result[agent_id].dimensions[dimension].claims[claim] = ClaimTest(
                delta=-float(drops.claims.fallen[row]),
                interval=(-float(high[row]), -float(low[row])),
                p_value=float(p) if np.isfinite(p := drops.p_values.claims[row]) else None,
                detectable=float(smallest[row]),
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
        f"dropped by {drop:.2f}, which judge noise and weekly variation may explain (p = {p_value:.2g}); more judgments a claim "
        "(--samples) or more windows in the baseline tell it apart"
    )
