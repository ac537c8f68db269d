"""Programs as judges: what they get, what they may print, what they may not do."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.suites import Services, UngradedError
from persona_pipeline.suites.asserts.code_judge import read_grade
from persona_pipeline.suites.grading.results import Grade
from tests.suites.support import grade, run, suite_of, write

ALLOWED = Services(allow_code=True)


def judge(folder: Path, code: str, answer: Any = "ok", **fields: Any) -> Grade:
    write(folder, {"j.py": "import json, sys\nd = json.load(sys.stdin)\n" + code})
    item = {"type": "code_judge", "script": [sys.executable, "j.py"], **fields}
    return grade(folder, item, answer, services=ALLOWED)


def test_code_does_not_run_unless_it_is_allowed(tmp_path: Path) -> None:
    write(tmp_path, {"j.py": "open('ran', 'w')"})
    suite = suite_of(tmp_path, {"type": "code_judge", "script": [sys.executable, "j.py"]})
    (test,) = run(suite, {"t": "ok"}).tests
    assert (test.verdict, test.error and test.error.reason) == ("error", "code_not_allowed")
    assert not (tmp_path / "ran").exists()


def test_a_grade_is_what_the_program_prints(tmp_path: Path) -> None:
    code = "print(json.dumps({'score': 0.5, 'hits': ['h', ' ', 5], 'misses': ['m'], 'reasoning': 'r', 'details': {'n': 1}}))"
    found = judge(tmp_path, code)
    assert found == Grade(0.5, ("h",), ("m",), "r", None, {"n": 1})


def test_it_gets_everything_about_the_test_under_old_and_new_names(tmp_path: Path) -> None:
    code = "open('seen.json', 'w').write(json.dumps(d)); print(json.dumps({'score': 1}))"
    answer = {
        "output_messages": [
            {"role": "assistant", "content": "done", "tool_calls": [{"tool": "a", "input": {"filePath": "x"}}]}
        ],
        "cost_usd": 0.1,
        "duration_ms": 5,
        "token_usage": {"input": 1, "output": 2},
    }
    judge(tmp_path, code, answer, threshold=0.5, cwd=".")
    seen = json.loads((tmp_path / "seen.json").read_text(encoding="utf-8"))
    assert seen["question"] == "hi"
    assert seen["criteria"] == seen["expected_outcome"] == "be good"
    assert seen["answer"] == seen["candidate_answer"] == "done"
    assert seen["output"] == seen["output_messages"] == answer["output_messages"]
    assert seen["input"] == seen["input_messages"] == [{"role": "user", "content": "hi"}]
    assert seen["trace"] == seen["trace_summary"]
    assert seen["trace"]["tool_calls_by_name"] == {"a": 1}
    assert (seen["trace"]["cost_usd"], seen["trace"]["token_usage"]) == (0.1, {"input": 1, "output": 2})
    assert seen["config"] == {"threshold": 0.5}
    assert seen["output_path"] is None


def test_a_long_output_comes_in_a_file(tmp_path: Path) -> None:
    code = "print(json.dumps({'score': float(d['output'] is None and len(open(d['output_path']).read()) > 50000)}))"
    assert judge(tmp_path, code, "x" * 60_000).score == 1


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("hello", "it printed 'hello'"),
        ("[1]", "one JSON object"),
        ("{}", "score must be a number"),
        ('{"score": NaN}', "NaN"),
        ('{"score": 1e999}', "too large"),
        ('{"score": 2}', "from 0 to 1, not 2"),
        ('{"score": -0.1}', "from 0 to 1"),
        ('{"score": "0.9"}', "not '0.9'"),
        ('{"score": true}', "not True"),
        (b"\xff", "one JSON object"),
    ],
)
def test_any_other_print_is_an_error_and_never_a_number(printed: str | bytes, said: str) -> None:
    with pytest.raises(UngradedError) as raised:
        read_grade(printed if isinstance(printed, bytes) else printed.encode())
    assert raised.value.reason == "invalid_output"
    assert said in raised.value.message


GOOD = "print(json.dumps({'score': 1}))"


@pytest.mark.parametrize(
    ("code", "reason", "said"),
    [
        (f"{GOOD}; sys.stderr.write('bad'); sys.exit(2)", "script_failed", "code 2: bad"),
        ("import os; os.kill(os.getpid(), 9)", "script_failed", "code -9"),
        ("print('x' * 20_000_000)", "too_much_output", "10,000,000 bytes"),
    ],
)
def test_a_program_that_fails_is_an_error(tmp_path: Path, code: str, reason: str, said: str) -> None:
    with pytest.raises(UngradedError) as raised:
        judge(tmp_path, code)
    assert (raised.value.reason, said in raised.value.message) == (reason, True)


def test_text_is_split_as_a_shell_would_and_no_shell_runs(tmp_path: Path) -> None:
    write(
        tmp_path, {"my judge.py": "import json, sys\nprint(json.dumps({'score': float(sys.argv[1] == '$HOME; ls')}))"}
    )
    script = f"{shlex.quote(sys.executable)} 'my judge.py' '$HOME; ls'"
    assert grade(tmp_path, {"type": "code_judge", "script": script}, "ok", services=ALLOWED).score == 1


def test_the_answer_only_ever_stands_on_standard_input(tmp_path: Path) -> None:
    hostile = "'; touch owned; echo '$(touch owned)`touch owned`"
    code = "print(json.dumps({'score': float(d['answer'] == " + repr(hostile) + " and len(sys.argv) == 1)}))"
    assert judge(tmp_path, code, hostile).score == 1
    assert not (tmp_path / "owned").exists()
