"""A stranger's file: wrong kinds of values at every key, templates and lists that grow. One line with its place, no traceback."""

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from persona_pipeline.base.documents.yaml import load_document
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites import load_suite
from persona_pipeline.suites.importing.config import import_file, write_import
from persona_pipeline.suites.importing.findings import AGENTV, PROMPTFOO, PYDANTIC_EVALS
from persona_pipeline.suites.importing.prompts import TemplateError, fill
from tests.suites.importing.test_gate import STRANGERS
from tests.suites.importing.test_keys import AGENTV_BASE, FILES, PROMPTFOO_BASE
from tests.suites.support import write

SAMPLES = Path(__file__).parent / "samples"
WRONG: list[Any] = [None, True, -1, 2.5, "", "file://gone.yaml", "{{ x", [], [[]], [5], {}, {"a": {"b": []}}, "x" * 3]
EVALS = yaml.safe_load("""
cases:
  - {name: c, inputs: {q: 1}, expected_output: x, metadata: {k: 1}, evaluators: [EqualsExpected, {Contains: {value: a}}]}
evaluators: [{MaxDuration: 1.5}, {LLMJudge: {rubric: Kind}}, {IsInstance: dict}]
""")
TARGETS = yaml.safe_load("""
prompts: ['p {{ a }}']
providers:
  - id: http
    config: {url: 'https://h/a', method: PUT, headers: {k: v}, body: {q: '{{prompt}}'}, transformResponse: json.a}
  - {id: 'exec:run a', config: {command: [run], timeout_seconds: 5}}
  - {id: 'azure:chat:m', config: {apiHost: h, apiKey: '{{ env.K }}', max_tokens: 5, temperature: 0, tools: []}}
tests:
  - vars: {a: b}
    assert:
      - {type: regex, value: a, flags: i}
      - {type: contains-any, value: [a]}
      - {type: cost, threshold: 0.1}
      - {type: is-json, value: {type: object}}
      - {type: script, command: [run], config: {k: 1}}
      - {type: llm-rubric, value: [{outcome: A, min_score: 0.5}]}
      - {type: composite, assert: [{type: contains, value: a}], aggregator: {type: threshold, threshold: 0.5}}
      - {type: javascript, value: output}
      - {type: field-accuracy, fields: [{path: a}]}
""")


def files() -> Iterator[tuple[str, Any, str]]:
    """Yield whole files of each tool: those of the other tests, and the samples."""
    bases = [
        (PROMPTFOO, PROMPTFOO_BASE),
        (AGENTV, AGENTV_BASE),
        (PYDANTIC_EVALS, EVALS),
        (PROMPTFOO, TARGETS),
        (AGENTV, TARGETS),
        *STRANGERS.items(),
        (PROMPTFOO, load_document(SAMPLES / "promptfoo/promptfooconfig.yaml").data),
        (AGENTV, load_document(SAMPLES / "agentv/desk.eval.yaml").data),
    ]
    for number, (origin, data) in enumerate(bases):
        yield f"{origin}-{number}", data, origin


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*place, key)
        yield from places(one, (*place, key))


FUZZED = list(files())


@pytest.mark.parametrize(("name", "data", "origin"), FUZZED, ids=[name for name, _, _ in FUZZED])
def test_a_wrong_value_at_any_key_is_no_traceback_and_what_is_written_loads(
    tmp_path: Path, name: str, data: Any, origin: str
) -> None:
    write(tmp_path, FILES)
    chosen = random.Random(name)
    found = list(places(data))
    for place in chosen.sample(found, min(15, len(found))):
        changed = copy.deepcopy(data)
        part = changed
        for step in place[:-1]:
            part = part[step]
        part[place[-1]] = chosen.choice(WRONG)
        config = tmp_path / "config.yaml"
        config.write_text(yaml.safe_dump(changed, sort_keys=False), encoding="utf-8")
        try:
            made = import_file(config, tmp_path, origin)
        except ConfigError as error:
            assert all(problem.path for problem in error.problems), (place, part)
            continue
        assert all(finding.path and finding.line for finding in made.findings), (place, part)
        written = write_import(made, config, tmp_path, force=True)
        assert len(load_suite(written[0]).tests) == len(made.suite["tests"]), (place, part)


GROWING = [
    "{% for a in words %}{% for b in words %}{% for c in words %}{{ a }}{% endfor %}{% endfor %}{% endfor %}",
    "{% for a in words %}{% for b in words %}{% for c in words %}{% endfor %}{% endfor %}{% endfor %}",
    "{% for a in words %}" + "x" * 2000 + "{% endfor %}",
    "{% for a in range(99999) %}{% endfor %}",
    "{{ '%2000000000s' | format('x') }}",
    "{{ 'x'.rjust(2000000000) }}",
    "{{ words | join('x' * 5000) }}",
    "{{ words | join('" + "x" * 5000 + "') }}",
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "{% set s = 'xxxxxxxxxx' %}" + "{% set s = s ~ s %}" * 40 + "{{ s }}",
    "{{ 999999 ** 999999 }}",
    "{{ nobody }}",
    "{{ words.__class__.__mro__ }}",
    "{% if %}",
    "{{ 1 / 0 }}",
]


@pytest.mark.parametrize("template", GROWING, ids=[one[:60] for one in GROWING])
def test_a_template_that_grows_ends_in_one_line(template: str) -> None:
    with pytest.raises(TemplateError) as raised:
        fill(template, {"words": ["x" * 100] * 1000})
    assert "\n" not in str(raised.value)


def test_templates_of_real_prompts_are_in_the_budget() -> None:
    rows = [{"name": f"n{number}", "tags": ["a", "b"]} for number in range(300)]
    template = "{{ 'T' ~ '!' }}{% for row in rows %}{{ loop.index }}. {{ row.name | upper }}: {% for tag in row.tags %}{{ tag }} {% endfor %}{% endfor %}"  # noqa: E501
    text = fill(template, {"rows": rows})
    assert text.startswith("T!1. N0: a b 2. N1")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            {"tests": [{"vars": {f"v{n}": [1] * 100 for n in range(4)}, "assert": ["a"]}]},
            "a test of 100,000,000 combinations",
        ),
        (
            {
                "prompts": [
                    "{% for a in d.w %}{% for b in d.w %}{% for c in d.w %}{% endfor %}{% endfor %}{% endfor %}"
                ],
                "tests": [{"vars": {"d": {"w": ["x"] * 500}}, "assert": ["a"]}],
            },
            "steps",
        ),
        ({"tests": ["file://loop.yaml"] * 100}, "leads to more than 10,000 files"),
        (
            {"scenarios": [{"config": [{"vars": {"a": 1}}] * 2000, "tests": [{"assert": ["a"]}] * 2000}]},
            "more than 100,000 tests",
        ),
        (
            {
                "assertionTemplates": {"t": {"type": "assert-set", "assert": [{"$ref": "#/assertionTemplates/t"}] * 9}},
                "tests": [{"assert": [{"$ref": "#/assertionTemplates/t"}]}],
            },
            "assert-set that holds itself",
        ),
        ({"providers": ["file://loop.yaml"], "tests": [{"assert": ["a"]}]}, "leads to more than 10,000 files"),
    ],
    ids=["matrix", "template", "files", "scenarios", "asserts", "providers"],
)
def test_what_grows_is_one_line_with_its_place(tmp_path: Path, data: dict[str, Any], said: str) -> None:
    data = {"prompts": ["p {{ a }}"], **data}
    write(tmp_path, {"loop.yaml": "- file://loop.yaml\n" * 100})
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        made = import_file(tmp_path / "config.yaml", tmp_path, PROMPTFOO)
        raise ConfigError([*made.findings])
    assert any(said in problem.message and problem.line for problem in raised.value.problems), raised.value
