"""Running a suite: who answers, which tests, and what results say."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.suites import RunOptions, read_responses, run_suite
from tests.suites.support import Given, load, run, suite_of, target, three, verdicts, write
from tests.support.clock import LONG

# The aim is 18.
MOST_MODULES = 18


class TestFilters:
    @pytest.mark.parametrize(
        ("options", "chosen"),
        [
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


class TestExitCodes:
    @pytest.mark.parametrize(
        ("answers", "code"),
        [
            ({"sum-1": "ok", "sum-2": "ok", "other": "ok"}, 0),
            ({"sum-1": "ok", "sum-2": "no", "other": "ok"}, 1),
            ({"sum-1": "ok", "sum-2": "ok"}, 3),
            ({"sum-1": "ok", "sum-2": "no"}, 1),
        ],
        ids=["all pass", "one fails", "one has no answer", "one fails, one has no answer"],
    )
    def test_codes(self, tmp_path: Path, answers: dict[str, str], code: int) -> None:
        assert run(three(tmp_path), answers).exit_code == code

    def test_borderline_is_no_failure(self, tmp_path: Path) -> None:
        suite = suite_of(tmp_path, {"type": "contains", "value": "a", "weight": 3}, {"type": "contains", "value": "b"})
        assert (run(suite, {"t": "a"}).verdict, run(suite, {"t": "a"}).exit_code) == ("borderline", 0)

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
    def test_a_single_target_needs_no_name(self, tmp_path: Path) -> None:
        assert run_suite(three(tmp_path), targets=Given.of(target(name="mine"))).exit_code == 0

    def test_a_test_names_its_own_targets_and_options_override(self, tmp_path: Path) -> None:
        suite = load(
            tmp_path,
            "execution: {targets: [a, b]}\ntests:\n"
            "  - {id: t, input: hi, assert: [{type: is_json}]}\n"
            "  - {id: u, input: hi, assert: [{type: is_json}], execution: {targets: [a]}}\n",
        )
        targets = Given.of(target(name="a"), target(name="b"), target(name="c"))
        for asked, ids in (((), ["t@a", "t@b", "u@a"]), (("b", "a"), ["t@b", "t@a", "u@a"]), (("b",), ["t"])):
            result = run_suite(suite, targets=targets, options=RunOptions(targets=asked))
            assert list(verdicts(result)) == ids


@pytest.mark.parametrize(("of_target", "of_run"), [(None, 3), (3, None)], ids=["the run says so", "its target says so"])
def test_tests_run_at_once_and_keep_their_order(tmp_path: Path, of_target: int | None, of_run: int | None) -> None:
    barrier = threading.Barrier(3, timeout=LONG)
    answering = target(lambda request: str(barrier.wait()) and "ok", workers=of_target)
    result = run_suite(three(tmp_path), targets=Given.of(answering), options=RunOptions(workers=of_run))
    assert list(verdicts(result).items()) == [("sum-1", "pass"), ("sum-2", "pass"), ("other", "pass")]


def test_a_test_that_takes_too_long_is_an_error(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, {"type": "code_judge", "script": ["sleep", "600"]})
    started = time.monotonic()
    (test,) = run(suite, {"t": "ok"}, timeout=0.3, allow_code=True).tests
    assert (test.verdict, test.error and test.error.reason) == ("error", "timeout")
    assert time.monotonic() - started < LONG


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


def test_one_test_goes_through_few_modules_from_its_file_to_its_verdict(tmp_path: Path) -> None:
    """Workspaces, digests, the judge's questions and other assert types are not loaded for it."""
    check = "{id: a, input: hi, assert: [{type: contains, value: hello}]}"
    write(tmp_path, {"s.eval.yaml": f"tests: [{check}]"})
    program = """\
import sys
from persona_pipeline.suites import load_suite, read_responses, run_suite
print(run_suite(load_suite(sys.argv[1]), responses=read_responses({"a": "hello"})).tests[0].verdict)
print(*(name for name in sys.modules if name.count(".") == 3 and name.startswith("persona_pipeline.suites.")))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "s.eval.yaml")], capture_output=True, text=True, check=True
    )
    verdict, modules = done.stdout.splitlines()
    assert verdict == "pass"
    assert len(modules.split()) <= MOST_MODULES, modules
