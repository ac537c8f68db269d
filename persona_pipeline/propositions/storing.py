"""The merged sets in the store, so that a step on any host scores the same claims."""

import sqlalchemy as sa

from persona_pipeline.errors import ConfigError
from persona_pipeline.propositions.models import PropositionSet
from persona_pipeline.store import Store, tables, upsert
from persona_pipeline.world.canonical import content_hash


def store_proposition_set(store: Store, agent_id: str, dimension: str, propositions: PropositionSet | None) -> str:
    """Write an agent's set of a dimension (None: it has none) and return its content hash."""
    content = propositions.to_dict() if propositions else None
    digest = content_hash(content)
    table = tables.proposition_sets
    known = sa.select(table.c.content_hash).where(table.c.agent_id == agent_id, table.c.dimension == dimension)
    with store.connect() as connection:
        if connection.execute(known).scalar() == digest:
            return digest
    with store.begin() as connection:
        upsert(
            store,
            connection,
            table,
            [{"agent_id": agent_id, "dimension": dimension, "content_hash": digest, "content": content}],
        )
    return digest


def stored_proposition_set(store: Store, agent_id: str, dimension: str) -> PropositionSet | None:
    """Return the set last written; None when the dimension has no propositions for the agent.

    Raises:
        ConfigError: no set was ever written.
    """
    table = tables.proposition_sets
    query = sa.select(table.c.content).where(table.c.agent_id == agent_id, table.c.dimension == dimension)
    with store.connect() as connection:
        row = connection.execute(query).one_or_none()
    if row is None:
        raise ConfigError(
            f"the {dimension} propositions of {agent_id!r} are not in the store; materialize proposition_sets/{dimension}"
        )
    return PropositionSet.from_dict(row.content) if row.content else None
