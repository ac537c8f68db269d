"""Compare scores with a baseline by the size of the drop (spec/2), and check coverage. Deltas are of unrounded values."""

import math
from collections.abc import Collection, Iterable, Mapping

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import PROPOSITION_DELTA, REGRESSION_DELTA, bounds_of, bounds_text
from persona_pipeline.base.settings import LIVE_COVERAGE
from persona_pipeline.guard.baselines.models import (
    Baseline,
    BaselineComparison,
    DimensionComparison,
    PropositionDrop,
    Regression,
)
from persona_pipeline.scoring.results import ANSWERS, DimensionEvaluation

# Judgments from which the share counts: below that one of them is more than the share.
COUNTED_FROM = 20
TOLERANCE = 1e-9
CONFIRMATIONS = 5


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
            item.lost = _lost(evaluated, least_coverage([evaluated], min_coverage, as_recorded=as_recorded))
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


def _lost(evaluated: DimensionEvaluation, least: float) -> list[str]:
    # A claim without any judgment left may be the one that dropped. Only a lower coverage that was asked for lets it pass.
    if least < LIVE_COVERAGE - TOLERANCE:
        return []
    failed = (row for row in evaluated.propositions.values() if row.score is None and row.unscored not in ANSWERS)
    return [row.id for row in failed if row.weight > 0 and not row.algorithmic]


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


def most_confirmations(judgments: Mapping[str, int], samples: int, times: int = CONFIRMATIONS) -> int:
    """Return the largest number of judgments that confirmation may add: all dimensions of all agents dropped.

    ``judgments``: planned judgments of each agent that has a baseline. ``samples``: judgments a claim among them.
    """
    return sum(judgments.values()) // max(1, samples) * times
