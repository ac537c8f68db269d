"""How servers of chat completions differ in paths, keys, errors and usage, as their documentation and users' reports say."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.support.messages_replies import Reply
from tests.support.protocols import BEARER, ChatCompletions, Incoming

API_VERSION = "2025-04-01-preview"
# What Gemini thought beside each answer, and what OpenRouter bills for one.
THOUGHTS, BILLED = 64, 0.00125


class Dialect(ChatCompletions):
    """Chat completions below a path of its own. Its address is given without that path, as people do."""

    base_path = ""
    below = "/v1"

    def request(self, method: str, path: str, headers: Mapping[str, str], body: Any, raw: bytes) -> Incoming:
        if not path.startswith(f"{self.below}/"):
            return Incoming(path, body, [f"there is no {path}"])
        asked = super().request(method, f"/v1{path.removeprefix(self.below)}", headers, body, raw)
        return replace(asked, problems=[*asked.problems, *self.rejects(headers, body or {})])

    def rejects(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> list[str]:
        return []


class Azure(Dialect):
    """Azure OpenAI, v1: the model is a deployment, and another name comes back."""

    below = "/openai/v1"

    def rejects(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> list[str]:
        return ["max_tokens is not supported with this model"] if "max_tokens" in body else []

    def error(self, reply: Reply, error: Mapping[str, Any]) -> Reply:
        codes = {404: "DeploymentNotFound", 400: "invalid_request_error"}
        body = {"code": codes.get(reply.status, str(reply.status)), "message": error["message"]}
        return replace(reply, body={"error": body})

    def answer(self, body: Mapping[str, Any]) -> Any:
        told = super().answer(body)
        if "choices" not in told:
            return told
        filters = {"hate": {"filtered": False, "severity": "safe"}}
        choices = [choice | {"content_filter_results": filters, "logprobs": None} for choice in told["choices"]]
        return told | {"choices": choices, "prompt_filter_results": [], "model": f"{body['model']}-2025-08-07"}


class DatedAzure(Azure):
    """Azure OpenAI, a dated version: the deployment in the path, the version in the query, the key in a header of its own."""

    def has_key(self, headers: Mapping[str, str]) -> bool:
        return headers.get("api-key") == BEARER

    def request(self, method: str, path: str, headers: Mapping[str, str], body: Any, raw: bytes) -> Incoming:
        found = re.fullmatch(r"/openai/deployments/([^/]+)/chat/completions", path)
        if not found or found[1] != body["model"] or headers[":query"] != f"api-version={API_VERSION}":
            return Incoming(path, body, [f"there is no {path}?{headers[':query']}"])
        return super().request(method, f"{self.below}/chat/completions", headers, body, raw)


class Gemini(Dialect):
    """Gemini: errors are lists, a wrong key is 400, a call that it has not made is refused, thinking counts in the total alone."""

    below = "/v1beta/openai"

    def rejects(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> list[str]:
        calls = any("tool_calls" in turn for turn in body.get("messages", ()))
        return ["Function call is missing a thought_signature in functionCall parts"] if calls else []

    def error(self, reply: Reply, error: Mapping[str, Any]) -> Reply:
        kinds = {400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED"}
        status = 400 if reply.status == 401 else reply.status
        body: dict[str, Any] = {"code": status, "message": error["message"], "status": kinds.get(status, "INTERNAL")}
        if reply.status == 401:
            kind = "type.googleapis.com/google.rpc.ErrorInfo"
            body |= {"message": "API key not valid.", "details": [{"@type": kind, "reason": "API_KEY_INVALID"}]}
        return replace(reply, status=status, body=[{"error": body}])

    def answer(self, body: Mapping[str, Any]) -> Any:
        told = super().answer(body)
        if "usage" in told:
            del told["usage"]["prompt_tokens_details"]
            told["usage"]["total_tokens"] += THOUGHTS
        return told


class Ollama(Dialect):
    """Ollama: no key, and tools for few models."""

    def has_key(self, headers: Mapping[str, str]) -> bool:
        return True

    def rejects(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> list[str]:
        return [f"registry.ollama.ai/library/{body['model']} does not support tools"] if "tools" in body else []

    def error(self, reply: Reply, error: Mapping[str, Any]) -> Reply:
        body = {"message": error["message"], "type": "api_error", "param": None, "code": None}
        return replace(reply, body={"error": body})


class Vllm(Dialect):
    """vLLM: codes are numbers, a refused key is a word, and templates of many models know no tool's turn."""

    def rejects(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> list[str]:
        roles = {turn["role"] for turn in body.get("messages", ())}
        return ["Conversation roles must alternate user/assistant/user"] if "tool" in roles else []

    def error(self, reply: Reply, error: Mapping[str, Any]) -> Reply:
        if reply.status == 401:
            return replace(reply, body={"error": "Unauthorized"})
        kinds = {400: "BadRequestError", 404: "NotFoundError"}
        kind = kinds.get(reply.status, "InternalServerError")
        return replace(
            reply, body={"error": {"message": error["message"], "type": kind, "param": None, "code": reply.status}}
        )


class OpenRouter(Dialect):
    """OpenRouter: says what it billed and who answered; what no provider takes is 404."""

    below = "/api/v1"

    def rejects(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> list[str]:
        return ["No endpoints found that support tool use."] if "tools" in body else []

    def error(self, reply: Reply, error: Mapping[str, Any]) -> Reply:
        status, message = reply.status, error["message"]
        if status == 400:
            status, message = 404, "No endpoints found that can handle the requested parameters."
        return replace(reply, status=status, body={"error": {"message": message, "code": status}, "user_id": "user_1"})

    def answer(self, body: Mapping[str, Any]) -> Any:
        told = super().answer(body)
        if "usage" in told:
            told["usage"] |= {"cost": BILLED, "cost_details": {"upstream_inference_cost": None}}
            told["provider"] = "Somebody"
        return told


DIALECTS: dict[str, ChatCompletions] = {
    "azure": Azure(),
    "azure, dated": DatedAzure(),
    "gemini": Gemini(),
    "ollama": Ollama(),
    "vllm": Vllm(),
    "openrouter": OpenRouter(),
}
