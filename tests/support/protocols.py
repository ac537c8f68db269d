"""What the local server speaks: how requests of each provider come in, and how answers go out, in the provider's own words.

Written from the providers' documentation and not from the code that is tested: what they would reject is a problem here.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from urllib.parse import quote, unquote

from tests.support.messages_api import check_body, check_request
from tests.support.messages_replies import Cut, Outcome, Reply, Trickle

ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = "AKIDEXAMPLE", "aws-secret-9f31", "aws-session-77c2"
BEARER = "bearer-5b1e"
REGION, PROJECT = "eu-central-1", "office-42"


@dataclass(frozen=True)
class Incoming:
    """A request as the Messages API would have had it, and what is wrong with it."""

    path: str
    body: Any
    problems: list[str] = field(default_factory=list)


class Protocol:
    """The Messages API itself."""

    base_path = ""

    def request(self, method: str, path: str, headers: Mapping[str, str], body: Any, raw: bytes) -> Incoming:
        return Incoming(path, body, check_request(method, path, headers, body))

    def reply(self, outcome: Outcome) -> Outcome:
        if isinstance(outcome, (Trickle, Cut)):
            return replace(outcome, reply=self._told(outcome.reply))
        return self._told(outcome) if isinstance(outcome, Reply) else outcome

    def _told(self, reply: Reply) -> Reply:
        if not isinstance(reply.body, dict):
            return reply
        if reply.body.get("type") == "error":
            return self.error(reply, reply.body["error"])
        return replace(reply, body=self.answer(reply.body))

    def error(self, reply: Reply, error: Mapping[str, Any]) -> Reply:
        return reply

    def answer(self, body: Mapping[str, Any]) -> Any:
        return body


class Bedrock(Protocol):
    """Amazon Bedrock, InvokeModel: the model in the path, the request signed."""

    def request(self, method: str, path: str, headers: Mapping[str, str], body: Any, raw: bytes) -> Incoming:
        found = re.fullmatch(r"/model/([^/]+)/invoke", path)
        if method != "POST" or not found:
            return Incoming(path, body, [f"Bedrock has no {method} {path}"])
        problems = [] if "anthropic_version" in body else ["anthropic_version is missing"]
        problems += ["the model stands in the body"] if "model" in body else []
        problems += _signature_problems(method, path, headers, raw)
        message = {key: value for key, value in body.items() if key != "anthropic_version"}
        message["model"] = unquote(found[1])
        return Incoming("/v1/messages", message, problems + check_body(message))

    def error(self, reply: Reply, error: Mapping[str, Any]) -> Reply:
        kinds = {400: "ValidationException", 403: "AccessDeniedException", 429: "ThrottlingException"}
        kind = kinds.get(reply.status, "InternalServerException")
        body = {"message": error["message"]}
        return replace(reply, body=body, headers={**reply.headers, "x-amzn-errortype": f"{kind}:http://amazon.com/"})


class Vertex(Protocol):
    """Vertex AI, rawPredict: project, region and model in the path, an access token."""

    base_path = "/v1"

    def request(self, method: str, path: str, headers: Mapping[str, str], body: Any, raw: bytes) -> Incoming:
        models = f"/v1/projects/{PROJECT}/locations/{REGION}/publishers/anthropic/models/"
        name, _, verb = path.removeprefix(models).partition(":")
        if method != "POST" or not path.startswith(models) or verb != "rawPredict":
            return Incoming(path, body, [f"Vertex has no {method} {path}"])
        problems = [] if "anthropic_version" in body else ["anthropic_version is missing"]
        problems += [] if headers.get("authorization") == f"Bearer {BEARER}" else ["the access token is wrong"]
        message = {key: value for key, value in body.items() if key != "anthropic_version"}
        if name == "count-tokens":
            return Incoming("/v1/messages/count_tokens", message, problems)
        problems += ["the model stands in the body"] if "model" in message else []
        message["model"] = unquote(name)
        return Incoming("/v1/messages", message, problems + check_body(message))

    def error(self, reply: Reply, error: Mapping[str, Any]) -> Reply:
        kinds = {400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 429: "RESOURCE_EXHAUSTED"}
        body = {"code": reply.status, "message": error["message"], "status": kinds.get(reply.status, "INTERNAL")}
        return replace(reply, body={"error": body})


class ChatCompletions(Protocol):
    """The chat completions API."""

    base_path = "/v1"
    _FIELDS = frozenset(
        {"model", "messages", "tools", "tool_choice", "response_format", "max_tokens", "max_completion_tokens"}
        | {"reasoning_effort"}
    )
    _FINISHED: ClassVar[dict[str | None, str]] = {
        "end_turn": "stop",
        "max_tokens": "length",
        "refusal": "content_filter",
        "tool_use": "tool_calls",
    }

    def has_key(self, headers: Mapping[str, str]) -> bool:
        return headers.get("authorization") == f"Bearer {BEARER}"

    def request(self, method: str, path: str, headers: Mapping[str, str], body: Any, raw: bytes) -> Incoming:
        problems = [] if self.has_key(headers) else ["the key is wrong"]
        if (method, path) != ("POST", "/v1/chat/completions"):
            return Incoming(path, body, problems)
        problems += [f"unknown field {name}" for name in body.keys() - self._FIELDS]
        problems += _chat_problems(body["messages"], {tool["function"]["name"] for tool in body.get("tools", ())})
        message: dict[str, Any] = {
            "model": body["model"],
            "max_tokens": body.get("max_completion_tokens", body.get("max_tokens")),
            "system": [{"type": "text", "text": body["messages"][0]["content"]}],
            "messages": [_blocks(turn) for turn in body["messages"][1:]],
        }
        if tools := body.get("tools"):
            message["tools"] = [
                {"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"]} for tool in tools
            ]
        if wanted := body.get("response_format"):
            schema = wanted["json_schema"]
            if wanted["type"] != "json_schema" or schema.get("strict") is not True or not schema.get("name"):
                problems.append("response_format is no strict json_schema with a name")
            message["output_config"] = {"format": {"type": "json_schema", "schema": schema["schema"]}}
        return Incoming("/v1/messages", message, problems + check_body(message))

    def _told(self, reply: Reply) -> Reply:
        told = super()._told(reply)
        headers = {
            re.sub(r"anthropic-ratelimit-(\w+)-(limit|remaining)", r"x-ratelimit-\2-\1", name): value
            for name, value in told.headers.items()
        }
        return replace(told, headers=headers)

    def error(self, reply: Reply, error: Mapping[str, Any]) -> Reply:
        code = error.get("details", {}).get("error_code")
        body = {"message": error["message"], "type": error["type"], "param": None, "code": code}
        return replace(reply, body={"error": body})

    def answer(self, body: Mapping[str, Any]) -> Any:
        if body.get("type") == "model":
            return {"id": body["id"], "object": "model", "created": 1, "owned_by": "home"}
        if body.get("type") != "message":
            return body
        texts = [block["text"] for block in body["content"] if block["type"] == "text"]
        stop = body.get("stop_reason")
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": "".join(texts) if texts else None, "refusal": None},
            "finish_reason": self._FINISHED.get(stop, stop),
        }
        completion = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "choices": [choice]}
        completion["model"] = body.get("model")
        if usage := body.get("usage"):
            cached = usage["cache_read_input_tokens"]
            prompt = usage["input_tokens"] + usage["cache_creation_input_tokens"] + cached
            completion["usage"] = {
                "prompt_tokens": prompt,
                "completion_tokens": usage["output_tokens"],
                "total_tokens": prompt + usage["output_tokens"],
                "prompt_tokens_details": {"cached_tokens": cached},
            }
        return completion


PROTOCOLS: dict[str, Protocol] = {
    "anthropic": Protocol(),
    "bedrock": Bedrock(),
    "vertex": Vertex(),
    "openai": ChatCompletions(),
}


def _chat_problems(turns: list[dict[str, Any]], tools: set[str]) -> list[str]:
    problems = [] if turns[0]["role"] == "system" else ["the first turn is not the system's"]
    waiting: set[str] = set()
    for turn in turns[1:]:
        if turn["role"] == "tool":
            if turn.get("tool_call_id") not in waiting:
                problems.append("a tool's turn answers no call")
            waiting.discard(turn.get("tool_call_id", ""))
        elif waiting:
            problems.append("a tool's call has no answer")
        for call in turn.get("tool_calls", ()):
            waiting.add(call["id"])
            if not re.fullmatch(r"[a-zA-Z0-9]{9}", call["id"]) or call["function"]["name"] not in tools:
                problems.append("a tool's call has an id or a name that some servers do not take")
        if turn.get("content") is None and "tool_calls" not in turn:
            problems.append("a turn says nothing")
    return problems


def _blocks(turn: Mapping[str, Any]) -> dict[str, Any]:
    if turn["role"] == "tool":
        block = {"type": "tool_result", "tool_use_id": turn["tool_call_id"], "content": turn["content"]}
        return {"role": "user", "content": [block]}
    if calls := turn.get("tool_calls"):
        block = {"type": "tool_use", "id": calls[0]["id"], "name": calls[0]["function"]["name"], "input": {}}
        return {"role": "assistant", "content": [block]}
    blocks: list[dict[str, Any]] = [{"type": "text", "text": turn["content"]}]
    # A request without tools shows the transcript in a turn of the user.
    if shown := re.search(r"transcript to be judged, as JSON:\n(\[.*)\Z", turn["content"], re.DOTALL):
        blocks.append({"type": "tool_result", "tool_use_id": "shown", "content": shown[1]})
    return {"role": turn["role"], "content": blocks}


def _signature_problems(method: str, path: str, headers: Mapping[str, str], raw: bytes) -> list[str]:
    """Check AWS Signature Version 4 by making it again."""
    if headers.get("authorization") == f"Bearer {BEARER}":
        return []
    found = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/bedrock/aws4_request, "
        r"SignedHeaders=([^,]+), Signature=([0-9a-f]{64})",
        headers.get("authorization", ""),
    )
    if not found:
        return ["the request is not signed"]
    key, day, region, names, signature = found.groups()
    lines = "".join(f"{name}:{' '.join(headers.get(name, '').split())}\n" for name in names.split(";"))
    asked = "\n".join([method, quote(path, safe="/~-_."), "", lines, names, hashlib.sha256(raw).hexdigest()])
    scope = f"{day}/{region}/bedrock/aws4_request"
    digest = hashlib.sha256(asked.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", headers.get("x-amz-date", ""), scope, digest])
    secret = f"AWS4{SECRET_KEY}".encode()
    for part in (day, region, "bedrock", "aws4_request"):
        secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
    expected = hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()
    problems = [] if hmac.compare_digest(expected, signature) else ["the signature is wrong"]
    if (key, region, headers.get("x-amz-security-token")) != (ACCESS_KEY, REGION, SESSION_TOKEN):
        problems.append("signed with another key, region or session")
    return problems
