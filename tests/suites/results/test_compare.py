import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites.running.history import compare_rows, read_rows


def rows(**scores: float | None) -> list[dict[str, Any]]:
    return [
        {"id": key, "score": score, "verdict": "error" if score is None else "pass"} for key, score in scores.items()
    ]


def test_tests_are_paired_by_id() -> None:
    found = compare_rows(rows(a=0.5, b=1.0, c=0.2, d=None, only=1.0), rows(a=1.0, b=0.95, c=0.0, d=1.0, new=1.0))
    assert [(pair.id, pair.delta) for pair in found.pairs] == [
        ("a", 0.5),
        ("b", pytest.approx(-0.05)),
        ("c", -0.2),
        ("d", None),
    ]
    assert (found.wins, found.losses, list(found.only_a), list(found.only_b)) == (1, 1, ["only"], ["new"])
    assert found.mean == pytest.approx(0.25 / 3)
    assert [pair.id for pair in found.unscored] == ["d"]
    assert (found.worse, found.surely_worse) == (False, False)


@pytest.mark.parametrize(("wins", "losses", "surely"), [(0, 5, False), (0, 6, True), (1, 8, True), (8, 1, False)])
def test_a_run_is_surely_worse_where_chance_does_not_explain_so_many_losses(
    wins: int, losses: int, surely: bool
) -> None:
    scores = {f"t{i}": 0.5 for i in range(wins + losses)}
    later = {key: 1.0 if i < wins else 0.0 for i, key in enumerate(scores)}
    assert compare_rows(rows(**scores), rows(**later)).surely_worse is surely


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20))
def test_a_lower_score_of_the_second_run_never_makes_it_better(scores: list[tuple[float, float, float]]) -> None:
    first, second, worse = (
        rows(**{f"t{i}": score[side] if side < 2 else min(score[1:]) for i, score in enumerate(scores)})
        for side in range(3)
    )
    before, after = compare_rows(first, second), compare_rows(first, worse)
    assert after.worse >= before.worse
    assert after.surely_worse >= before.surely_worse


def test_the_threshold_is_inclusive_within_rounding() -> None:
    found = compare_rows(rows(a=0.7, b=0.3), rows(a=0.8, b=0.2))
    assert (found.wins, found.losses) == (1, 1)


def test_equal_scores_are_a_tie_at_any_threshold() -> None:
    found = compare_rows(rows(a=0.5, b=0.5, c=0.5), rows(a=0.5, b=0.6, c=0.4), threshold=0)
    assert (found.wins, found.losses, found.to_dict()["summary"]["ties"]) == (1, 1, 1)


SCORES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20)


@given(SCORES)
def test_comparing_the_other_way_round_turns_the_signs(pairs: list[tuple[float, float]]) -> None:
    a = rows(**{f"t{i}": pair[0] for i, pair in enumerate(pairs)})
    b = rows(**{f"t{i}": pair[1] for i, pair in enumerate(pairs)})
    there, back = compare_rows(a, b), compare_rows(b, a)
    assert there.mean == pytest.approx(-(back.mean or 0.0))
    if there.interval is not None and there.mean is not None:
        assert -1 <= there.interval[0] <= there.mean + 1e-9 and there.mean - 1e-9 <= there.interval[1] <= 1
    assert (there.wins, there.losses) == (back.losses, back.wins)
    assert json.dumps(there.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("r.jsonl", '{"id": "a", "score": 1, "verdict": "pass"}\nnonsense\n{}\n', "r.jsonl:2:1: is not results"),
        ("r.jsonl", '{"id": "a"}\n', "is no row of results"),
        ("r.jsonl", "[]\n", "is no row of results"),
        ("r.jsonl", '{"id": "a", "score": 7, "verdict": "pass"}\n', "score must be from 0 to 1"),
        ("r.json", '{"a": 1}', "is no row of results"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        read_rows(tmp_path / name)
    assert said in str(raised.value)


def test_a_later_row_replaces_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(
        '{"id": "a", "score": 0, "verdict": "fail"}\n{"id": "a", "score": 1, "verdict": "pass"}\n', encoding="utf-8"
    )
    assert [row["score"] for row in read_rows(path)] == [1]
