"""Which agents and dimensions a run is about, and how much of it must be scored."""

from collections.abc import Sequence

from persona_pipeline.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.propositions import ALL_DIMENSIONS
from persona_pipeline.settings import get_settings
from persona_pipeline.world import World


def select_agents(world: World, agents: Sequence[str] | None) -> list[str]:
    """Return the agents asked for, in order, each once.

    Raises:
        ConfigError: an agent has no persona file, or there is no agent at all.
    """
    known = world.agent_ids()
    if agents is None:
        agents = known
    problems = [
        Problem(f"unknown agent {agent!r}{did_you_mean(agent, known) or '; known: ' + ', '.join(known)}")
        for agent in agents
        if agent not in known
    ]
    if problems:
        raise ConfigError(problems)
    if not agents:
        raise ConfigError(f"no agents: write personas/<agent_id>.yaml in {world.root}")
    return list(dict.fromkeys(agents))


def select_dimensions(dimensions: Sequence[str] | None) -> list[str]:
    """Return the dimensions asked for, in their fixed order.

    Raises:
        ConfigError: one is unknown, or none is named.
    """
    if dimensions is None:
        return list(ALL_DIMENSIONS)
    problems = [
        Problem(f"unknown dimension {d!r}{did_you_mean(d, ALL_DIMENSIONS) or '; known: ' + ', '.join(ALL_DIMENSIONS)}")
        for d in dimensions
        if d not in ALL_DIMENSIONS
    ]
    if problems or not dimensions:
        raise ConfigError(problems or "no dimensions are named; leave --dimensions out for all of them")
    return [dimension for dimension in ALL_DIMENSIONS if dimension in dimensions]


def default_coverage(judge: Judge) -> float:
    """Return the share of judgments that must be scored: all in replay, 95 % live, unless the settings say otherwise."""
    settings = get_settings()
    return settings.min_coverage_live if judge.live else settings.min_coverage_replay
