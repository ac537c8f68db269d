"""What a suite file may say, and what is said about mistakes in it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites import load_suite
from persona_pipeline.suites.format.models import Metadata
from tests.suites.support import load

ONE = "tests:\n  - {id: t, input: hi, criteria: c}\n"


def problems(folder: Path, text: str, **files: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        load(folder, text, **files)
    return [str(problem).removeprefix(f"{folder}/") for problem in raised.value.problems]


def test_nothing_but_tests_gives_the_defaults(tmp_path: Path) -> None:
    suite = load(tmp_path, ONE)
    assert suite.model_dump() == {
        "metadata": None,
        "target": None,
        "targets": None,
        "trials": None,
        "cache": None,
        "tests": [
            {
                "id": "t",
                "expected_outcome": "c",
                "input_messages": [{"role": "user", "content": "hi"}],
                "expected_messages": [],
                "question": "hi",
                "reference_answer": "",
                "dataset": "suite.eval",
                "assert": [],
            }
        ],
    }
    assert (suite.name, suite.warnings) == ("suite", ())


EVERY_FIELD = """
$schema: agentv-eval-v2
name: paper-desk
description: What the desk answers
version: "1.0.0"
author: corley
tags: [sales, safety]
license: Apache-2.0
requires: {agentv: ">=0.6.0", anything: else}
dataset: desk
evaluator: llm_judge
input: Be brief.
execution:
  targets: [a, b]
  trials: {count: 3, strategy: mean, cost_limit_usd: 0.5}
  cache: true
assert:
  - {type: latency, max_ms: 10}
tests:
  - {id: t, input: hi, criteria: c}
"""


def test_every_top_level_field_is_kept(tmp_path: Path) -> None:
    suite, given = load(tmp_path, EVERY_FIELD), yaml.safe_load(EVERY_FIELD)
    data = suite.model_dump()
    assert data["metadata"] == {name: given[name] for name in Metadata.model_fields}
    assert {name: data[name] for name in given["execution"]} == given["execution"]
    (only,) = data["tests"]
    assert (only["dataset"], only["question"]) == ("desk", "Be brief. hi")
    assert [message["content"] for message in only["input_messages"]] == ["Be brief.", "hi"]
    assert [item["name"] for item in only["assert"]] == ["latency"]
    assert (suite.name, suite.tags, suite.warnings) == ("paper-desk", ("sales", "safety"), ())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a\n", "suite.eval.yaml:1:1: must be a mapping with tests"),
        ("name: a\ndescription: d\n", "suite.eval.yaml:1:1: tests is required"),
        ("tests: 5\n", "suite.eval.yaml:1:8: tests must be a list"),
        ("testss: []\n" + ONE, "suite.eval.yaml:1:1: suite: unknown key 'testss'; did you mean 'tests'?"),
        ("name: A\ndescription: d\n" + ONE, "suite.eval.yaml:1:7: suite: name"),
        ("name: a\n" + ONE, "suite.eval.yaml:1:7: suite: description is required with name"),
        (f"name: a\ndescription: {'d' * 1025}\n" + ONE, ":2:14: suite: description: must have at most 1024 characters"),
        ('name: "a\\n"\ndescription: d\n' + ONE, "suite.eval.yaml:1:7: suite: name: must match ^[a-z0-9-]+$"),
        ("version: 1.0\n" + ONE, "suite.eval.yaml:1:10: suite: version: must be a string, not 1.0"),
        ("requires: {agentv: 1}\n" + ONE, "suite.eval.yaml:1:20: suite: requires.agentv: must be a string"),
        ("tags: [a, 1]\n" + ONE, "suite.eval.yaml:1:11: suite: tags[1]: must be a string, not 1"),
        ("description: [d]\n" + ONE, "suite.eval.yaml:1:14: suite: description: must be a string, not a list"),
        ("evaluator: lm_judge\n" + ONE, "suite.eval.yaml:1:12: evaluator: type 'lm_judge' is unknown; did you mean"),
        ("evaluator: contains\n" + ONE, "suite.eval.yaml:1:12: evaluator: contains needs fields of its own"),
        ("execution: {trials: {count: 0}}\n" + ONE, "suite.eval.yaml:1:29: suite: execution.trials.count: must be >= 1, not 0"),
        ("execution: {trials: {count: 2.5}}\n" + ONE, "execution.trials.count: must be a whole number"),
        ("execution: {trials: {count: 2, strategy: best}}\n" + ONE, "strategy: must be one of pass_at_k, mean"),
        ("execution: {trials: {count: 2, cost_limit_usd: -1}}\n" + ONE, "cost_limit_usd: must be >= 0, not -1"),
        ("execution: {targets: []}\n" + ONE, "execution.targets: must not be empty"),
        ("execution: {trails: {count: 2}}\n" + ONE, ":1:13: suite: unknown key 'execution.trails'; did you mean 'trials'?"),
        ("execution: {trials: {cuont: 2}}\n" + ONE, "unknown key 'execution.trials.cuont'; did you mean 'count'?"),
        ("execution: [a]\n" + ONE, "must be a mapping"),
        ("workspace: {template: ./none}\n" + ONE, "workspace: template: folder './none' does not exist (tried"),
        ("workspace: {setup: {script: sh}}\n" + ONE, "workspace.setup.script: must be a list, not 'sh'"),
        ("workspace: {setup: {script: [sh], timeout_ms: 0}}\n" + ONE, "setup.timeout_ms: must be > 0, not 0"),
        ("input: 5\n" + ONE, "suite.eval.yaml:1:8: suite: input: must be a string or a list of messages"),
        ("assert:\n" + ONE, "assert must be a list of asserts"),
        ("tests:\n  - {id: a, input: hi, criteria: c}\n  - {id: a, input: ho, criteria: c}\n", "duplicate test id 'a' (first at"),
        ("tests:\n  - {id: 5, input: hi, criteria: c}\n", "suite.eval.yaml:2:10: tests[0]: id: must be a string, not 5"),
        ("tests:\n  - {input: hi, criteria: c}\n", "suite.eval.yaml:2:5: tests[0]: id is required"),
        ("tests:\n  - {id: a, input: hi}\n", "suite.eval.yaml:2:5: test 'a': there is nothing to check"),
        ("tests:\n  - {id: a, input: [], criteria: c}\n", "input: must not be empty"),
        ("tests:\n  - {id: a, input: hi, critria: c}\n", ":2:24: test 'a': unknown key 'critria'; did you mean"),
        ("tests:\n  - {id: a, input: hi, criteria: c, metadata: x}\n", "test 'a': metadata: must be a mapping, not 'x'"),
        ("tests:\n  - {id: a, input: hi, criteria: c, skip_defaults: 1}\n", "skip_defaults: must be true or false, not 1"),
        ("tests:\n  - {id: a, input: hi, criteria: c, expected_output: 5}\n", "expected_output: must be a string, a mapping"),
        ("tests:\n  - {id: a, input: hi, criteria: c, metadata: {n: .inf}}\n", "n: must be a finite number, not inf"),
        ("tests:\n  - {id: a, input: hi, criteria: c, metadata: {n: 1e999}}\n", "n: must be a finite number, not inf"),
        ("tests: [a.yaml]\n", "tests[0]: must be a test, or a reference that starts with file://"),
        ("$schema: agentv-targets-v2.2\ntargets: []\n", "is not a suite: $schema is 'agentv-targets-v2.2'"),
        ("tests: [\n", "is not valid YAML"),
        ("a: !!python/object:x {}\n", "tag"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    found = problems(tmp_path, text)
    assert any(said in line for line in found), found
    assert all(line.startswith("suite.eval.yaml:") for line in found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("target: a\n" + ONE, ":1:1: target is deprecated; write execution.target"),
        ("eval_cases:\n  - {id: t, input: hi, criteria: c}\n", ":1:1: eval_cases is deprecated; rename it to tests"),
        ("evalcases:\n  - {id: t, input: hi, criteria: c}\n", ":1:1: evalcases is deprecated; rename it to tests"),
        ("eval_cases: []\n" + ONE, ":1:1: eval_cases is ignored, because tests holds the tests"),
        ("assertions: [{type: is_json}]\n" + ONE, ":1:1: assertions is deprecated; rename it to assert"),
        ("tests:\n  - {id: t, input: hi, assertions: [{type: is_json}]}\n", ":2:24: test 't': assertions is deprecated"),
        ("tests:\n  - id: t\n    input: hi\n    description: Greets\n", ":4:5: test 't': description is deprecated"),
        ("tests:\n  - id: t\n    input: hi\n    reference_answer: Hi\n", ":4:5: test 't': reference_answer is deprecated"),
        ("evaluators: [{type: is_json}]\n" + ONE, ":1:1: evaluators is deprecated; rename it to assert"),
        ("execution:\n  evaluators: [{type: is_json}]\n" + ONE, ":2:3: execution.evaluators is deprecated"),
        ("tests:\n  - id: t\n    input: hi\n    rubrics: [Polite]\n", ":4:5: test 't': rubrics is deprecated"),
        ("tests:\n  - id: t\n    input: hi\n    evaluators: [{type: is_json}]\n", ":4:5: test 't': evaluators is deprecated"),
        (
            "tests:\n  - id: t\n    input: hi\n    execution:\n      evaluators: [{type: is_json}]\n",
            ":5:7: test 't': execution.evaluators is deprecated",
        ),
        ("tests: []\n", ":1:1: the suite has no tests"),
        (
            "tests:\n  - {id: t, input: hi, assert: [{type: is_json, weight: 0}]}\n",
            "every assert weighs 0, so the score can only be 0",
        ),
        (
            "tests:\n  - {id: t, input: hi, assert: [{type: code_judge, script: [x], requried: true}]}\n",
            "'requried' is handed to the script as config; did you mean 'required'?",
        ),
        (
            'tests:\n  - {id: t, input: hi, assert: [{type: llm_judge, prompt: "{{ zzz }}"}]}\n',
            "prompt names {{ zzz }}, which is not in the evidence",
        ),
    ],
)  # fmt: skip
def test_what_is_old_or_suspicious_is_a_warning_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    warnings = load(tmp_path, text).warnings
    assert len(warnings) == 1
    assert said in str(warnings[0])
    assert str(warnings[0]).startswith(str(tmp_path))


def names(suite: Any) -> list[str]:
    return [item.name for item in suite.tests[0].asserts]


def test_all_four_spellings_of_asserts_add_up_and_the_suite_comes_last(tmp_path: Path) -> None:
    suite = load(
        tmp_path,
        """
assert: [{type: is_json, name: suite}]
execution: {evaluators: [{type: is_json, name: old-suite}]}
tests:
  - id: t
    input: hi
    rubrics: [Polite]
    assert: [{type: is_json, name: own}]
    execution: {evaluators: [{type: is_json, name: old}]}
    evaluators: [{type: is_json, name: older}]
""",
    )
    assert names(suite) == ["rubric", "own", "old", "older", "suite", "old-suite"]


@pytest.mark.parametrize("where", ["skip_defaults: true", "execution: {skip_defaults: true}"])
def test_a_test_can_refuse_what_the_suite_gives(tmp_path: Path, where: str) -> None:
    suite = load(
        tmp_path,
        f"""
input: Be brief.
assert: [{{type: is_json, name: suite}}]
tests:
  - id: t
    input: hi
    {where}
    assert: [{{type: is_json, name: own}}]
""",
    )
    assert names(suite) == ["own"]
    assert suite.tests[0].question == "hi"


def test_a_description_without_a_name_is_as_long_as_it_likes(tmp_path: Path) -> None:
    assert load(tmp_path, f"description: {'d' * 1025}\n" + ONE).metadata is None


def test_null_is_the_same_as_absent(tmp_path: Path) -> None:
    suite = load(
        tmp_path,
        "tests:\n  - {id: t, input: hi, criteria: c, expected_output: null, conversation_id: null, workspace: null}\n",
    )
    assert suite.tests[0].expected_messages == ()


@pytest.mark.parametrize("name", ["suite.txt", "suite"])
def test_a_suite_is_yaml_or_json_lines(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(ONE, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"must end in .yaml, .yml or .jsonl"):
        load_suite(tmp_path / name)


def test_a_missing_suite_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml.*does not exist"):
        load_suite(tmp_path / "none.yaml")


def test_a_sidecar_that_leads_out_of_the_folder_is_named(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "outside.yaml").write_text("description: d\n", encoding="utf-8")
    (inside / "s.yaml").symlink_to(tmp_path / "outside.yaml")
    (inside / "s.jsonl").write_text('{"id": "t", "input": "hi", "criteria": "c"}\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"s\.yaml.*lies outside .*--allow-path"):
        load_suite(inside / "s.jsonl", roots=[inside])


def test_a_suite_that_is_not_utf_8_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_bytes(b"tests:\n  - \xff\n")
    with pytest.raises(ConfigError, match=r"s\.yaml:2:1: is not UTF-8"):
        load_suite(tmp_path / "s.yaml")


def test_the_content_hash_changes_with_any_file_the_suite_reads(tmp_path: Path) -> None:
    text = "tests:\n  - {id: t, input: hi, assert: [{type: llm_judge, prompt: ./j.md}]}\n"
    first = load(tmp_path, text, j_dot_md="Judge {{ answer }}").content_hash
    assert load(tmp_path, text, j_dot_md="Judge {{ answer }}").content_hash == first
    assert load(tmp_path, text, j_dot_md="Judge {{answer}}!").content_hash != first


@pytest.mark.parametrize(
    ("fields", "goal", "reference"),
    [
        ("description: Greets", "Greets", ""),
        ("description: Greets\n    criteria: c", "c", ""),
        ("reference_answer: Hi there", "", "Hi there"),
        ("reference_answer: Hi there\n    expected_output: Hello", "", "Hello"),
    ],
)
def test_the_oldest_names_of_goal_and_answer(tmp_path: Path, fields: str, goal: str, reference: str) -> None:
    test = load(tmp_path, f"tests:\n  - id: t\n    input: hi\n    {fields}\n").tests[0]
    assert (test.expected_outcome, test.reference_answer) == (goal, reference)


def test_keys_that_begin_with_x_are_a_home_for_anchors(tmp_path: Path) -> None:
    suite = load(
        tmp_path,
        "x-polite: &polite {type: contains, value: please}\ntests:\n  - {id: t, input: hi, assert: [*polite]}\n",
    )
    assert (suite.tests[0].asserts[0].dump()["value"], suite.warnings) == ("please", ())
    assert problems(tmp_path, "y-polite: 1\n" + ONE) == ["suite.eval.yaml:1:1: suite: unknown key 'y-polite'"]
    # A test is no home for anchors.
    assert "unknown key 'x-a'" in problems(tmp_path, "tests:\n  - {id: t, input: hi, criteria: c, x-a: 1}\n")[0]
