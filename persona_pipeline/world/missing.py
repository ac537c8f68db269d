"""Agents that are gone: whoever deletes a persona must not thereby turn a red run green."""

from pathlib import Path

from persona_pipeline.errors import Problem
from persona_pipeline.world.files import yaml_stems
from persona_pipeline.world.personas import PERSONAS

BASELINES = "baselines"


def missing_agents(root: Path, decided_by: Path | None = None) -> list[str]:
    """Return the ids of agents that have a golden baseline and no persona file, sorted.

    Args:
        decided_by: the folder with the baselines, where it is another.
    """
    folder = (decided_by or root) / BASELINES
    if not folder.is_dir():
        return []
    known = set(yaml_stems(root / PERSONAS))
    return sorted(
        path.stem for path in folder.glob("*.json") if not path.name.startswith(".") and path.stem not in known
    )


def missing_agent_problems(root: Path) -> list[Problem]:
    """Return a problem for each such agent, placed at its baseline."""
    return [
        Problem(
            f"agent {agent_id!r} has a baseline and no persona; restore {PERSONAS}/{agent_id}.yaml, or delete the baseline too",
            str(root / BASELINES / f"{agent_id}.json"),
        )
        for agent_id in missing_agents(root)
    ]
