"""Evidence first: an assert whose evidence is missing is the error ``not_reported``, and its test cannot be told."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from persona_pipeline.suites.format.registry import BUILT_IN, find_type
from tests.suites.support import calls, run, suite_of

TOOLS = {"type": "tool_trajectory"}
METRICS = {"type": "execution_metrics"}
CUT_OFF = {"text": "I will", "truncated": True}
FIELDS = {"type": "field_accuracy", "fields": [{"path": "a"}]}
OPENAI_CUT_OFF = {"choices": [{"message": {"role": "assistant", "content": "I will"}, "finish_reason": "length"}]}
# An assert, and an answer without what it needs. Each scored 1 with or without negate.
WITHOUT_EVIDENCE: dict[str, tuple[dict[str, Any], Any]] = {
    "most calls of a bare text": ({**METRICS, "max_tool_calls": 0}, "ok"),
    "most messages of a bare text": ({**METRICS, "max_llm_calls": 1}, {"text": "ok"}),
    "a minimum of 0": ({**TOOLS, "mode": "any_order", "minimums": {"refund": 0}}, {"text": "ok", "duration_ms": 5}),
    "a maximum": ({**TOOLS, "mode": "any_order", "maximums": {"refund": 0}}, "ok"),
    "an allow list": ({**TOOLS, "mode": "subset", "expected": [{"tool": "look"}]}, "ok"),
    "no calls expected": ({**TOOLS, "mode": "exact", "expected": []}, "ok"),
    "no messages at all": ({**TOOLS, "mode": "exact", "expected": []}, {"output_messages": []}),
    "a call without its duration": (
        {**TOOLS, "mode": "in_order", "expected": [{"tool": "a", "max_duration_ms": 5}]},
        calls("a"),
    ),
    "a call without its arguments": (
        {**TOOLS, "mode": "superset", "expected": [{"tool": "a", "args": {"n": 1}}]},
        calls("a"),
    ),
    "latency": ({"type": "latency", "max_ms": 5}, "ok"),
    "a negative latency": ({"type": "latency", "max_ms": 5}, {"text": "ok", "duration_ms": -1}),
    "cost": ({"type": "cost", "max_usd": 1}, calls("a")),
    "tokens": ({"type": "token_usage", "max_total": 5}, calls("a")),
    "the duration among limits": ({**METRICS, "max_duration_ms": 5, "max_tool_calls": 9}, calls("a")),
    "contains of an empty answer": ({"type": "contains", "value": "sorry"}, ""),
    "contains of blanks": ({"type": "icontains", "value": "sorry"}, " \n"),
    "regex of calls alone": ({"type": "regex", "value": "sorry"}, {"tool_calls": [{"tool": "a"}]}),
    "contains of a cut-off answer": ({"type": "contains", "value": "sorry"}, CUT_OFF),
    "equals of a cut-off answer": ({"type": "equals", "value": "sorry"}, OPENAI_CUT_OFF),
    "regex of a cut-off answer": ({"type": "regex", "value": "sorry"}, CUT_OFF),
    "JSON of a cut-off answer": ({"type": "is_json"}, CUT_OFF),
    "fields of prose": (FIELDS, "no data"),
    "a field that is not expected": ({**FIELDS, "fields": [{"path": "a"}, {"path": "b.c"}]}, '{"a": 1, "b": {"c": 2}}'),
    "a number that is not expected": ({**FIELDS, "fields": [{"path": "b", "match": "numeric_tolerance"}]}, '{"b": 1}'),
    "a date that is not expected": ({**FIELDS, "fields": [{"path": "b", "match": "date"}]}, '{"b": "2025-01-01"}'),
    "tokens without a part of them": (
        {"type": "token_usage", "max_total": 5},
        {"text": "ok", "token_usage": {"input": 1, "output": 1, "cached": "9000"}},
    ),
    "a judge of nothing": ({"type": "llm_judge"}, ""),
    "criteria of a cut-off answer": ({"type": "rubrics", "criteria": ["polite"]}, CUT_OFF),
}


@pytest.mark.parametrize("negate", [False, True], ids=["", "negated"])
@pytest.mark.parametrize("name", WITHOUT_EVIDENCE)
def test_without_evidence_a_test_cannot_be_told(tmp_path: Path, name: str, negate: bool) -> None:
    item, answer = WITHOUT_EVIDENCE[name]
    suite = suite_of(tmp_path, {**item, "negate": negate}, expected_output={"a": 1, "b": "soon"})
    result = run(suite, {"t": answer})
    (test,) = result.tests
    assert (test.verdict, test.error and test.error.reason, result.exit_code) == ("error", "not_reported", 3)
    assert test.error and "not reported: " in test.error.message


# Answers that something stopped, as SDKs write them.
STOPPED: dict[str, Any] = yaml.safe_load("""
an OpenAI filter: {choices: [{message: {role: assistant, content: I}, finish_reason: content_filter}]}
a Gemini filter: {candidates: [{content: {parts: [{text: I}]}, finishReason: SAFETY}]}
a Bedrock guardrail: {output: {message: {role: assistant, content: [{text: I}]}}, stopReason: guardrail_intervened}
an Anthropic context:
  {role: assistant, content: [{type: text, text: I}], stop_reason: model_context_window_exceeded}
an Anthropic refusal: {role: assistant, content: [{type: text, text: I}], stop_reason: refusal}
a Vercel failure: {text: I, finishReason: error}
a failed response:
  {status: failed, output: [{type: message, role: assistant, content: [{type: output_text, text: I}]}]}
""")


@pytest.mark.parametrize("name", STOPPED)
def test_an_answer_that_something_stopped_is_not_complete(tmp_path: Path, name: str) -> None:
    result = run(suite_of(tmp_path, {"type": "contains", "value": "sorry", "negate": True}), {"t": STOPPED[name]})
    assert (result.exit_code, result.tests[0].error and result.tests[0].error.reason) == (3, "not_reported")


NO_CALLS = {"output_messages": [{"role": "assistant", "content": "ok", "tool_calls": []}]}
OPTIONAL = {**FIELDS, "fields": [{"path": "a", "required": False}]}
WEIGHTLESS = {
    "type": "composite",
    "assert": [{"type": "contains", "value": "ok", "weight": 0}],
    "aggregator": {"type": "weighted_average"},
}
# Asserts that found nothing to weigh score 0; so does what is made of them.
NOTHING_WEIGHED: dict[str, tuple[dict[str, Any], Any]] = {
    "optional fields that are missing": (OPTIONAL, '{"x": 1}'),
    "the same, all or nothing": ({**OPTIONAL, "aggregation": "all_or_nothing"}, '{"x": 1}'),
    "a ratio of no calls": ({**METRICS, "target_exploration_ratio": 0.5}, NO_CALLS),
    "members without a weight": (WEIGHTLESS, "ok"),
    "a member that weighs nothing": ({**WEIGHTLESS, "assert": [{**WEIGHTLESS, "weight": 1}]}, "ok"),
}


@pytest.mark.parametrize("name", NOTHING_WEIGHED)
def test_what_weighs_nothing_passes_neither_as_it_is_nor_negated(tmp_path: Path, name: str) -> None:
    item, answer = NOTHING_WEIGHED[name]
    codes = {}
    for negate in (False, True):
        suite = suite_of(tmp_path, {**item, "negate": negate}, expected_output={"a": 1})
        codes[negate] = run(suite, {"t": answer}).exit_code
    assert codes == {False: 1, True: 3}


def test_json_behind_more_brackets_than_are_read_is_not_absent(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, {"type": "contains_json", "negate": True})
    assert run(suite, {"t": "{" * 1001 + '{"a": 1}'}).exit_code == 3


def test_what_failed_still_fails(tmp_path: Path) -> None:
    gate = {"type": "contains", "value": "NO", "required": True}
    result = run(suite_of(tmp_path, gate, {"type": "latency", "max_ms": 5}), {"t": "ok"})
    assert (result.tests[0].verdict, result.exit_code) == ("fail", 1)


def test_of_a_conversation_each_answer_must_be_reported(tmp_path: Path) -> None:
    suite = suite_of(
        tmp_path, {"type": "cost", "max_usd": 1}, turns=["one", "two"], input=[{"role": "system", "content": "s"}]
    )
    said = [
        {"role": role, "content": text}
        for role, text in (("user", "one"), ("assistant", "1"), ("user", "two"), ("assistant", "2"))
    ]
    known, unknown = {"cost_usd": 0.1}, {}
    for took, verdict in (([known, known], "pass"), ([known, unknown], "error")):
        assert run(suite, {"t": {"output_messages": said, "turns": took}}).tests[0].verdict == verdict


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_type_declares_what_it_needs(name: str) -> None:
    """A type that computes from the answer needs a part of it; programs and what is made of others see what there is."""
    model: Any = find_type(name)
    assert model.needs or getattr(model, "limits", None) or name in ("code_judge", "composite", "agent_judge")
