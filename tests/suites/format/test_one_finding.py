"""One mistake is one finding, and lines of a data file that are wrong in the same way are one."""

import json
from pathlib import Path

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import get_settings
from persona_pipeline.suites.running.opening import load_suite, open_targets
from persona_pipeline.suites.running.plan import target_problems
from tests.suites.support import load, write


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tests:\n  - {id: a, inptu: hi, criteria: c}\n", "unknown key 'inptu'; did you mean 'input'?"),
        ("tests:\n  - {ID: a, input: hi, criteria: c}\n", "unknown key 'ID'; did you mean 'id'?"),
        ("tests:\n  - {id: a, input: hi, assert: [{type: latency, max_m: 5}]}\n", "did you mean 'max_ms'?"),
        (
            "tests:\n  - {id: a, input: hi, assert: &c [{type: contains, valeu: a}]}\n"
            "  - {id: b, input: hi, assert: *c}\n  - {id: c, input: hi, assert: *c}\n",
            "test 'a': assert[0] (contains): unknown key 'valeu'; did you mean 'value'?",
        ),
        ("assert: [{type: contains}]\ntests:\n  - {id: a, input: hi}\n  - {id: b, input: hi}\n", "value is required"),
        (
            "tests:\n  - {id: a, input: hi, assert: [{type: llm_judge, prompt: 'Is {{ anwser }} ok?'}]}\n",
            "prompt names {{ anwser }}, which is not in the evidence; did you mean 'answer'?",
        ),
    ],
    ids=["a key", "capitals", "a field of an assert", "aliases", "a suite's assert", "a variable of a prompt"],
)
def test_one_mistake_is_one_finding(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, text)
    (problem,) = raised.value.problems
    assert said in problem.message


def test_equal_lines_of_a_data_file_are_one_finding(tmp_path: Path) -> None:
    rows = [{"id": f"t{n}", "input": "hi", "critera": "c"} for n in range(9)] + [{"id": "x", "criteria": "c"}]
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        load_suite(path)
    same, other = raised.value.problems
    assert "unknown key 'critera'; did you mean 'criteria'? (and 8 more: line 2, 3, 4, 5, 6, ...)" in same.message
    assert (same.line, other.line, other.message) == (1, 10, "test 'x': input is required")


TARGETS = "targets:\n  - {name: default, provider: mock}\n  - {name: careful, provider: mok}\n"
NAMED = """
execution: {target: defualt}
tests:
  - {id: a, input: hi, criteria: c, execution: {targets: [carefull, default]}}
  - {id: b, input: hi, criteria: c, execution: {targets: [carefull]}}
  - {id: c, input: hi, criteria: c, execution: {target: judge}}
"""


def test_validation_looks_at_targets(tmp_path: Path) -> None:
    write(tmp_path, {"targets.yaml": TARGETS})
    suite = load(tmp_path, NAMED)
    found = open_targets(suite, None, get_settings())
    assert found is not None
    said = [problem.message for problem in target_problems(suite, found)]
    assert [any(text in line for line in said) for text in ("'defualt'", "'carefull'", "'judge'", "'mok'")] == [
        True
    ] * 4
    assert len(said) == 4
    assert all("did you mean" in line for line in said if "'judge'" not in line)
