"""A judge that changed is found out, and one that did not is let alone."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks.people import BEFORE, DRIFTS, NOW, Drift, anchors
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.guard.baselines.models import Measure
from persona_pipeline.guard.calibration import judge_change as judge_change_module
from persona_pipeline.guard.calibration.judge_change import (
    CHANGES,
    Anchor,
    JudgeName,
    judge_change,
    load_judge_changes,
    save_judge_changes,
)

SAME, AS_GOOD, BLINDER, MILDER, STRICTER, USUAL, *_ = DRIFTS


@pytest.mark.parametrize(
    ("drift", "labelled", "least", "most"),
    [
        (SAME, True, 0.0, 0.05),
        (SAME, False, 0.0, 0.05),
        (BLINDER, True, 0.7, 1.0),
        (BLINDER, False, 0.8, 1.0),
        (MILDER, True, 0.85, 1.0),
        (STRICTER, False, 0.75, 1.0),
        (USUAL, True, 0.85, 1.0),
        (USUAL, False, 0.85, 1.0),
        (AS_GOOD, True, 0.0, 0.1),
    ],
    ids=lambda value: value.name if isinstance(value, Drift) else str(value),
)
def test_eighty_anchors_tell(drift: Drift, labelled: bool, least: float, most: float) -> None:
    generator = np.random.default_rng(7)
    found = [judge_change(BEFORE, NOW, anchors(generator, 80, drift, labelled)).changed for _ in range(40)]
    assert least <= sum(found) / 40 <= most


def test_twenty_anchors_say_nothing_of_how_it_ranks() -> None:
    generator = np.random.default_rng(7)
    found = [judge_change(BEFORE, NOW, anchors(generator, 20, BLINDER, True)).reasons for _ in range(20)]
    assert not any("agrees less" in reason for reasons in found for reason in reasons)


def test_a_dimension_that_moved_alone_is_named_and_measured() -> None:
    generator = np.random.default_rng(3)
    told = [Anchor("fluency", float(b), float(b + 2)) for b in generator.integers(1, 7, 20)]
    told += [Anchor("adherence", float(b), float(b)) for b in generator.integers(0, 10, 20)]
    told += [Anchor("consistency", 5.0, 5.0)] * 4
    found = judge_change(BEFORE, NOW, told)
    assert "it gives +2.0 points on fluency" in found.reasons
    fluency, adherence = found.shift("fluency"), found.shift("adherence")
    assert fluency is not None and fluency.value == pytest.approx(2)
    assert adherence is not None and adherence.value == pytest.approx(0)
    assert found.shift("consistency") is None


def test_what_was_found_is_kept_and_replaced_by_pair(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    first = judge_change(BEFORE, NOW, anchors(generator, 40, MILDER, True), ran_at="2026-01-01T00:00:00Z")
    other = judge_change(BEFORE, JudgeName(model="third", prompt_version="1"), anchors(generator, 40, SAME, True))
    again = judge_change(BEFORE, NOW, anchors(generator, 80, MILDER, True), ran_at="2026-02-01T00:00:00Z")
    save_judge_changes(tmp_path / CHANGES, [first, other])
    assert save_judge_changes(tmp_path / CHANGES, [again]) == tmp_path / CHANGES
    assert load_judge_changes(tmp_path / CHANGES) == [again, other]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / CHANGES
    path.parent.mkdir()
    path.write_text('{"changes": [{"before": 1}]}', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"judge_changes.json.*persona-pipeline canary"):
        load_judge_changes(tmp_path / CHANGES)


def spread_out(claims: int, before: float, now: float) -> list[Anchor]:
    """Return three anchors a claim, so far apart."""
    return [
        Anchor("adherence", 5 + before * step, 5 + now * step, claim=f"c{claim}")
        for claim in range(claims)
        for step in (-1, 0, 1)
    ]


def test_how_much_flatter_is_by_degrees_of_freedom_within_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """An F test of the two variances within claims, three anchors of each of ten claims: 20 degrees of freedom on each side."""
    told = spread_out(10, 2.0, 0.4)
    assert judge_change_module._flattened(told) == pytest.approx(0.2)
    chance = float(stats.f.cdf((0.2 / 0.6) ** 2, 20, 20))
    for level, found in ((chance * 1.001, True), (chance * 0.999, False)):
        monkeypatch.setattr(judge_change_module, "_FLAT_LEVEL", level)
        assert (judge_change_module._flattened(told) is not None) is found
    monkeypatch.setattr(judge_change_module, "_FLAT_LEVEL", 0.5)
    # A sample's standard deviation: with n in place of n - 1 it would be below what there must be to read apart.
    for least, found in ((2.0 - 1e-9, True), (2.0 + 1e-9, False)):
        monkeypatch.setattr(judge_change_module, "LEAST_SPREAD", least)
        assert (judge_change_module._flattened(told) is not None) is found
    monkeypatch.setattr(judge_change_module, "LEAST_SPREAD", 2.0 - 1e-9)
    assert judge_change_module._flattened(told[:-1]) is None, "19 degrees of freedom are too few"
    assert judge_change_module._flattened([*told, Anchor("adherence", 0.0, 9.0)]) is not None, (
        "without a claim: not within one"
    )


@pytest.mark.parametrize(
    ("moved", "noise", "found"),
    [(0.5, 0.0, True), (0.5, 0.6, True), (0.4999, 0.0, False), (-0.5, 0.0, True), (0.6, 2.5, False)],
)
def test_half_a_point_is_what_counts_as_moved(moved: float, noise: float, found: bool) -> None:
    told = [Anchor("adherence", 4.0 + n % 3, 4.0 + n % 3 + moved + noise * (-1) ** n) for n in range(40)]
    reasons = judge_change(BEFORE, NOW, told).reasons
    assert [reason for reason in reasons if "points" in reason] == (
        [f"it gives {moved:+.1f} points {where}" for where in ("on average", "on adherence")] if found else []
    )
    mean, p_value = judge_change_module._moved(told)
    assert mean == pytest.approx(moved)
    expected = stats.ttest_1samp([item.now - item.before for item in told], 0).pvalue if noise else 0.0
    assert p_value == pytest.approx(expected, abs=1e-12)
    assert judge_change_module._moved([Anchor("a", 1.0, 1.0), Anchor("a", 2.0, 2.0)]) == (0.0, 1.0)


@pytest.mark.parametrize("now", [0.8, 0.55, 0.5, 0.2])
@pytest.mark.parametrize("alike", [0.0, 0.5, 0.9])
def test_agreeing_less_is_the_test_of_meng_rosenthal_and_rubin(
    monkeypatch: pytest.MonkeyPatch, now: float, alike: float
) -> None:
    labelled = [(Anchor("a", 1.0, 1.0), 1.0)] * 43
    r1, r2 = 0.75, now
    mean = (r1**2 + r2**2) / 2
    f = min((1 - alike) / (2 * (1 - mean)), 1.0)
    h = (1 - f * mean) / (1 - mean)
    z = (math.atanh(r1) - math.atanh(r2)) * math.sqrt(40 / (2 * (1 - alike) * h))
    chance = float(stats.norm.sf(z))
    measures = [Measure(value=value) for value in (r1, r2, alike)]
    for level, sure in ((chance * 1.0001, True), (chance * 0.9999, False)):
        monkeypatch.setattr(judge_change_module, "_RANK_LEVEL", level)
        assert judge_change_module._agrees_less(labelled, *measures) is (sure and r1 - r2 >= 0.25)
    nothing = Measure()
    monkeypatch.setattr(judge_change_module, "_RANK_LEVEL", 0.05)
    assert judge_change_module._agrees_less(labelled, nothing, measures[1], measures[2]) is False
    assert judge_change_module._agrees_less(labelled, measures[0], nothing, nothing) is True
    assert judge_change_module._agrees_less(labelled, measures[0], nothing, Measure(value=1.0)) is False


@pytest.mark.parametrize(("count", "told"), [(39, False), (40, True)])
def test_forty_anchors_tell_how_a_judge_ranks(count: int, told: bool) -> None:
    generator = np.random.default_rng(5)
    scores = [(float(a), float(b)) for a, b in generator.integers(0, 10, (count, 2))]
    unlike = judge_change(BEFORE, NOW, [Anchor("", a, b) for a, b in scores])
    assert any("ranks the same judgments otherwise" in reason for reason in unlike.reasons) is told
    people = judge_change(BEFORE, NOW, [Anchor("", a, b, people=a) for a, b in scores])
    assert any("agrees less with people" in reason for reason in people.reasons) is told
    assert (people.anchors, people.labelled) == (count, count)
    ten = [Anchor("x", 1.0, 3.0)] * 10
    assert judge_change(BEFORE, NOW, ten).shift("x") is not None
    assert judge_change(BEFORE, NOW, ten[:9]).shift("x") is None
    assert judge_change(BEFORE, NOW, ten[:9]).reasons == []
