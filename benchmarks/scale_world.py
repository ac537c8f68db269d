"""Seeded worlds of many agents and messages, as files: what the measurements of size run on."""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support.worlds import DIMENSIONS, write_yaml

END = datetime(2026, 3, 14, tzinfo=UTC)
DAYS = 400
ROOM = 10
WORDS = [
    "kettle", "ledger", "window", "harbour", "copper", "meadow", "signal", "basket", "lantern", "gravel", "ribbon", "thunder",
    "marble", "orchard", "pocket", "saddle", "timber", "velvet", "walnut", "anchor", "blanket", "candle", "dagger", "engine",
]  # fmt: skip


def write_files(
    root: Path, agents: int, messages: int, *, days: int = DAYS, files: int = 1, seed: int = 1
) -> list[str]:
    """Write personas, claims, baselines and messages, and return the agents.

    Rooms of ten; everybody speaks equally often, evenly over the ``days`` before ``END``. Five dimensions with three claims for
    everybody, and two of the agent's own in adherence and fluency.
    """
    names = [f"agent-{number:04}" for number in range(agents)]
    for number, name in enumerate(names):
        persona = {"display_name": name.title(), "persona": f"{name} is {WORDS[number % len(WORDS)]}."}
        write_yaml(root / "personas" / f"{name}.yaml", persona)
        write_yaml(root / "baselines" / f"{name}.json", {"agentId": name, "dimensions": dict.fromkeys(DIMENSIONS, 0)})
        for dimension in ("adherence", "fluency"):
            _write_claims(root, dimension, name, [f"own-{n}" for n in range(2)])
    for dimension in DIMENSIONS:
        _write_claims(root, dimension, "_default", [f"common-{n}" for n in range(3)])
    lines = said(names, messages, days=days, seed=seed)
    folder = root / "messages"
    folder.mkdir(parents=True)
    for number in range(files):
        with (folder / f"part{number:03}.jsonl").open("w", encoding="utf-8") as file:
            for _ in range(messages // files + (number < messages % files)):
                file.write(json.dumps(next(lines)) + "\n")
    return names


def said(names: list[str], count: int, *, days: int = DAYS, seed: int = 1) -> Iterator[dict[str, str]]:
    """Yield messages in order of time: the first ``count`` fill the days, what is taken beyond comes after the end."""
    draw = random.Random(seed)
    number = 0
    while True:
        moment = END + timedelta(days=days) * ((number + 1) / count - 1)
        speaker = number * 7919 % len(names)
        words = " ".join(draw.choice(WORDS) for _ in range(12))
        yield {
            "id": f"m{number}",
            "agent_id": names[speaker],
            "channel": f"room-{speaker // ROOM:04}",
            "text": f"{words.capitalize()}.",
            "created_at": moment.isoformat(timespec="seconds"),
        }
        number += 1


def record_everything(root: Path, database_url: str) -> int:
    """Write a recorded judgment for everything an evaluation of everybody asks, and return how many there are."""
    from persona_pipeline.evaluation import EvaluationRequest
    from persona_pipeline.evaluation.run import planned_requests
    from persona_pipeline.judging.recorded import recording_of
    from persona_pipeline.judging.recordings import write_recordings
    from persona_pipeline.judging.verdict import Verdict
    from persona_pipeline.world import World

    world = World.open(root, database_url)
    recordings = []
    for asked in planned_requests(world, EvaluationRequest()):
        verdict = Verdict(asked.proposition_id, 7, reasoning="Recorded.", model="mock", prompt_version="mock")
        recordings.append(recording_of(asked, verdict, recorded_at=END))
    write_recordings(root / "recordings", [recording for recording in recordings if recording is not None])
    world.store.close()
    return len(recordings)


def _write_claims(root: Path, dimension: str, stem: str, ids: list[str]) -> None:
    claims = [{"id": f"{dimension}-{name}", "claim": f"{{{{agent_name}}}} shows {name} of {dimension}"} for name in ids]
    write_yaml(root / "propositions" / dimension / f"{stem}.yaml", {"dimension": dimension, "propositions": claims})
