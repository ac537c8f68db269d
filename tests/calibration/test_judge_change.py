"""A judge that changed is found out, and one that did not is let alone."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.people import BEFORE, DRIFTS, NOW, Drift, anchors
from persona_pipeline.base.errors import ConfigError
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
    save_judge_changes(tmp_path / CHANGES, [again])
    assert load_judge_changes(tmp_path / CHANGES) == [again, other]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / CHANGES
    path.parent.mkdir()
    path.write_text('{"changes": [{"before": 1}]}', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"judge_changes.json.*persona-pipeline canary"):
        load_judge_changes(tmp_path / CHANGES)
