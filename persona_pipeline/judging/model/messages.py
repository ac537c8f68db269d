"""The Messages API: requests with the transcript as a tool's result and the question last, and strict reading of responses."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from persona_pipeline.base.documents.json import canonical_json, content_hash
from persona_pipeline.base.text import storable
from persona_pipeline.judging.claims import InvalidAnswerError, parse_object, plain_json
from persona_pipeline.judging.money import estimated_tokens, model_name, read_usage
from persona_pipeline.judging.providers.base import FIRST, ModelOptions, Provider
from persona_pipeline.judging.verdict import UNKNOWN_USAGE, Answer, Question, Unscored

_TOOL_USE_ID = "toolu_read_transcript"
_READ_TRANSCRIPT = {
    "name": "read_transcript",
    "description": "Returns the transcript to be judged, as JSON.",
    "input_schema": {"type": "object", "properties": {}, "additionalProperties": False},
}


@dataclass(frozen=True)
class ModelTraits:
    """What a model accepts.

    Attributes:
        cache_minimum: tokens below which a prefix is not cached.
        effort: whether ``output_config.effort`` is accepted.
        thinking, no_thinking: the ``thinking`` parameter that allows and that forbids it; None: not sent.
    """

    cache_minimum: int
    effort: bool = True
    thinking: Mapping[str, Any] | None = None
    no_thinking: Mapping[str, Any] | None = None


_ADAPTIVE = {"type": "adaptive"}
_TRAITS = {
    "claude-haiku-5-5": ModelTraits(512, True, _ADAPTIVE, {"type": "disabled"}),
    "claude-haiku-4-5": ModelTraits(4096, False),
    "claude-sonnet-5-5": ModelTraits(1024, True, _ADAPTIVE, {"type": "between_tools"}),
    "claude-opus-5-5": ModelTraits(1024, True, _ADAPTIVE),
    "gpt-5-chat": ModelTraits(1024, False),
    "gpt-5": ModelTraits(1024, True),
    "o3": ModelTraits(1024, True),
    "o4-mini": ModelTraits(1024, True),
    "gemini": ModelTraits(4096, True),
}
# An unknown model gets the plainest request.
UNKNOWN_MODEL = ModelTraits(4096, False)


def traits_of(model: str) -> ModelTraits:
    """Return the traits of a model; dated ids share those of their model."""
    known = model_name(model)
    for name, traits in _TRAITS.items():
        if known == name or known.startswith((f"{name}-", f"{name}.")):
            return traits
    return UNKNOWN_MODEL


@dataclass(frozen=True)
class RequestStyle:
    """How questions become requests: settings outside the question that can change the answer.

    ``structured``: the schema goes into ``output_config``; otherwise into the last turn, as text.
    """

    model: str
    effort: str | None = None
    structured: bool = True

    def body(self, question: Question, *, cache_ttl: str | None = None) -> dict[str, Any]:
        """Return the body of ``POST /v1/messages``; ``cache_ttl`` (``5m`` or ``1h``) marks the shared part."""
        traits = traits_of(self.model)
        before_evidence = _text("Call read_transcript and read what it returns. The question comes after that.")
        after_evidence = _text("I have read the transcript. What is the question?")
        if cache_ttl:
            last_shared = before_evidence if question.context_recurs else after_evidence
            last_shared["cache_control"] = {"type": "ephemeral", "ttl": cache_ttl}
        ask = question.ask
        if not self.structured:
            ask = (
                f"{ask}\n\nAnswer with one JSON object that matches this JSON schema, and nothing else:\n"
                + plain_json(dict(question.schema))
            )
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": question.max_tokens,
            "system": [_text(question.system)],
            "tools": [_READ_TRANSCRIPT],
            # The call is ours; the judge has no tools.
            "tool_choice": {"type": "none"},
            "messages": [
                {"role": "user", "content": [*map(_text, question.context), before_evidence]},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": _TOOL_USE_ID, "name": "read_transcript", "input": {}}],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": _TOOL_USE_ID, "content": storable(question.evidence)}
                    ],
                },
                {"role": "assistant", "content": [after_evidence]},
                {"role": "user", "content": [_text(ask)]},
            ],
        }
        if not self.structured:
            return body
        output: dict[str, Any] = {"format": {"type": "json_schema", "schema": dict(question.schema)}}
        if traits.effort and self.effort:
            output["effort"] = self.effort
        body["output_config"] = output
        thinking = traits.thinking if question.thinking else traits.no_thinking
        if thinking:
            body["thinking"] = dict(thinking)
        return body


@dataclass(frozen=True)
class Prefix:
    """The part that questions about the same thing share, also in the API's cache: all but the last turn.

    ``key`` is the SHA-256 of its content, ``tokens`` about how many it has.
    """

    key: str
    tokens: int


def prefix_of(style: RequestStyle, question: Question) -> Prefix:
    """Return the prefix of a question's request."""
    schema = canonical_json(dict(question.schema))
    return _prefix(style, question.system, question.context, question.evidence, question.thinking, schema)


# Many questions ask about one transcript, which is long.
@lru_cache(maxsize=128)
def _prefix(
    style: RequestStyle, system: str, context: tuple[str, ...], evidence: str, thinking: bool, schema: str
) -> Prefix:
    about = Question(
        kind="",
        subject={},
        label="",
        system=system,
        evidence=evidence,
        ask="",
        schema=json.loads(schema),
        max_tokens=0,
        context=context,
        thinking=thinking,
    )
    body = style.body(about)
    shared = {**body, "messages": body["messages"][:-1], "max_tokens": None, "schema": schema}
    text = plain_json({"system": body["system"], "tools": body["tools"], "messages": shared["messages"]})
    return Prefix(content_hash(shared), estimated_tokens(text))


def cached_tokens(style: RequestStyle, question: Question) -> int:
    """Return about how many tokens of a question's request later requests can read from the API's cache."""
    if not question.context_recurs:
        return prefix_of(style, question).tokens
    body = style.body(question)
    return estimated_tokens(plain_json([body["system"], body["tools"], body["messages"][0]]))


def request_key(prefix: Prefix, question: Question, base_url: str, *, provider: Provider) -> str:
    """Return the SHA-256 of everything that can change an answer: the request, the endpoint, and the sample."""
    subject = {
        "prefix": prefix.key,
        "ask": question.ask,
        "max_tokens": question.max_tokens,
        "base_url": base_url,
        "api_version": provider.api_version,
        "prompt_version": question.prompt_version,
        "sample": question.sample,
    }
    # Judgments are older than providers, and those of the first one keep their keys.
    return content_hash(subject if provider.name == FIRST else {**subject, "provider": provider.name})


def keys_of(questions: Sequence[Question], options: ModelOptions) -> list[str]:
    """Return the keys under which the answers of questions are kept, where the server takes structured output."""
    style = RequestStyle(options.model, options.effort)
    endpoint, provider = options.endpoint, options.provider
    return [request_key(prefix_of(style, question), question, endpoint, provider=provider) for question in questions]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": storable(text)}


def read_response(
    message: Any, question: Question, *, requested_model: str, prices: str = "", batch: bool = False
) -> Answer:
    """Return the answer in a parsed response body. Never raises: an invalid answer is unscored.

    Args:
        prices: as of ``money.price``.
        batch: the call was part of a message batch, at half price.
    """
    if not isinstance(message, Mapping) or not isinstance(message.get("content"), list):
        return Answer(unscored=Unscored.API_ERROR, detail="the response is no message", usage=UNKNOWN_USAGE)
    served = message.get("model")
    model = served if isinstance(served, str) else requested_model
    usage = read_usage(message.get("usage"), model, requested_model, prices=prices, batch=batch)

    def unscored(reason: Unscored, detail: str) -> Answer:
        return Answer(unscored=reason, detail=detail, usage=usage, model=model, prompt_version=question.prompt_version)

    stop = message.get("stop_reason")
    if stop == "refusal":
        return unscored(Unscored.REFUSAL, f"the model refused{_category(message)}")
    if stop in ("max_tokens", "model_context_window_exceeded"):
        spent = f"{usage.output_tokens} output tokens" if usage.usd is not None else "the output"
        return unscored(Unscored.TRUNCATED, f"stopped by {stop} after {spent}")
    if stop not in ("end_turn", "stop_sequence"):
        return unscored(Unscored.INVALID_OUTPUT, f"stopped with {str(stop)[:40]!r} instead of an answer")
    text = "".join(
        block["text"]
        for block in message["content"]
        if isinstance(block, Mapping) and block.get("type") == "text" and isinstance(block.get("text"), str)
    )
    try:
        data = parse_object(text, question.schema, question.evidence)
    except InvalidAnswerError as error:
        return unscored(Unscored.INVALID_OUTPUT, str(error))
    if problem := question.problem(data):
        return unscored(Unscored.INVALID_OUTPUT, problem)
    return Answer(data, usage=usage, model=model, prompt_version=question.prompt_version)


def _category(message: Mapping[str, Any]) -> str:
    details = message.get("stop_details")
    category = details.get("category") if isinstance(details, Mapping) else None
    return f" ({category[:40]})" if isinstance(category, str) else ""
