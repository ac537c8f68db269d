"""One agent's claims, from the world's files to the store, where every step reads them."""

from persona_pipeline.propositions import PROPOSITIONS, find_proposition_set
from persona_pipeline.propositions.storing import StoredSet, store_proposition_set
from persona_pipeline.world import World


def sync_propositions(world: World, agent_id: str, dimension: str) -> StoredSet:
    """Bring one agent's set of a dimension into the store and return it.

    Raises:
        ConfigError: a file is not valid.
    """
    propositions = find_proposition_set(world.root / PROPOSITIONS, dimension, agent_id)
    if propositions is not None and not propositions.propositions:
        propositions = None
    return store_proposition_set(world.store, agent_id, dimension, propositions)
