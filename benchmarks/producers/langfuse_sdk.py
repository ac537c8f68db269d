"""Langfuse's SDK for Python: its OpenAI client under ``@observe``, and generations that a program writes itself."""

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

from scenarios import COLLECT, HUGE, MODEL, PLAIN, TOOLS, told, tracing

os.environ |= {"LANGFUSE_PUBLIC_KEY": "pk", "LANGFUSE_SECRET_KEY": "sk", "LANGFUSE_BASE_URL": f"{COLLECT}/nowhere"}
from langfuse import Langfuse, observe, propagate_attributes
from langfuse.openai import OpenAI

PROVIDER = tracing()
LANGFUSE = Langfuse(tracer_provider=PROVIDER)
CLIENT = OpenAI(base_url=MODEL, api_key="k", max_retries=0)
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


def ask(history: list[Any], *, stream: bool, tools: bool) -> str:
    given: dict[str, Any] = {
        "model": "some-model-1",
        "messages": [{"role": "system", "content": "You are Ann."}, *history],
    }
    if tools:
        given["tools"] = [WEATHER]
    if stream:
        chunks = CLIENT.chat.completions.create(stream=True, **given)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    message = CLIENT.chat.completions.create(**given).choices[0].message
    if not message.tool_calls:
        return message.content or ""
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "21 C"}
    history += [message.model_dump(exclude_none=True), result]
    return ask(history, stream=stream, tools=tools)


def observed(
    name: str, texts: tuple[str, ...] = PLAIN, *, stream: bool = False, tools: bool = False, times: int = 1
) -> Iterator[tuple[str, str]]:
    history: list[Any] = []
    for text in texts:
        history.append({"role": "user", "content": text})

        @observe(name="ann", as_type="agent")
        def turn(_: str) -> str:
            return ask(history, stream=stream, tools=tools)

        yield "eve", text
        answer = ""
        for _ in range(1 if text == "ok" else times):
            with propagate_attributes(session_id=name, user_id="eve"):
                answer = turn(text)
        yield "ann", answer
        history.append({"role": "assistant", "content": answer})


def written(name: str, *, whole: bool) -> Iterator[tuple[str, str]]:
    history: list[Any] = []
    for number, text in enumerate(PLAIN):
        history.append({"role": "user", "content": text})
        answer = f"{name} {number}"
        message = {"role": "assistant", "content": answer}
        begun = LANGFUSE.start_as_current_observation(
            as_type="generation", name="ann", model="some-model-1", input=list(history) if whole else text
        )
        with propagate_attributes(session_id=name, user_id="eve"), begun as generation:
            generation.update(output=message if whole else answer)
        history.append(message)
        yield from (("eve", text), ("ann", answer))


told(
    {
        "plain": observed,
        "streamed": partial(observed, stream=True),
        "tools": partial(observed, texts=TOOLS, tools=True),
        "regenerated": partial(observed, times=2),
        "written": partial(written, whole=True),
        "texts": partial(written, whole=False),
        "huge": partial(observed, texts=HUGE),
    },
    PROVIDER,
)
