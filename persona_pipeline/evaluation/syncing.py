"""From the world's files to the store, where every step reads."""

from collections.abc import Sequence

from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.propositions import (
    PROPOSITIONS,
    find_proposition_set,
    store_proposition_set,
    stored_proposition_set,
)
from persona_pipeline.world import World


def sync_agents(world: World, agent_ids: Sequence[str], dimensions: Sequence[str], *, named: bool = False) -> None:
    """Bring personas, messages and proposition sets into the store.

    Args:
        named: the dimensions were asked for by name: an agent without propositions of one is an error then.

    Raises:
        ConfigError: everything wrong with the agents' files.
    """
    problems: list[Problem] = []
    for agent_id in agent_ids:
        try:
            world.sync_persona(agent_id)
        except ConfigError as error:
            problems += error.problems
            continue
        for dimension in dimensions:
            try:
                sync_propositions(world, agent_id, dimension)
                if named and stored_proposition_set(world.store, agent_id, dimension) is None:
                    folder = f"{PROPOSITIONS}/{dimension}"
                    problems.append(
                        Problem(
                            f"{agent_id} has no {dimension} propositions; write {folder}/_default.yaml or "
                            f"{folder}/{agent_id}.yaml, or leave the dimension out"
                        )
                    )
            except ConfigError as error:
                problems += error.problems
    if problems:
        # A default file's problem is every agent's: say it once.
        raise ConfigError(list(dict.fromkeys(problems)))
    world.sync_messages()


def sync_propositions(world: World, agent_id: str, dimension: str) -> str:
    """Bring one agent's set of a dimension into the store and return its hash.

    Raises:
        ConfigError: a file is not valid.
    """
    propositions = find_proposition_set(world.root / PROPOSITIONS, dimension, agent_id)
    if propositions is not None and not propositions.propositions:
        propositions = None
    return store_proposition_set(world.store, agent_id, dimension, propositions)
