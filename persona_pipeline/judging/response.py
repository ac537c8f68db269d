"""Reading a Messages API response: the stop reason first, blocks by their type, then the answer, strictly."""

import re
from collections.abc import Mapping
from typing import Any

from persona_pipeline.judging.answers import InvalidAnswerError, parse_object
from persona_pipeline.judging.prices import price
from persona_pipeline.judging.questions import Answer, Asked
from persona_pipeline.judging.verdict import Unscored, Usage

_FENCED = re.compile(r"\s*```(?:json)?[ \t]*\n(.*?)\n?[ \t]*```\s*", re.DOTALL)


def read_response(
    message: Any,
    question: Asked,
    *,
    requested_model: str,
    fences_allowed: bool = False,
    batch: bool = False,
) -> Answer:
    """Return the answer in a parsed response body. Never raises: what is no valid answer is unscored.

    Args:
        fences_allowed: a Markdown code fence around the whole answer is taken off (prompted JSON).
        batch: the call was part of a message batch, at half price.
    """
    if not isinstance(message, Mapping) or not isinstance(message.get("content"), list):
        return Answer(unscored=Unscored.API_ERROR, detail="the response is no message", usage=unknown_usage())
    served = message.get("model")
    model = served if isinstance(served, str) else requested_model
    usage = read_usage(message.get("usage"), model, requested_model, batch=batch)

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
    if fences_allowed and (fenced := _FENCED.fullmatch(text)):
        text = fenced[1]
    try:
        data = parse_object(text)
    except InvalidAnswerError as error:
        return unscored(Unscored.INVALID_OUTPUT, str(error))
    if problem := question.problem(data):
        return unscored(Unscored.INVALID_OUTPUT, problem)
    return Answer(data, usage=usage, model=model, prompt_version=question.prompt_version)


def read_usage(usage: Any, model: str, requested_model: str | None = None, *, batch: bool = False) -> Usage:
    """Return tokens and price of one call; a response that does not say costs an unknown sum, not nothing."""
    if not isinstance(usage, Mapping):
        return unknown_usage()
    counts = [
        usage.get(name) or 0
        for name in (
            "input_tokens",
            "output_tokens",
            "cache_creation_input_tokens",
            "cache_read_input_tokens",
        )
    ]
    if "input_tokens" not in usage or "output_tokens" not in usage or not all(map(_is_count, counts)):
        return unknown_usage()
    creation = usage.get("cache_creation")
    hour = creation.get("ephemeral_1h_input_tokens") if isinstance(creation, Mapping) else 0
    tokens = Usage(*counts, calls=1)
    usd = price(
        tokens,
        model,
        requested_model,
        hour_cache_tokens=hour if isinstance(hour, int) and hour > 0 else 0,
        batch=batch or usage.get("service_tier") == "batch",
    )
    return Usage(*counts, calls=1, usd=usd)


def unknown_usage() -> Usage:
    """Return the usage of a call that may have been billed and did not say for how much."""
    return Usage(calls=1, usd=None)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _category(message: Mapping[str, Any]) -> str:
    details = message.get("stop_details")
    category = details.get("category") if isinstance(details, Mapping) else None
    return f" ({category[:40]})" if isinstance(category, str) else ""
