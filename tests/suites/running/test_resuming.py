"""Going on where a killed run stopped."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from persona_pipeline.suites import RunOptions, read_responses, run_suite
from persona_pipeline.suites.running.history import RowWriter, earlier_results
from tests.suites.support import run, suite_of


class TestResuming:
    @pytest.mark.parametrize("change", ["nothing", "assert", "answer", "error"])
    def test_only_what_still_stands_is_kept(self, tmp_path: Path, change: str) -> None:
        suite, path = suite_of(tmp_path, {"type": "contains", "value": "ok"}), tmp_path / "r.jsonl"
        writer = RowWriter(path, append=False)
        answer = {"__exit__": 1} if change == "error" else "ok"
        run_suite(suite, responses=read_responses({"t": answer}), on_result=writer.write)
        writer.close()
        if change == "assert":
            suite = suite_of(tmp_path, {"type": "contains", "value": "ok!"})
        answers = {"t": "ok, changed"} if change == "answer" else {"t": answer}
        (test,) = run(suite, answers, earlier=earlier_results(path)).tests
        assert test.resumed is (change == "nothing")

    def test_rows_read_back_as_they_were_written(self, tmp_path: Path) -> None:
        item = {"type": "contains", "value": "ok", "required": True}
        suite = suite_of(tmp_path, item, execution={"trials": {"count": 2, "strategy": "mean"}}, conversation_id="c")
        path = tmp_path / "r.jsonl"
        writer = RowWriter(path, append=False)
        result = run_suite(
            suite,
            responses=read_responses(
                {"t": ["ok", {"text": "no", "cost_usd": 0.1, "token_usage": {"input": 1, "output": 2}}]}
            ),
            on_result=writer.write,
            options=RunOptions(clock=lambda: datetime(2026, 6, 1, tzinfo=UTC)),
        )
        writer.close()
        (again,) = earlier_results(path)
        written, read = result.tests[0].to_dict(), again.to_dict()
        assert {**read, "trials": None} == {**written, "trials": None}
        assert [trial["score"] for trial in read["trials"]] == [1.0, 0.0]
