"""Going on where a killed run stopped."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.suites import RunOptions, read_responses, run_suite
from persona_pipeline.suites.running.history import RowWriter, earlier_results, read_rows
from persona_pipeline.suites.targets import Request
from tests.suites.support import Given, run, suite_of, target, three


class TestResuming:
    def test_a_killed_run_goes_on_where_it_stopped(self, tmp_path: Path) -> None:
        suite, path = three(tmp_path), tmp_path / "results.jsonl"
        writer = RowWriter(path, append=False)

        def answer(request: Request) -> Any:
            if request.test.id == "other":
                raise KeyboardInterrupt
            return "ok"

        first = target(answer)
        with pytest.raises(KeyboardInterrupt):
            run_suite(suite, targets=Given.of(first), on_result=writer.write)
        writer.close()
        with path.open("a", encoding="utf-8") as stream:
            stream.write('{"id": "other", "verd')

        second = target()
        writer = RowWriter(path, append=True)
        result = run_suite(
            suite,
            targets=Given.of(second),
            options=RunOptions(earlier=earlier_results(path)),
            on_result=lambda item: None if item.resumed else writer.write(item),
        )
        writer.close()
        assert second.asked == ["other#0"]
        assert [test.resumed for test in result.tests] == [True, True, False]
        assert [row["id"] for row in read_rows(path)] == ["sum-1", "sum-2", "other"]
        assert result.exit_code == 0

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
