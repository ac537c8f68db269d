"""Runs in the store, and what reports show of them."""

from pathlib import Path
from typing import Any

import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store
from persona_pipeline.suites import SuiteResult
from persona_pipeline.suites.grading.results import by_target
from persona_pipeline.suites.running.history import latest_suite_summaries, save_suite_result, summary_of
from tests.suites.support import load, run

SUITE = """
execution: {targets: [a, b]}
tests:
  - {id: t, input: hi, assert: [{type: contains, value: ok, required: true}]}
  - {id: u, input: hi, assert: [{type: contains, value: ok}, {type: llm_judge}], execution: {targets: [b]}}
"""


def summaries(result: SuiteResult) -> list[dict[str, Any]]:
    return [summary_of(target, part) for target, part in by_target(result).items()]


def test_one_row_a_target(tmp_path: Path, store: Store) -> None:
    result = run(load(tmp_path, SUITE), {"t@a": "ok \x00 \ud800 \ud83d\ude00", "t@b": "no", "u": "ok"})
    ids = save_suite_result(store, result)
    with store.connect() as connection:
        rows = {row.target: row for row in connection.execute(sa.select(tables.suite_runs))}
    assert {row.id for row in rows.values()} == set(ids)
    assert (rows["a"].verdict, rows["a"].score, rows["a"].suite) == ("pass", 1.0, "suite")
    assert (rows["b"].verdict, rows["b"].score) == ("error", None)
    assert rows["a"].suite_hash == result.suite_hash
    assert rows["a"].result["tests"][0]["answer"] == "ok \ufffd \ufffd 😀"
    assert rows["b"].result["summary"]["errors"] == 1


def test_a_report_gets_counts_and_reasons(tmp_path: Path) -> None:
    result = run(load(tmp_path, SUITE), {"t@a": "ok", "t@b": "no", "u": "ok"})
    first, second = summaries(result)
    assert (first["target"], first["verdict"], first["tests"]["pass"], first["failures"]) == ("a", "pass", 1, [])
    assert (second["target"], second["tests"]) == ("b", {"pass": 0, "borderline": 0, "fail": 1, "error": 1})
    assert [failure["id"] for failure in second["failures"]] == ["t@b", "u@b"]
    assert second["failures"][0]["reason"] == "gate contains-ok: The answer does not contain 'ok'."
    assert second["failures"][1]["reason"].startswith("unrecorded: llm_judge: ")


def test_the_newest_run_of_each_suite_and_target_is_read_back(tmp_path: Path, store: Store) -> None:
    suite = load(tmp_path, SUITE)
    newest = run(suite, {"t@a": "ok", "t@b": "ok", "u": "no"})
    for _ in range(7):
        save_suite_result(store, run(suite, {"t@a": "no", "t@b": "no", "u": "no"}))
    found = latest_suite_summaries(store)
    assert [item.pop("earlier") for item in found] == [[0.0] * 5, [0.0] * 5]
    save_suite_result(store, newest)
    save_suite_result(store, newest)
    found = latest_suite_summaries(store)
    passed = [part.summary["pass_rate"] for part in by_target(newest).values()]
    assert [item.pop("earlier")[0] for item in found] == passed
    assert found == summaries(newest)


def test_a_target_that_was_not_run_again_keeps_its_last_run(tmp_path: Path, store: Store) -> None:
    suite = load(tmp_path, SUITE)
    save_suite_result(store, run(suite, {"t@a": "ok", "t@b": "no", "u": "no"}))
    save_suite_result(store, run(suite, {"t@a": "no"}, targets=("a",)))
    found = {item["target"]: item["tests"] for item in latest_suite_summaries(store)}
    assert (found["a"]["fail"], found["b"]["fail"]) == (1, 1)


def test_without_runs_there_is_nothing_to_show(store: Store) -> None:
    assert latest_suite_summaries(store) == []
