"""The merged sets in the store, so that a step on any host scores the same claims."""

from dataclasses import dataclass

import sqlalchemy as sa

from persona_pipeline.propositions.models import PropositionSet
from persona_pipeline.store import Store, tables, upsert
from persona_pipeline.world.canonical import content_hash


@dataclass(frozen=True)
class StoredSet:
    """A merged set as the store holds it: the hash of its content, and the set (None: the agent has none)."""

    version: str
    propositions: PropositionSet | None


def store_proposition_set(
    store: Store, agent_id: str, dimension: str, propositions: PropositionSet | None
) -> StoredSet:
    """Write an agent's set of a dimension (None: it has none) and return it."""
    content = propositions.to_dict() if propositions else None
    digest = content_hash(content)
    table = tables.proposition_sets
    known = sa.select(table.c.content_hash).where(table.c.agent_id == agent_id, table.c.dimension == dimension)
    with store.connect() as connection:
        if connection.execute(known).scalar() == digest:
            return StoredSet(digest, propositions)
    with store.begin() as connection:
        upsert(
            store,
            connection,
            table,
            [{"agent_id": agent_id, "dimension": dimension, "content_hash": digest, "content": content}],
        )
    return StoredSet(digest, propositions)


def stored_proposition_sets(store: Store, agent_id: str) -> dict[str, StoredSet]:
    """Return the sets last written of an agent, by dimension."""
    table = tables.proposition_sets
    query = sa.select(table.c.dimension, table.c.content_hash, table.c.content).where(table.c.agent_id == agent_id)
    with store.connect() as connection:
        return {
            row.dimension: StoredSet(row.content_hash, PropositionSet.from_dict(row.content) if row.content else None)
            for row in connection.execute(query)
        }
