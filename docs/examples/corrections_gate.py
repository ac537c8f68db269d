"""The action gate in a send_message tool handler, end to end.

    python docs/examples/corrections_gate.py

With ANTHROPIC_API_KEY (or ANTHROPIC_BASE_URL) set, the model judges. Without, a stand-in does: it finds
every text out of character that thanks somebody for their efforts.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT))

import persona_pipeline as pp  # noqa: E402
from persona_pipeline.corrections import ActionGate, correction_statistics, gate_backend  # noqa: E402
from persona_pipeline.judging.verdict import Backend, Question  # noqa: E402
from persona_pipeline.testing import ScriptedJudge  # noqa: E402
from persona_pipeline.world import World  # noqa: E402

Rewrite = Callable[[str, str], Awaitable[str]]


# This is all a tool handler needs.
async def send_message(gate: ActionGate, agent_id: str, channel: str, text: str, rewrite: Rewrite) -> str:
    """Send a text, rewritten by the agent as often as the gate asks for it, and return what was sent."""
    attempt, action_id = 1, None
    while True:
        decision = await gate.check(agent_id, text, channel=channel, attempt=attempt, action_id=action_id)
        print(f"  attempt {attempt}: {decision.outcome} ({decision.score or decision.reason}) {text!r}")
        if decision.sends:
            return text
        text = await rewrite(text, decision.feedback or "")
        attempt, action_id = attempt + 1, decision.action_id


async def rewrite_in_character(text: str, feedback: str) -> str:
    """Stand in for the agent's model, which would get the feedback as the tool's result."""
    print("  feedback:", feedback.splitlines()[2])
    return "You know who else fixed a printer? Me, in a blizzard, and three people clapped, one of them twice!"


async def rewrite_stubbornly(text: str, feedback: str) -> str:
    return text + " Thank you again for your efforts."


def judge() -> Backend:
    """Return who judges."""
    try:
        return gate_backend()
    except pp.ConfigError:
        # There is no key.
        return ScriptedJudge(lambda request: 0, name="stand-in", reply=answer)


def answer(question: Question) -> dict[str, object]:
    """Stand in for the model: every text that thanks somebody for their efforts is out of character."""
    claims = json.loads(question.context[-1].partition("\n")[2])["claims"]
    stiff = "efforts" in json.loads(question.evidence)[-1]["text"]
    return {"verdicts": [_verdict(claim, stiff) for claim in claims]}


def _verdict(claim: dict[str, str], stiff: bool) -> dict[str, object]:
    bad_sign = any(word in claim["claim"] for word in ("boilerplate", "generic"))
    reason = "It thanks people for their efforts." if stiff else "A story about himself."
    return {"id": claim["id"], "reason": reason, "score": 8 if bad_sign == stiff else 1}


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World.open(PROJECT, f"sqlite:///{folder}/store.db")
        world.sync()
        async with ActionGate(world, judge()) as gate:
            for rewrite in (rewrite_in_character, rewrite_stubbornly):
                print(rewrite.__name__)
                stiff = "Thank you all for your efforts on the printer."
                print("  sent:", await send_message(gate, "michael", "general", stiff, rewrite))
        total = correction_statistics(world.store).total
        print(
            f"{total.actions} actions: {total.passed_after_retry} passed after a retry, {total.forced} forced through; "
            f"{total.checks} checks, {total.usd_per_check or 0:.6f} dollars each"
        )
        world.store.close()


if __name__ == "__main__":
    asyncio.run(main())
