"""Seeded worlds of many agents and messages, as files: what the measurements of size run on."""

import json
import random
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

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
    from persona_pipeline.judging.recordings.files import write_recordings
    from persona_pipeline.judging.recordings.replay import recording_of
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


def write_runs(root: Path, database_url: str, runs: int, *, seed: int = 1) -> int:
    """Save finished runs of everybody, a window a week; in the newest one agent of 25 fell. Return how many there are."""
    import sqlalchemy as sa

    from persona_pipeline.evaluation.comparison import Guard, compared
    from persona_pipeline.evaluation.gate import GateRules
    from persona_pipeline.evaluation.saving import SavedRun, save_run
    from persona_pipeline.store import tables
    from persona_pipeline.world import World

    world, draw, table = World.open(root, database_url), random.Random(seed), tables.evaluation_runs
    names = world.agent_ids()
    for number, name in enumerate(names):
        world.sync_persona(name)
        found, baseline = _evaluation(name, draw, low=number % 25 == 7), _baseline(name)
        report = compared(found, baseline, Guard(GateRules()))
        save_run(world.store, SavedRun(report.evaluation, report.comparison, report.findings))
    with world.store.begin() as connection:
        newest = [dict(row._mapping) for row in connection.execute(sa.select(table))]
    for row in newest:
        with world.store.begin() as connection:
            connection.execute(sa.insert(table), [_earlier(row, week, draw) for week in range(1, runs)])
    world.store.close()
    return len(names) * runs


def _earlier(row: dict[str, Any], weeks: int, draw: random.Random) -> dict[str, Any]:
    """Return a stored run as it was so many weeks before."""
    end = row["window_end"] - timedelta(weeks=weeks)
    key = uuid.UUID(int=draw.getrandbits(128))
    score = round(7 + draw.gauss(0, 0.3), 4)
    bounds = {"window_start": end - timedelta(weeks=1), "window_end": end}
    shown = {name: moment.isoformat() for name, moment in bounds.items()}
    return {
        **row,
        **bounds,
        "id": key,
        "overall_score": score,
        "result": {**row["result"], **shown, "run_id": str(key), "overall": score},
        "summary": {**row["summary"], "overall": score},
        "findings": [],
        "regressed": False,
    }


def _evaluation(name: str, draw: random.Random, *, low: bool) -> Any:
    from persona_pipeline.evaluation.results import AgentEvaluation
    from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult, QuotedEvidence

    quote, reasoning = " ".join(draw.choices(WORDS, k=15)), " ".join(draw.choices(WORDS, k=40))
    dimensions = {}
    for dimension in DIMENSIONS:
        score = (3.0 if low and dimension == "adherence" else 7.0) + round(draw.gauss(0, 0.2), 3)
        claims = {
            key: PropositionResult(
                id=key, claim=f"{name} shows {key}", score=score, raw=score, weight=1.0, reasoning=reasoning,
                evidence=[QuotedEvidence(message_id="m1", quote=quote, verified=True)],
            )
            for key in (f"{dimension}-common-{n}" for n in range(4))
        }  # fmt: skip
        dimensions[dimension] = DimensionEvaluation(
            dimension=dimension, score=score, n_scored=4, n_expected=4, propositions=claims
        )
    provenance = {"judge_model": "mock", "prompt_version": "mock", "persona_hash": "p", "messages_hash": name}
    return AgentEvaluation(
        run_id=str(uuid.UUID(int=draw.getrandbits(128))), agent_id=name, display_name=name.title(), sample_size=20,
        window_start=END - timedelta(weeks=1), window_end=END, provenance=provenance,
    ).with_dimensions(dimensions)  # fmt: skip


def _baseline(name: str) -> Any:
    from persona_pipeline.baselines import Baseline

    return Baseline(agent_id=name, dimensions=dict.fromkeys(DIMENSIONS, 7.0), captured_at=END)


def _write_claims(root: Path, dimension: str, stem: str, ids: list[str]) -> None:
    claims = [{"id": f"{dimension}-{name}", "claim": f"{{{{agent_name}}}} shows {name} of {dimension}"} for name in ids]
    write_yaml(root / "propositions" / dimension / f"{stem}.yaml", {"dimension": dimension, "propositions": claims})
