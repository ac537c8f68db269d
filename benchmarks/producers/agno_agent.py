"""Agents of Agno under OpenInference's instrumentation."""

from collections.abc import Iterator
from functools import partial

from scenarios import HUGE, MODEL, PLAIN, TOOLS, told, tracing

PROVIDER = tracing()
from openinference.instrumentation.agno import AgnoInstrumentor

AgnoInstrumentor().instrument(tracer_provider=PROVIDER)
from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.openai.like import OpenAILike


def weather(city: str) -> str:
    """Return the weather."""
    return "21 C"


def talk(name: str, texts: tuple[str, ...] = PLAIN, *, tools: bool = False) -> Iterator[tuple[str, str]]:
    model = OpenAILike(id="some-model-1", base_url=MODEL, api_key="k")
    agent = Agent(
        name="ann",
        model=model,
        instructions="You are Ann.",
        session_id=name,
        user_id="eve",
        db=InMemoryDb(),
        add_history_to_context=True,
        tools=[weather] if tools else [],
        telemetry=False,
    )
    for text in texts:
        yield "eve", text
        yield "ann", str(agent.run(text).content)


told({"plain": talk, "tools": partial(talk, texts=TOOLS, tools=True), "huge": partial(talk, texts=HUGE)}, PROVIDER)
