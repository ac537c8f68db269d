"""When a drop is a fall: beyond its delta, and more than judge and week explain."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from persona_pipeline.guard.baselines import falls
from persona_pipeline.guard.baselines.falls import (
    CONFIRMATIONS,
    _judge,
    most_confirmations,
    settled,
    to_confirm,
)
from persona_pipeline.guard.baselines.models import Baseline, ClaimTest, DimensionComparison, PropositionDrop
from persona_pipeline.guard.baselines.statistics import LEVEL, Corrected
from tests.baselines.test_detectable import drops
from tests.baselines.worlds import LEVELS, NAMES, NOW, Office, beside, dimension

DOWN = {"adherence": {key: level - 2.5 for key, level in LEVELS.items()}}
COLLAPSED = {"consistency": {"p2": 0.0}}
SAME = {"messages_hash": "then"}


def test_what_did_not_change_is_no_fall() -> None:
    office = Office(1, week=0.8)
    fleet = {f"a{number}": office.baseline(f"a{number}") for number in range(4)}
    alarms = sum(settled({"a0": beside(fleet["a0"], office.window())}, fleet=fleet)["a0"].regressed for _ in range(20))
    assert alarms <= 1


@pytest.mark.parametrize(
    ("levels", "dimensions", "claims"),
    [
        pytest.param(DOWN, ["adherence"], 0, id="a dimension falls by 2.5"),
        pytest.param(COLLAPSED, ["consistency"], 1, id="a claim collapses"),
    ],
)
def test_what_fell_is_found_by_name(levels: dict, dimensions: list[str], claims: int) -> None:
    office = Office(2, week=0.3)
    fleet = {f"a{number}": office.baseline(f"a{number}") for number in range(4)}
    result = settled({"a0": beside(fleet["a0"], office.window(levels))}, fleet=fleet)["a0"]
    assert [item.dimension for item in result.regressions] == dimensions
    assert len(result.drops) >= claims
    for item in result.regressions:
        found = result.dimensions[item.dimension]
        assert found.interval and found.interval[0] < item.delta < found.interval[1] < 0
        assert found.p_value is not None
        assert found.p_value < LEVEL
    for drop in result.drops:
        assert drop.interval is not None
        assert drop.interval[1] < 0


def test_claims_of_a_dimension_that_fell_are_named_without_further_proof() -> None:
    """In one window judged once, a character that is gone makes every claim of its own look restless."""
    office = Office(21, samples=1)
    gone = {name: {key: 0.5 * number for number, key in enumerate(LEVELS)} for name in NAMES}
    result = settled({"ann": beside(office.baseline(windows=1), office.window(gone))})["ann"]
    assert {item.dimension for item in result.regressions} == set(NAMES)
    assert len(result.drops) >= 9
    assert any((drop.p_value or 0) >= LEVEL for drop in result.drops)


def test_a_restless_week_hides_what_a_quiet_one_shows() -> None:
    quiet, restless = Office(3, week=0.1, judge=0.3), Office(3, week=2.0)
    levels = {"adherence": {key: level - 2.0 for key, level in LEVELS.items()}}
    found = {}
    for name, office in (("quiet", quiet), ("restless", restless)):
        item = beside(office.baseline(windows=6), quiet.window(levels))
        assert "adherence" in [fall.dimension for fall in item.comparison.regressions], "beyond the delta"
        found[name] = settled({"ann": item})["ann"]
    assert found["quiet"].regressed
    assert not found["restless"].regressed
    assert "judge noise and weekly variation may explain" in found["restless"].warnings[0]


def test_the_same_messages_have_no_week() -> None:
    office = Office(4, week=1.5)
    one = office.baseline(windows=1)
    now = office.window()
    same = settled({"ann": beside(one, now, SAME)})["ann"].dimensions["adherence"]
    other = settled({"ann": beside(one, now)})["ann"].dimensions["adherence"]
    assert same.sight and same.sight.week_from == "same messages"
    assert same.sight.week == 0
    assert other.sight and other.sight.week_from == "this run"
    assert other.sight.detectable > same.sight.detectable


@pytest.mark.parametrize(
    ("own", "others", "says"),
    [
        (6, 6, "own windows"),
        (2, 6, "own windows and the fleet's"),
        (1, 6, "the fleet's windows"),
        (1, 1, "this run"),
    ],
)
def test_the_result_says_where_the_week_was_learnt(own: int, others: int, says: str) -> None:
    office = Office(5, week=0.5)
    fleet = {
        "ann": office.baseline("ann", own),
        "bob": office.baseline("bob", others),
        "cyd": office.baseline("cyd", others),
        "dan": office.baseline("dan", others),
    }
    result = settled({"ann": beside(fleet["ann"], office.window())}, fleet=fleet)["ann"]
    assert {item.sight.week_from for item in result.dimensions.values() if item.sight} == {says}


def test_where_nothing_is_known_the_deltas_decide() -> None:
    once = Office(6, samples=1)
    item = beside(once.baseline(windows=1), once.window({"adherence": dict.fromkeys(LEVELS, 1.0)}), SAME)
    assert item.comparison.regressed
    result = settled({"ann": item})
    assert result == {"ann": item.comparison}
    assert result["ann"].families == ""


def test_without_a_baseline_there_is_nothing_to_settle() -> None:
    item = beside(None, Office(7).window())
    assert settled({"ann": item}) == {"ann": item.comparison}


def test_old_golden_files_are_tested_too() -> None:
    """One window with a spread a claim, as they were written before windows were counted; and the four keys alone."""
    office = Office(8)
    known = {"samples": 5, "spread": dict.fromkeys(LEVELS, 0.8), "window_end": "2026-06-01T00:00:00+00:00"}
    plain = Baseline(
        agent_id="ann",
        captured_at=NOW,
        dimensions=dict.fromkeys(NAMES, 6.8),
        proposition_scores={name: dict(LEVELS) for name in NAMES},
    )
    older = plain.model_copy(update={"provenance": {"dimensions": dict.fromkeys(NAMES, known)}})
    for baseline in (plain, older):
        calm = settled({"ann": beside(baseline, office.window())})["ann"]
        fallen = settled({"ann": beside(baseline, office.window(COLLAPSED))})["ann"]
        assert calm.families and not calm.regressed
        assert [drop.proposition_id for drop in fallen.drops] == ["p2"]


def test_who_is_in_the_run_changes_no_answer() -> None:
    office = Office(9, week=0.5)
    fleet = {f"a{number}": office.baseline(f"a{number}") for number in range(5)}
    run = {agent_id: beside(fleet[agent_id], office.window(DOWN if agent_id == "a3" else None)) for agent_id in fleet}
    together = settled(run, fleet=fleet)
    apart = {agent_id: settled({agent_id: item}, fleet=fleet)[agent_id] for agent_id, item in run.items()}
    for agent_id, item in together.items():
        # Sums in another order differ in their last digit.
        assert item.p_value == pytest.approx(apart[agent_id].p_value)
        assert item.regressed == apart[agent_id].regressed == (agent_id == "a3")
        for name, found in item.dimensions.items():
            assert found.interval == pytest.approx(apart[agent_id].dimensions[name].interval)


def test_many_watched_agents_are_named_as_such() -> None:
    office = Office(10)
    fleet = {f"a{number}": office.baseline(f"a{number}", 2) for number in range(22)}
    run = {agent_id: beside(fleet[agent_id], office.window(DOWN)) for agent_id in ("a0", "a1")}
    known = settled(run, fleet=fleet)
    assert "Benjamini-Hochberg at 5% over 22 agents" in known["a0"].families
    helped = settled(run, fleet=fleet, others={f"a{number}": 1e-9 for number in range(2, 22)})
    before, after = (result["a0"].dimensions["adherence"].p_value for result in (known, helped))
    assert before is not None and after is not None and after < before


def test_only_what_could_change_the_answer_is_asked_again() -> None:
    office = Office(11, week=0.3)
    fleet = {"ann": office.baseline("ann"), "bob": office.baseline("bob")}
    asked = to_confirm({"ann": beside(fleet["ann"], office.window())}, fleet=fleet)
    assert asked == {}
    one = Office(12, week=0.3, samples=1).window(COLLAPSED)
    asked = to_confirm({"ann": beside(fleet["ann"], one)}, fleet=fleet)["ann"]
    assert "p2" in asked["consistency"], "a single verdict is never the last word"
    assert asked.keys() == {"consistency"}
    many = Office(12, week=0.3, samples=15).window(COLLAPSED)
    assert to_confirm({"ann": beside(fleet["ann"], many)}, fleet=fleet) == {}, (
        "fifteen verdicts of 0 leave nothing open"
    )


def test_what_the_week_hides_whatever_the_judge_says_is_not_asked() -> None:
    restless, quiet = Office(13, week=2.5), Office(13, judge=0.3)
    item = beside(restless.baseline(windows=6), quiet.window({"adherence": {k: v - 1.5 for k, v in LEVELS.items()}}))
    assert item.comparison.dimensions["adherence"].status == "regressed"
    assert to_confirm({"ann": item}) == {}


def test_the_estimate_holds_the_worst_case() -> None:
    office = Office(14, week=0.2, samples=1)
    baseline = office.baseline(windows=1)
    asked = to_confirm({"ann": beside(baseline, office.window({name: dict.fromkeys(LEVELS, 0.0) for name in NAMES}))})
    judgments = sum(len(claims) for claims in asked["ann"].values()) * CONFIRMATIONS
    assert judgments <= most_confirmations({"ann": len(NAMES) * len(LEVELS)}, 1) == 75


@pytest.mark.parametrize("fallen", [["p1"], ["p1", "p2"], [*LEVELS]], ids=len)
def test_of_a_dimension_of_which_too_little_was_judged_only_claims_that_fell_are_asked_again(fallen: list[str]) -> None:
    baseline = Office(15).baseline()
    half = {key: [0.0 if key in fallen else level] for key, level in LEVELS.items()}
    item = beside(baseline, {"adherence": dimension("adherence", half, n_scored=1, n_expected=5)})
    assert item.comparison.dimensions["adherence"].status == "incomplete"
    assert [drop.proposition_id for drop in item.comparison.drops] == fallen
    assert to_confirm({"ann": item}) == {"ann": {"adherence": fallen}}


def test_false_alarms_are_rare_and_falls_are_seen() -> None:
    """A short look at what benchmarks/weeks.py guard measures; ten seeds of one fleet."""
    found: Counter[str] = Counter()
    for seed in range(10):
        office = Office(100 + seed, week=0.5)
        fleet = {f"a{number}": office.baseline(f"a{number}") for number in range(3)}
        calm = settled({agent_id: beside(fleet[agent_id], office.window()) for agent_id in fleet}, fleet=fleet)
        fallen = settled({"a0": beside(fleet["a0"], office.window(DOWN))}, fleet=fleet)
        found["alarms"] += any(item.regressed for item in calm.values())
        found["seen"] += fallen["a0"].regressed
    assert found["alarms"] <= 2
    assert found["seen"] >= 8


@pytest.mark.parametrize(
    ("judgments", "samples", "most"), [({"a": 7}, 2, 15), ({"a": 7, "b": 3}, 2, 25), ({"a": 7}, 0, 35), ({}, 3, 0)]
)
def test_confirming_adds_at_most_so_many_judgments(judgments: dict[str, int], samples: int, most: int) -> None:
    assert most_confirmations(judgments, samples) == most
    assert most_confirmations(judgments, samples, 1) == most // 5


@pytest.mark.parametrize(
    ("status", "p_value", "now", "warned"),
    [
        ("regressed", 0.0499, "regressed", 0),
        ("regressed", 0.05, "undecided", 1),
        ("regressed", None, "regressed", 0),
        ("ok", 0.5, "ok", 0),
    ],
)
def test_what_chance_may_explain_becomes_a_warning(status: str, p_value: float | None, now: str, warned: int) -> None:
    item = DimensionComparison(dimension="adherence", status=status, delta=-3.0, p_value=p_value)  # pyright: ignore[reportArgumentType]
    warnings: list[str] = []
    _judge(item, warnings, 2.5)
    assert (item.status, len(warnings)) == (now, warned)
    if warned:
        assert warnings[0].startswith(
            "adherence: dropped by 3.00, which judge noise and weekly variation may explain (p = 0.05)"
        )


@pytest.mark.parametrize(
    ("status", "p_value", "high", "kept"),
    [
        ("ok", 0.0499, 1.0, True),
        ("ok", 0.05, -1.0, False),
        ("ok", None, 1.0, True),
        ("regressed", 0.05, 0.0, False),
        ("regressed", 0.05, -1e-9, True),
    ],
)
def test_a_claim_may_be_chance_unless_its_dimension_fell_with_it(
    status: str, p_value: float | None, high: float, kept: bool
) -> None:
    fallen = [
        PropositionDrop(dimension="adherence", proposition_id=key, baseline=8.0, current=4.0, delta=-4.0)
        for key in "pq"
    ]
    tests = {"p": ClaimTest(delta=-4.0, interval=(-7.0, high), p_value=p_value, detectable=3.0)}
    item = DimensionComparison(
        dimension="adherence",
        status=status,
        delta=-3.0,
        p_value=0.01,
        drops=fallen,
        claims=tests,  # pyright: ignore[reportArgumentType]
    )
    warnings: list[str] = []
    _judge(item, warnings, 2.5)
    assert [(drop.proposition_id, drop.interval, drop.p_value) for drop in item.drops] == [
        *([("p", (-7.0, high), p_value)] if kept else []),
        ("q", None, None),
    ]
    assert [text.partition(", which")[0] for text in warnings] == ([] if kept else ["adherence/p: dropped by 4.00"])


@pytest.mark.parametrize(("fallen", "beyond"), [(1.0, False), (1.0 + 0.9e-9, False), (1.0 + 1.1e-9, True)])
def test_beyond_a_delta_is_beyond_rounding(fallen: float, beyond: bool) -> None:
    row = replace(drops(), fallen=np.array([fallen]))
    levels = np.array([0.01])
    p_values = Corrected(levels, levels, levels)
    found = falls.TestedDrops(row, row, p_values, levels, levels, 1.0, 1.0)
    assert (found.beyond_dimensions.tolist(), found.beyond_claims.tolist()) == ([beyond], [beyond])
