"""Trajectories and requests to be judged, for tests and benchmarks."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.judging.recordings.writing import RecordingWriter
from persona_pipeline.judging.verdict import Judge, JudgeRequest
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


def recorded_by(judge: Judge, folder: Path, *, first: bool = False) -> OpenedJudge:
    """Return a judge whose answers are recorded in a folder; ``first``: what is recorded there is taken before it is asked."""
    opened = judge if isinstance(judge, OpenedJudge) else OpenedJudge(judge)
    recorded = RecordedBackend(folder) if first else None
    return replace(opened, recorded=recorded, writer=RecordingWriter(folder))


def every_entry(evidence: str) -> list[dict[str, Any]]:
    """Return the entries of a transcript as a judge reads it, each with its speaker and channel."""
    entries: list[dict[str, Any]] = []
    for entry in json.loads(evidence):
        before = entries[-1] if entries and "text" in entry else {}
        same = {name: before[name] for name in ("speaker", "channel") if name in before}
        entries.append({name: value for name, value in (same | entry).items() if value is not None})
    return entries
