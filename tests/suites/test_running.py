"""Running a suite: who answers, which tests, how often, and what is kept."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.errors import ConfigError
from persona_pipeline.suites import RunOptions, Suite, SuiteResult, load_suite, read_responses, run_suite
from persona_pipeline.suites.output import Output, parse_output
from persona_pipeline.suites.rows import RowWriter, earlier_results, read_rows
from persona_pipeline.suites.targets import Request, TargetError, Targets
from persona_pipeline.suites.targets.fields import TargetFields
from tests.suites.support import load, run, suite_of


class Answering(TargetFields):
    """A target that answers with a function and counts how often it is asked."""

    name: str = "default"
    provider: str = "test"
    answer: Callable[[Request], Any] = lambda request: "ok"
    asked: list[str] = []
    version: int = 1

    def respond(self, request: Request) -> Output:
        self.asked.append(f"{request.test.id}#{request.attempt}")
        value = self.answer(request)
        if isinstance(value, Exception):
            raise value
        return parse_output(value)

    def fingerprint(self) -> Mapping[str, Any]:
        return {"provider": "test", "version": self.version}


@dataclass
class Given(Targets):
    """Targets made in a test."""

    path: str = "targets.yaml"
    entries: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, *targets: Answering) -> "Given":
        given = cls(entries={target.name: None for target in targets})
        given._opened = {target.name: target for target in targets}
        return given


def target(answer: Callable[[Request], Any] = lambda request: "ok", **fields: Any) -> Answering:
    return Answering(answer=answer, asked=[], **fields)


def three(folder: Path, head: str = "") -> Suite:
    return load(
        folder,
        head
        + """
tests:
  - {id: sum-1, input: one, assert: [{type: contains, value: ok}], metadata: {tags: [fast]}}
  - {id: sum-2, input: two, assert: [{type: contains, value: ok}]}
  - {id: other, input: three, assert: [{type: contains, value: ok}]}
""",
    )


def verdicts(result: SuiteResult) -> dict[str, str]:
    return {test.id: test.verdict.value for test in result.tests}


class TestFilters:
    @pytest.mark.parametrize(
        ("options", "chosen"),
        [
            ({"test_ids": ("sum-*",)}, ["sum-1", "sum-2"]),
            ({"test_ids": ("other", "sum-1")}, ["sum-1", "other"]),
            ({"tags": ("fast",)}, ["sum-1"]),
            ({"tags": ("fast", "suite")}, ["sum-1", "sum-2", "other"]),
            ({"tags": ("suite",), "test_ids": ("*-2",)}, ["sum-2"]),
        ],
    )
    def test_globs_and_tags_choose(self, tmp_path: Path, options: dict[str, Any], chosen: list[str]) -> None:
        suite = three(tmp_path, "name: s\ndescription: d\ntags: [suite]\n")
        result = run(suite, {"sum-1": "ok", "sum-2": "ok", "other": "ok"}, **options)
        assert [test.id for test in result.tests] == chosen

    @pytest.mark.parametrize("options", [{"test_ids": ("sum-9",)}, {"tags": ("slow",)}])
    def test_a_filter_that_leaves_nothing_is_an_error(self, tmp_path: Path, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match="sum-9|slow"):
            run(three(tmp_path), {}, **options)

    def test_a_suite_without_tests_is_never_a_success(self, tmp_path: Path) -> None:
        result = run(load(tmp_path, "tests: []\n"), {})
        assert (result.exit_code, result.verdict, result.score) == (3, "error", None)


class TestExitCodes:
    @pytest.mark.parametrize(
        ("answers", "code"),
        [
            ({"sum-1": "ok", "sum-2": "ok", "other": "ok"}, 0),
            ({"sum-1": "ok", "sum-2": "no", "other": "ok"}, 1),
            ({"sum-1": "ok", "sum-2": "no"}, 3),
        ],
        ids=["all pass", "one fails", "one has no answer"],
    )
    def test_codes(self, tmp_path: Path, answers: dict[str, str], code: int) -> None:
        assert run(three(tmp_path), answers).exit_code == code

    def test_borderline_is_no_failure(self, tmp_path: Path) -> None:
        suite = suite_of(tmp_path, {"type": "contains", "value": "a", "weight": 3}, {"type": "contains", "value": "b"})
        assert (run(suite, {"t": "a"}).verdict, run(suite, {"t": "a"}).exit_code) == ("borderline", 0)

    def test_an_empty_budget_has_its_own_code(self, tmp_path: Path) -> None:
        suite = suite_of(tmp_path, {"type": "is_json"})
        result = run_suite(suite, targets=Given.of(target(lambda request: TargetError("budget", "spent"))))
        assert result.exit_code == 4

    def test_the_suites_score_is_a_mean_only_when_every_test_has_one(self, tmp_path: Path) -> None:
        assert run(three(tmp_path), {"sum-1": "ok", "sum-2": "no", "other": "ok"}).score == pytest.approx(2 / 3)
        assert run(three(tmp_path), {"sum-1": "ok"}).score is None


class TestResponses:
    @pytest.mark.parametrize(
        ("answer", "reason"),
        [
            ({"__exit__": 3}, "target_failed"),
            ({"error": {"message": "boom"}}, "target_failed"),
            ({"unknown": 1}, "invalid_response"),
            (5, "invalid_response"),
            ({"output_messages": [{"content": "x"}]}, "invalid_response"),
            ({"output_messages": [{"role": "assistant", "tool_calls": [{}]}]}, "invalid_response"),
        ],
    )
    def test_what_is_no_answer_is_an_error(self, tmp_path: Path, answer: Any, reason: str) -> None:
        (test,) = run(suite_of(tmp_path, {"type": "is_json"}), {"t": answer}).tests
        assert test.error is not None
        assert (test.score, test.verdict, test.error.reason) == (None, "error", reason)

    @pytest.mark.parametrize(
        "data",
        [
            {"t": "ok"},
            [{"id": "t", "text": "ok"}],
            [{"test_id": "t", "output": [{"role": "assistant", "content": "ok"}]}],
            {"tests": [{"id": "t", "answer": "ok"}], "summary": {}},
        ],
        ids=["by id", "rows", "result rows", "a whole run"],
    )
    def test_every_shape_of_recording_is_read(self, tmp_path: Path, data: Any) -> None:
        suite = suite_of(tmp_path, {"type": "equals", "value": "ok"})
        assert run_suite(suite, responses=read_responses(data)).exit_code == 0

    def test_too_few_attempts_is_an_error(self, tmp_path: Path) -> None:
        suite = suite_of(tmp_path, {"type": "contains", "value": "ok"}, execution={"trials": {"count": 3}})
        (test,) = run(suite, {"t": ["no", "no"]}).tests
        assert (test.verdict, test.error and test.error.reason) == ("error", "no_response")

    def test_answers_recorded_for_a_target_win(self, tmp_path: Path) -> None:
        suite = suite_of(tmp_path, {"type": "contains", "value": "ok"}, execution={"targets": ["a", "b"]})
        result = run(suite, {"t": "no", "t@a": "ok"})
        assert verdicts(result) == {"t@a": "pass", "t@b": "fail"}

    def test_an_answer_to_another_question_is_stale(self, tmp_path: Path) -> None:
        suite = suite_of(tmp_path, {"type": "contains", "value": "ok"})
        (row,) = run(suite, {"t": "ok"}).to_dict()["tests"]
        assert run_suite(suite, responses=read_responses([row])).exit_code == 0
        changed = suite_of(tmp_path, {"type": "contains", "value": "ok"}, input="something else")
        (test,) = run_suite(changed, responses=read_responses([row])).tests
        assert test.error is not None
        assert test.error.reason == "stale"


class TestTargets:
    def test_the_default_target_answers(self, tmp_path: Path) -> None:
        assert verdicts(run_suite(three(tmp_path), targets=Given.of(target()))) == dict.fromkeys(
            ("sum-1", "sum-2", "other"), "pass"
        )

    def test_a_single_target_needs_no_name(self, tmp_path: Path) -> None:
        assert run_suite(three(tmp_path), targets=Given.of(target(name="mine"))).exit_code == 0

    def test_every_test_is_answered_by_every_target(self, tmp_path: Path) -> None:
        suite = three(tmp_path, "execution: {targets: [a, b]}\n")
        result = run_suite(suite, targets=Given.of(target(name="a"), target(lambda request: "no", name="b")))
        assert verdicts(result)["sum-1@a"] == "pass"
        assert verdicts(result)["sum-1@b"] == "fail"
        assert len(result.tests) == 6

    def test_a_test_names_its_own_targets_and_options_override(self, tmp_path: Path) -> None:
        suite = load(
            tmp_path,
            "execution: {targets: [a, b]}\ntests:\n"
            "  - {id: t, input: hi, assert: [{type: is_json}]}\n"
            "  - {id: u, input: hi, assert: [{type: is_json}], execution: {targets: [a]}}\n",
        )
        targets = Given.of(target(name="a"), target(name="b"), target(name="c"))
        assert list(verdicts(run_suite(suite, targets=targets))) == ["t@a", "t@b", "u@a"]
        assert list(verdicts(run_suite(suite, targets=targets, options=RunOptions(targets=("b", "a"))))) == ["t@b", "t@a", "u@a"]
        assert list(verdicts(run_suite(suite, targets=targets, options=RunOptions(targets=("b",))))) == ["t"]

    def test_an_unknown_target_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="there is no target 'x'"):
            run_suite(three(tmp_path, "execution: {target: x}\n"), targets=Given.of(target()))

    def test_nobody_to_answer_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="targets.yaml"):
            run_suite(three(tmp_path))


class TestRetries:
    @pytest.mark.parametrize(
        ("transient", "retries", "asked", "verdict"),
        [(True, 2, 3, "error"), (True, 0, 1, "error"), (False, 2, 1, "error")],
        ids=["what can pass is tried again", "unless nobody wants that", "what cannot pass is not"],
    )
    def test_only_what_can_pass_is_tried_again(
        self, tmp_path: Path, transient: bool, retries: int, asked: int, verdict: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        failing = target(lambda request: TargetError("timeout", "slow", transient=transient))
        suite = suite_of(tmp_path, {"type": "is_json"})
        result = run_suite(suite, targets=Given.of(failing), options=RunOptions(max_retries=retries))
        assert (len(failing.asked), verdicts(result)["t"]) == (asked, verdict)

    def test_a_later_try_counts(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        answers = iter([TargetError("timeout", "slow", transient=True), "ok"])
        (test,) = run_suite(
            suite_of(tmp_path, {"type": "contains", "value": "ok"}),
            targets=Given.of(target(lambda request: next(answers))),
        ).tests
        assert (test.verdict, test.best.retries) == ("pass", 1)


class TestCache:
    def cached(self, suite: Suite, answering: Answering, folder: Path, **options: Any) -> SuiteResult:
        return run_suite(
            suite,
            targets=Given.of(answering),
            options=RunOptions(cache=options.pop("cache", True), cache_folder=folder / "cache", **options),
        )

    def test_an_answer_is_asked_for_once(self, tmp_path: Path) -> None:
        suite, answering = three(tmp_path), target()
        self.cached(suite, answering, tmp_path)
        again = self.cached(suite, answering, tmp_path)
        assert len(answering.asked) == 3
        assert all(test.best.cached for test in again.tests)

    @pytest.mark.parametrize("change", ["target", "input", "file", "test id"])
    def test_whatever_can_change_the_answer_is_part_of_its_key(self, tmp_path: Path, change: str) -> None:
        (tmp_path / "f.txt").write_text("one", encoding="utf-8")

        def suite(**fields: Any) -> Suite:
            content = [{"type": "text", "value": "hi"}, {"type": "file", "value": "f.txt"}]
            given = {"id": "t", "input": [{"role": "user", "content": content}], **fields}
            return suite_of(tmp_path, {"type": "is_json"}, **given)

        answering = target()
        self.cached(suite(), answering, tmp_path)
        if change == "target":
            answering = target(version=2)
        if change == "file":
            (tmp_path / "f.txt").write_text("two", encoding="utf-8")
        changed = suite(**({"input": "ho"} if change == "input" else {"id": "u"} if change == "test id" else {}))
        before = len(answering.asked)
        self.cached(changed, answering, tmp_path)
        assert len(answering.asked) == before + 1

    def test_attempts_are_different_answers(self, tmp_path: Path) -> None:
        suite = suite_of(tmp_path, {"type": "is_json"}, execution={"trials": {"count": 3, "strategy": "mean"}})
        answering = target()
        self.cached(suite, answering, tmp_path)
        self.cached(suite, answering, tmp_path)
        assert answering.asked == ["t#0", "t#1", "t#2"]

    def test_failures_are_not_kept(self, tmp_path: Path) -> None:
        suite = suite_of(tmp_path, {"type": "is_json"})
        answering = target(lambda request: TargetError("refusal", "no"))
        self.cached(suite, answering, tmp_path)
        self.cached(suite, answering, tmp_path)
        assert len(answering.asked) == 2

    def test_a_broken_entry_is_a_miss(self, tmp_path: Path) -> None:
        suite, answering = suite_of(tmp_path, {"type": "is_json"}), target()
        self.cached(suite, answering, tmp_path)
        (entry,) = (tmp_path / "cache").glob("*/*.json")
        entry.write_text('{"output_mess', encoding="utf-8")
        self.cached(suite, answering, tmp_path)
        assert len(answering.asked) == 2
        assert json.loads(entry.read_text(encoding="utf-8"))["output_messages"]

    @pytest.mark.parametrize(
        ("in_suite", "in_test", "option", "asked"),
        [("false", "", None, 2), ("true", "", None, 1), ("true", ", cache: false", None, 2), ("true", "", False, 2)],
        ids=["off", "on in the suite", "off in the test", "off by option"],
    )
    def test_who_decides(self, tmp_path: Path, in_suite: str, in_test: str, option: bool | None, asked: int) -> None:
        suite = load(
            tmp_path,
            f"execution: {{cache: {in_suite}}}\ntests:\n"
            f"  - {{id: t, input: hi, assert: [{{type: is_json}}], execution: {{target: default{in_test}}}}}\n",
        )
        answering = target()
        self.cached(suite, answering, tmp_path, cache=option)
        self.cached(suite, answering, tmp_path, cache=option)
        assert len(answering.asked) == asked


class TestWorkers:
    def test_tests_run_at_once_and_keep_their_order(self, tmp_path: Path) -> None:
        barrier = threading.Barrier(3, timeout=10)

        def answer(request: Request) -> str:
            barrier.wait()
            return "ok"

        result = run_suite(three(tmp_path), targets=Given.of(target(answer)), options=RunOptions(workers=3))
        assert list(verdicts(result).items()) == [("sum-1", "pass"), ("sum-2", "pass"), ("other", "pass")]

    def test_a_target_says_how_many_it_takes(self, tmp_path: Path) -> None:
        barrier = threading.Barrier(3, timeout=10)
        answering = target(lambda request: str(barrier.wait()) and "ok", workers=3)
        assert run_suite(three(tmp_path), targets=Given.of(answering)).exit_code == 0


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
            responses=read_responses({"t": ["ok", {"text": "no", "cost_usd": 0.1, "token_usage": {"input": 1, "output": 2}}]}),
            on_result=writer.write,
            options=RunOptions(clock=lambda: datetime(2026, 6, 1, tzinfo=UTC)),
        )
        writer.close()
        (again,) = earlier_results(path)
        written, read = result.tests[0].to_dict(), again.to_dict()
        assert {**read, "trials": None} == {**written, "trials": None}
        assert [trial["score"] for trial in read["trials"]] == [1.0, 0.0]


def test_a_test_that_takes_too_long_is_an_error(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, {"type": "code_judge", "script": ["sleep", "30"]})
    started = time.monotonic()
    (test,) = run(suite, {"t": "ok"}, timeout=0.5, allow_code=True).tests
    assert (test.verdict, test.error and test.error.reason) == ("error", "timeout")
    assert time.monotonic() - started < 5


def test_results_say_where_everything_came_from(tmp_path: Path) -> None:
    suite = load(
        tmp_path,
        "name: desk\ndescription: d\ntests:\n"
        "  - {id: t, input: hi, conversation_id: c1, metadata: {k: v}, assert: [{type: contains, value: ok, required: true}]}\n",
    )
    data = run(suite, {"t": {"text": "no", "duration_ms": 5}}).to_dict()
    assert (data["suite"], data["suite_hash"]) == ("desk", suite.content_hash)
    (row,) = data["tests"]
    assert row["misses"] == ["The answer does not contain 'ok'."]
    assert row["failed_gates"] == ["contains-ok"]
    assert row.items() >= {"conversation_id": "c1", "metadata": {"k": "v"}, "answer": "no", "duration_ms": 5}.items()
    assert data["summary"].items() >= {"total": 1, "failed": 1, "errors": 0, "mean": 0.0, "exit_code": 1}.items()
    assert json.loads(json.dumps(data)) == data


def test_json_lines_suites_run_too(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text(
        '{"id":"a","input":"hi","assert":[{"type":"contains","value":"ok"}]}\n', encoding="utf-8"
    )
    assert run(load_suite(tmp_path / "c.jsonl"), {"a": "ok"}).exit_code == 0
