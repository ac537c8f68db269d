"""One part at a time: asserts, providers, prompts, tables, templates; and nothing that is dropped without a word."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from persona_pipeline.base.documents.yaml import to_yaml
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites import RunOptions, load_suite, run_suite
from persona_pipeline.suites.format.files import Files
from persona_pipeline.suites.format.problems import Reader
from persona_pipeline.suites.importing.cases import turns
from persona_pipeline.suites.importing.config import ImportedSuite, import_file
from persona_pipeline.suites.importing.findings import AGENTV, PROMPTFOO, Findings, whole
from persona_pipeline.suites.importing.prompts import fill
from tests.suites.support import verdicts, write

CONTAINS = {"type": "contains", "value": "a"}
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def imported(folder: Path, data: dict[str, Any] | str, origin: str = PROMPTFOO, **files: str) -> ImportedSuite:
    text = data if isinstance(data, str) else yaml.safe_dump(data, sort_keys=False)
    write(folder, {"config.yaml": text, **{name.replace("_dot_", "."): content for name, content in files.items()}})
    return import_file(folder / "config.yaml", folder, origin)


def one(folder: Path, item: Any, origin: str = PROMPTFOO, **test: Any) -> tuple[list[Any], list[str]]:
    """The asserts that one becomes beside another, and what is named."""
    # An id is not promptfoo's, nor an input.
    asked = {"input": "p"} if origin == AGENTV else {}
    made = imported(
        folder, {"prompts": ["p"], "tests": [{"id": "t", **asked, "assert": [item, CONTAINS], **test}]}, origin
    )
    asserts = made.suite["tests"][0]["assert"]
    assert {key: asserts[-1][key] for key in CONTAINS} == CONTAINS
    return asserts[:-1], [finding.message for finding in made.findings]


@pytest.mark.parametrize(
    ("item", "becomes"),
    [
        ({"type": "contains", "value": 0}, {"type": "contains", "value": "0"}),
        ({"type": "not-icontains", "value": "A"}, {"type": "icontains", "value": "A", "negate": True}),
        ({"type": "not-equals", "value": True}, {"type": "equals", "value": "true", "trim": False, "negate": True}),
        ({"type": "equals", "value": {"a": [1, None]}}, {"type": "is_json", "schema": {"const": {"a": [1, None]}}}),
        ({"type": "equals", "value": []}, {"type": "is_json", "schema": {"const": []}}),
        ({"type": "contains-all", "value": "a, b"}, {"type": "contains-all", "value": ["a", "b"]}),
        ({"type": "contains-any", "value": ", a\\b ,\nc d, "}, {"type": "contains-any", "value": ["a\\b", "c d"]}),
        ({"type": "starts-with", "value": "A", "weight": 3}, {"type": "starts-with", "value": "A", "trim": False, "weight": 3}),
        ({"type": "cost", "threshold": 0.01, "metric": "dear"}, {"type": "cost", "name": "dear", "max_usd": 0.01}),
        ({"type": "latency", "threshold": 5}, {"type": "latency", "max_ms": 5}),
        ({"type": "is-json", "value": {"type": "object"}}, {"type": "is_json", "schema": {"type": "object"}}),
        ({"type": "is-json", "value": "type: object"}, {"type": "is_json", "schema": {"type": "object"}}),
        (
            {"type": "is-json", "value": {"dependencies": {"a": ["{{ b }}"]}}},
            {"type": "is_json", "schema": {"$schema": DRAFT_7, "dependencies": {"a": ["{{ b }}"]}}},
        ),
        ({"type": "llm-rubric", "value": "Kind"}, {"type": "rubrics", "criteria": ["Kind"]}),
        ({"type": "llm-rubric", "value": "file://kind.txt"}, {"type": "rubrics", "criteria": ["Is kind"]}),
        ({"type": "model-graded-closedqa", "value": "Kind"}, {"type": "rubrics", "criteria": ["Kind"]}),
        (
            {"type": "factuality", "value": "Six"},
            {"type": "rubrics", "criteria": ["Agrees with these facts and contradicts none of them: Six"]},
        ),
        ({"type": "llm-rubric", "value": "Kind", "threshold": 0.9}, {"type": "llm_judge", "prompt": "Kind", "required": 0.9}),
        (
            {"type": "assert-set", "threshold": 0.9, "assert": [{**CONTAINS, "metric": "x"}, {**CONTAINS, "metric": "x"}]},
            {
                "type": "composite",
                "assert": [{**CONTAINS, "name": "x"}, {**CONTAINS, "name": "x-2"}],
                "aggregator": {"type": "weighted_average"},
                "required": 0.9,
            },
        ),
    ],
)  # fmt: skip
def test_asserts_of_promptfoo(tmp_path: Path, item: dict[str, Any], becomes: dict[str, Any]) -> None:
    write(tmp_path, {"kind.txt": "Is kind"})
    found, named = one(tmp_path, item)
    assert found == [{"required": True, **becomes}]
    assert named == []


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"type": "javascript", "value": "file://check.js"}, "assert javascript has no counterpart; write a code_judge"),
        ({"type": "not-similar", "value": "x"}, "assert not-similar has no counterpart; say in rubrics"),
        ({"type": "rouge-n", "value": "x"}, "assert rouge-n has no counterpart"),
        ({"type": "is-json", "value": {"$ref": "https://h/s.json"}}, "leads out of the schema"),
        ({"type": "is-html"}, "assert is-html has no counterpart"),
        ({"type": "made-up"}, "assert made-up has no counterpart"),
        ({"type": "not-trajectory:tool-used", "value": "a"}, "has no counterpart; check tool calls with tool_trajectory"),
        ({"type": "icontains", "value": {"a": 1}}, "icontains with data has no counterpart; compare fields with field_accuracy"),
        ({"type": "contains-any", "value": '"a" b, c'}, "contains-any with quotes that do not end before a comma"),
        ({"type": "contains-any", "value": '"a'}, "contains-any with quotes that do not end before a comma"),
        ({"type": "contains-any", "value": '"", a'}, "must not be empty"),
        ({"type": "is-json", "value": "{"}, "is-json with a schema that is no YAML"),
        ({"type": "contains", "value": "file://x.js"}, "assert contains with data has no counterpart"),
        ({"type": "regex", "value": "("}, "is not a valid regular expression"),
        ({"type": "cost"}, "assert cost without a threshold has no counterpart"),
        ({"type": "llm-rubric", "value": "{{ nobody }}"}, "the template ('nobody' is undefined) has no counterpart"),
        ({"type": "llm-rubric", "value": "x", "rubricPrompt": "file://p.py"}, "with a program as its prompt"),
        ({"type": "assert-set", "assert": [{"type": "similar"}]}, "assert-set of which nothing is left"),
        ({"value": "no type"}, "an assert without type has no counterpart"),
    ],
)  # fmt: skip
def test_asserts_without_a_counterpart_are_named_and_left_out(tmp_path: Path, item: dict[str, Any], said: str) -> None:
    found, named = one(tmp_path, item)
    assert found == []
    assert any(said in message for message in named), named


FORMAT = {"type": "is-json", "value": {"properties": {"a": {"format": "uri"}}}}
NESTED = {"type": "assert-set", "assert": [{"type": "assert-set", "assert": [CONTAINS]}]}
COMPOSITE = {"type": "composite", "aggregator": {"type": "weighted_average"}}


@pytest.mark.parametrize(
    ("item", "origin", "said"),
    [
        ({"type": "contains-json"}, PROMPTFOO, "contains-json passes there for text in braces that is almost JSON"),
        (FORMAT, PROMPTFOO, "format uri of a schema is checked otherwise here"),
        ({"type": "is-json", "value": {"nullable": True}}, PROMPTFOO, "nullable True of a schema is checked otherwise here"),
        ({"type": "regex", "value": "^a$"}, PROMPTFOO, "$ matches before a last line break here too"),
        ({"type": "contains-any", "value": '"a, b", c'}, PROMPTFOO, "contains-any reads quotes as CSV does"),
        ({"type": "contains", "value": 1e-7}, PROMPTFOO, "a number such as 1.0 or 1e-07 is written so here"),
        ({"type": "field-accuracy", "fields": [{"path": "n", "match": "numeric_tolerance"}]}, AGENTV, "there 100 USD is 100 too"),
        ({"type": "field-accuracy", "fields": [{"path": "n", "match": "date"}]}, AGENTV, "dateutil reads dates here"),
        ({"type": "regex", "value": r"\p{L}"}, PROMPTFOO, "are text, or any character, in JavaScript"),
        ({"type": "regex", "value": "(?m:a$)"}, PROMPTFOO, "with the flag m a line ends at"),
        ({"type": "regex", "value": "^a", "flags": "m"}, AGENTV, "with the flag m a line ends at"),
        ({"type": "regex", "value": r"a\b"}, AGENTV, "know all letters, figures and spaces here"),
        ({"type": "regex", "value": "[😀]"}, AGENTV, "such as an emoji, is one here"),
        ({"type": "regex", "value": "a", "flags": "i"}, PROMPTFOO, "flags of assert regex has no counterpart"),
        ({"type": "regex", "value": "a", "flags": "u"}, AGENTV, "assert regex with flags u has no counterpart"),
        ({"type": "equals", "value": "{{ data }}"}, PROMPTFOO, "data in an assert's template is [object Object] there"),
        (NESTED, PROMPTFOO, "an assert-set in an assert-set is an error there"),
        ({**COMPOSITE, "assert": [{**CONTAINS, "negate": True}]}, AGENTV, "negate of a composite's member counts here"),
        ({**COMPOSITE, "assert": [{**CONTAINS, "weight": 0}]}, AGENTV, "weight of a composite's member counts here"),
        ({**COMPOSITE, "assert": [{**CONTAINS, "required": 1}]}, AGENTV, "required of a composite's member counts here"),
    ],
)  # fmt: skip
def test_what_decides_otherwise_is_named_once(tmp_path: Path, item: dict[str, Any], origin: str, said: str) -> None:
    _, named = one(tmp_path, item, origin, vars={"data": {"a": 1}})
    assert [said in message for message in named] == [True], named


@pytest.mark.parametrize(
    ("item", "becomes"),
    [
        ("Is kind", {"type": "rubrics", "criteria": ["Is kind"], "weight": 1}),
        ({"type": "icontains", "value": "A"}, {"type": "icontains", "value": "A"}),
        ({"type": "contains-any", "value": ["a"], "required": True}, {"type": "contains-any", "value": ["a"], "required": True}),
        ({"type": "regex", "value": "a", "flags": "smi"}, {"type": "regex", "value": "(?ims:a)"}),
        ({"type": "equals", "value": "a"}, {"type": "equals", "value": "a"}),
        ({"type": "contains-json"}, {"type": "contains_json"}),
        (
            {"type": "script", "command": ["true"], "name": "own", "words": ["x"], "config": {"least": 2}},
            {"type": "code_judge", "name": "own", "script": ["true"], "cwd": ".", "words": ["x"], "least": 2},
        ),
        ({"type": "llm-grader", "prompt": "Is it?"}, {"type": "llm_judge", "prompt": "Is it?"}),
        (
            {"type": "llm-rubric", "value": [{"outcome": "A", "required": False}, "B"]},
            {"type": "rubrics", "criteria": [{"outcome": "A", "required": False}, "B"]},
        ),
        (
            {"type": "llm-rubric", "value": "Kind", "min_score": 0.7, "required": True},
            {"type": "llm_judge", "prompt": "Kind", "required": 0.7},
        ),
        (
            {"type": "token-usage", "max_total": 5, "weight": 2},
            {"type": "token_usage", "max_total": 5, "weight": 2},
        ),
        (
            {"type": "field-accuracy", "fields": [{"path": "a"}]},
            {"type": "field_accuracy", "fields": [{"path": "a"}]},
        ),
    ],
)  # fmt: skip
def test_asserts_of_agentv(tmp_path: Path, item: Any, becomes: dict[str, Any]) -> None:
    assert one(tmp_path, item, AGENTV)[0] == [becomes]


SET = {"type": "assert-set", "assert": [{"type": "contains", "value": "z"}, CONTAINS]}
FAILS = {"type": "contains", "value": "z"}


@pytest.mark.parametrize(
    ("test", "verdict", "said"),
    [
        ({"threshold": 0.7, "assert": [SET, CONTAINS]}, "borderline", []),
        ({"threshold": 0.8, "assert": [SET, CONTAINS]}, "fail", []),
        ({"threshold": 0.5, "assert": [FAILS, CONTAINS]}, "fail", ["threshold 0.5: a test fails below 0.6"]),
        ({"threshold": 0, "assert": [FAILS, *[CONTAINS] * 4]}, "pass", ["threshold 0: a test fails below 0.6"]),
        ({"assert": [SET, CONTAINS]}, "fail", []),
        ({"assert": [{**FAILS, "weight": 0}, CONTAINS]}, "pass", []),
        ({"assert": [{**SET, "weight": 0}, CONTAINS]}, "fail", []),
        ({"assert": [{**FAILS, "weight": 0}]}, "fail", ["asserts that all have weight 0 pass always"]),
        ({"assert": [{**SET, "threshold": 0}, *[CONTAINS] * 3]}, "pass", ["assert-set with a threshold of 0 passes always"]),
        ({"assert": [{**SET, "threshold": 0}, CONTAINS]}, "borderline", ["assert-set with a threshold of 0 passes always"]),
    ],
)  # fmt: skip
def test_thresholds_and_weights_decide_as_they_did_or_are_named(
    tmp_path: Path, test: dict[str, Any], verdict: str, said: list[str]
) -> None:
    """The answer holds an a and no z: what promptfoo passes does not fail, or that is a finding."""
    made = imported(tmp_path, {"prompts": ["p"], "tests": [test]})
    write(tmp_path, {"made.eval.yaml": to_yaml(made.suite)})
    suite = load_suite(tmp_path / "made.eval.yaml")
    result = run_suite(suite, targets={"default": lambda prompt: {"text": "an answer"}})
    assert list(verdicts(result).values()) == [verdict]
    assert len(made.findings) == len(said)
    assert all(text in finding.message for text, finding in zip(said, made.findings, strict=True))


CODE = [
    ("python", "len(output) > 2", "pass"),
    ("python", "len(output) > 99", "fail"),
    ("python", "0.3", "pass"),
    ("python", "if context['vars']['least'] < len(output):\n    return {'pass': True, 'score': 0.4}\nreturn 0", "pass"),
    ("python", "{'pass': False, 'score': 1}", "fail"),
    ("python", "None", "error"),
    ("python", "{'score': 1}", "error"),
    ("python", "nobody", "error"),
    ("javascript", "output.length > 2", "pass"),
    ("javascript", "output.includes('z')", "fail"),
    ("javascript", "const n = output.length;\nreturn { pass: n > context.vars.least, score: 0.1 };", "pass"),
    ("javascript", "null", "error"),
    ("javascript", "({ score: 1 })", "error"),
    ("javascript", "nobody", "error"),
]


@pytest.mark.parametrize(("kind", "code", "verdict"), CODE, ids=str)
def test_code_decides_as_it_did_where_it_may_run(tmp_path: Path, kind: str, code: str, verdict: str) -> None:
    if kind == "javascript" and shutil.which("node") is None:
        pytest.skip("needs node")
    test = {"vars": {"least": 3}, "assert": [{"type": kind, "value": code}]}
    made = imported(tmp_path, {"prompts": ["p"], "tests": [test]})
    assert made.findings == ()
    write(tmp_path, {"made.eval.yaml": to_yaml(made.suite)})
    suite = load_suite(tmp_path / "made.eval.yaml")
    targets: dict[str, Any] = {"default": lambda prompt: {"text": "an answer"}}
    for leave, expected in ((True, verdict), *([(False, "error")] if code == CODE[0][1] else [])):
        result = run_suite(suite, targets=targets, options=RunOptions(allow_code=leave))
        assert list(verdicts(result).values()) == [expected]


@pytest.mark.parametrize("reference", ["cases/*.csv", "file://cases/*.yaml", "head.csv", "none.jsonl"])
def test_files_and_patterns_that_give_no_test_are_named(tmp_path: Path, reference: str) -> None:
    tests = [reference, {"id": "t", "assert": [CONTAINS]}]
    made = imported(tmp_path, {"prompts": ["p"], "tests": tests}, head_dot_csv="q,__expected\n", none_dot_jsonl="")
    said = [(finding.line, finding.message) for finding in made.findings if "gives no test" in finding.message]
    assert said == [(4, f"{reference} gives no test; correct the name, or write tests there")]


def test_json_is_read_as_json(tmp_path: Path) -> None:
    tests = '[\t{"assert": [{"type": "contains", "value": "yes"}],\n\t"vars": {"a": "\\ud83d\\ude00"}}]'
    made = imported(tmp_path, {"prompts": ["{{ a }}"], "tests": ["file://t.json"]}, t_dot_json=tests)
    assert (made.suite["tests"][0]["input"], made.findings) == ("😀", ())
    with pytest.raises(ConfigError, match=r"t\.json:1:3: is not JSON"):
        imported(tmp_path, {"prompts": ["p"], "tests": ["file://t.json"]}, t_dot_json="[{a: b}]")


# A provider, and the target that it becomes.
PROVIDERS: list[Any] = yaml.safe_load("""
- [openai:chat:gpt-4o, {provider: openai, model: gpt-4o}]
- [ollama:chat:llama3.2:3b, {provider: ollama, model: llama3.2:3b}]
- [ollama:completion:llama3.2, {provider: ollama, model: llama3.2}]
- [openrouter:meta/llama-3:free, {provider: openrouter, model: meta/llama-3:free}]
- [openai:responses:gpt-5, {provider: openai, model: gpt-5, api: responses}]
- [bedrock:us.anthropic.claude-x-v1:0, {provider: bedrock, model: us.anthropic.claude-x-v1:0}]
- - {id: azure:chat:mine, config: {apiHost: h.openai.azure.com, temperature: 0, seed: 7}}
  - {provider: azure, model: mine, base_url: https://h.openai.azure.com/v1, parameters: {temperature: 0, seed: 7}}
- - groq:llama-3
  - {provider: openai, model: llama-3, base_url: https://api.groq.com/openai/v1, api_key: '${{ GROQ_API_KEY }}'}
- - {id: openai:gpt-4o, config: {apiBaseUrl: http://h/v1, apiKey: '{{ env.KEY }}', max_tokens: 5}}
  - {provider: openai, model: gpt-4o, base_url: http://h/v1, api_key: '${{ KEY }}', max_tokens: 5}
- - {'openai:gpt-4o': {config: {apiKeyEnvar: KEY}, label: x}}
  - {provider: openai, model: gpt-4o, api_key: '${{ KEY }}'}
- - {id: https, config: {url: https://h/a, method: put, body: '{"q": "{{prompt}}"}', maxRetries: 1}}
  - {provider: http, url: https://h/a, method: PUT, body: {q: '{{prompt}}'}, max_retries: 1}
- - {id: http://h/a, config: {transformResponse: "json.choices[0]?.message['content']"}}
  - {provider: http, url: http://h/a, answer: "$.choices[0].message['content']"}
- [echo, {provider: cli, command: [printf, '%s', '{PROMPT}']}]
- [file://more.yaml, {provider: openai, model: gpt-x}]
""")


@pytest.mark.parametrize(("given", "becomes"), PROVIDERS, ids=lambda value: str(value)[:40])
def test_providers_become_targets(tmp_path: Path, given: Any, becomes: dict[str, Any]) -> None:
    data = {"prompts": ["p"], "providers": [given], "tests": [{"assert": [CONTAINS]}]}
    made = imported(tmp_path, data, more_dot_yaml="id: openai:gpt-x")
    assert made.findings == ()
    assert made.targets is not None
    (target,) = made.targets["targets"]
    assert {key: value for key, value in target.items() if key != "name"} == becomes
    assert made.suite["execution"] == {"target": target["name"]}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("exec:run.sh a", "gets the prompt as its argument"),
        ("python:own.py", "own.py: call_api must take the prompt alone"),
        ({"id": "openai:m", "config": {"apiKey": "sk-1234"}}, "the key of provider openai:m is left out"),
        ({"id": "openai:m", "config": {"tools": "file://t.json"}}, "tools of provider openai:m has no counterpart"),
        ({"id": "openai:m", "config": {"passthrough": {}}}, "passthrough of provider openai:m has no counterpart"),
        ({"id": "openai:m", "config": {"max_tokens": "many"}}, "max_tokens"),
        ({"id": "openai:m", "delay": 5}, "provider key delay has no counterpart"),
        ({"id": "http://h", "config": {"transformResponse": "(json) => json.a"}}, "say with answer, a JSONPath"),
        ({"id": "http://h", "config": {"body": {"a": "{{ other }}"}}}, "{{ other }} stays as it is"),
        ({"label": "x", "config": {}}, "a provider without id"),
    ],
)
def test_providers_that_differ_are_named(tmp_path: Path, given: Any, said: str) -> None:
    made = imported(tmp_path, {"prompts": ["p"], "providers": [given], "tests": [{"assert": [CONTAINS]}]})
    assert any(said in finding.message for finding in made.findings), made.findings
    assert "sk-1234" not in str(made)


def test_tables_and_lists_become_tests(tmp_path: Path) -> None:
    made = imported(
        tmp_path,
        {"prompts": ["Say {{ word }} {{ times }}"], "tests": ["file://t.csv", "file://t.jsonl", {"path": "t.json"}]},
        t_dot_csv='word,times,__expected1,__metadata:tags[],__prefix\nyes,1,"contains-all: a, b","x, y",P \n',
        t_dot_jsonl='{"vars": {"word": ["a", "b"], "times": 2}, "assert": [{"type": "is-json"}]}\n',
        t_dot_json='[{"description": "One!", "vars": {"word": "z", "times": 1.0}, "assert": [{"type": "is-json"}]}]',
    )
    tests = {test["id"]: test["input"] for test in made.suite["tests"]}
    assert tests == {
        "test-1": "P Say yes 1", "test-2-1": "Say a 2", "test-2-2": "Say b 2", "one": "Say z 1.0",
    }  # fmt: skip
    assert made.suite["tests"][0]["metadata"] == {"tags": ["x", "y"]}
    # JavaScript writes 1.0 as 1.
    assert [(Path(str(one.path)).name, "written so here" in one.message) for one in made.findings] == [("t.json", True)]


AGENTV_5 = """
imports: {tests: [{path: more.yaml}]}
providers: [echo]
prompts: ["Say {{ word }}"]
default_test: {vars: {word: no}, threshold: 0.9}
tests:
  - {id: a, vars: {word: yes}, assert: [Is kind, {type: llm-rubric, value: Is short}]}
  - {id: b, criteria: Remembers, input: Hi}
  - {id: c, assert: [Is kind], execution: {trials: {count: 3, strategy: luck}}}
"""


def test_what_agentv_5_holds_is_taken_over_or_named(tmp_path: Path) -> None:
    made = imported(tmp_path, AGENTV_5, AGENTV, more_dot_yaml="[{id: e, vars: {word: more}, assert: [Is kind]}]")
    found = {test["id"]: test for test in made.suite["tests"]}
    said = {"a": "Say yes", "b": "Hi", "c": "Say no", "e": "Say more"}
    assert {name: test["input"] for name, test in found.items()} == said
    assert [item["criteria"] for item in found["a"]["assert"]] == [["Is kind"], ["Is short"]]
    assert found["c"]["execution"]["trials"] == {"count": 3, "strategy": "mean"}
    named = {finding.message for finding in made.findings if finding.line}
    assert named == {
        "strategy luck has no counterpart; the mean is taken",
        "threshold of a test has no counterpart; mark asserts as required",
    }


def test_scenarios_cross_their_rows(tmp_path: Path) -> None:
    rows = {
        "config": [{"vars": {"to": "Spanish", "hi": "hola"}}, {"vars": {"to": "French", "hi": "bonjour"}}],
        "tests": [{"vars": {"say": "hello"}, "assert": [{"type": "icontains", "value": "{{ hi }}"}]}],
    }
    made = imported(tmp_path, {"prompts": ["{{ say }} in {{ to }}"], "scenarios": [rows]})
    assert [(test["input"], test["assert"][0]["value"]) for test in made.suite["tests"]] == [
        ("hello in Spanish", "hola"),
        ("hello in French", "bonjour"),
    ]


@pytest.mark.parametrize(
    "prompt",
    [
        '[{"role": "user", "content": {{ word | dump }} }]',
        '[{% for one in words %}{"role": "user", "content": "{{ one }}"}{% endfor %}]',
        '[{"role": "user", "content": "{{ word }}"}]',
    ],
)
def test_templates_of_messages_in_files_are_filled_first(tmp_path: Path, prompt: str) -> None:
    test = {"vars": {"word": "a", "words": ["a"]}, "options": {"disableVarExpansion": True}, "assert": [CONTAINS]}
    made = imported(tmp_path, {"prompts": ["file://chat.json"], "tests": [test]}, chat_dot_json=prompt)
    assert made.findings == ()
    assert made.suite["tests"][0]["input"] == [{"role": "user", "content": "a"}]


def test_turns_become_what_the_user_says_and_what_is_asked_of_the_answer(tmp_path: Path) -> None:
    text = """
mode: conversation
aggregation: min
turns:
  - {input: "Hi {{ name }}", expected_output: Hello, assert: [Greets, {type: contains, value: x}]}
  - {input: [{role: user, content: Bye}], wait: 5}
"""
    entry = whole(text, tmp_path / "t.yaml")
    findings = Findings(Reader(Files(), tmp_path), tmp_path, AGENTV)
    assert turns(findings.part(entry), {"name": "Pam"}) == [
        {
            "user": "Hi Pam",
            "assert": [{"type": "rubrics", "criteria": ["Greets"], "weight": 1}, {"type": "contains", "value": "x"}],
            "expected_output": "Hello",
        },
        {"user": [{"role": "user", "content": "Bye"}]},
    ]
    findings.unread()
    assert [(finding.line, finding.message) for finding in findings.reader.warnings] == [
        (2, "mode has no counterpart"),
        (3, "aggregation has no counterpart"),
        (6, "turn key wait has no counterpart"),
    ]


def test_prompts_are_found_where_they_are(tmp_path: Path) -> None:
    made = imported(
        tmp_path,
        {
            "prompts": [
                "file://*.txt",
                {"id": "chat.json", "label": "c"},
                "exec:make.sh",
                "langfuse://x",
                "Run main.py now",
            ],
            "tests": [{"vars": {"a": "A"}, "assert": [CONTAINS]}],
        },
        two_dot_txt="First {{ a }}\n---\nSecond {{ a }}\n",
        chat_dot_json='[{"role": "developer", "content": "{{ a }}"}, {"role": "user", "content": '
        '[{"type": "text", "text": "t"}, {"type": "image_url", "image_url": {}}]}, {"role": "critic", "content": ""}]',
    )
    assert [test["input"] for test in made.suite["tests"]] == [
        "First A",
        "Second A",
        [
            {"role": "system", "content": "A"},
            {"role": "user", "content": [{"type": "text", "value": "t"}]},
        ],
        "Run main.py now",
    ]
    assert [test["id"] for test in made.suite["tests"]][:3] == ["test-1-two-1", "test-1-two-2", "test-1-c"]
    named = " ".join(finding.message for finding in made.findings)
    for word in ("exec:make.sh", "langfuse://x", "type image_url", "role critic"):
        assert word in named


TARGETS = """
targets:
  - {name: desk, provider: anthropic, model: "${{ DESK_MODEL }}", api_key: "${{ DESK_KEY }}", temperature: 0}
  - {name: tool, provider: cli, command: "python3 run.py {PROMPT}", timeout_seconds: 30, judge_target: desk}
  - {name: other, provider: vscode}
"""


def test_targets_of_agentv_are_found_in_its_own_file(tmp_path: Path) -> None:
    tests = [{"id": "t", "input": "hi", "criteria": "be good"}]
    data = {"targets": ["desk", "tool", "other", "nobody"], "tests": tests}
    made = imported(tmp_path, data, AGENTV, **{".agentv/targets_dot_yaml": TARGETS})
    assert made.targets == yaml.safe_load("""
targets:
  - {name: desk, provider: anthropic, model: "${{ DESK_MODEL }}", api_key: "${{ DESK_KEY }}", parameters: {temperature: 0}}
  - {name: tool, provider: cli, command: [python3, run.py, "{PROMPT}"], cwd: ., timeout_seconds: 30.0}
""")
    assert made.suite["execution"] == {"targets": ["desk", "tool", "other", "nobody"]}
    assert [(Path(str(item.path)).name, item.line, item.message.partition(";")[0]) for item in made.findings] == [
        ("targets.yaml", 4, "judge_target of provider cli has no counterpart"),
        ("targets.yaml", 5, "provider vscode has no counterpart"),
        ("config.yaml", 5, "target nobody is not described here"),
    ]


def test_messages_and_files_in_variables_of_agentv(tmp_path: Path) -> None:
    text = """
name: own
description: variables that hold messages
prompts: ["{{ input }}"]
tests:
  - id: a
    vars:
      input:
        - role: user
          content: [{type: text, value: Look}, {type: file, value: notes.md}]
      expected_output: [{role: assistant, content: Seen}]
    assert:
      - Looks
      - {metric: m, type: contains-any, value: [A, B], negate: true}
"""
    made = imported(tmp_path, text, AGENTV, notes_dot_md="n")
    (test,) = made.suite["tests"]
    assert made.findings == ()
    assert test["input"] == [
        {"role": "user", "content": [{"type": "text", "value": "Look"}, {"type": "file", "value": "notes.md"}]}
    ]
    assert test["expected_output"] == [{"role": "assistant", "content": "Seen"}]
    assert test["assert"][1] == {"type": "contains-any", "name": "m", "value": ["A", "B"], "negate": True}


WORKSPACE = """
workspace:
  template: ./box
  repos: [{path: r}]
  hooks: {before_all: {command: [make], timeout_ms: 5}, after_each: {command: rm -rf x}}
execution: {target: a, workers: 2}
evaluate_options: {repeat: {count: 3, strategy: pass_all}}
tests: [{id: t, input: hi, criteria: be good, workspace: {template: b}}]
"""


def test_workspaces_and_repetitions_of_agentv(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    made = imported(tmp_path, WORKSPACE, AGENTV)
    assert made.suite["workspace"] == {
        "template": "box",
        "before_all": {"script": ["make"], "timeout_ms": 5.0},
        "after_each": {"script": ["sh", "-lc", "rm -rf x"]},
    }
    assert "workspace" not in made.suite["tests"][0]
    assert made.suite["execution"] == {"target": "a", "trials": {"count": 3, "strategy": "all"}}
    assert [finding.message.partition(";")[0] for finding in made.findings] == [
        "workspace.repos has no counterpart",
        "target a is not described here",
        "execution.workers has no counterpart",
        "workspace.template: folder 'b' does not exist",
    ]


@pytest.mark.parametrize(
    ("evaluator", "becomes", "said"),
    [
        ({"Equals": {"value": "a"}}, {"type": "equals", "value": "a", "trim": False}, None),
        ({"Equals": 5}, {"type": "is_json", "schema": {"const": 5}}, None),
        ("EqualsExpected", {"type": "equals", "value": "{{ x }}", "trim": False}, None),
        ({"Contains": "a"}, {"type": "contains", "value": "a"}, None),
        ({"Contains": {"value": 5, "as_strings": True, "case_sensitive": False}}, {"type": "icontains", "value": "5"}, None),
        ({"Contains": {"value": "a", "evaluation_name": "own"}}, {"type": "contains", "name": "own", "value": "a"}, None),
        ({"IsInstance": "dict"}, {"type": "is_json", "schema": {"type": "object"}}, None),
        ({"MaxDuration": 1.5}, {"type": "latency", "max_ms": 1500.0}, None),
        ({"MaxDuration": {"seconds": 2}}, {"type": "latency", "max_ms": 2000}, None),
        ({"LLMJudge": {"rubric": "Kind", "include_input": True}}, {"type": "rubrics", "criteria": ["Kind"]}, None),
        ({"LLMJudge": {"rubric": "Kind", "model": "m"}}, {"type": "rubrics", "criteria": ["Kind"]}, "evaluator LLMJudge: model"),
        ({"HasMatchingSpan": {"query": {"name_equals": "x"}}}, None, "check tool calls with tool_trajectory"),
        ({"IsInstance": "str"}, None, "evaluator IsInstance of str has no counterpart; answers are text"),
        ({"Contains": [1]}, None, "evaluator Contains of [1] has no counterpart"),
        ({"Contains": {}}, None, "evaluator Contains without its value"),
        ({"Mine": {}}, None, "evaluator Mine has no counterpart; write an assert type"),
    ],
)  # fmt: skip
def test_evaluators_of_pydantic_evals(
    tmp_path: Path, evaluator: Any, becomes: dict[str, Any] | None, said: str | None
) -> None:
    case = {"name": "first case", "inputs": {"q": [1.0]}, "expected_output": "{{ x }}", "evaluators": [evaluator]}
    write(tmp_path, {"orders.yaml": yaml.safe_dump({"cases": [case], "evaluators": [{"Contains": "z"}]})})
    made = import_file(tmp_path / "orders.yaml", tmp_path)
    (test,) = made.suite["tests"]
    assert (made.origin, test["id"], test["input"]) == ("pydantic-evals", "first case", '{"q":[1.0]}')
    assert test["expected_output"] == "{{ x }}"
    last = {"type": "contains", "value": "z", "required": True}
    assert test["assert"] == [*([becomes | {"required": True}] if becomes else []), last]
    assert [finding.line is not None and str(said) in finding.message for finding in made.findings] == [True] * bool(
        said
    )


VARIABLES = {
    "name": "Pam", "on": True, "none": None, "data": {"a": 1}, "order": {"items": "two"},
    "share": 1.0, "small": 1e-7, "large": 1e20, "parts": {"a": [1.0, 2.5]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("template", "becomes"),
    [
        ("Hi {{ name }}{{vars.name}}", "Hi PamPam"),
        ("{{ name | upper }}", "PAM"),
        ("{% if on %}yes{% else %}no{% endif %}", "yes"),
        ("{{ on }} {{ none }} {{ data }}", 'true  {"a":1}'),
        ("{{ data | dump }}", '{"a": 1}'),
        ("{{ data }}", {"a": 1}),
        ("{{ data.a }} {{ order.items }} {{ order.items | length }}", "1 two 3"),
        ("{{ share }} {{ small }} {{ large }}", "1.0 1e-07 1e+20"),
        ("{{ parts }};", '{"a":[1.0,2.5]};'),
        ({"k": ["{{ name }}"]}, {"k": ["Pam"]}),
        ("no template", "no template"),
    ],
)
def test_templates_are_filled(template: Any, becomes: Any) -> None:
    assert fill(template, VARIABLES) == becomes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a", "must be a mapping with tests"),
        ("tests: [{a: 1}]\ntests: []", "stands twice|duplicate"),
        ("tests: [{vars: {a: b}}]", "holds no test that can be taken over"),
        ("default_test: {}\ntests: [{id: a, input: b, turns: [{input: c}]}]", "a test with nothing to check"),
        ("tests: file://gone.yaml", "gone.yaml"),
        ("tests: file://made.py", "tests file://made.py has no counterpart"),
    ],
)
def test_files_that_cannot_be_imported(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        imported(tmp_path, text)


@pytest.mark.parametrize(
    ("name", "text", "origin"),
    [
        ("promptfooconfig.yaml", "tests: [{id: a, vars: {prompt: p}, assert: [{type: is-json}]}]", PROMPTFOO),
        ("a.yaml", "prompts: [p]\ntests: [{assert: [{type: is-json}]}]", PROMPTFOO),
        ("a.yaml", "tests: [{id: a, input: b, criteria: c}]", AGENTV),
        ("a.yaml", "prompts: [p]\ndefault_test: {}\ntests: [{criteria: c}]", AGENTV),
    ],
)
def test_whose_file_it_is_is_told_by_what_it_holds(tmp_path: Path, name: str, text: str, origin: str) -> None:
    write(tmp_path, {name: text})
    assert import_file(tmp_path / name, tmp_path).origin == origin
