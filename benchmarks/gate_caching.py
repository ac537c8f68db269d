"""What a hundred gate checks of one agent cost with and without persona and claims in the API's cache.

    python benchmarks/gate_caching.py [agent]

The judge is a local stand-in for the Messages API that simulates prompt caching and takes four characters for a
token, so sums can be compared with one another and are no bill. Nothing leaves the machine.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import SecretStr

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.corrections import ActionGate, gate_backend  # noqa: E402
from persona_pipeline.judging.model.options import ModelOptions  # noqa: E402
from persona_pipeline.judging.verdict import Answer, Backend, Question, Usage  # noqa: E402
from persona_pipeline.world import CorrectionSettings, World  # noqa: E402
from tests.corrections.support import answer_gate  # noqa: E402
from tests.support.messages_server import MessagesServer  # noqa: E402

CHECKS = 100


class Unmarked:
    """Asks every question as if nothing of it came again."""

    name, live = "unmarked", True

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        return await self.backend.ask([replace(question, context_recurs=False) for question in questions])


def texts_of(agent_id: str) -> list[str]:
    files = sorted((PROJECT / "messages").glob("*.jsonl"))
    rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return [row["text"] for row in rows if row["agent_id"] == agent_id]


async def usage_of(agent_id: str, *, marked: bool) -> Usage:
    """Check the agent's messages of the sample world, each as something new, one after the other."""
    settings = CorrectionSettings(action_gate_enabled=True)
    texts = texts_of(agent_id)
    with tempfile.TemporaryDirectory() as folder, MessagesServer(answer_gate) as server:
        world = World.open(PROJECT, f"sqlite:///{folder}/store.db")
        world.sync()
        async with gate_backend(options=ModelOptions(base_url=server.url, api_key=SecretStr("none"))) as backend:
            gate = ActionGate(world, backend if marked else Unmarked(backend), settings=settings)
            decisions = [
                await gate.check(agent_id, f"{texts[n % len(texts)]} {n}-7", channel="general") for n in range(CHECKS)
            ]
        gate.flush()
        world.store.close()
    assert not server.problems
    assert all(decision.score is not None for decision in decisions)
    return sum((decision.usage for decision in decisions), Usage())


def main() -> None:
    agent_id = sys.argv[1] if len(sys.argv) > 1 else "michael"
    print(f"{CHECKS} checks of {agent_id}, prices of claude-haiku-5-5")
    print(f"{'':<28}{'uncached':>10}{'written':>10}{'read':>10}{'out':>10}{'dollars':>10}")
    for name, marked in (("nothing marked", False), ("persona and claims marked", True)):
        usage = asyncio.run(usage_of(agent_id, marked=marked))
        counts = (usage.input_tokens, usage.cache_creation_tokens, usage.cache_read_tokens, usage.output_tokens)
        print(f"{name:<28}" + "".join(f"{count:>10,}" for count in counts) + f"{usage.usd or 0:>10.5f}")


if __name__ == "__main__":
    main()
