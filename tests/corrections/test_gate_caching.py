"""What the API may cache of a gate's requests: persona and claims, for the next message of the same agent."""

import asyncio

import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from persona_pipeline.base.database import tables
from persona_pipeline.corrections.gate import ActionGate, gate_backend
from persona_pipeline.corrections.records import GateDecision
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.world import World
from tests.corrections.support import say
from tests.support.messages_server import MessagesServer


def checks(world: World, server: MessagesServer, count: int, model: str = "claude-haiku-5-5") -> list[GateDecision]:
    options = ModelOptions(base_url=server.url, api_key=SecretStr("none"), model=model)

    async def run() -> list[GateDecision]:
        async with ActionGate(world, gate_backend(options=options)) as gate:
            return [await gate.check("ann", f"text {n}, warmly 8", channel="general") for n in range(count)]

    return asyncio.run(run())


def set_persona(world: World, text: str) -> None:
    with world.store.begin() as connection:
        connection.execute(sa.update(tables.agents).where(tables.agents.c.id == "ann").values(persona=text))


def marks(server: MessagesServer) -> list[int]:
    """Of each request, the turns with a mark."""
    return [
        turn
        for call in server.calls
        for turn, item in enumerate(call.body["messages"])
        for block in item["content"]
        if "cache_control" in block
    ]


def test_persona_and_claims_are_paid_once_and_then_read_from_the_cache(world: World, server: MessagesServer) -> None:
    set_persona(world, "Ann is dry and brief. " * 100)
    first, *later = (decision.usage for decision in checks(world, server, 4))
    assert marks(server) == [0] * 4
    assert (first.cache_read_tokens, first.cache_creation_tokens > 512) == (0, True)
    for usage in later:
        assert (usage.cache_read_tokens, usage.cache_creation_tokens) == (first.cache_creation_tokens, 0)
        assert (usage.usd or 0) < (first.usd or 0)


def test_what_was_said_in_between_does_not_lose_the_cache(world: World, server: MessagesServer) -> None:
    set_persona(world, "Ann is dry and brief. " * 100)
    checks(world, server, 1)
    say(world, *(("ann", "general", f"line {n}") for n in range(20)))
    assert checks(world, server, 1)[0].usage.cache_read_tokens > 512


@pytest.mark.parametrize(
    ("repeats", "model"),
    [(0, "claude-haiku-5-5"), (100, "claude-haiku-4-5"), (100, "gemma3")],
    ids=["short", "below this model's minimum", "a model nothing is known of"],
)
def test_what_the_api_would_not_cache_is_not_marked(
    world: World, server: MessagesServer, repeats: int, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if repeats:
        set_persona(world, "Ann is dry and brief. " * repeats)
    else:
        monkeypatch.setattr("persona_pipeline.corrections.prompt.RULES", "Check the claims.")
    assert {decision.usage.cache_creation_tokens for decision in checks(world, server, 2, model)} == {0}
    assert marks(server) == []


def test_every_agent_has_a_prefix_of_its_own(world: World, server: MessagesServer) -> None:
    set_persona(world, "Ann is dry and brief. " * 100)
    checks(world, server, 1)
    set_persona(world, "Ann is sweet and long. " * 100)
    assert checks(world, server, 1)[0].usage.cache_read_tokens == 0
