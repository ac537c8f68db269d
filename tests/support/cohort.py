"""A world of any number of agents, its baselines, and a free port: what tests of whole deployments begin with."""

import socket
from collections.abc import Sequence
from pathlib import Path

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.judging.open import JudgeOptions, open_judge
from persona_pipeline.world import World
from tests.support.worlds import DIMENSIONS, write_jsonl, write_yaml

PROJECT = Path(__file__).parents[2]


def write_cohort_world(root: Path, agents: Sequence[str], *, claims: int = 1, messages: int = 4) -> Path:
    """Write a world of agents who talk in one channel, with ``claims`` claims a dimension and messages three days apart.

    Returns the folder.
    """
    for agent_id in agents:
        persona = {"display_name": agent_id.title(), "persona": f"{agent_id.title()} counts kettles."}
        write_yaml(root / "personas" / f"{agent_id}.yaml", persona)
    for dimension in DIMENSIONS:
        propositions = [
            {"id": f"{dimension}-{n}", "claim": f"{{{{agent_name}}}} has quality {n} of {dimension}"}
            for n in range(claims)
        ]
        write_yaml(
            root / "propositions" / dimension / "_default.yaml", {"dimension": dimension, "propositions": propositions}
        )
    rows = [
        {
            "id": f"{agent_id}-{n}",
            "agent_id": agent_id,
            "channel": "general",
            "text": f"{agent_id.title()} has counted {n} kettles and will not say where.",
            "created_at": f"2026-03-{2 + 3 * n:02d}T{9 + minute // 60:02d}:{minute % 60:02d}:00Z",
        }
        for n in range(messages)
        for minute, agent_id in enumerate(agents)
    ]
    write_jsonl(root / "messages" / "all.jsonl", rows)
    return root


def take_baselines(root: Path) -> None:
    """Evaluate a world with the live judge of the environment and write its baselines, however low the scores are."""
    world = World.open(root, f"sqlite:///{root / 'taken.db'}")
    try:
        judge = open_judge("anthropic", world, JudgeOptions())
        run_evaluation(world, judge, EvaluationRequest(update_baseline=True, accept="scores of a stand-in judge"))
    finally:
        world.store.close()
    for leftover in root.glob("taken.db*"):
        leftover.unlink()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
