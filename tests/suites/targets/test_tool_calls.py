"""Tool calls of every SDK, through recorded answers and each kind of target: counted, or refused by name, never dropped."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.suites import read_responses, run_suite
from persona_pipeline.suites.answering.output import Output, parse_output
from persona_pipeline.suites.format.files import ReasonedError
from persona_pipeline.suites.grading.base import Context
from persona_pipeline.suites.grading.judge_questions import evidence
from tests.suites.support import suite_of
from tests.suites.targets.conftest import Agent
from tests.suites.targets.test_providers import request, target
from tests.turns.shapes import GIVEN, IN_TEXT, SHAPES, UNKNOWN

ASSERTS = [
    {
        "name": "never refunds",
        "type": "tool_trajectory",
        "mode": "any_order",
        "minimums": {"refund": 1},
        "negate": True,
    },
    {"name": "no calls", "type": "execution_metrics", "max_tool_calls": 0},
    {"name": "no refund at all", "type": "tool_trajectory", "mode": "any_order", "maximums": {"refund": 0}},
    {"name": "says so", "type": "contains", "value": "Done."},
]
ANSWERS = {**{name: shape[0] for name, shape in SHAPES.items()}, **{name: made[0] for name, made in UNKNOWN.items()}}


def checked(result: Any, name: str) -> None:
    """Assert that the refund is seen, or that the answer is refused by the place of what hides it."""
    (test,) = result.tests
    if name in UNKNOWN:
        assert (test.verdict, test.error.reason, result.exit_code) == ("error", "invalid_response", 3)
        assert UNKNOWN[name][1] in test.error.message
        return
    scores = {item.name: item.score for item in test.best.results}
    assert scores == {"never refunds": 0, "no calls": 0, "no refund at all": 0, "says so": 1}
    assert result.exit_code == 1


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return suite_of(tmp_path_factory.mktemp("suite"), *ASSERTS)


@pytest.mark.parametrize("name", ANSWERS)
def test_recorded_answers(suite: Any, name: str) -> None:
    checked(run_suite(suite, responses=read_responses({"t": {"responses": [ANSWERS[name]]}["responses"][0]})), name)


@pytest.mark.parametrize("name", ["Anthropic messages", "Vercel generateText", "actions"])
@pytest.mark.parametrize("provider", ["function", "http", "cli"])
def test_every_kind_of_target_reads_them_alike(
    tmp_path: Path, suite: Any, agent: Agent, provider: str, name: str
) -> None:
    if provider == "function":
        checked(run_suite(suite, targets=lambda prompt: ANSWERS[name]), name)
        return
    (tmp_path / "said.json").write_text(json.dumps(ANSWERS[name]), encoding="utf-8")
    agent.replies = [(200, ANSWERS[name], {"content-type": "application/json"})]
    command = [sys.executable, "-c", "print(open('said.json').read())"]
    fields: dict[str, Any] = {"url": agent.url} if provider == "http" else {"command": command}
    found = target(tmp_path, provider=provider, **fields)
    if name in UNKNOWN:
        with pytest.raises(ReasonedError, match=r"actions\[0\] looks like a tool call"):
            found.respond(request(tmp_path))
    else:
        (call,) = found.respond(request(tmp_path)).tool_calls
        assert (call["tool"], call["input"]) == ("refund", GIVEN)
    found.close()


class Sdk:
    """An object that a client of an SDK returns."""

    def model_dump(self, mode: str) -> Any:
        return SHAPES["Anthropic response"][0]


@pytest.mark.parametrize(
    "given", [Sdk(), [Sdk()], Output(SHAPES["Anthropic messages"][0])], ids=["one", "several", "output"]
)
def test_a_function_may_return_what_an_sdk_gave_it(suite: Any, given: Any) -> None:
    checked(run_suite(suite, targets=lambda prompt: given), "Anthropic response")


@pytest.mark.parametrize("name", SHAPES)
def test_what_was_read_is_read_again_as_the_same(name: str) -> None:
    first = parse_output(ANSWERS[name])
    again = parse_output(json.loads(json.dumps(first.to_dict())))
    assert (again.messages, again.calls_reported) == (first.messages, True)


@pytest.mark.parametrize("answer", ["Done.", {"text": "Done."}])
def test_that_nothing_is_known_of_calls_is_kept_too(answer: Any) -> None:
    again = parse_output(json.loads(json.dumps(parse_output(answer).to_dict())))
    assert not again.calls_reported
    trace = again.trace() or {}
    assert (trace["event_count"], trace["llm_call_count"]) == (None, None)


@pytest.mark.parametrize("name", IN_TEXT)
def test_of_a_call_in_the_text_nothing_can_be_told(tmp_path: Path, suite: Any, name: str) -> None:
    message = {"role": "assistant", "content": IN_TEXT[name]}
    (test,) = run_suite(suite, responses=read_responses({"t": [message]})).tests
    reasons = {item.name: item.error and item.error.reason for item in test.best.results}
    assert reasons == dict.fromkeys(("never refunds", "no calls", "no refund at all"), "not_reported") | {
        "says so": None
    }
    asked: Any = target(tmp_path, provider="openai", model="m", base_url="http://127.0.0.1:9")
    assert not asked.read({"choices": [{"message": message}]}).calls_reported


@pytest.mark.parametrize("name", ["OpenAI Responses", "LangChain", "text and tool_calls"])
def test_judges_see_the_calls_without_what_differs_from_run_to_run(suite: Any, name: str) -> None:
    shown = evidence(parse_output(ANSWERS[name]), Context(suite, suite.tests[0]))
    assert shown["tool_calls"] == [{"tool": "refund", "input": GIVEN, "output": "ok"}]
    assert "tool_calls" not in evidence(parse_output("Done."), Context(suite, suite.tests[0]))
