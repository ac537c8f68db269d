"""When a drop is a regression: strict, on unrounded values, and never through a missing score."""

import contextlib
import math
from typing import Any

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.guard.baselines.models import Baseline, DimensionComparison
from persona_pipeline.guard.baselines.regression import (
    Rules,
    check_option,
    compare,
    dropped,
    not_shown,
)
from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult


def golden(dimensions: dict[str, float], propositions: dict[str, dict[str, float]] | None = None, **known) -> Baseline:
    return Baseline(
        agent_id="ann",
        captured_at="2026-03-01T00:00:00Z",  # pyright: ignore[reportArgumentType]
        dimensions=dimensions,
        proposition_scores=propositions or {},
        provenance={"dimensions": dict.fromkeys(dimensions, known)} if known else {},
    )


def evaluated(
    score: float | None, propositions: dict[str, float | None] | None = None, **values
) -> DimensionEvaluation:
    rows = {
        key: PropositionResult(
            id=key, claim=f"claim {key}", score=value, unscored=None if value is not None else "timeout",
            algorithmic=key.startswith("_"),
        )
        for key, value in (propositions or {}).items()
    }  # fmt: skip
    count = len(rows) or 1
    values = {"n_scored": sum(r.score is not None for r in rows.values()) or count, "n_expected": count, **values}
    return DimensionEvaluation(
        dimension="adherence",
        score=score,
        unscored=None if score is not None else "timeout",
        propositions=rows,
        **values,
    )


@pytest.mark.parametrize(
    ("now", "before", "delta", "fell"),
    [
        (6.0, 7.0, 1.0, False),
        (6.0 - 1e-10, 7.0, 1.0, False),
        (6.0 - 1e-8, 7.0, 1.0, True),
        (9.0, 7.0, 1.0, False),
        (-1e-9, 0.0, 0.0, False),
        (-1.1e-9, 0.0, 0.0, True),
        (math.nan, 7.0, 1.0, True),
        (7.0, math.nan, 1.0, True),
    ],
)
def test_exactly_the_delta_is_allowed_and_what_is_no_number_never_passes(
    now: float, before: float, delta: float, fell: bool
) -> None:
    assert dropped(now, before, delta) is fell


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        *(("regression_delta", value, True) for value in (0.0, 1.0, 9.0)),
        *(("regression_delta", value, False) for value in (True, -0.1, math.nan, math.inf, -math.inf)),
        *(("min_coverage", value, value <= 1) for value in (0.0, 1.0, 1.01)),
        ("samples", 0, False),
    ],
)
def test_options_have_bounds(name: str, value: float, allowed: bool) -> None:
    with contextlib.nullcontext() if allowed else pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} must"):
        check_option(name, value)


@pytest.mark.parametrize(
    ("rules", "match"),
    [
        ({"regression_delta": -1.0}, "finite number"),
        ({"proposition_delta": -1.0}, "finite number"),
        ({"undecided_delta": -1.0}, "--undecided-delta must"),
        ({"min_coverage": 1.1}, "--min-coverage must"),
        ({"by_dimension": {"fluency": {"regression_delta": -1.0}}}, "finite number"),
        ({"by_dimension": {"fluncy": {"regression_delta": 1.0}}}, "did you mean 'fluency'"),
    ],
)
def test_rules_that_cannot_be_are_refused(rules: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Rules(**rules)


def test_each_dimension_gets_the_status_it_deserves() -> None:
    comparison = compare(
        "ann",
        {
            "adherence": evaluated(5.0),
            "consistency": evaluated(None),
            "fluency": evaluated(9.0),
            "convergence": evaluated(2.0, {"p": 2.0, "q": None}),
            "ideas_quantity": evaluated(7.5),
        },
        golden({"convergence": 8.0, "adherence": 7.0, "consistency": 7.0, "ideas_quantity": 8.0}),
    )
    assert {name: item.status for name, item in comparison.dimensions.items()} == {
        "convergence": "incomplete",
        "adherence": "regressed",
        "consistency": "unscored",
        "ideas_quantity": "ok",
        "fluency": "no_baseline",
    }
    assert [(item.dimension, item.delta) for item in comparison.regressions] == [("adherence", -2.0)]


@pytest.mark.parametrize(
    ("now", "golden_claims", "fell"),
    [
        ({"p": 5.0}, {"adherence": {"p": 8.0}}, []),
        ({"p": 4.99}, {"adherence": {"p": 8.0}}, ["p"]),
        ({"p": None}, {"adherence": {"p": 8.0}}, []),
        pytest.param({"_ngram": 0.0}, {"adherence": {"_ngram": 9.0}}, [], id="a computed row is no claim"),
        pytest.param({"p": 1.0}, {"": {"p": 8.0, "other": 1.0}}, ["p"], id="the flat form of old baselines"),
    ],
)
def test_a_claim_may_fall_three_points(now: dict, golden_claims: dict, fell: list[str]) -> None:
    comparison = compare("ann", {"adherence": evaluated(8.0, now)}, golden({"adherence": 8.0}, golden_claims))
    assert [drop.proposition_id for drop in comparison.drops] == fell
    assert comparison.warnings == []


def test_other_claims_are_warned_of() -> None:
    baseline = golden({"adherence": 8.0}, {"adherence": {"gone": 8.0, "p": 8.0}})
    [gone, new] = compare("ann", {"adherence": evaluated(8.0, {"p": 8.0, "new": 8.0})}, baseline).warnings
    assert gone.endswith("no longer evaluated: gone") and new.endswith("not in the baseline: new")


@pytest.mark.parametrize(
    ("scored", "expected", "least", "covered"),
    [
        (18, 19, 0.99, True),
        (17, 19, 0.99, False),
        (19, 20, 0.99, False),
        (19, 20, 0.95, True),
        (18, 19, 1.0, False),
        (0, 0, 1.0, True),
        (0, 1, 1.0, False),
        (1, 1, 1.0, True),
    ],
)
def test_one_failed_judgment_of_few_is_no_failed_run(scored: int, expected: int, least: float, covered: bool) -> None:
    items = [evaluated(5.0, n_scored=scored, n_expected=expected)]
    assert Rules(min_coverage=least).are_covered(items) is covered


@pytest.mark.parametrize(
    ("asked", "as_recorded", "least"),
    [
        pytest.param([(1, 0.8)], True, 0.8, id="what was asked for then is enough"),
        pytest.param([(1, 0.8)], False, 0.9, id="unless they are asked again"),
        pytest.param([(1, 0.95)], True, 0.9, id="or asked for more"),
        pytest.param([(1, 0.7), (2, 0.8)], True, 0.8, id="the strictest of several"),
        pytest.param([(1, 0.7), (0, 0.85)], True, 0.7, id="where nothing failed nothing was asked"),
        pytest.param([(1, 0.7), (1, None)], True, 0.9, id="one of which it is not known"),
        pytest.param([(0, 0.7)], True, 0.9, id="nothing failed"),
    ],
)
def test_recorded_failures_need_what_was_asked_for_then(asked: list, as_recorded: bool, least: float) -> None:
    items = []
    for failed, share in asked:
        items.append(evaluated(5.0, {"p": 5.0}, min_coverage=share))
        items[-1].propositions["p"].failed = {"timeout": failed} if failed else {}
    assert Rules(min_coverage=0.9, as_recorded=as_recorded).least_coverage(items) == least


@pytest.mark.parametrize(
    ("delta", "status"), [(None, "ok"), (2.5, "ok"), (-2.0, "ok"), (-2.0 - 1e-9, "ok"), (-2.0 - 2e-9, "undecided")]
)
def test_beyond_so_many_points_what_is_not_shown_is_undecided(delta: float | None, status: str) -> None:
    item = DimensionComparison(dimension="adherence", status="regressed", delta=delta)
    assert not_shown(item, 2.0) == status
    # As sums of floats would have it: 2.0 + 1e-9 is allowed, whatever the scale.
    assert not_shown(DimensionComparison(dimension="x", status="regressed", delta=-1e-9), 0.0) == "ok"
