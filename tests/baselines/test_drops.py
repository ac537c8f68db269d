"""When a drop is a regression: beyond its delta, and more than windows of baselines usually differ."""

from collections.abc import Mapping

import pytest

from persona_pipeline.base.options import RULES
from persona_pipeline.guard.baselines.golden import Watched, captured
from persona_pipeline.guard.baselines.models import Baseline, BaselineComparison, Compared, Power
from persona_pipeline.guard.baselines.regression import (
    YEAR,
    DropTest,
    Rules,
    compare,
    most_confirmations,
    settled,
    to_confirm,
    year_share,
)
from persona_pipeline.guard.baselines.statistics import LEVEL
from persona_pipeline.scoring.results import DimensionEvaluation
from tests.baselines.worlds import LEVELS, NAMES, NOW, Office, beside, dimension

DOWN = {"adherence": {key: level - 3.5 for key, level in LEVELS.items()}}
COLLAPSED = {"consistency": {"p2": 0.0}}
SAME = {"messages_hash": "then"}


def watched(*baselines: Baseline) -> Watched:
    return Watched(len(baselines), {item.agent_id: item for item in baselines})


def steady(windows: int, between: float, agent_id: str = "ann", level: float = 8.0) -> Baseline:
    """Return a baseline of three dimensions of five claims, whose windows differ by this standard deviation."""
    spread = {"windows": windows, **({"between": between} if windows > 1 else {})}
    known = {**spread, "claims": dict.fromkeys(LEVELS, spread), "messages_hash": "then"}
    return Baseline(
        agent_id=agent_id, captured_at=NOW, dimensions=dict.fromkeys(NAMES, level),
        proposition_scores={name: dict.fromkeys(LEVELS, level) for name in NAMES},
        provenance={"dimensions": dict.fromkeys(NAMES, known)},
    )  # fmt: skip


def window_of(drops: Mapping[str, Mapping[str, float]]) -> dict[str, DimensionEvaluation]:
    """Return a window in which claims dropped by so much from 8."""
    return {name: dimension(name, {key: [8.0 - drops.get(name, {}).get(key, 0.0)] for key in LEVELS}) for name in NAMES}


def compared(
    baseline: Baseline, drops: Mapping[str, Mapping[str, float]], *others: Baseline, agents: int = 0
) -> BaselineComparison:
    """Return what is said of such a window."""
    known = watched(baseline, *others)
    return settled(beside(baseline, window_of(drops)), Watched(agents or known.count, known.baselines))


@pytest.mark.parametrize("windows", [1, 4])
def test_an_unchanged_agent_has_no_regression(windows: int) -> None:
    office = Office(1, week=0.5)
    baseline = office.baseline(windows=windows)
    assert sum(settled(beside(baseline, office.window()), watched(baseline)).regressed for _ in range(20)) <= 1


@pytest.mark.parametrize(
    ("levels", "dimensions", "claims"),
    [(DOWN, ["adherence"], []), (COLLAPSED, [], ["p2"])],
    ids=["a dimension drops by 3.5", "a claim collapses"],
)
@pytest.mark.parametrize("windows", [1, 4])
def test_a_drop_is_found_by_name(windows: int, levels: dict, dimensions: list[str], claims: list[str]) -> None:
    office = Office(2, week=0.3, judge=0.5)
    baseline = office.baseline(windows=windows)
    result = settled(beside(baseline, office.window(levels)), watched(baseline))
    assert [item.dimension for item in result.regressions if item.dimension in dimensions] == dimensions
    assert [drop.proposition_id for drop in result.drops if not dimensions] == claims
    for item in result.regressions:
        found = result.dimensions[item.dimension]
        assert found.interval and found.interval[0] < (item.delta or 0.0) < found.interval[1] < 0
        assert found.p_value is not None and found.p_value < LEVEL


@pytest.mark.parametrize(
    ("drop", "agents", "regressed", "undecided"),
    [
        pytest.param(2.9, 1, False, False, id="within its delta"),
        pytest.param(4.9, 20, False, False, id="not shown"),
        pytest.param(5.1, 20, False, True, id="too large to ignore, not shown"),
        pytest.param(8.0, 1, True, False, id="shown"),
    ],
)
def test_a_claim_beyond_five_points_is_never_green(drop: float, agents: int, regressed: bool, undecided: bool) -> None:
    result = compared(steady(1, 0.0), {"adherence": {"p0": drop}}, agents=agents)
    item = result.dimensions["adherence"]
    assert ([row.proposition_id for row in item.drops] == ["p0"]) is regressed
    assert ([row.proposition_id for row in item.undecided_claims] == ["p0"]) is undecided
    assert any("adherence/p0" in text for text in result.warnings) is (not regressed and drop > 3)


@pytest.mark.parametrize(
    ("drop", "status"), [(0.9, "ok"), (2.0, "ok"), (2.6, "undecided"), (6.0, "regressed")], ids=lambda value: str(value)
)
def test_a_dimension_beyond_two_and_a_half_points_is_never_green(drop: float, status: str) -> None:
    result = compared(steady(1, 0.0), {"adherence": dict.fromkeys(LEVELS, drop)}, agents=40)
    assert result.dimensions["adherence"].status == status


# What drops by how much, of how many agents, so that a rule decides about it.
RULED = {
    "regression_delta": (dict.fromkeys(LEVELS, 2.9), 1),
    "proposition_delta": ({"p0": 8.0}, 1),
    "undecided_delta": (dict.fromkeys(LEVELS, 2.6), 40),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_of_one_dimension_decides_there_alone(name: str) -> None:
    assert name in RULED, f"add a drop that {name} decides about to RULED"
    drop, agents = RULED[name]
    now = {each: dimension(each, {key: [8.0 - drop.get(key, 0.0)] for key in LEVELS}) for each in NAMES}
    rules, baseline = Rules(by_dimension={"fluency": {name: 9.0}}), steady(1, 0.0)
    by_size = Compared(compare("ann", now, baseline, rules), now, baseline, {"messages_hash": "now"})
    found = settled(by_size, Watched(agents, {"ann": baseline}), rules).dimensions
    held = {each: item.status == "ok" and not item.drops for each, item in found.items()}
    assert held == {each: each == "fluency" for each in NAMES}


def test_claims_of_a_dimension_that_fell_are_named_without_further_proof() -> None:
    result = compared(steady(1, 0.0), {"adherence": {**dict.fromkeys(LEVELS, 8.0), "p0": 3.5}})
    assert {drop.proposition_id for drop in result.drops} == set(LEVELS)
    assert next(drop.p_value or 0 for drop in result.drops if drop.proposition_id == "p0") >= LEVEL


@pytest.mark.parametrize("claims", [1, 2, 3, 5])
@pytest.mark.parametrize("spread", ["one dimension", "several"])
@pytest.mark.parametrize("agents", [1, 4, 20])
def test_the_more_claims_collapse_the_less_green_it_is(claims: int, spread: str, agents: int) -> None:
    places = [(NAMES[n % 3 if spread == "several" else 0], key) for n, key in enumerate(LEVELS)][:claims]
    drops = {name: {key: 8.0 for own, key in places if own == name} for name in NAMES}
    result = compared(steady(1, 0.0), drops, agents=agents)
    told = {(drop.dimension, drop.proposition_id) for drop in result.drops}
    told |= {
        (item.dimension, drop.proposition_id) for item in result.dimensions.values() for drop in item.undecided_claims
    }
    assert told == set(places)


def test_the_same_messages_and_no_baseline_have_no_test() -> None:
    office = Office(4, week=1.5)
    baseline = office.baseline(windows=1)
    item = beside(baseline, office.window(DOWN), SAME)
    assert settled(item) == item.comparison and item.comparison.regressed
    item = beside(None, office.window())
    assert settled(item) == item.comparison


@pytest.mark.parametrize(
    "known", [{}, {"samples": 5, "spread": dict.fromkeys(LEVELS, 0.8)}], ids=["four keys", "spreads"]
)
def test_old_golden_files_are_tested_too(known: dict) -> None:
    baseline = steady(1, 0.0).model_copy(
        update={
            "provenance": {"dimensions": {key: {**known, "window_end": "2026-05-01T00:00:00+00:00"} for key in NAMES}}
        }
    )
    assert not compared(baseline, {}).regressed
    assert [drop.proposition_id for drop in compared(baseline, {"adherence": {"p2": 8.0}}).drops] == ["p2"]


def test_a_baseline_of_restless_windows_explains_more() -> None:
    drops = {"adherence": dict.fromkeys(LEVELS, 2.0)}
    assert compared(steady(8, 0.2), drops).dimensions["adherence"].status == "regressed"
    restless = compared(steady(8, 1.5), drops)
    assert restless.dimensions["adherence"].status == "ok"
    assert "judge noise and weekly variation may explain" in restless.warnings[0]


def test_other_baselines_widen_the_limits_of_one_window_by_a_bounded_factor() -> None:
    wild = [steady(8, 6.0, f"a{number}") for number in range(3)]
    alone = compared(steady(1, 0.0), {}, agents=4).dimensions["adherence"].power
    among = compared(steady(1, 0.0), {}, *wild).dimensions["adherence"].power
    assert alone and among
    assert alone.detectable < among.detectable <= 1.4 * alone.detectable + 1e-9
    calm = compared(steady(1, 0.0), {}, *(steady(8, 0.0, f"a{number}") for number in range(3)))
    assert calm.dimensions["adherence"].power == alone, "nobody else's steady weeks narrow them"
    steadier, restless = (compared(steady(8, own), {}, *wild).dimensions["adherence"].power for own in (0.2, 6.0))
    assert steadier and restless and restless.detectable > 1.3 * steadier.detectable, "its own weeks count for it"


@pytest.mark.parametrize(
    ("power", "shown", "said"),
    [
        (Power(detectable=2.0), "2.0", "smallest detectable drop 2.0"),
        (Power(detectable=2.01), "2.0", "drops below 2.0 would be missed"),
        (Power(detectable=9.0, windows_needed=6), "9.0", "drops below 9.0 would be missed; to detect 2.0: 6 windows"),
        (Power(detectable=9.01), ">9", "any drop would be missed"),
    ],
)
def test_what_would_be_missed_is_said(power: Power, shown: str, said: str) -> None:
    assert power.shown == shown and said in power.text


def test_more_windows_and_fewer_tests_detect_smaller_drops() -> None:
    powers = [DropTest.of(0.2, windows, level).detectable(1.0) for windows, level in ((1, 1e-4), (4, 1e-4), (4, 1e-2))]
    assert powers == sorted(powers, reverse=True)
    needed = DropTest.of(0.2, 1, 1e-2).power(1.0).windows_needed
    assert needed and DropTest.of(0.2, needed, 1e-2).detectable(1.0) <= 2.0 < DropTest.of(
        0.2, needed - 1, 1e-2
    ).detectable(1.0)


def test_a_year_spends_its_level_once() -> None:
    shares = [year_share(week) for week in range(1, YEAR + 1)]
    assert sum(shares) == pytest.approx(1.0)
    assert shares[0] == 0.5 and len(set(shares[1:])) == 1
    assert [year_share(YEAR + 1), year_share(YEAR + 2)] == shares[:2], "each year starts again"


@pytest.mark.parametrize(
    ("drops", "asked"),
    [
        ({}, {}),
        ({"adherence": {"p0": 4.0}}, {"adherence": ["p0"]}),
        ({"adherence": dict.fromkeys(LEVELS, 2.0)}, {"adherence": [*LEVELS]}),
        ({"adherence": dict.fromkeys(LEVELS, 8.0)}, {"adherence": [*LEVELS]}),
    ],
    ids=["nothing dropped", "a claim", "a dimension", "all at 0"],
)
def test_what_dropped_is_judged_again(drops: dict[str, dict[str, float]], asked: dict[str, list[str]]) -> None:
    assert to_confirm(beside(steady(1, 0.0), window_of(drops))) == asked


@pytest.mark.parametrize("fallen", [["p1"], ["p1", "p2"], [*LEVELS]], ids=len)
def test_of_a_dimension_of_which_too_little_was_judged_only_claims_that_fell_are_asked_again(fallen: list[str]) -> None:
    baseline = captured("ann", Office(15).window(), {}, now=NOW)
    half = {key: [0.0 if key in fallen else level] for key, level in LEVELS.items()}
    item = beside(baseline, {"adherence": dimension("adherence", half, n_scored=1, n_expected=5)})
    assert item.comparison.dimensions["adherence"].status == "incomplete"
    assert to_confirm(item) == {"adherence": fallen}


@pytest.mark.parametrize(
    ("judgments", "samples", "most"), [({"a": 7}, 2, 15), ({"a": 7, "b": 3}, 2, 25), ({"a": 7}, 0, 35), ({}, 3, 0)]
)
def test_confirming_adds_at_most_so_many_judgments(judgments: dict[str, int], samples: int, most: int) -> None:
    assert most_confirmations(judgments, samples) == most
