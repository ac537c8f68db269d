"""Models of every provider, through the real SDKs and a real socket: what is sent, and what comes back."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.suites import run_suite
from persona_pipeline.suites.answering.base import Grants, TargetFields
from persona_pipeline.suites.answering.output import parse_output
from persona_pipeline.suites.running.opening import load_targets
from tests.suites.support import load
from tests.suites.targets.conftest import Agent
from tests.suites.targets.test_openai import completion
from tests.suites.targets.test_providers import failure, request, target
from tests.support.protocols import PROJECT, REGION
from tests.support.providers import set_environment

pytest.importorskip("openai")

JSON = {"content-type": "application/json"}
SAID = {"model": "m", "max_tokens": 2048, "temperature": 0.5, "seed": 7}
USER = {"role": "user", "content": "hi"}
BLOCKS = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
CLAUDE = {"max_tokens": 2048, "temperature": 0.5, "seed": 7, "messages": [BLOCKS]}


def message(text: str = "ok", stop: str = "end_turn") -> dict[str, Any]:
    return {
        "id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": stop,
        "content": [{"type": "text", "text": text}], "usage": {"input_tokens": 5, "output_tokens": 1},
    }  # fmt: skip


def response(items: Sequence[Any] | None = None, **fields: Any) -> dict[str, Any]:
    said = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}]
    usage = {"input_tokens": 30, "output_tokens": 4, "total_tokens": 34, "input_tokens_details": {"cached_tokens": 10}}
    own = {"id": "r", "object": "response", "model": "m", "status": "completed", "usage": usage}
    return {**own, "output": said if items is None else items, **fields}


def ask(folder: Path, agent: Agent, provider: str, below: str = "", **fields: Any) -> TargetFields:
    own = {"model": "m", "base_url": f"{agent.url}{below}", "api_key": "given", "max_retries": 0}
    return target(folder, provider=provider, **{**own, **fields})


VERTEX = f"/v1/projects/{PROJECT}/locations/{REGION}/publishers/anthropic/models/m:rawPredict"
RESPONSES = {"model": "m", "max_output_tokens": 2048, "temperature": 0.5, "seed": 7, "input": [USER]}
AZURE = {key: value for key, value in SAID.items() if key != "max_tokens"} | {"max_completion_tokens": 2048}


@pytest.mark.parametrize(
    ("provider", "below", "fields", "reply", "path", "body"),
    [
        ("anthropic", "", {}, message(), "/v1/messages", {**CLAUDE, "model": "m"}),
        ("bedrock", "", {}, message(), "/model/m/invoke", CLAUDE),
        ("vertex", "/v1", {}, message(), VERTEX, CLAUDE),
        ("openai", "/v1", {}, completion("ok"), "/v1/chat/completions", {**SAID, "messages": [USER]}),
        ("openai", "/v1", {"api": "responses"}, response(), "/v1/responses", RESPONSES),
        ("azure", "", {}, completion("ok"), "/openai/v1/chat/completions", {**AZURE, "messages": [USER]}),
        ("azure", "", {"api": "responses"}, response(), "/openai/v1/responses", RESPONSES),
        ("gemini", "", {}, completion("ok"), "/v1beta/openai/chat/completions", {**SAID, "messages": [USER]}),
        ("ollama", "", {}, completion("ok"), "/v1/chat/completions", {**SAID, "messages": [USER]}),
        ("vllm", "", {}, completion("ok"), "/v1/chat/completions", {**SAID, "messages": [USER]}),
        ("openrouter", "", {}, completion("ok"), "/api/v1/chat/completions", {**SAID, "messages": [USER]}),
    ],
)
def test_every_provider_is_asked_in_its_own_words(
    tmp_path: Path,
    agent: Agent,
    monkeypatch: pytest.MonkeyPatch,
    provider: str,
    below: str,
    fields: dict[str, Any],
    reply: Any,
    path: str,
    body: dict[str, Any],
) -> None:
    set_environment(monkeypatch)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "OPENAI_API_VERSION"):
        monkeypatch.delenv(name, raising=False)
    agent.replies = [(200, reply, JSON)]
    found = ask(tmp_path, agent, provider, below, parameters={"temperature": 0.5, "seed": 7}, **fields)
    # Not the user's own file: what goes out is the key that it names, and nothing of the environment.
    found._grants = Grants(network=True)
    output = found.respond(request(tmp_path))
    (_, asked, headers, raw) = agent.got[0]
    # The version of the API stands in the body at clouds, in a header elsewhere.
    sent = {name: value for name, value in json.loads(raw).items() if name != "anthropic_version"}
    assert (asked, sent) == (path, body)
    keys = [value for name, value in headers.items() if name.lower() in ("authorization", "x-api-key")]
    assert keys in (["given"], ["Bearer given"])
    assert (output.text, output.truncated) == ("ok", False)
    assert output.token_usage is not None and output.duration_ms is not None and output.waited_ms is not None


@pytest.mark.parametrize("provider", ["bedrock", "vertex"])
def test_keys_of_a_cloud_do_not_go_to_a_server_that_the_suite_names(
    tmp_path: Path, agent: Agent, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    set_environment(monkeypatch)
    found = ask(tmp_path, agent, provider, api_key=None)
    found._grants = Grants(network=True)
    error = failure(found, request(tmp_path))
    assert (error.reason, agent.got) == ("no_credentials", [])
    assert "give its api_key" in error.message


@pytest.mark.parametrize("name", ["model", "messages", "stream", "max_tokens", "system"])
def test_parameters_hold_nothing_that_is_said_elsewhere(tmp_path: Path, agent: Agent, name: str) -> None:
    with pytest.raises(Exception, match=rf"targets.yaml:1.*parameters.*may not hold {name}"):
        ask(tmp_path, agent, "openai", parameters={name: "x"})


@pytest.mark.parametrize(
    ("api", "status", "reply", "reason"),
    [
        ("responses", 200, response([{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}]), "refusal"),
        ("responses", 200, response([], status="incomplete", incomplete_details={"reason": "max_output_tokens"}), "truncated"),
        ("responses", 200, response([], status="incomplete", incomplete_details={"reason": "content_filter"}), "refusal"),
        ("responses", 200, response([], status="failed", error={"code": "server_error", "message": "broken"}), "api_error"),
        ("responses", 200, response([]), "empty"),
        ("responses", 200, {"output": "x"}, "invalid_response"),
        ("responses", 200, completion("ok"), "invalid_response"),
        ("chat", 400, {"error": {"message": "no"}}, "api_error"),
        ("chat", 503, {"error": {"message": "busy"}}, "api_error"),
        ("chat", 200, completion(None, refusal="I will not."), "refusal"),
        ("chat", 200, completion("", "content_filter"), "refusal"),
        ("chat", 200, completion(None, "length"), "truncated"),
        ("chat", 200, completion(None), "empty"),
        ("chat", 200, {"choices": []}, "invalid_response"),
        ("chat", 200, ["x"], "invalid_response"),
    ],
)  # fmt: skip
def test_what_is_no_answer(tmp_path: Path, agent: Agent, api: str, status: int, reply: Any, reason: str) -> None:
    agent.replies = [(status, reply, JSON)]
    assert failure(ask(tmp_path, agent, "openai", "/v1", api=api), request(tmp_path)).reason == reason


def test_calls_and_cached_tokens_of_a_response(tmp_path: Path, agent: Agent) -> None:
    items = [{"type": "reasoning", "summary": []}]
    items += [{"type": "function_call", "name": "look", "arguments": '{"a": 1}', "call_id": "x"}]
    agent.replies = [(200, response(items), JSON)]
    output = ask(tmp_path, agent, "openai", "/v1", api="responses").respond(request(tmp_path))
    assert output.tool_calls == [{"tool": "look", "input": {"a": 1}, "id": "x"}]
    assert output.token_usage is not None and output.token_usage.to_dict() == {"input": 20, "output": 4, "cached": 10}


@pytest.mark.parametrize(
    ("provider", "fields", "reply"),
    [
        ("anthropic", {}, message("On Thurs", "max_tokens")),
        ("openai", {}, completion("On Thurs", "length")),
        (
            "openai",
            {"api": "responses"},
            response(status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
        ),
    ],
)
def test_an_answer_that_was_cut_off_is_graded_and_said(
    tmp_path: Path, agent: Agent, provider: str, fields: dict[str, Any], reply: Any
) -> None:
    agent.replies = [(200, reply, JSON)]
    ask(tmp_path, agent, provider, **fields)
    suite = load(
        tmp_path,
        "execution: {target: a}\ntests:\n  - {id: t, input: hi, assert: [{type: contains, value: o, negate: true}]}\n",
    )
    (test,) = run_suite(suite, targets=load_targets(tmp_path / "targets.yaml")).tests
    assert test.best.output is not None and test.best.output.truncated
    assert any("cut off" in note and "max_tokens" in note for note in test.notes)
    assert test.to_dict()["truncated"] is True
    assert parse_output(test.best.output.to_dict()).truncated


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_a_pause_longer_than_what_is_left_is_not_waited_for(tmp_path: Path, agent: Agent, provider: str) -> None:
    agent.replies = [
        (429, {"error": {"type": "rate_limit_error", "message": "slow down"}}, {**JSON, "retry-after": "50"})
    ]
    error = failure(ask(tmp_path, agent, provider, max_retries=5), request(tmp_path, timeout=20))
    assert (error.transient, len(agent.got)) == (False, 1)
    assert "HTTP 429" in error.message and "wait 50 s" in error.message


@pytest.mark.parametrize(("provider", "reply"), [("anthropic", message()), ("openai", completion("ok"))])
def test_waiting_is_no_part_of_the_duration(tmp_path: Path, agent: Agent, provider: str, reply: Any) -> None:
    agent.replies = [(429, {"error": {"message": "slow down"}}, {**JSON, "retry-after": "1"}), (200, reply, JSON)]
    began = time.monotonic()
    output = ask(tmp_path, agent, provider, max_retries=1).respond(request(tmp_path))
    whole_ms = 1000 * (time.monotonic() - began)
    assert output.duration_ms is not None and output.waited_ms is not None
    assert output.waited_ms >= 1000 and output.duration_ms + output.waited_ms <= whole_ms + 1, "counted once"
