"""Models behind chat completions, through the openai SDK and a real socket."""

import json
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.suites.answering.base import TargetFields
from persona_pipeline.suites.targets import Request
from tests.suites.targets.conftest import Agent
from tests.suites.targets.test_providers import request, target
from tests.support.waiting import PATIENCE

pytest.importorskip("openai")


def completion(content: str | None, finish_reason: str = "stop", **message: Any) -> dict[str, Any]:
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-5-mini",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": content, **message},
            }
        ],
        "usage": {"prompt_tokens": 30, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 10}},
    }


def ask(folder: Path, agent: Agent, **fields: Any) -> TargetFields:
    own = {"model": "gpt-5-mini", "base_url": f"{agent.url}/v1", "api_key": "test", "max_retries": 0}
    return target(folder, provider="openai", **{**own, **fields})


def test_the_conversation_goes_out_and_the_answer_comes_back(tmp_path: Path, agent: Agent) -> None:
    agent.replies = [(200, completion("Four."), {"content-type": "application/json"})]
    messages = [
        {"role": "system", "content": "You count."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "yes"},
        {"role": "tool", "content": "result"},
        {"role": "user", "content": " "},
    ]
    answer = ask(tmp_path, agent, system="Be brief.").respond(
        Request(request(tmp_path).test, messages, "", timeout=PATIENCE)
    )
    method, path, headers, body = agent.got[0]
    assert (method, path, headers["authorization"]) == ("POST", "/v1/chat/completions", "Bearer test")
    sent = json.loads(body)
    assert [(turn["role"], turn["content"]) for turn in sent["messages"]] == [
        ("system", "Be brief."), ("system", "You count."), ("user", "one"), ("assistant", "yes"), ("user", "result"),
    ]  # fmt: skip
    assert (sent["model"], sent["max_tokens"]) == ("gpt-5-mini", 2048)
    assert answer.text == "Four."
    assert answer.token_usage is not None and answer.token_usage.to_dict() == {"input": 20, "output": 4, "cached": 10}
    assert answer.duration_ms is not None


@pytest.mark.parametrize(("arguments", "read"), [('{"a": 1}', {"a": 1}), ("a = 1", "a = 1")])
def test_tool_calls_are_passed_through(tmp_path: Path, agent: Agent, arguments: str, read: Any) -> None:
    call = {"id": "x", "type": "function", "function": {"name": "look", "arguments": arguments}}
    agent.replies = [(200, completion(None, "tool_calls", tool_calls=[call]), {"content-type": "application/json"})]
    answer = ask(tmp_path, agent).respond(request(tmp_path))
    assert answer.tool_calls == [{"tool": "look", "input": read, "id": "x"}]


def test_one_connection_serves_many_answers_and_is_closed(tmp_path: Path, agent: Agent) -> None:
    agent.replies = [(200, completion("ok"), {"content-type": "application/json"})]
    found = ask(tmp_path, agent)
    for _ in range(3):
        found.respond(request(tmp_path))
    assert len(agent.connections) == 1
    found.close()
    found.respond(request(tmp_path))
    assert len(agent.connections) == 2
