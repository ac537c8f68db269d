"""Trajectories and requests to be judged, for tests and benchmarks."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.verdict import Answer, Judge, JudgeRequest, Layer, Question
from persona_pipeline.world.models import Entry, Trajectory

LINES = (
    "Good morning, everybody! Who wants to hear my idea?",
    "I fact-checked that, and the fact is false.",
    "Paper does not sell itself.",
    "That is what the stapler said.",
)


def trajectory(*texts: str, length: int | None = None) -> Trajectory:
    """Return a trajectory of these texts (default: four short lines), repeated to a length."""
    spoken = texts or LINES
    count = len(spoken) if length is None else length
    return Trajectory(
        tuple(
            Entry(speaker="Michael", text=spoken[index % len(spoken)], message_id=f"message-{index + 1}")
            for index in range(count)
        )
    )


def request(claim: str = "Michael is cheerful", name: str = "cheerful", **changes: object) -> JudgeRequest:
    """Return a request about ``trajectory()``; ``changes`` are fields of the request."""
    fields = {"dimension": "adherence", "trajectory": trajectory(), "agent_id": "michael", **changes}
    return JudgeRequest(proposition_id=name, claim=claim, **fields)  # pyright: ignore[reportArgumentType]


def requests(count: int, **changes: object) -> Sequence[JudgeRequest]:
    """Return requests with distinct claims about one trajectory."""
    return [request(f"Michael has habit {index}", f"habit_{index}", **changes) for index in range(count)]


@dataclass(frozen=True)
class ClaimsOnly:
    """A backend whose claims a judge of one's own judges."""

    judging: Judge

    @property
    def name(self) -> str:
        return self.judging.name

    @property
    def live(self) -> bool:
        return self.judging.live

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        told = await self.judging.judge([question.requests[0] for question in questions])
        return [Answer.of(verdict) for verdict in told]


def layered(judge: Judge, *layers: Layer) -> OpenedJudge:
    """Return a judge under further layers, the outermost first."""
    if isinstance(judge, OpenedJudge):
        return replace(judge, layers=(*layers, *judge.layers))
    return OpenedJudge(ClaimsOnly(judge), layers)


def every_entry(evidence: str) -> list[dict[str, Any]]:
    """Return the entries of a transcript as a judge reads it, each with its speaker and channel."""
    entries: list[dict[str, Any]] = []
    for entry in json.loads(evidence):
        before = entries[-1] if entries and "text" in entry else {}
        same = {name: before[name] for name in ("speaker", "channel") if name in before}
        entries.append({name: value for name, value in (same | entry).items() if value is not None})
    return entries
