"""What the Messages API asks of requests and says in its answers, for the local server."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

_BODY_FIELDS = {
    "model",
    "max_tokens",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "output_config",
    "thinking",
    "cache_control",
    "metadata",
    "stop_sequences",
    "service_tier",
}
_CUSTOM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CACHE_MINIMUM = {"claude-haiku-5-5": 512, "claude-haiku-4-5": 4096}


def check_request(method: str, path: str, headers: Mapping[str, str], body: Any) -> list[str]:
    """Return what the API would reject about a request."""
    problems = [f"header {name} is missing" for name in ("anthropic-version",) if name not in headers]
    if "x-api-key" not in headers and "authorization" not in headers:
        problems.append("no key is sent")
    if method == "POST" and headers.get("content-type") != "application/json":
        problems.append("content-type is not application/json")
    if (method, path) == ("POST", "/v1/messages"):
        problems.extend(check_body(body))
    if (method, path) == ("POST", "/v1/messages/batches"):
        ids = [item.get("custom_id", "") for item in body["requests"]]
        problems.extend(f"custom_id {name!r} is not valid" for name in ids if not _CUSTOM_ID.fullmatch(name))
        if len(set(ids)) != len(ids):
            problems.append("custom ids are not unique")
        problems.extend(problem for item in body["requests"] for problem in check_body(item["params"]))
    return problems


def check_body(body: Any) -> list[str]:
    """Return what the API would reject about the body of ``POST /v1/messages``."""
    problems = [f"unknown field {name}" for name in body.keys() - _BODY_FIELDS]
    if not isinstance(body.get("model"), str) or not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        problems.append("model or max_tokens is missing or not valid")
    roles = [item["role"] for item in body["messages"]]
    if roles[0] != "user" or roles[-1] != "user" or any(a == b for a, b in pairwise(roles)):
        problems.append(f"roles do not alternate from user to user: {roles}")
    problems.extend(_check_tools(body))
    marks = sum("cache_control" in block for item in body["messages"] for block in item["content"])
    if marks > 4:
        problems.append("more than four cache breakpoints")
    output = body.get("output_config")
    if output is not None:
        if not set(output) <= {"effort", "format"}:
            problems.append("output_config has unknown fields")
        if "format" in output:
            if output["format"].get("type") != "json_schema":
                problems.append("output_config.format is no json_schema")
            problems.extend(_check_schema(output["format"].get("schema")))
    thinking = body.get("thinking")
    if thinking is not None and thinking.get("type") not in ("adaptive", "disabled", "between_tools", "enabled"):
        problems.append("thinking has an unknown type")
    return problems


def answer_body(text: str | None, *, stop_reason: str | None) -> dict[str, Any]:
    """Return the body of a message; its usage is measured by the server when it is sent."""
    return {
        "id": "msg_test",
        "type": "message",
        "role": "assistant",
        "model": "claude-haiku-5-5",
        "content": [] if text is None else [{"type": "text", "text": text}],
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": "measured",
    }


def prompt_tokens(body: Mapping[str, Any]) -> tuple[tuple[str, int] | None, int]:
    """Return the cached prefix as text with its tokens (None: nothing is cached), and the other tokens of the input.

    A token is four characters of JSON, so that sums can be compared.
    """
    parts: list[str] = [json.dumps({"tools": body.get("tools"), "system": body.get("system")})]
    marked = 0
    for item in body["messages"]:
        for block in item["content"]:
            parts.append(json.dumps({key: value for key, value in block.items() if key != "cache_control"}))
            if "cache_control" in block:
                marked = len(parts)
    prefix, rest = "".join(parts[:marked]), "".join(parts[marked:])
    tokens = len(prefix) // 4
    if tokens < _CACHE_MINIMUM.get(body["model"], 1024):
        return None, (len(prefix) + len(rest)) // 4 + 1
    return (prefix, tokens), len(rest) // 4 + 1


class Meter:
    """Counts tokens as the API does: a marked prefix is written to the cache once and then read from it."""

    def __init__(self) -> None:
        self.total: dict[str, int] = {}
        self._cached: set[str] = set()

    def measure(self, request: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, int]:
        """Return the usage of an answer and add it to the total."""
        prefix, rest = prompt_tokens(request)
        usage = {
            "input_tokens": rest,
            "output_tokens": len(json.dumps(answer["content"])) // 4 + 1,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        }
        if prefix:
            text, tokens = prefix
            usage["cache_read_input_tokens" if text in self._cached else "cache_creation_input_tokens"] = tokens
            self._cached.add(text)
        for name, count in usage.items():
            self.total[name] = self.total.get(name, 0) + count
        return usage


def model_info(name: str) -> dict[str, Any]:
    """Return what ``GET /v1/models/<name>`` says."""
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": "2026-10-07T00:00:00Z",
        "lifecycle": "active",
        "max_input_tokens": 1_000_000,
        "max_tokens": 128_000,
        "retires_at": None,
        "deprecated_at": None,
    }


class Batches:
    """The message batches of a server: created at once, ended when the test says so.

    Attributes:
        created: bodies of batches by id, in order of creation.
        outcomes: results other than success by custom id: ``errored``, ``expired`` or ``canceled``.
        lose_response: the next creation takes effect, but this comes instead of its response.
        forget_next: the next creation takes no effect.
        refuse: this comes instead of the next creation.
        break_results: what becomes of a response with results.
        ended: whether batches have ended when they are asked about.
    """

    def __init__(self) -> None:
        self.created: dict[str, list[dict[str, Any]]] = {}
        self.times: dict[str, datetime] = {}
        self.outcomes: dict[str, str] = {}
        self.lose_response: Any = None
        self.forget_next: bool = False
        self.refuse: Any = None
        self.break_results: Callable[[Any], Any] | None = None
        self.ended = True

    def create(self, requests: list[dict[str, Any]]) -> str:
        """Add a batch and return its id."""
        name = f"msgbatch_{len(self.times):04d}"
        self.created[name] = requests
        self.times[name] = datetime.now(UTC)
        return name

    def handle(
        self, method: str, path: str, body: Any, answer: Callable[[Mapping[str, Any]], Any], url: str
    ) -> Any | None:
        name = path.removeprefix("/v1/messages/batches").strip("/").split("/")[0]
        if method == "POST" and not name:
            if self.refuse is not None:
                refusal, self.refuse = self.refuse, None
                return refusal
            name = self.create(body["requests"])
            if self.forget_next:
                self.forget_next = False
                del self.created[name]
            lost, self.lose_response = self.lose_response, None
            return lost or self._describe(name, url)
        if method == "GET" and not name:
            data = [self._describe(known, url) for known in reversed(self.created)]
            return {"data": data, "has_more": False, "first_id": None, "last_id": None}
        if name not in self.created:
            return None
        if path.endswith("/results"):
            lines = [self._result(item, answer) for item in reversed(self.created[name])]
            return "\n".join(json.dumps(line) for line in lines).encode("utf-8")
        return self._describe(name, url)

    def _result(self, item: Mapping[str, Any], answer: Callable[[Mapping[str, Any]], Any]) -> dict[str, Any]:
        kind = self.outcomes.get(item["custom_id"], "succeeded")
        result: dict[str, Any] = {"type": kind}
        if kind == "succeeded":
            result["message"] = answer(item["params"])
        if kind == "errored":
            error = {"type": "invalid_request_error", "message": "no"}
            result["error"] = {"type": "error", "error": error, "request_id": None}
        return {"custom_id": item["custom_id"], "result": result}

    def _describe(self, name: str, url: str) -> dict[str, Any]:
        counts: dict[str, int] = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        for item in self.created[name]:
            counts[self.outcomes.get(item["custom_id"], "succeeded") if self.ended else "processing"] += 1
        created = self.times[name]
        return {
            "id": name,
            "type": "message_batch",
            "processing_status": "ended" if self.ended else "in_progress",
            "request_counts": counts,
            "created_at": created.isoformat(),
            "expires_at": (created + timedelta(hours=24)).isoformat(),
            "ended_at": created.isoformat() if self.ended else None,
            "cancel_initiated_at": None,
            "archived_at": None,
            "results_url": f"{url}/v1/messages/batches/{name}/results" if self.ended else None,
        }


def _check_tools(body: Mapping[str, Any]) -> list[str]:
    defined = {tool["name"] for tool in body.get("tools", ())}
    problems = []
    open_uses: set[str] = set()
    for item in body["messages"]:
        results = {block["tool_use_id"] for block in item["content"] if block["type"] == "tool_result"}
        if open_uses and (item["role"] != "user" or results != open_uses):
            problems.append("a tool_use block is not followed by its tool_result")
        open_uses = {block["id"] for block in item["content"] if block["type"] == "tool_use"}
        for block in item["content"]:
            if block["type"] == "tool_use" and block["name"] not in defined:
                problems.append(f"tool {block['name']} is used and not defined")
            if block["type"] == "text" and not block["text"].strip():
                problems.append("a text block is empty")
    return problems


def _check_schema(schema: Any) -> list[str]:
    if not isinstance(schema, dict):
        return ["no schema"]
    problems = []
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            problems.append("an object of the schema allows additional properties")
        if set(schema.get("required", ())) != set(schema.get("properties", {})):
            problems.append("an object of the schema has optional properties")
    for name in ("minLength", "maxLength", "minimum", "maximum", "pattern", "maxItems"):
        if name in schema:
            problems.append(f"the schema uses {name}, which is not supported")
    for inner in (*schema.get("properties", {}).values(), *schema.get("anyOf", ()), schema.get("items")):
        if isinstance(inner, dict):
            problems.extend(_check_schema(inner))
    return problems
