"""Strands agents with their own telemetry: a plain one, one with a tool, and two that speak by turns."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from scenarios import HUGE, MODEL, PLAIN, TOOLS, told, tracing

PROVIDER = tracing()
from opentelemetry import trace

trace.set_tracer_provider(PROVIDER)
from strands import Agent, tool
from strands.models.openai import OpenAIModel


@tool
def weather(city: str) -> str:
    """Return the weather."""
    return "21 C"


def made(name: str, conversation: str, tools: bool) -> Any:
    model = OpenAIModel(client_args={"base_url": MODEL, "api_key": "k"}, model_id="some-model-1")
    return Agent(
        model=model,
        name=name,
        system_prompt=f"You are {name}.",
        tools=[weather] if tools else [],
        callback_handler=None,
        trace_attributes={"session.id": conversation, "user.id": "eve"},
    )


def talk(
    name: str, texts: tuple[str, ...] = PLAIN, agents: tuple[str, ...] = ("ann",), *, tools: bool = False
) -> Iterator[tuple[str, str]]:
    speakers = {agent: made(agent, name, tools) for agent in agents}
    for text in texts:
        yield "eve", text
        handed = text
        for agent, speaker in speakers.items():
            handed = str(speaker(handed)).strip()
            yield agent, handed


told(
    {
        "plain": talk,
        "two-agents": partial(talk, agents=("ann", "bob")),
        "tools": partial(talk, texts=TOOLS, tools=True),
        "huge": partial(talk, texts=HUGE),
    },
    PROVIDER,
)
