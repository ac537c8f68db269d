"""LangGraph under OpenInference's instrumentation of LangChain: agents that are nodes, and a prebuilt agent with a tool."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import create_react_agent
from openinference.instrumentation.langchain import LangChainInstrumentor
from scenarios import HUGE, MODEL, PLAIN, TOOLS, told, tracing

PROVIDER = tracing()
LangChainInstrumentor().instrument(tracer_provider=PROVIDER)
CHAT = ChatOpenAI(model="some-model-1", base_url=MODEL, api_key="k", max_retries=0)


@tool
def weather(city: str) -> str:
    """Return the weather."""
    return "21 C"


def graph(agents: tuple[str, ...]) -> Any:
    made = StateGraph(MessagesState)
    for before, name in zip((START, *agents), agents, strict=False):

        def speak(state: Any, name: str = name) -> Any:
            return {"messages": [CHAT.invoke([SystemMessage(f"You are {name}."), *state["messages"]])]}

        made.add_node(name, speak)
        made.add_edge(before, name)
    return made.compile()


def talk(
    name: str,
    texts: tuple[str, ...] = PLAIN,
    agents: tuple[str, ...] = ("ann",),
    *,
    stream: bool = False,
    tools: bool = False,
) -> Iterator[tuple[str, str]]:
    asked = create_react_agent(CHAT, [weather], name="ann") if tools else graph(agents)
    history: list[Any] = []
    for text in texts:
        history.append(HumanMessage(text))
        before, given = len(history), {"metadata": {"session_id": name}}
        states = (
            asked.stream({"messages": history}, given, stream_mode="values")
            if stream
            else [asked.invoke({"messages": history}, given)]
        )
        history = list(states)[-1]["messages"]
        yield "user", text
        yield from zip(
            agents, (item.content for item in history[before:] if item.type == "ai" and item.content), strict=True
        )


told(
    {
        "plain": talk,
        "two-agents": partial(talk, agents=("ann", "bob")),
        "streamed": partial(talk, agents=("ann", "bob"), stream=True),
        "tools": partial(talk, texts=TOOLS, tools=True),
        "huge": partial(talk, texts=HUGE),
    },
    PROVIDER,
)
