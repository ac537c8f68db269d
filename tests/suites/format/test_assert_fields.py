"""What every assert may say: names, weights, gates, spellings, and the mistakes in it."""

from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.judging.verdict import Question
from tests.suites.support import grade, judging, load, suite_of, write


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ({"type": "contains", "value": "x y"}, "contains-x y"),
        ({"type": "equals", "value": "4"}, "equals-4"),
        ({"type": "regex", "value": "a" * 40}, "regex-" + "a" * 30),
        ({"type": "is_json"}, "is_json"),
        # Any other type is named as it is spelled.
        ({"type": "is-json"}, "is-json"),
        ({"type": "rubric", "rubrics": ["a"]}, "rubric"),
        ({"type": "llm_judge", "rubrics": ["a"]}, "llm_judge"),
        ({"type": "propositions", "agent": "pam"}, "propositions-pam-adherence"),
        ({"type": "persona_drift", "agent": "pam"}, "persona_drift-pam"),
        ({"type": "is_json", "name": "mine"}, "mine"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["type"],
)
def test_every_type_has_a_name_without_being_given_one(tmp_path: Path, item: dict[str, Any], name: str) -> None:
    (found,) = suite_of(tmp_path, item).tests[0].asserts
    assert found.name == name
    assert (found.weight, found.required, found.negate) == (1.0, False, False)


MEAN = {"type": "weighted_average"}
OLD_CALL = {"tool": "a", "input": {"b": 1}, "output": "c"}
MEMBER = {"name": "is_json", "type": "is_json", "weight": 1.0, "required": False}


@pytest.mark.parametrize(
    ("item", "expected", "said"),
    [
        ({"type": "latency", "threshold": 5}, {"type": "latency", "max_ms": 5}, []),
        ({"type": "latency", "threshold": 5, "max_ms": 6}, {"max_ms": 6}, []),
        ({"type": "cost", "budget": 0.5}, {"type": "cost", "max_usd": 0.5}, []),
        ({"type": "code", "script": "run 'a b' | b"}, {"type": "code_judge", "script": ["sh", "-lc", "run 'a b' | b"]}, []),
        ({"type": "code_judge", "command": ["run"], "a": 1}, {"script": ["run"], "config": {"a": 1}},
         ["command is deprecated; rename it to script"]),
        ({"type": "composite", "assertions": [{"type": "is_json"}], "aggregator": MEAN}, {"assert": [MEMBER]},
         ["assertions is deprecated; rename it to assert"]),
        ({"type": "rubrics", "criteria": [{"id": "a", "description": "Kind"}]},
         {"criteria": [{"id": "a", "outcome": "Kind", "weight": 1.0, "required": False}]},
         ["criteria[0].description is deprecated; rename it to outcome"]),
        ({"type": "tool_trajectory", "mode": "exact", "expected": [OLD_CALL]}, {"expected": [{"tool": "a", "args": {"b": 1}}]},
         ["expected[0].input is deprecated; rename it to args", "expected[0].output is deprecated; remove it"]),
        ({"type": "code_judge", "script": ["x"], "config": {"a": 1}, "b": 2}, {"config": {"a": 1, "b": 2}}, []),
        ({"type": "icontains-any", "value": ["a"]},
         {"type": "contains", "name": "icontains-any-a", "ignore_case": True, "of": "any"}, []),
        ({"type": "is_json", "required": 0.5}, {"required": 0.5}, []),
        ({"type": "is_json", "required": 1}, {"required": 1.0}, []),
        ({"type": "is_json", "negate": True}, {"negate": True}, []),
        ({"type": "rubric", "rubrics": ["a"], "model": "m"}, {"type": "rubrics", "model": "m"}, []),
        ({"type": "persona_drift", "agent": "pam", "dimension": "fluency"}, {"dimensions": ["fluency"]}, []),
        ({"type": "agent_judge"}, {"max_steps": 10}, []),
        ({"type": "execution-metrics", "target_exploration_ratio": 0.5}, {"exploration_tolerance": 0.2}, []),
    ],
)  # fmt: skip
def test_other_spellings_and_defaults(
    tmp_path: Path, item: dict[str, Any], expected: dict[str, Any], said: list[str]
) -> None:
    suite = suite_of(tmp_path, item)
    data = suite.tests[0].asserts[0].dump()
    assert data.items() >= expected.items()
    assert not {"threshold", "budget", "rubrics", "dimension"} & data.keys()
    assert [text in str(warning) for warning, text in zip(suite.warnings, said, strict=True)] == [True] * len(said)
    assert all(warning.line and warning.line > 1 for warning in suite.warnings)


TOOLS: dict[str, Any] = {"type": "tool_trajectory"}


def span(low: int, high: int) -> dict[str, Any]:
    return {"score_range": [low, high], "outcome": "x"}


def ranged(ranges: Any) -> dict[str, Any]:
    return {"type": "rubrics", "criteria": [{"id": "a", "score_ranges": ranges}]}


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("contains", "assert[0] must be a mapping with type"),
        ({"contains": "x"}, "type is required"),
        ({"type": 5}, "type is required"),
        ({"type": "contians", "value": "x"}, "type 'contians' is unknown; did you mean 'contains'?"),
        ({"type": "sentiment"}, "type 'sentiment' is unknown; known: contains, regex"),
        ({"type": "contains"}, "assert[0] (contains): value is required"),
        ({"type": "contains", "value": ""}, "value: must not be empty"),
        ({"type": "contains", "value": "x", "wieght": 2}, "unknown key 'wieght'; did you mean 'weight'?"),
        ({"type": "contains", "value": "x", "weight": "high"}, "weight: must be a finite number >= 0, not 'high'"),
        ({"type": "contains", "value": "x", "weight": -1}, "weight: must be a finite number >= 0, not -1"),
        ({"type": "contains", "value": "x", "weight": True}, "weight: must be a finite number >= 0, not true"),
        ({"type": "contains", "value": "x", "required": 0}, "required: must be true, false or a minimum score"),
        ({"type": "contains", "value": "x", "required": "yes"}, "required: must be true, false or a minimum score"),
        ({"type": "contains", "value": "x", "name": ""}, "name: must not be empty"),
        ({"type": "regex", "value": "(", "name": "r"}, "assert[r] (regex): value: '(' is not a valid regular expression"),
        ({"type": "rubrics"}, "criteria is required"),
        ({"type": "rubric"}, "criteria is required"),
        ({"type": "rubrics", "criteria": []}, "criteria: must not be empty"),
        ({"type": "rubrics", "criteria": "x"}, "criteria: must be a list, not 'x'"),
        ({"type": "rubrics", "criteria": [5]}, "criteria[0]: must be a mapping, not 5"),
        ({"type": "rubrics", "criteria": [{"id": "a"}]}, "criterion 'a' needs an outcome"),
        ({"type": "rubrics", "criteria": [{"id": "a", "outcome": "b", "wight": 1}]}, "did you mean 'weight'?"),
        ({"type": "rubrics", "criteria": [{"outcome": "b", "weight": -1}]}, "weight: must be a finite number >= 0"),
        ({"type": "rubrics", "criteria": [{"id": "a", "outcome": "b"}, {"id": "a", "outcome": "c"}]}, "id 'a' is there twice"),
        ({"type": "llm_judge", "prompt": "./none.md"}, "prompt: file './none.md' does not exist"),
        ({"type": "llm_judge", "prompt": "judge.md"}, "prompt: file 'judge.md' does not exist"),
        ({"type": "llm_judge", "prompt": " "}, "prompt must not be empty"),
        ({"type": "llm_judge", "prompt": {"config": {}}}, "prompt.script is required"),
        ({"type": "code_judge"}, "script is required"),
        ({"type": "code_judge", "script": ""}, "script: must be a list of arguments, or a line"),
        ({"type": "code_judge", "script": []}, "script: must be a list of arguments"),
        ({"type": "code_judge", "script": ["a", " "]}, "script[1]: must be a text that is not blank"),
        ({"type": "code_judge", "script": {"a": 1}}, "script: must be a list of arguments"),
        ({"type": "code_judge", "script": ["a"], "cwd": "none"}, "cwd: folder 'none' does not exist"),
        ({"type": "code_judge", "script": ["a"], "config": 5}, "config: must be a mapping, not 5"),
        ({"type": "tool_trajectory", "mode": "sometimes"}, "mode: must be one of 'any_order', 'in_order', 'exact'"),
        ({"type": "tool_trajectory", "mode": "any_order", "minimums": {"a": -1}}, "minimums.a: must be >= 0, not -1"),
        ({"type": "tool_trajectory", "mode": "exact", "expected": [{}]}, "expected[0].tool is required"),
        ({"type": "field_accuracy"}, "fields is required"),
        ({"type": "field_accuracy", "fields": []}, "fields: must not be empty"),
        ({"type": "field_accuracy", "fields": [{"path": "a..b"}]}, "'a..b' is no path"),
        ({"type": "field_accuracy", "fields": [{"path": "a", "match": "near"}]}, "match: must be one of 'exact'"),
        ({"type": "field_accuracy", "fields": [{"path": "a", "formats": ["x"]}]}, "must name a day, a month and a year"),
        ({"type": "field_accuracy", "fields": [{"path": "a"}], "aggregation": "x"}, "aggregation: must be one of"),
        ({"type": "composite", "assert": [{"type": "is_json"}]}, "aggregator is required"),
        ({"type": "composite", "aggregator": {"type": "weighted_average"}}, "assert is required"),
        ({"type": "composite", "assert": [], "aggregator": {"type": "weighted_average"}}, "assert: must not be empty"),
        ({"type": "composite", "assert": [{"type": "contians"}], "aggregator": {"type": "weighted_average"}}, "did you mean"),
        ({"type": "agent_judge", "max_steps": 0}, "max_steps: must be >= 1, not 0"),
        ({"type": "agent_judge", "temperature": 3}, "temperature: must be <= 2, not 3"),
        ({"type": "execution_metrics"}, "execution_metrics): needs at least one of max_tool_calls"),
        ({"type": "execution_metrics", "target_exploration_ratio": 2}, "target_exploration_ratio: must be <= 1"),
        ({"type": "latency"}, "max_ms is required"),
        ({"type": "latency", "max_ms": -1}, "max_ms: must be >= 0, not -1"),
        ({"type": "cost", "max_usd": "1"}, "max_usd: must be a number, not '1'"),
        ({"type": "token_usage"}, "token_usage): needs at least one of max_total"),
        ({"type": "propositions"}, "agent is required"),
        ({"type": "propositions", "agent": "pam", "dimension": "adherance"}, "no dimension 'adherance'; did you mean 'adherence'?"),
        ({"type": "persona_drift", "agent": "pam", "dimension": "fluency", "dimensions": ["fluency"]}, "keep one of"),
        ({"type": "persona_drift", "agent": "pam", "delta": -1}, "delta: must be >= 0"),
        ({"type": "contains-any", "value": []}, "value: must not be empty"),
        ({"type": "contains", "value": ["a", 5]}, "value: must be a string or a list of strings, not 5"),
        ({"type": "is_json", "schema": {"type": "thing"}}, "schema: is no JSON schema"),
        ({"type": "is_json", "schema": {"format": "phone"}}, "format 'phone' is none that can be checked"),
        ({"type": "contains", "value": "a", "weight": 1e308}, "weight: must be"),
        ({"type": "is_json", "schema": {"properties": {"pattern": {"pattern": "a**"}}}}, "regular expression"),
        ({"type": "is_json", "schema": {"items": {"$ref": "file:///etc/passwd"}}}, "leads out of the schema"),
        ({"type": "is_json", "schema": {"patternProperties": {}}}, "patternProperties is not supported"),
        ({"type": "contains", "value": ["a"], "of": "most"}, "must be one of 'all', 'any'"),
        (TOOLS, "mode is required"),
        ({**TOOLS, "mode": "any_order"}, "minimums is required for mode any_order"),
        ({**TOOLS, "mode": "any_order", "minimums": {}}, "with a tool in it"),
        ({**TOOLS, "mode": "in_order", "expected": []}, "checks nothing"),
        ({**TOOLS, "mode": "superset", "expected": []}, "checks nothing"),
        ({**TOOLS, "mode": "exact"}, "expected is required for mode exact"),
        ({**TOOLS, "mode": "exact", "expected": [{"tool": "a", "args": "all"}]}, "must be a mapping, or 'any' to accept"),
        *(
            ({**TOOLS, "mode": "exact", "expected": [], "args_match": wrong}, "or a list of dot paths")
            for wrong in ("near", [], [""], ["a", 1], "a.b")
        ),
        # Score ranges cover 0 to 10 exactly once.
        (ranged({"1": "x"}), "must start at 0"),
        (ranged({"0": "x", "11": "y"}), "keys must be whole numbers from 0 to 10"),
        (ranged({"0": "x", "a": "y"}), "keys must be whole numbers from 0 to 10"),
        (ranged({}), "keys must be whole numbers"),
        (ranged([span(0, 4), span(6, 10)]), "missing coverage for scores: 5."),
        (ranged([span(0, 6), span(6, 10)]), "Overlapping score_ranges at 6"),
        (ranged([span(5, 0)]), "min must be <= max"),
        (ranged([span(0, 11)]), "must lie in 0-10"),
        (ranged([{"score_range": [0, 10], "outcome": ""}]), "must not be empty"),
    ],
)  # fmt: skip
def test_a_mistake_is_an_error_that_says_which_assert(tmp_path: Path, item: Any, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        import yaml

        load(tmp_path, yaml.safe_dump({"tests": [{"id": "t", "input": "hi", "assert": [item]}]}, sort_keys=False))
    text = str(raised.value)
    assert said in text
    assert "test 't'" in text
    assert all(problem.line and problem.line >= 4 for problem in raised.value.problems), text


def test_composites_nest_but_not_without_end(tmp_path: Path) -> None:
    item: dict[str, Any] = {"type": "is_json"}
    for _ in range(30):
        item = {"type": "composite", "assert": [item], "aggregator": {"type": "weighted_average"}}
    with pytest.raises(ConfigError, match="nests deeper"):
        suite_of(tmp_path, item)


def test_a_prompt_file_need_not_name_the_answer_which_is_among_the_evidence(tmp_path: Path) -> None:
    write(tmp_path, {"judge.md": "Judge {{ criteria }}"})
    item = {"type": "llm_judge", "prompt": "./judge.md"}
    assert suite_of(tmp_path, item).warnings == ()
    asked: list[Question] = []
    with judging(lambda question: asked.append(question) or {"score": 1.0}) as (services, _):
        assert grade(tmp_path, item, "the answer itself", services=services).score == 1.0
    assert "the answer itself" in str(asked[0])


def test_an_inline_prompt_may_look_like_anything_but_a_path(tmp_path: Path) -> None:
    prompt = "Is the answer kind? See notes.md for what kind means."
    assert suite_of(tmp_path, {"type": "llm_judge", "prompt": prompt}).tests[0].asserts[0].dump()["prompt"] == prompt
