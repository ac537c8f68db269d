"""Whatever a suite file holds, loading it ends in a suite or in a ``ConfigError``."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites import load_suite, read_responses, run_suite
from persona_pipeline.suites.format.registry import BUILT_IN
from persona_pipeline.suites.format.suite import SuiteFields
from persona_pipeline.suites.format.tests import TestFields as FieldsOfATest
from tests.conftest import PROJECT

WORDS = st.sampled_from([
    "", "a", "t", "contains", "is-json", "exact", "any_order", "weighted_average", "assistant", "user", "./x.md", "file://*",
    "file://../..", "\x00", "\ud800", "{{ answer }}", "(", "a" * 70, "NO", "1.0.0", "🖨",
])  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers(-3, 12) | st.floats() | WORDS
KEYS = st.sampled_from([
    "type", "name", "value", "weight", "required", "negate", "criteria", "rubrics", "assert", "evaluators", "aggregator", "weights",
    "mode", "expected", "minimums", "tool", "args", "args_match", "fields", "path", "match", "script", "prompt", "config", "cwd",
    "max_ms", "threshold", "budget", "max_total", "score_ranges", "score_range", "outcome", "id", "role", "content", "agent",
    "dimension", "target", "targets", "trials", "count", "strategy", "template", "setup", "timeout_ms", "0", "10", "zzz",
])  # fmt: skip
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=12
)
TYPES = st.sampled_from([*BUILT_IN, "rubric", "code", "is-json", "nonsense"])
ASSERTS = st.builds(
    lambda kind, rest: {"type": kind, **{key: value for key, value in rest.items() if key != "type"}},
    TYPES,
    st.dictionaries(KEYS, VALUES, max_size=6),
)
LISTS = st.lists(ASSERTS | VALUES, max_size=3) | VALUES


def under(model: type[BaseModel], **needed: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any data under some keys of a model, and under one that it lacks. ``needed``: keys that are always there."""
    names = [field.alias or name for name, field in model.model_fields.items()]
    usual = {name: LISTS if name in ("assert", "evaluators", "each_turn") else WORDS | VALUES for name in names}
    optional = {name: given for name, given in usual.items() if name not in needed}
    return st.fixed_dictionaries(needed, optional={**optional, "unknown": SCALARS})


TESTS = under(FieldsOfATest)
SUITES = under(SuiteFields, tests=st.lists(TESTS | WORDS, max_size=3) | VALUES)


def load(name: str, content: bytes) -> None:
    """Load, and where that works, dump and grade: only a clean error may come of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        try:
            suite = load_suite(path, [folder])
        except ConfigError as error:
            assert error.problems
            assert all(problem.message and problem.path for problem in error.problems)
            return
        json.dumps(suite.model_dump(), allow_nan=False)
        answers = {test.id: "an answer" for test in suite.tests}
        result = run_suite(suite, responses=read_responses(answers))
        json.dumps(result.to_dict(), allow_nan=False)


@settings(max_examples=60)
@given(SUITES)
def test_any_data_under_the_keys_of_a_suite(data: Any) -> None:
    load("s.yaml", yaml.safe_dump(data, allow_unicode=False).encode("utf-8", "surrogatepass"))


@settings(max_examples=40)
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(b"a: &a [*a]")
@example(b"tests: &x\n  - *x")
@example(b"[" * 3000)
@example(b"tests: !!binary aGk=")
@example(b"\xff\xfe")
def test_any_bytes(content: bytes) -> None:
    load("s.yaml", content)


@settings(max_examples=30)
@given(st.lists(TESTS | VALUES, max_size=3))
def test_any_lines(rows: list[Any]) -> None:
    lines = "\n".join(json.dumps(row) for row in rows)
    load("s.jsonl", lines.encode("utf-8"))


@settings(max_examples=50)
@given(st.text(alphabet=st.sampled_from(list('id,input"\n\r :{}[]_expected1ä\x00')), max_size=120))
def test_any_table(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "c.csv").write_bytes(text.encode())
        Path(folder, "s.yaml").write_text("tests: ./c.csv\n", encoding="utf-8")
        try:
            load_suite(Path(folder, "s.yaml"))
        except ConfigError as error:
            assert error.problems


@pytest.mark.parametrize("depth", [60, 200, 5000])
def test_depth_ends_in_a_clean_error(depth: int) -> None:
    load("s.yaml", b"tests: " + b"[" * depth + b"]" * depth)
    load("s.jsonl", b'{"id": "a", "input": "hi", "metadata": ' + b'{"a":' * depth + b"1" + b"}" * depth + b"}")


TEXTS = [path.read_text(encoding="utf-8") for path in sorted((PROJECT / "suites").glob("*.eval.yaml"))]
TEXTS += [
    case["input"]["yaml"]
    for case in json.loads((PROJECT / "tests/conformance/eval-suites.json").read_text(encoding="utf-8"))
    if len(case["input"]["yaml"]) > 150
]


@settings(max_examples=50)
@given(st.data())
def test_a_suite_with_a_slip_of_the_pen(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(TEXTS))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, max(0, len(text) - 1)))
        length = data.draw(st.integers(0, 6))
        text = (
            text[:start]
            + data.draw(st.text(alphabet=":-{}[] \n#&*!|>'\"%,a0.é\t", max_size=3))
            + text[start + length :]
        )
    load("s.yaml", text.encode("utf-8"))
