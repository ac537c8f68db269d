"""Decide which drops are regressions: beyond the allowed drop, and larger than windows usually differ.

How much windows differ is learnt from baselines alone. The run that is judged never widens its own limits, and the scores of
one agent never widen those of another. So a lower score never makes a verdict better.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import PROPOSITION_DELTA, REGRESSION_DELTA, bounds_of, bounds_text
from persona_pipeline.base.settings import LIVE_COVERAGE, Settings
from persona_pipeline.base.shares import share_drop, share_of_counts
from persona_pipeline.guard.baselines.golden import Watched
from persona_pipeline.guard.baselines.models import (
    LOW_POWER,
    Baseline,
    BaselineComparison,
    ClaimTest,
    Compared,
    DimensionComparison,
    Power,
    PropositionDrop,
)
from persona_pipeline.guard.baselines.statistics import (
    CLAIMS_SHARE,
    DIMENSIONS_SHARE,
    LEVEL,
    Pooled,
    Windows,
    special,
    spread_of,
    variation_of,
)
from persona_pipeline.scoring.messages.verdicts import counts_by_conversation
from persona_pipeline.scoring.results import ANSWERS, DimensionEvaluation
from persona_pipeline.world.propositions.models import ADHERENCE, select_dimensions

# Judgments from which the share counts: below that one of them is more than the share.
COUNTED_FROM = 20
TOLERANCE = 1e-9
CONFIRMATIONS = 5
# Standard deviation of a window's score in points, assumed until baselines show more. No baseline lowers it for all agents.
DIMENSION_GUESS, CLAIM_GUESS = 0.45, 0.9
# Degrees of freedom that the guess counts for.
GUESS_DEGREES = 12
# Other baselines widen the limits of an agent with one baseline window by this factor at most.
MOST_WIDER = 1.4
# A claim that drops further than this is never green, however much its scores are said to vary.
UNDECIDED_CLAIM = 5.0
CONFIDENCE, POWER = 0.95, 0.8
MOST_WINDOWS = 26
WEEK, YEAR, FIRST_WEEK = timedelta(days=7), 52, 0.5


def dropped(current: float, baseline: float, delta: float) -> bool:
    """Return whether ``current < baseline - delta``, strictly, beyond 1e-9."""
    # NaN never counts as held.
    return not current >= baseline - delta - TOLERANCE


def check_option(name: str, value: float | None) -> None:
    """Check a number that may be asked for; ConfigError: it is not within the bounds that its option has."""
    if value is None:
        return
    least, most = bounds_of(name)
    if isinstance(value, bool) or not (least or 0.0) <= value <= (most or math.inf) or math.isinf(value):
        finite = "a finite number of " if most is None else ""
        raise ConfigError(f"--{name.replace('_', '-')} must be {finite}{bounds_text((least, most))}, not {value!r}")


def is_enough(scored: int, expected: int, least: float) -> bool:
    """Return whether at least ``least`` (0-1) of the expected judgments are scored; one of few may fail."""
    if least < 1 and expected < COUNTED_FROM and expected - scored <= 1:
        return True
    return expected == 0 or scored / expected >= least - TOLERANCE


@dataclass(frozen=True)
class Rule:
    """Points (0-9) that scores may drop.

    ``regression_delta``, ``proposition_delta``: of a dimension and of a claim. ``undecided_delta``: a dimension's drop beyond it
    is undecided where it is not significant. Raises ``ConfigError``: one of them is negative, or not a finite number.
    """

    regression_delta: float = REGRESSION_DELTA
    proposition_delta: float = PROPOSITION_DELTA
    undecided_delta: float = Settings.model_fields["undecided_delta"].default

    def __post_init__(self) -> None:
        for item in fields(Rule):
            check_option(item.name, getattr(self, item.name))


@dataclass(frozen=True)
class Rules(Rule):
    """Rules of a comparison.

    Attributes:
        by_dimension: other numbers of some dimensions, by name, as in ``Rule``.
        min_coverage: share (0-1) of judgments that must be scored; below 1, one failure among fewer than 20 is allowed.
        as_recorded: where all failures are recorded, the coverage of that time is enough.

    Raises ``ConfigError``: a value is invalid.
    """

    by_dimension: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    min_coverage: float = 1.0
    as_recorded: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option("min_coverage", self.min_coverage)
        for name in select_dimensions([*self.by_dimension]):
            self.of(name)

    def of(self, dimension: str) -> Rule:
        """Return the rule of a dimension."""
        usual = {item.name: getattr(self, item.name) for item in fields(Rule)}
        return Rule(**{**usual, **self.by_dimension.get(dimension, {})})

    def least_coverage(self, items: Iterable[DimensionEvaluation]) -> float:
        """Return the share (0-1) of these dimensions' judgments that must be scored."""
        asked = [item.min_coverage for item in items if item.failed]
        if not self.as_recorded or not asked or None in asked:
            return self.min_coverage
        return min(self.min_coverage, max(least for least in asked if least is not None))

    def are_covered(self, items: Collection[DimensionEvaluation]) -> bool:
        """Return whether enough of these dimensions' judgments are scored."""
        scored, expected = sum(item.n_scored for item in items), sum(item.n_expected for item in items)
        return is_enough(scored, expected, self.least_coverage(items))


def compare(
    agent_id: str,
    dimensions: Mapping[str, DimensionEvaluation],
    baseline: Baseline | None,
    rules: Rules | None = None,
) -> BaselineComparison:
    """Compare evaluated dimensions with the baseline by the size of drops."""
    golden, rules = baseline.dimensions if baseline else {}, rules or Rules()
    order = [name for name in golden if name in dimensions] + [name for name in dimensions if name not in golden]
    comparison = BaselineComparison(agent_id=agent_id)
    for name in order:
        evaluated, rule = dimensions[name], rules.of(name)
        item = DimensionComparison(dimension=name, status="ok", current=evaluated.score, baseline=golden.get(name))
        if item.current is None:
            item.status = "unscored"
        elif not rules.are_covered([evaluated]):
            item.status = "incomplete"
        elif item.baseline is None:
            item.status = "no_baseline"
        elif dropped(item.current, item.baseline, rule.regression_delta):
            item.status = "regressed"
        if item.current is not None and item.baseline is not None:
            item.delta = item.current - item.baseline
        if baseline is not None:
            item.drops = _drops(name, evaluated, baseline, rule.proposition_delta)
            item.lost = _lost(evaluated, rules.least_coverage([evaluated]))
        comparison.dimensions[name] = item
    if baseline is not None:
        comparison.warnings = _warnings(dimensions, baseline)
    return comparison


def _compare_messages(
    comparison: BaselineComparison, baseline: Baseline, adherence: DimensionEvaluation | None, agents: int
) -> None:
    """Compare the shares of messages in character, where the judge of the current verdicts gave those of the baseline too.

    ``agents``: number that is watched, over which the level is divided.
    """
    read = adherence.messages if adherence else None
    same = [item for item in baseline.messages if read and (item.model, item.prompt_version) == read.judged_by]
    if read is None or not same:
        return
    before = [counts for item in same for counts in item.conversations]
    comparison.in_character = share_of_counts(before)
    comparison.share_drop = share_drop(before, counts_by_conversation(read.verdicts), LEVEL / max(1, agents))


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


def _lost(evaluated: DimensionEvaluation, least: float) -> list[str]:
    # A claim without any judgment left may be the one that dropped. Only a lower coverage that was asked for lets it pass.
    if least < LIVE_COVERAGE - TOLERANCE:
        return []
    failed = (row for row in evaluated.propositions.values() if row.score is None and row.unscored not in ANSWERS)
    return [row.id for row in failed if row.weight > 0 and not row.algorithmic]


def _warnings(dimensions: Mapping[str, DimensionEvaluation], baseline: Baseline) -> list[str]:
    warnings = []
    for name, evaluated in dimensions.items():
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


# All agents of a fleet ask for the same few quantiles.
@lru_cache(4096)
def _quantile(degrees: int, share: float) -> float:
    return float(special().stdtrit(degrees, share))


@dataclass(frozen=True)
class DropTest:
    """One-sided test of a drop of a score.

    ``error``: standard deviation of the difference, with its degrees of freedom. ``level``: after all corrections.
    """

    error: float
    degrees: int
    level: float

    @classmethod
    def of(cls, variance: float, windows: int, level: float) -> "DropTest":
        """Return the test of a window against a baseline. ``variance``: of the score between windows."""
        return cls(math.sqrt(variance * (1 + 1 / windows)), GUESS_DEGREES - 1 + windows, level)

    def p_value(self, drop: float) -> float:
        """Return the corrected p-value of a drop, to be compared with ``LEVEL``."""
        return min(1.0, float(special().stdtr(self.degrees, -drop / self.error)) * LEVEL / self.level)

    def interval(self, change: float) -> tuple[float, float]:
        """Return the two-sided 95 % interval of a change."""
        reach = _quantile(self.degrees, (1 + CONFIDENCE) / 2) * self.error
        return change - reach, change + reach

    def detectable(self, allowed: float) -> float:
        """Return the drop that is reported in four of five runs: significant, and beyond the allowed drop."""
        needed = -_quantile(self.degrees, self.level)
        more = _quantile(self.degrees, POWER)
        return max((needed + more) * self.error, allowed + more * self.error)

    def power(self, allowed: float) -> Power:
        """Return what the test detects, and how many baseline windows would detect ``LOW_POWER`` points."""
        smallest, windows = self.detectable(allowed), self.degrees - GUESS_DEGREES + 1
        variance = self.error**2 / (1 + 1 / windows)
        more = range(windows + 1, MOST_WINDOWS + 1) if smallest > LOW_POWER else ()
        enough = (n for n in more if DropTest.of(variance, n, self.level).detectable(allowed) <= LOW_POWER)
        return Power(detectable=smallest, windows=windows, windows_needed=next(enough, None))


@dataclass(frozen=True)
class _Tests:
    """Tests of an agent.

    ``dimension_variance``, ``claim_variance``: of all baselines. ``dimensions``, ``claims``: the number of each in the agent's
    baseline. ``agents``: the number of watched agents.
    """

    dimension_variance: float
    claim_variance: float
    dimensions: int
    claims: int
    agents: int

    @classmethod
    def of(cls, baseline: Baseline, watched: Watched) -> "_Tests":
        """Return the tests of an agent, from its baseline and those of all watched agents."""
        own = variation_of(baseline)
        every = [*({**watched.variations, baseline.agent_id: own}).values()]
        keys = {(name, key) for name in baseline.dimensions for key in baseline.proposition_scores.get(name, ())}
        keys |= {("", key) for key in baseline.proposition_scores.get("", ())}
        return cls(
            _shared_variance([dimensions for dimensions, _ in every], DIMENSION_GUESS),
            _shared_variance([claims for _, claims in every], CLAIM_GUESS),
            dimensions=max(1, len(baseline.dimensions)),
            claims=max(1, sum(not key.startswith("_") for _, key in keys)),
            agents=max(1, watched.count),
        )

    def dimension(self, known: Windows, week: int) -> DropTest:
        """Return the test of a dimension. ``week``: since the baseline, 1 is the first."""
        level = LEVEL * DIMENSIONS_SHARE * year_share(week) / (self.dimensions * self.agents)
        return _test(known, self.dimension_variance, DIMENSION_GUESS, level)

    def claim(self, known: Windows, week: int) -> DropTest:
        """Return the test of a claim. ``week``: since the baseline, 1 is the first."""
        level = LEVEL * CLAIMS_SHARE * year_share(week) / (self.claims * self.agents)
        return _test(known, self.claim_variance, CLAIM_GUESS, level)

    @property
    def families(self) -> str:
        """What the tests are corrected for, in words."""
        own = f"Bonferroni over {self.dimensions} dimensions and {self.claims} claims"
        return f"{own}, and over {self.agents} agents" if self.agents > 1 else own


def _shared_variance(parts: list[Pooled], guess: float) -> float:
    pooled = sum(parts, Pooled())
    return max(guess**2, (GUESS_DEGREES * guess**2 + pooled.squares) / (GUESS_DEGREES + pooled.degrees))


def _test(known: Windows, shared: float, guess: float, level: float) -> DropTest:
    if known.windows < 2 or known.between is None:
        return DropTest.of(min(shared, (MOST_WIDER * guess) ** 2), 1, level)
    own = known.windows - 1
    variance = (GUESS_DEGREES * shared + own * known.between**2) / (GUESS_DEGREES + own)
    return DropTest.of(variance, known.windows, level)


def year_share(week: int) -> float:
    """Return the part of a year's level that a window may spend, by its week since the baseline (1 is the first).

    The first week has half of it, the others share the rest. Each year starts again.
    """
    return FIRST_WEEK if (week - 1) % YEAR < 1 else (1 - FIRST_WEEK) / (YEAR - 1)


def settled(item: Compared, watched: Watched | None = None, rules: Rules | None = None) -> BaselineComparison:
    """Return an agent's comparison with its drops tested against chance.

    A drop beyond its allowed size that is not significant becomes a warning. It is undecided as well where it is larger than the
    rule's ``undecided_delta`` (dimension) or ``UNDECIDED_CLAIM`` (claim). Where baseline and run judged the same messages, the size
    of the drop decides alone. ``item``: the comparison by size. ``watched``: the baselines of all agents.
    """
    rules, found = rules or Rules(), item.comparison.model_copy(deep=True)
    if item.baseline is None:
        return found
    watched, weeks = watched or Watched(), set[int]()
    tests = _Tests.of(item.baseline, watched)
    _compare_messages(found, item.baseline, item.dimensions.get(ADHERENCE.name), watched.count)
    for name, row in found.dimensions.items():
        evaluated, rule = item.dimensions.get(name), rules.of(name)
        if name not in item.baseline.dimensions or evaluated is None:
            continue
        if not same_messages(item.baseline, evaluated, item.provenance):
            weeks.add(week := weeks_since(item.baseline, name, item.provenance))
            _write_tests(row, evaluated, item.baseline, tests, week, rule)
        _decide(row, found.warnings, rule)
    if weeks:
        found.families = f"week {max(weeks)} of the year; {tests.families}"
    return found


def _write_tests(
    row: DimensionComparison,
    evaluated: DimensionEvaluation,
    baseline: Baseline,
    tests: _Tests,
    week: int,
    rule: Rule,
) -> None:
    known = spread_of(baseline, row.dimension)
    if row.delta is not None:
        test = tests.dimension(known, week)
        row.p_value, row.interval = test.p_value(-row.delta), test.interval(row.delta)
        row.power = test.power(rule.regression_delta)
    for key, before in golden_propositions(baseline, row.dimension).items():
        now = evaluated.propositions.get(key)
        if now is None or now.score is None or now.algorithmic:
            continue
        test, change = tests.claim(known.claims.get(key, Windows()), week), now.score - before
        row.claims[key] = ClaimTest(
            delta=change,
            interval=test.interval(change),
            p_value=test.p_value(-change),
        )


def _decide(row: DimensionComparison, warnings: list[str], rule: Rule) -> None:
    if row.status == "regressed" and row.p_value is not None and row.p_value >= LEVEL:
        row.status = not_shown(row, rule.undecided_delta)
        warnings.append(f"{row.dimension}: {_explained(-(row.delta or 0.0), row.p_value)}")
    drops, row.drops = row.drops, []
    for drop in drops:
        test = row.claims.get(drop.proposition_id)
        if test is None or test.p_value is None:
            row.drops.append(drop)
            continue
        drop = drop.model_copy(update={"interval": test.interval, "p_value": test.p_value})
        # A claim of a regressed dimension is part of that finding and needs no separate proof.
        if test.p_value < LEVEL or (row.status == "regressed" and test.interval[1] < 0):
            row.drops.append(drop)
        else:
            warnings.append(f"{row.dimension}/{drop.proposition_id}: {_explained(-drop.delta, test.p_value)}")
            # A drop that is not shown is undecided where it is too large to ignore.
            row.undecided_claims += [drop] if -drop.delta > UNDECIDED_CLAIM + TOLERANCE else []


def not_shown(row: DimensionComparison, undecided_delta: float) -> Literal["ok", "undecided"]:
    """Return the status of a dimension whose drop is not shown: undecided where the drop is too large to ignore."""
    return "undecided" if -(row.delta or 0.0) > undecided_delta + TOLERANCE else "ok"


def _explained(drop: float, p_value: float) -> str:
    return (
        f"dropped by {drop:.2f}, which judge noise and weekly variation may explain (p = {p_value:.2g}); more windows in the "
        "baseline tell it apart"
    )


def to_confirm(item: Compared) -> dict[str, list[str]]:
    """Return the claims to judge again by dimension: those beyond the allowed drop, and all claims of such a dimension.

    This depends on the size of drops alone, so a lower score never takes a claim off the list.
    """
    found = {}
    for name, row in item.comparison.dimensions.items():
        evaluated, claims = item.dimensions.get(name), [drop.proposition_id for drop in row.drops]
        if evaluated is not None and row.status == "regressed":
            judged = (part for part in evaluated.propositions.values() if not part.algorithmic and part.weight > 0)
            claims += [part.id for part in judged if part.score is not None and part.id not in claims]
        if claims:
            found[name] = claims
    return found


def most_confirmations(judgments: Mapping[str, int], samples: int) -> int:
    """Return the largest number of judgments that confirmation may add: all dimensions of all agents dropped.

    ``judgments``: planned judgments of each agent that has a baseline. ``samples``: judgments a claim among them.
    """
    return sum(judgments.values()) // max(1, samples) * CONFIRMATIONS


def same_messages(baseline: Baseline, evaluated: DimensionEvaluation, provenance: Mapping[str, Any] | None) -> bool:
    """Return whether the one window of a baseline has the messages that are judged now, whatever the claims are."""
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
    """Return the week after a dimension's baseline in which a window ends: 1 up to seven days after it, or where it is unknown."""
    known = baseline.provenance.get("dimensions", {}).get(dimension, {})
    ends = [item.get("window_end") for item in (known, provenance or {})]
    if None in ends:
        return 1
    before, now = (datetime.fromisoformat(str(end)) for end in ends)
    return max(1, -(-(now - before) // WEEK))
