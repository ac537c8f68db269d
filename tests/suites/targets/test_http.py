"""Agents behind a URL: what is sent, where the answer is found, and every way to fail. Against a real server on this machine."""

import json
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.errors import ConfigError
from tests.suites.targets.conftest import Agent
from tests.suites.targets.test_providers import failure, request, target


def test_the_request_is_made_of_the_test(tmp_path: Path, agent: Agent) -> None:
    found = target(
        tmp_path,
        provider="http",
        url=f"{agent.url}/chat/{{{{ test_id }}}}?q={{{{prompt}}}}",
        method="PUT",
        headers={"x-test": "{{ test_id }}-{{ attempt }}"},
        body={
            "said": "{{ messages }}",
            "text": "Q: {{ prompt }}!",
            "deep": [{"n": "{{attempt}}"}],
            "keep": 5,
            "as": "{{ unknown }}",
        },
    )
    found.respond(request(tmp_path, "a & b"))
    method, path, headers, body = agent.got[0]
    assert (method, path, headers["x-test"]) == ("PUT", "/chat/t?q=a%20%26%20b", "t-0")
    assert json.loads(body) == {
        "said": [{"role": "user", "content": "a & b"}],
        "text": "Q: a & b!",
        "deep": [{"n": 0}],
        "keep": 5,
        "as": "{{ unknown }}",
    }


def test_a_get_has_no_body(tmp_path: Path, agent: Agent) -> None:
    target(tmp_path, provider="http", url=f"{agent.url}/?q={{{{ prompt }}}}", method="GET").respond(request(tmp_path))
    assert (agent.got[0][0], agent.got[0][3]) == ("GET", b"")


MESSAGES = [{"role": "assistant", "content": "ok", "tool_calls": [{"tool": "look"}]}]


@pytest.mark.parametrize(
    ("reply", "answer", "text"),
    [
        ({"text": "ok", "cost_usd": 0.1}, None, "ok"),
        ({"choices": [{"message": {"content": "ok"}}]}, "$.choices[0].message.content", "ok"),
        ({"log": MESSAGES}, "$.log", "ok"),
        ({"result": {"text": "ok", "token_usage": {"input": 1, "output": 1}}}, "$.result", "ok"),
        ({"other": 1}, None, '{"other": 1}'),
        (b"plain text", None, "plain text"),
        ({"parts": [{"kind": "note"}, {"kind": "say", "is": "ok"}]}, "$.parts[?@.kind == 'say'].is", "ok"),
    ],
    ids=["a known shape", "a path", "messages", "a mapping", "another shape", "text", "a filter"],
)
def test_where_the_answer_is_found(tmp_path: Path, agent: Agent, reply: Any, answer: str | None, text: str) -> None:
    agent.replies = [(200, reply, {})]
    found = target(tmp_path, provider="http", url=agent.url, **({"answer": answer} if answer else {}))
    output = found.respond(request(tmp_path))
    assert output.text == text
    assert output.duration_ms is not None


@pytest.mark.parametrize(
    ("replies", "reason", "said", "asked"),
    [
        ([(404, {"error": "no such agent"}, {})], "api_error", 'said 404: {"error": "no such agent"}', 1),
        ([(302, "", {"location": "http://127.0.0.1:1/"})], "api_error", "said 302", 1),
        ([(503, "", {"retry-after": "0"})], "api_error", "said 503", 3),
        ([(200, {"x": 1}, {})], "invalid_response", "there is nothing at $.text", 1),
        ([(200, b"<html>", {})], "invalid_response", "did not send JSON: <html>", 1),
        ([(200, {"text": 5}, {})], "invalid_response", "must be a string", 1),
    ],
    ids=["refused", "redirect", "busy for good", "nothing there", "no JSON", "no answer"],
)
def test_what_is_no_answer(
    tmp_path: Path, agent: Agent, replies: list[Any], reason: str, said: str, asked: int
) -> None:
    agent.replies = replies
    error = failure(target(tmp_path, provider="http", url=agent.url, answer="$.text"), request(tmp_path))
    assert (error.reason, error.transient, said in error.message) == (reason, False, True), error.message
    assert len(agent.got) == asked


def test_what_can_pass_is_tried_again(tmp_path: Path, agent: Agent) -> None:
    agent.replies = [(429, "", {"retry-after": "0"}), (500, "", {"retry-after": "0"}), (200, {"text": "ok"}, {})]
    assert target(tmp_path, provider="http", url=agent.url).respond(request(tmp_path)).text == "ok"
    assert len(agent.got) == 3


@pytest.mark.parametrize(
    ("declared", "sent"),
    [
        ("application/json; charset=iso-8859-1", "latin-1"),
        ("application/json", "utf-8"),
        ("application/json; charset=zlib", "utf-8"),
        ("application/json; charset=no-such", "utf-8"),
    ],
)
def test_text_is_read_as_declared(tmp_path: Path, agent: Agent, declared: str, sent: str) -> None:
    agent.replies = [(200, '{"text": "J\u00fcrgen"}'.encode(sent), {"content-type": declared})]
    assert target(tmp_path, provider="http", url=agent.url).respond(request(tmp_path)).text == "J\u00fcrgen"


@pytest.mark.parametrize(
    ("events", "answer", "text"),
    [
        (['{"d": "on "}', '{"n": 1}', '{"d": "Thursday"}', "[DONE]"], "$.d", "on Thursday"),
        (["on ", "Thursday"], None, "on Thursday"),
    ],
    ids=["a path into each event", "text"],
)
def test_a_stream_of_events_is_put_together(
    tmp_path: Path, agent: Agent, events: list[str], answer: str | None, text: str
) -> None:
    raw = "".join(f"data: {event}\n\n" for event in events).encode()
    agent.replies = [(200, raw, {"content-type": "text/event-stream; charset=utf-8"})]
    assert target(tmp_path, provider="http", url=agent.url, answer=answer).respond(request(tmp_path)).text == text


@pytest.mark.parametrize("raw", [b"data: oops\n\n", b'data: {"e": 1}\n\n', b""], ids=["no JSON", "no piece", "empty"])
def test_a_stream_without_an_answer_is_an_error(tmp_path: Path, agent: Agent, raw: bytes) -> None:
    agent.replies = [(200, raw, {"content-type": "text/event-stream"})]
    found = target(tmp_path, provider="http", url=agent.url, answer="$.d")
    assert failure(found, request(tmp_path)).reason == "invalid_response"


def test_no_server_is_an_error(tmp_path: Path) -> None:
    found = target(tmp_path, provider="http", url="http://127.0.0.1:9", max_retries=0)
    assert failure(found, request(tmp_path)).reason == "connection"


def test_values_of_headers_stay_out_of_the_fingerprint(tmp_path: Path) -> None:
    found = target(tmp_path, provider="http", url="http://127.0.0.1:9", headers={"authorization": "Bearer geheim"})
    assert "geheim" not in json.dumps(found.fingerprint())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"url": "ftp://x"}, "url: must match ^https?://"),
        ({"url": "http://x", "answer": "$.["}, "answer: is no JSONPath"),
        ({}, "url is required"),
    ],
)
def test_mistakes(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        target(tmp_path, provider="http", **fields)
    assert said in str(raised.value)
