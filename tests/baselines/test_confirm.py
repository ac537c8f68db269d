import math
import random
from datetime import UTC, datetime
from statistics import stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.baselines.confirm import (
    FAMILY_ALPHA,
    ROUNDING_SPREAD,
    Compared,
    JudgeNoise,
    PropositionPair,
    Sampled,
    confirmed,
    dimension_drop,
    drops_of,
    judge_noise,
    proposition_drop,
    settled,
)
from persona_pipeline.baselines.models import Baseline
from persona_pipeline.baselines.regression import compare
from persona_pipeline.baselines.statistics import welch
from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult

SAMPLES = st.lists(st.integers(0, 9), min_size=2, max_size=6)


def pair(before: list[float], after: list[float], weight: float = 1.0) -> PropositionPair:
    return PropositionPair("p", Sampled.of(before), Sampled.of(after), weight)


def test_samples_are_summarised() -> None:
    assert Sampled.of([8, 6, 7]) == Sampled(7.0, 3, 1.0)
    assert Sampled.of([8]) == Sampled(8.0, 1, None)
    with pytest.raises(ValueError, match="at least one judgment"):
        Sampled.of([])


def test_noise_is_pooled_over_what_was_judged_more_than_once() -> None:
    noise = judge_noise([pair([8, 6], [3]), pair([5], [2, 4, 6])])
    assert noise and noise.degrees == 3
    assert noise.spread == pytest.approx(math.sqrt((2 * 1 + 4 * 2) / 3))


def test_without_repeats_there_is_no_noise_to_test_against() -> None:
    assert judge_noise([pair([8], [3])]) is None
    assert judge_noise([]) is None


def test_a_judge_that_never_varies_still_rounds() -> None:
    noise = judge_noise([pair([8, 8], [7, 7])])
    assert noise and noise.spread == ROUNDING_SPREAD == pytest.approx(0.2887, abs=1e-4)


@given(SAMPLES, SAMPLES)
def test_one_proposition_of_equal_spread_is_the_pooled_t_test(before: list[int], after: list[int]) -> None:
    item = pair([float(x) for x in before], [float(x) for x in after])
    noise = judge_noise([item])
    assert noise
    found = proposition_drop(item, noise)
    assert found.mean_drop == pytest.approx(sum(before) / len(before) - sum(after) / len(after))
    assert found.low < found.mean_drop < found.high and 0 <= found.p_value <= 1
    if len(before) == len(after) and stdev(before) == stdev(after) > ROUNDING_SPREAD:
        # Equal sizes and spreads: Welch's test has the same t and the same degrees of freedom.
        two_sided = welch(before, after).p_value
        one_sided = two_sided / 2 if found.mean_drop >= 0 else 1 - two_sided / 2
        assert found.p_value == pytest.approx(one_sided, abs=1e-9)


def test_a_dimension_falls_by_the_weighted_mean_of_its_propositions() -> None:
    pairs = [pair([8, 8], [2, 2], weight=1.0), pair([8, 8], [8, 8], weight=3.0)]
    assert dimension_drop(pairs, JudgeNoise(1.0, 4)).mean_drop == pytest.approx(1.5)
    assert dimension_drop(pairs, JudgeNoise(1.0, 4), share=0.4).mean_drop == pytest.approx(0.6)


def test_unequal_drops_do_not_hide_a_drop() -> None:
    """The paired t-test over propositions takes their differences for noise: p 0.21 for this fall of 1.8 points."""
    pairs = [pair([8, 8, 8], [8, 8, 8]) for _ in range(3)] + [pair([8, 9, 7], [3, 4, 5]) for _ in range(2)]
    noise = judge_noise(pairs)
    assert noise and dimension_drop(pairs, noise).p_value < 1e-6


@given(st.floats(0.1, 1.0), st.integers(1, 30))
def test_the_computed_share_changes_drop_and_error_alike(share: float, degrees: int) -> None:
    pairs, noise = [pair([8, 7], [6, 6])], JudgeNoise(1.0, degrees)
    whole, part = dimension_drop(pairs, noise), dimension_drop(pairs, noise, share=share)
    assert part.p_value == pytest.approx(whole.p_value)
    assert part.high - part.low == pytest.approx(share * (whole.high - whole.low))


@pytest.mark.parametrize("pairs", [[], [pair([8], [3], weight=0.0)]], ids=["no propositions", "no weight"])
def test_a_dimension_needs_a_weighted_proposition(pairs: list[PropositionPair]) -> None:
    with pytest.raises(ValueError, match="weight above 0"):
        dimension_drop(pairs, JudgeNoise(1.0, 4))


def test_one_clear_drop_among_many_is_confirmed_and_the_others_are_not() -> None:
    noise = JudgeNoise(1.0, 40)
    tests = {f"quiet-{i}": proposition_drop(pair([7, 8], [7, 7]), noise) for i in range(79)}
    tests["collapsed"] = proposition_drop(pair([8, 8, 8, 8, 8], [0, 0, 0, 0, 0, 0]), noise)
    assert confirmed(tests).keys() == {"collapsed"}


def test_what_would_be_significant_alone_is_not_as_one_of_many() -> None:
    noise = JudgeNoise(1.0, 40)
    suspicious = proposition_drop(pair([8, 8, 8], [6, 6, 6]), noise)
    assert confirmed({"one": suspicious}).keys() == {"one"}
    calm = proposition_drop(pair([8, 8], [8, 8]), noise)
    assert not confirmed({"one": suspicious, **{str(i): calm for i in range(79)}})


def test_nothing_compared_confirms_nothing() -> None:
    assert confirmed({}) == {}


def test_false_alarms_of_a_family_stay_below_its_level() -> None:
    generator = random.Random(7)

    def judged(truth: float, count: int) -> list[float]:
        return [float(min(9, max(0, round(generator.gauss(truth, 1.0))))) for _ in range(count)]

    alarms, runs = 0, 150
    for _ in range(runs):
        tests = {}
        for dimension in range(8):
            pairs = [pair(judged(7, 5), judged(7, 6)) for _ in range(5)]
            noise = judge_noise(pairs)
            assert noise
            tests[dimension] = dimension_drop(pairs, noise)
        alarms += bool(confirmed(tests))
    # 2.5 % of 150 runs is 3.75; eleven or more happen once in 500 tries.
    assert alarms <= 10


def evaluated(samples: dict[str, list[float]]) -> DimensionEvaluation:
    rows = {
        key: PropositionResult(
            id=key,
            claim="c",
            score=sum(values) / len(values),
            samples=values,
            spread=stdev(values) if len(values) > 1 else None,
        )
        for key, values in samples.items()
    }
    rows["_ngram"] = PropositionResult(id="_ngram", claim="c", algorithmic=True, score=1.0)
    rows["gone"] = PropositionResult(id="gone", claim="c", unscored="timeout")
    return DimensionEvaluation(dimension="adherence", score=5.0, propositions=rows)


def baseline(scores: dict[str, float], **provenance: Any) -> Baseline:
    return Baseline(
        agent_id="jim",
        captured_at=datetime(2026, 6, 1, tzinfo=UTC),
        dimensions={"adherence": 8.0},
        proposition_scores={"adherence": scores},
        provenance={"dimensions": {"adherence": provenance}} if provenance else {},
    )


def test_an_evaluation_is_tested_against_what_its_baseline_says_of_itself() -> None:
    golden = baseline({"a": 8.0, "b": 7.0, "_ngram": 9.0, "gone": 9.0}, samples=5, spread={"a": 0.5, "b": 1.0})
    found = drops_of(evaluated({"a": [2.0, 3.0, 1.0], "b": [7.0, 7.0, 7.0], "new": [1.0]}), golden)
    assert found and found.propositions.keys() == {"a", "b"}
    # The dimension fell from 8 to 5, its computed part included.
    assert found.dimension.mean_drop == pytest.approx(3.0)
    assert found.propositions["a"].mean_drop == pytest.approx(6.0)
    assert found.propositions["a"].p_value < 0.001 < 0.4 < found.propositions["b"].p_value


def test_a_baseline_that_was_judged_once_makes_the_test_harder() -> None:
    now = evaluated({"a": [4.0, 5.0, 3.0, 4.0, 4.0, 4.0]})
    once, five = drops_of(now, baseline({"a": 8.0})), drops_of(now, baseline({"a": 8.0}, samples=5))
    assert once and five and once.dimension.p_value > five.dimension.p_value
    assert once.dimension.high - once.dimension.low > five.dimension.high - five.dimension.low


@pytest.mark.parametrize(
    ("samples", "scores"),
    [({"a": [3.0]}, {"a": 8.0}), ({"a": [3.0, 4.0]}, {"other": 8.0}), ({}, {})],
    ids=["judged once, then and now", "nothing in both", "nothing"],
)
def test_where_there_is_nothing_to_test_there_is_no_test(
    samples: dict[str, list[float]], scores: dict[str, float]
) -> None:
    assert drops_of(evaluated(samples), baseline(scores)) is None


def compared(samples: dict[str, list[float]], score: float, golden: Baseline | None) -> Compared:
    now = evaluated(samples).model_copy(update={"score": score})
    dimensions = {"adherence": now}
    return Compared(compare("jim", dimensions, golden, min_coverage=0.0), dimensions, golden)


COLLAPSED = {"a": [0.0, 1.0, 0.0, 0.0, 1.0, 0.0], "b": [7.0, 8.0, 7.0, 8.0, 7.0, 8.0]}
NOISY = {"a": [1.0, 8.0, 2.0], "b": [3.0, 9.0, 5.0]}
GOLDEN = {"a": 8.0, "b": 7.5, "gone": 9.0}


def test_a_collapse_stays_a_drop_and_gets_an_interval() -> None:
    item = compared(COLLAPSED, 3.9, baseline(GOLDEN, samples=5, spread={"a": 0.5, "b": 0.5}))
    result = settled({"jim": item})["jim"]
    dimension = result.dimensions["adherence"]
    assert [drop.proposition_id for drop in result.drops] == ["a"] and dimension.status == "regressed"
    assert dimension.interval and dimension.interval[0] < 3.9 - 8.0 < dimension.interval[1] < -1
    assert dimension.p_value is not None and dimension.p_value < FAMILY_ALPHA and not result.warnings


def test_what_the_noise_may_explain_becomes_a_warning() -> None:
    item = compared(NOISY, 4.67, baseline(GOLDEN))
    assert item.comparison.regressions and item.comparison.drops
    result = settled({"jim": item})["jim"]
    assert not result.regressed and result.dimensions["adherence"].status == "ok"
    assert [warning.split(":")[0] for warning in result.warnings] == ["adherence", "adherence/a"]
    # The comparison that came in is left as it was.
    assert item.comparison.regressed


def test_the_more_is_compared_the_less_a_single_drop_counts() -> None:
    golden = baseline(GOLDEN, samples=3, spread={"a": 1.0, "b": 1.0})
    suspect = compared({"a": [4.0, 5.0, 3.0], "b": [7.0, 8.0, 7.0]}, 5.7, golden)
    calm = compared({"a": [8.0, 7.0, 9.0], "b": [7.0, 8.0, 7.0]}, 8.0, golden)
    alone = settled({"jim": suspect})["jim"].dimensions["adherence"].p_value
    many = settled({"jim": suspect} | {f"calm-{i}": calm for i in range(30)})["jim"].dimensions["adherence"].p_value
    assert alone is not None and many is not None and alone < many


@pytest.mark.parametrize("golden", [None, baseline(GOLDEN)], ids=["no baseline", "judged once, then and now"])
def test_without_a_test_the_deltas_decide(golden: Baseline | None) -> None:
    item = compared({"a": [1.0], "b": [1.0]}, 1.0, golden)
    assert settled({"jim": item}) == {"jim": item.comparison}
