"""Models of every provider, through the real SDKs and a real socket: what is sent, and what comes back."""

import json
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.suites import run_suite
from persona_pipeline.suites.answering.base import Grants, TargetFields
from persona_pipeline.suites.answering.output import parse_output
from persona_pipeline.suites.running.opening import load_targets
from persona_pipeline.suites.targets import Request
from tests.suites.support import load
from tests.suites.targets.conftest import Agent
from tests.suites.targets.test_providers import failure, request, target
from tests.support.clock import LONG
from tests.support.messages_server import Hang, MessagesServer
from tests.support.protocols import PROJECT, REGION
from tests.support.providers import set_environment

pytestmark = pytest.mark.skipif(find_spec("openai") is None, reason="openai is not installed")

JSON = {"content-type": "application/json"}
SAID = {"model": "m", "max_tokens": 2048, "temperature": 0.5, "seed": 7}
USER = {"role": "user", "content": "hi"}
BLOCKS = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
CLAUDE = {"max_tokens": 2048, "temperature": 0.5, "seed": 7, "messages": [BLOCKS]}


def message(text: str | None = "ok", stop: str = "end_turn") -> dict[str, Any]:
    return {
        "id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": stop,
        "content": [] if text is None else [{"type": "text", "text": text}],
        "usage": {"input_tokens": 5, "output_tokens": 1},
    }  # fmt: skip


def completion(content: str | None, finish_reason: str = "stop", **message: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": content, **message}
    usage = {"prompt_tokens": 30, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 10}}
    choices = [{"index": 0, "finish_reason": finish_reason, "message": said}]
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": usage}


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


TALK = [
    ("system", "You count."),
    ("user", "one"),
    ("user", "two"),
    ("assistant", "yes"),
    ("tool", "result"),
    ("user", " "),
]


@pytest.mark.parametrize(
    ("provider", "below", "reply", "sent", "cached"),
    [
        (
            "anthropic", "", message("Four."),
            [("system", "Be brief.\n\nYou count."), ("user", "one"), ("user", "two"), ("assistant", "yes"), ("user", "result")],
            None,
        ),
        (
            "openai", "/v1", completion("Four."),
            [("system", "Be brief."), ("system", "You count."), ("user", "one"), ("user", "two"), ("assistant", "yes"),
             ("user", "result")],
            10,
        ),
    ],
)  # fmt: skip
def test_the_conversation_goes_out_and_the_answer_comes_back(
    tmp_path: Path,
    agent: Agent,
    provider: str,
    below: str,
    reply: Any,
    sent: list[tuple[str, str]],
    cached: int | None,
) -> None:
    agent.replies = [(200, reply, JSON)]
    found = ask(tmp_path, agent, provider, below, model="claude-haiku-5-5", system="Be brief.")
    messages = [{"role": role, "content": text} for role, text in TALK]
    answer = found.respond(Request(request(tmp_path).test, messages, "", timeout=LONG))
    body = json.loads(agent.got[0][3])
    # In the Messages API adjacent messages of one role are one turn.
    roles = [role for role, _ in sent]
    assert [turn["role"] for turn in body["messages"]] == (roles if provider == "openai" else [*roles[2:]])
    said = [("system", body["system"])] if "system" in body else []
    for turn in body["messages"]:
        parts = [turn["content"]] if isinstance(turn["content"], str) else [part["text"] for part in turn["content"]]
        said += [(turn["role"], part) for part in parts]
    assert said == sent
    assert answer.text == "Four." and answer.duration_ms is not None
    assert answer.token_usage is not None and answer.token_usage.cached == cached
    assert answer.cost_usd is not None
    nothing = failure(found, Request(request(tmp_path).test, [], "", timeout=LONG))
    assert (nothing.reason, len(agent.got)) == ("invalid_request", 1)


def test_a_server_that_hangs_ends_at_the_deadline(tmp_path: Path) -> None:
    with MessagesServer(handler=lambda call: Hang()) as server:
        found = target(tmp_path, provider="anthropic", base_url=server.url, api_key="k", max_retries=0)
        error = failure(found, request(tmp_path, timeout=0.3))
    assert (error.reason, error.transient) == ("timeout", True)


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


@pytest.mark.parametrize("name", ["messages", "max_tokens"])
def test_parameters_hold_nothing_that_is_said_elsewhere(tmp_path: Path, agent: Agent, name: str) -> None:
    with pytest.raises(Exception, match=rf"targets.yaml:1.*parameters.*may not hold {name}"):
        ask(tmp_path, agent, "openai", parameters={name: "x"})


HTML = {"content-type": "text/html"}


@pytest.mark.parametrize(
    ("api", "status", "reply", "reason"),
    [
        ("messages", 400, {"error": {"message": "no"}}, "api_error"),
        ("messages", 529, {"error": {"message": "busy"}}, "api_error"),
        ("messages", 200, message(None, "refusal"), "refusal"),
        ("messages", 200, message(None, "max_tokens"), "truncated"),
        ("messages", 200, message(None), "empty"),
        ("messages", 200, b"<html>", "api_error"),
        ("messages", 200, ["no message"], "invalid_response"),
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
    agent.replies = [(status, reply, HTML if isinstance(reply, bytes) else JSON)]
    asked = ("anthropic", "") if api == "messages" else ("openai", "/v1")
    fields = {} if api == "messages" else {"api": api}
    assert failure(ask(tmp_path, agent, *asked, **fields), request(tmp_path)).reason == reason


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


SERVERS: dict[str, tuple[dict[str, Any], Any]] = {
    "http": ({"url": "{url}"}, {"text": "ok"}),
    "anthropic": ({"base_url": "{url}", "model": "m", "api_key": "k"}, message()),
    "openai": ({"base_url": "{url}/v1", "model": "m", "api_key": "k"}, completion("ok")),
}


def asking(folder: Path, agent: Agent, provider: str, **fields: Any) -> TargetFields:
    own = {name: text.replace("{url}", agent.url) for name, text in SERVERS[provider][0].items()}
    return target(folder, provider=provider, **own, **fields)


@pytest.mark.parametrize("provider", SERVERS)
class TestEveryServer:
    def test_a_pause_longer_than_what_is_left_is_not_waited_for(
        self, tmp_path: Path, agent: Agent, provider: str
    ) -> None:
        agent.replies = [(429, {"error": {"message": "slow down"}}, {**JSON, "retry-after": "50"})]
        error = failure(asking(tmp_path, agent, provider, max_retries=5), request(tmp_path, timeout=20))
        assert (error.reason, error.transient, len(agent.got)) == ("api_error", False, 1)
        assert "429" in error.message and "wait 50 s" in error.message

    def test_waiting_is_no_part_of_the_duration(self, tmp_path: Path, agent: Agent, provider: str) -> None:
        busy = (429, {"error": {"message": "slow down"}}, {**JSON, "retry-after": "1"})
        agent.replies = [busy, (200, SERVERS[provider][1], JSON)]
        began = time.monotonic()
        output = asking(tmp_path, agent, provider, max_retries=1).respond(request(tmp_path))
        whole_ms = 1000 * (time.monotonic() - began)
        assert output.duration_ms is not None and output.waited_ms is not None
        assert output.waited_ms >= 1000 and output.duration_ms + output.waited_ms <= whole_ms + 1, "counted once"

    def test_one_connection_serves_many_answers_and_is_closed(
        self, tmp_path: Path, agent: Agent, provider: str
    ) -> None:
        agent.replies = [(200, SERVERS[provider][1], JSON)]
        found = asking(tmp_path, agent, provider)
        for _ in range(3):
            found.respond(request(tmp_path))
        assert len(agent.connections) == 1
        found.close()
        found.respond(request(tmp_path))
        assert len(agent.connections) == 2
