"""A crew of CrewAI under OpenInference's instrumentations of CrewAI and of what it calls models with."""

import os
from collections.abc import Iterator
from typing import Any

os.environ |= {
    "LITELLM_LOCAL_MODEL_COST_MAP": "true",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OPENAI_API_KEY": "k",
}
from scenarios import MODEL, told, tracing

PROVIDER = tracing()
from openinference.instrumentation import using_session
from openinference.instrumentation.crewai import CrewAIInstrumentor
from openinference.instrumentation.openai import OpenAIInstrumentor

CrewAIInstrumentor().instrument(tracer_provider=PROVIDER, skip_dep_check=True)
OpenAIInstrumentor().instrument(tracer_provider=PROVIDER, skip_dep_check=True)
from crewai import LLM, Agent, Crew, Task


def talk(name: str) -> Iterator[tuple[str, str]]:
    model: Any = LLM(model="openai/some-model-1", base_url=MODEL, api_key="k")
    agents = [Agent(role=role, goal="Answer.", backstory="Dry.", llm=model) for role in ("ann", "bob")]
    for text in ("Hi", "Tea?"):
        tasks = [Task(description=text, expected_output="An answer.", agent=agent) for agent in agents]
        with using_session(name):
            result = Crew(agents=agents, tasks=tasks, verbose=False).kickoff()
        # A task is told to its agent with what the ones before it made of theirs.
        for role, task in zip(("ann", "bob"), result.tasks_output, strict=True):
            yield "user", next(message["content"] for message in task.messages if message["role"] == "user")
            yield role, str(task.raw)


told({"crew": talk}, PROVIDER)
