"""Golden files: read strictly, written atomically, only what was scored."""

import json
import os
from pathlib import Path

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.guard.baselines.falls import compare, golden_propositions
from persona_pipeline.guard.baselines.golden import captured, find_baseline, load_baseline, save_baseline
from persona_pipeline.scoring.results import DimensionEvaluation
from tests.baselines.test_regression import evaluated

FOUR_KEYS = {
    "agentId": "ann", "capturedAt": "2026-03-01T10:00:00Z", "dimensions": {"adherence": 7.5},
    "propositionScores": {"p": 7.5},
}  # fmt: skip


def write(path: Path, data: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def test_the_four_key_form_is_read(tmp_path: Path) -> None:
    baseline = load_baseline(write(tmp_path / "ann.json", FOUR_KEYS))
    assert baseline.dimensions == {"adherence": 7.5}
    assert baseline.proposition_scores == {"": {"p": 7.5}}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "is not an object"),
        ("[" * 100_000, "is not a baseline"),
        ('{"agentId": "a", "agentId": "b"}', "stands twice"),
        ({**FOUR_KEYS, "dimension": {}}, "unknown key 'dimension'; did you mean 'dimensions'?"),
        ({"agentId": "ann"}, "dimensions is missing"),
        ({**FOUR_KEYS, "dimensions": {"adherance": 7}}, "unknown dimension 'adherance'"),
        ({**FOUR_KEYS, "dimensions": {"adherence": 9.5}}, "from 0 to 9"),
        ({**FOUR_KEYS, "dimensions": {"adherence": True}}, "from 0 to 9"),
        ({**FOUR_KEYS, "dimensions": {"adherence": "7"}}, "from 0 to 9"),
        ({**FOUR_KEYS, "dimensions": []}, "dimensions must map"),
        ('{"agentId": "ann", "dimensions": {"adherence": NaN}}', "from 0 to 9"),
        ({**FOUR_KEYS, "propositionScores": {"adherence": {"p": -1}}}, "proposition 'p'"),
        (
            {**FOUR_KEYS, "propositionScores": {"adherance": {"p": 1}}},
            "unknown dimension 'adherance' in propositionScores",
        ),
        ({**FOUR_KEYS, "capturedAt": "then"}, "RFC 3339"),
    ],
)
def test_a_broken_baseline_is_an_error(tmp_path: Path, data: object, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_baseline(write(tmp_path / "ann.json", data))
    assert says in str(error.value)
    assert "ann.json" in str(error.value)


def test_another_agents_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "bob.json", FOUR_KEYS)
    with pytest.raises(ConfigError, match="is the baseline of 'ann'"):
        find_baseline(tmp_path, "bob")
    assert find_baseline(tmp_path, "nobody") is None


def test_only_what_was_scored_in_full_is_captured(tmp_path: Path) -> None:
    known = captured(
        "ann", {"adherence": evaluated(5.0, {"p": 5.0}), "fluency": evaluated(6.0, {"f": 6.0})}, {"by": "old"}
    )
    again = captured(
        "ann",
        {
            "adherence": evaluated(8.0, {"p": 8.0, "q": 8.0}),
            "fluency": evaluated(9.0, {"f": 9.0, "g": None}),
            "consistency": evaluated(None, {"c": None}),
        },
        {"by": "new"},
        known=known,
    )
    save_baseline(tmp_path, again)
    baseline = find_baseline(tmp_path, "ann")
    assert baseline is not None
    assert baseline.dimensions == {"adherence": 8.0, "fluency": 6.0}
    assert baseline.proposition_scores == {"adherence": {"p": 8.0, "q": 8.0}, "fluency": {"f": 6.0}}
    assert {name: item["by"] for name, item in baseline.provenance["dimensions"].items()} == {
        "adherence": "new", "fluency": "old"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("dimensions", "scores"),
    [
        pytest.param({"adherence": 7.5, "fluency": 6.0}, {"f": 6.0, "adherence": {"p": 8.0}}, id="fluency's stay"),
        pytest.param({"adherence": 7.5}, {"adherence": {"p": 8.0}}, id="nothing of another dimension is left"),
    ],
)
def test_updating_an_old_baseline_keeps_what_was_not_scored(tmp_path: Path, dimensions: dict, scores: dict) -> None:
    old = {**FOUR_KEYS, "dimensions": dimensions, "propositionScores": {"p": 7.5, "f": 6.0}}
    path = write(tmp_path / "ann.json", old)
    save_baseline(tmp_path, captured("ann", {"adherence": evaluated(8.0, {"p": 8.0})}, {}, known=load_baseline(path)))
    assert json.loads(path.read_text(encoding="utf-8"))["propositionScores"] == scores
    again = find_baseline(tmp_path, "ann")
    assert again is not None
    assert golden_propositions(again, "adherence")["p"] == 8.0
    assert compare("ann", {"adherence": evaluated(8.0, {"p": 8.0})}, again).warnings == []


def test_unrounded_values_survive_the_file(tmp_path: Path) -> None:
    score = 6.1 + 0.1 + 0.1
    save_baseline(tmp_path, captured("ann", {"adherence": evaluated(score)}, {}))
    baseline = find_baseline(tmp_path, "ann")
    assert baseline is not None
    assert baseline.dimensions["adherence"] == score


def test_writing_the_same_again_leaves_the_file_alone(tmp_path: Path) -> None:
    path = save_baseline(tmp_path, captured("ann", {"adherence": evaluated(5.0)}, {}))
    before = path.read_bytes()
    save_baseline(tmp_path, captured("ann", {"adherence": evaluated(5.0)}, {}))
    assert path.read_bytes() == before


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_baseline(tmp_path, captured("ann", {"adherence": evaluated(5.0)}, {}))
    before = path.read_bytes()

    def fail(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        save_baseline(tmp_path, captured("ann", {"adherence": evaluated(6.0)}, {}))
    assert path.read_bytes() == before
    assert [item.name for item in path.parent.iterdir()] == ["ann.json"]


def test_an_empty_evaluation_captures_nothing() -> None:
    assert captured("ann", {"adherence": DimensionEvaluation(dimension="adherence")}, {}).dimensions == {}
