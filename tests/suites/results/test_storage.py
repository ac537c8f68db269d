"""Runs in the store."""

from pathlib import Path

import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store
from persona_pipeline.suites.grading.results import reason_of
from persona_pipeline.suites.running.history import save_suite_result
from tests.suites.support import load, run

SUITE = """
execution: {targets: [a, b]}
tests:
  - {id: t, input: hi, assert: [{type: contains, value: ok, required: true}]}
  - {id: u, input: hi, assert: [{type: contains, value: ok}, {type: llm_judge}], execution: {targets: [b]}}
"""


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


def test_a_test_that_did_not_pass_says_why(tmp_path: Path) -> None:
    result = run(load(tmp_path, SUITE), {"t@a": "ok", "t@b": "no", "u": "ok"})
    reasons = {test.id: reason_of(test) for test in result.tests}
    assert reasons["t@a"] == ""
    assert reasons["t@b"] == "gate contains-ok: The answer does not contain 'ok'."
    assert reasons["u@b"].startswith("unrecorded: llm_judge: ")
