"""Suites that are written in Python: the same results, resumed and reported as those from files."""

import gc
import glob
import json
import re
from pathlib import Path
from typing import Any

import pytest

import persona_pipeline as pp
from persona_pipeline.suites import Grade, Output

ANSWERS = {"hello": "Hello, Ada!", "bye": "See you."}


def short(answer: str) -> bool:
    return len(answer) < 12


def greets(answer: str, test: Any) -> None:
    assert answer.startswith("Hello"), f"{test.id}: no greeting"


def answer(prompt: str) -> str:
    return ANSWERS[prompt]


def suite(*asserts: Any, **fields: Any) -> pp.Suite:
    tests = [pp.Test(id=name, input=name, asserts=asserts) for name in ANSWERS]
    return pp.make_suite("greeting", tests, **fields)


def test_functions_and_types_of_the_format_stand_side_by_side() -> None:
    made = suite(short, {"type": "contains", "value": "Hello"})
    run = pp.run_suite(made, targets=answer)
    assert [(test.id, test.verdict) for test in run.tests] == [("hello", "pass"), ("bye", "fail")]
    assert [item.name for item in run.tests[0].best.results] == ["short", "contains-Hello"]
    assert run.suite == "greeting"
    assert made.path == Path(__file__)


def test_a_test_without_an_id_is_numbered() -> None:
    made = pp.make_suite("short", [pp.Test(input="hello", asserts=[short]), pp.Test(input="bye", asserts=[short])])
    assert [test.id for test in made.tests] == ["test-1", "test-2"]


@pytest.mark.parametrize(
    ("given", "verdict", "said"),
    [
        (True, "pass", "judge holds"),
        (False, "fail", "judge does not hold"),
        (0.7, "borderline", ""),
        (1, "pass", ""),
        (Grade(0.0, misses=("too long",)), "fail", "too long"),
        ({"score": 0.2, "misses": ["no name"]}, "fail", "no name"),
        (None, "error", "must be a number from 0 to 1, not None"),
        (re.match("x", "x"), "error", "must be a number from 0 to 1"),
        (1.5, "error", "must be from 0 to 1"),
        (float("nan"), "error", "must be a number"),
        ("yes", "error", "must be a number from 0 to 1, not 'yes'"),
        (AssertionError("dull"), "fail", "dull"),
        (AssertionError(), "fail", "judge does not hold"),
        (KeyError("x"), "error", "KeyError"),
    ],
)
def test_what_a_function_may_say(given: Any, verdict: str, said: str) -> None:
    def judge(text: str) -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    [test, _] = pp.run_suite(suite(judge), targets=answer).tests
    [item] = test.best.results
    assert item.verdict == verdict
    assert said in f"{item.hits} {item.misses} {item.error}"


def test_a_function_gets_what_its_parameters_are_called() -> None:
    got: dict[str, Any] = {}

    def look(first: str, output: Output, question: str, criteria: str, attempt: int, more: int = 3) -> bool:
        got.update(first=first, output=output.text, question=question, criteria=criteria, attempt=attempt, more=more)
        return True

    made = pp.make_suite("one", [pp.Test(id="t", input="hello", criteria="greets", asserts=[look])])
    assert pp.run_suite(made, targets=answer).exit_code == 0
    assert got == {
        "first": "Hello, Ada!",
        "output": "Hello, Ada!",
        "question": "hello",
        "criteria": "greets",
        "attempt": 0,
        "more": 3,
    }


def test_a_parameter_nobody_knows_is_an_error_and_no_pass() -> None:
    [test, _] = pp.run_suite(suite(lambda answer, mood: True), targets=answer).tests
    assert (test.verdict, "parameter 'mood' is none of answer" in str(test.error)) == ("error", True)


def test_everything_a_file_can_say() -> None:
    made = suite(
        short,
        description="How it greets.",
        tags=["ci"],
        trials={"strategy": {"at_least": 2, "of": 3}},
        asserts=[
            {
                "type": "composite",
                "aggregator": {"type": "weighted_average"},
                "assert": [{"type": "function", "call": greets}],
            }
        ],
    )
    assert (made.tags, made.trials and made.trials.at_least, made.metadata and made.metadata.description) == (
        ("ci",),
        2,
        "How it greets.",
    )
    run = pp.run_suite(made, targets=answer)
    assert [(test.verdict, len(test.attempts)) for test in run.tests] == [("pass", 2), ("fail", 2)]
    assert "bye: no greeting" in str(run.tests[1].to_dict())


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ([pp.Test(id="a", input="x")], "there is nothing to check"),
        ([{"id": "a", "asserts": [short]}], "input is required"),
        ([pp.Test(id="a", input="x", asserts=[short])] * 2, "duplicate test id 'a'"),
        ([{"id": "a", "input": "x", "assert": [{"type": "contians"}]}], "did you mean 'contains'"),
        ([{"id": "a", "input": "x", "asserts": [{"type": "function"}]}], "type 'function' is unknown"),
        ([{"id": "a", "input": "x", "asserts": [short], "trails": {}}], "unknown key 'trails'"),
    ],
)
def test_what_is_wrong_is_said_at_the_line_that_makes_it(tests: list[Any], said: str) -> None:
    with pytest.raises(pp.ConfigError, match=re.escape(said)) as caught:
        pp.make_suite("broken", tests)
    assert re.search(rf"{re.escape(__file__)}:\d+", str(caught.value))


def test_a_file_cannot_name_a_function(tmp_path: Path) -> None:
    path = tmp_path / "a.eval.yaml"
    path.write_text("tests: [{id: t, input: x, assert: [{type: function, call: os.system}]}]", "utf-8")
    with pytest.raises(pp.ConfigError, match="type 'function' is unknown"):
        pp.load_suite(path)


def test_a_run_goes_on_where_it_stopped_until_the_function_changes(tmp_path: Path) -> None:
    rows, module = tmp_path / "rows.jsonl", tmp_path / "own.py"
    asked: list[str] = []

    def counted(prompt: str) -> str:
        asked.append(prompt)
        return ANSWERS[prompt]

    def run() -> pp.SuiteRun:
        space: dict[str, Any] = {}
        exec(compile(module.read_text("utf-8"), str(module), "exec"), space)
        return pp.run_suite(space["made"](), targets=counted, rows=rows)

    text = (
        "import persona_pipeline as pp\n"
        "def short(answer):\n    return len(answer) < 12\n"
        "def made():\n"
        "    return pp.make_suite('greeting', [pp.Test(id=name, input=name, asserts=[short]) for name in ('hello', 'bye')])\n"
    )
    module.write_text(text, "utf-8")
    first = run()
    assert (asked, [test.resumed for test in first.tests]) == (["hello", "bye"], [False, False])
    # The last row was cut off by a kill.
    lines = rows.read_text("utf-8").splitlines()
    rows.write_text(lines[0] + "\n" + lines[1][:20], "utf-8")
    second = run()
    assert (asked[2:], [test.resumed for test in second.tests]) == (["bye"], [True, False])
    assert [test.verdict for test in second.tests] == [test.verdict for test in first.tests]
    assert run().tests[1].resumed and asked[3:] == []
    module.write_text(text.replace("< 12", "< 5"), "utf-8")
    assert [test.verdict for test in run().tests] == ["fail", "fail"]


@pytest.mark.parametrize(("name", "start"), [("r.html", "<!doctype html>"), ("r.xml", "<?xml"), ("r.json", "{")])
def test_reports(tmp_path: Path, name: str, start: str) -> None:
    run = pp.run_suite(suite(short), targets=answer)
    run.write(tmp_path / "out" / name)
    text = (tmp_path / "out" / name).read_text("utf-8")
    assert text.lower().startswith(start) and "greeting" in text
    if name.endswith(".json"):
        assert json.loads(text)["tests"][0]["verdict"] == "pass"


@pytest.mark.parametrize(
    "trials", [{"count": 3}, {"strategy": {"at_least": 2, "of": 5}}, {"count": 2, "strategy": "mean"}]
)
def test_a_page_of_trials_that_stopped_early(tmp_path: Path, trials: dict[str, Any]) -> None:
    pp.run_suite(suite(short, trials=trials), targets=answer).write(tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text("utf-8")
    assert ("flake rate" in text) is (trials.get("strategy") == "mean")
    pp.run_suite(suite(short, trials=trials), targets=answer).write(tmp_path / "r.xml")
    text = (tmp_path / "r.xml").read_text("utf-8")
    assert ('name="flake_rate" value="0.000 (0.000 to 0.658)"' in text) is (trials.get("strategy") == "mean")


def test_a_function_with_other_values_runs_again(tmp_path: Path) -> None:
    def at_most(most: int) -> Any:
        return lambda answer: len(answer) < most

    def run(most: int) -> list[tuple[str, bool]]:
        made = suite(at_most(most))
        tests = pp.run_suite(made, targets=answer, rows=tmp_path / "rows.jsonl").tests
        return [(test.verdict.value, test.resumed) for test in tests]

    assert run(100) == [("pass", False)] * 2
    assert run(100) == [("pass", True)] * 2
    assert run(1) == [("fail", False)] * 2


SUITE = suite(short)


@pytest.mark.parametrize("test_id", [test.id for test in SUITE.tests])
def test_each_test_is_one_of_pytest(test_id: str) -> None:
    run = pp.run_suite(SUITE, targets=answer, test_ids=glob.escape(test_id))
    assert [test.id for test in run.tests] == [test_id]
    assert run.result == "held"


def test_suites_in_python_are_told_apart_by_what_they_ask() -> None:
    def made(*asked: str) -> str:
        tests = [pp.Test(input=text, asserts=[{"type": "contains", "value": "ok"}]) for text in asked]
        return pp.make_suite("apart", tests).content_hash

    assert made("a") == made("a")
    assert len({made("a"), made("b"), made("a", "b")}) == 3


def test_a_run_leaves_a_programs_garbage_to_its_collector() -> None:
    suite = pp.make_suite("tidy", [pp.Test(input="hi", asserts=[{"type": "contains", "value": "ok"}])])
    frozen = gc.get_freeze_count()
    pp.run_suite(suite, targets=lambda prompt: "ok")
    assert gc.get_freeze_count() == frozen
