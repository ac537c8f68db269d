"""Agents of Google's ADK over LiteLLM, with ADK's own telemetry."""

import asyncio
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

from scenarios import HUGE, MODEL, PLAIN, TOOLS, told, tracing

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "true"
os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "SPAN_AND_EVENT"
PROVIDER = tracing()
from opentelemetry import trace

trace.set_tracer_provider(PROVIDER)
from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types


def weather(city: str) -> str:
    """Return the weather."""
    return "21 C"


async def _held(name: str, texts: tuple[str, ...], tools: bool) -> list[tuple[str, str]]:
    model = LiteLlm(model="openai/some-model-1", api_base=MODEL, api_key="k")
    agent = LlmAgent(name="ann", model=model, instruction="You are Ann.", tools=[weather] if tools else [])
    runner = InMemoryRunner(agent=agent, app_name="shop")
    await runner.session_service.create_session(app_name="shop", user_id="eve", session_id=name)
    said: list[tuple[str, str]] = []
    for text in texts:
        said.append(("user", text))
        content: Any = types.Content(role="user", parts=[types.Part(text=text)])
        async for event in runner.run_async(user_id="eve", session_id=name, new_message=content):
            parts = (event.content.parts or []) if event.content else []
            said += [("ann", part.text) for part in parts if part.text]
    return said


def talk(name: str, texts: tuple[str, ...] = PLAIN, *, tools: bool = False) -> Iterator[tuple[str, str]]:
    yield from asyncio.run(_held(name, texts, tools))


told({"plain": talk, "tools": partial(talk, texts=TOOLS, tools=True), "huge": partial(talk, texts=HUGE)}, PROVIDER)
