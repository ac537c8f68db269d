"""One agent's claims, from the world's files to the store, where every step reads them."""

from pathlib import Path

from persona_pipeline.propositions import PROPOSITIONS, find_proposition_set
from persona_pipeline.propositions.storing import StoredSet, store_proposition_set
from persona_pipeline.world import World
from persona_pipeline.world.canonical import content_hash


def sync_propositions(world: World, agent_id: str, dimension: str) -> StoredSet:
    """Bring one agent's set of a dimension into the store and return it.

    Raises:
        ConfigError: a file is not valid.
    """
    return store_proposition_set(
        world.store, agent_id, dimension, proposition_set(world.root, agent_id, dimension).propositions
    )


def proposition_set(root: Path, agent_id: str, dimension: str) -> StoredSet:
    """Return one agent's set of a dimension as it stands in a world's folder.

    Raises:
        ConfigError: a file is not valid.
    """
    found = find_proposition_set(root / PROPOSITIONS, dimension, agent_id)
    found = found if found is not None and found.propositions else None
    return StoredSet(content_hash(found.to_dict() if found else None), found)
