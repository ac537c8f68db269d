"""The merged sets in the store, so that a step on any host scores the same claims."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from persona_pipeline.propositions.models import PropositionSet
from persona_pipeline.store import Store, among, tables, upsert
from persona_pipeline.world.canonical import content_hash


@dataclass(frozen=True)
class StoredSet:
    """A merged set as the store holds it: the hash of its content, and the set (None: the agent has none)."""

    version: str
    propositions: PropositionSet | None

    @classmethod
    def of(cls, propositions: PropositionSet | None) -> "StoredSet":
        """Return a set as it would be stored."""
        return cls(content_hash(propositions.to_dict() if propositions else None), propositions)


def store_proposition_set(
    store: Store, agent_id: str, dimension: str, propositions: PropositionSet | None
) -> StoredSet:
    """Write an agent's set of a dimension (None: it has none) and return it."""
    stored = StoredSet.of(propositions)
    store_proposition_sets(store, {(agent_id, dimension): stored})
    return stored


def store_proposition_sets(store: Store, sets: Mapping[tuple[str, str], StoredSet]) -> None:
    """Write agents' sets by agent and dimension, as far as they are not the same already."""
    table = tables.proposition_sets
    columns = (table.c.agent_id, table.c.dimension, table.c.content_hash)
    query = sa.select(*columns).where(among(table.c.agent_id, {agent_id for agent_id, _ in sets}))
    with store.connect() as connection:
        known = {(row.agent_id, row.dimension): row.content_hash for row in connection.execute(query)}
    rows = [
        {
            "agent_id": agent_id,
            "dimension": dimension,
            "content_hash": item.version,
            "content": item.propositions.to_dict() if item.propositions else None,
        }
        for (agent_id, dimension), item in sets.items()
        if known.get((agent_id, dimension)) != item.version
    ]
    if rows:
        with store.begin() as connection:
            upsert(store, connection, table, rows)


def stored_proposition_sets(store: Store, agent_id: str) -> dict[str, StoredSet]:
    """Return the sets last written of an agent, by dimension."""
    return stored_sets(store, [agent_id]).get(agent_id, {})


def stored_sets(store: Store, agent_ids: Collection[str], but: Collection[str] = ()) -> dict[str, dict[str, StoredSet]]:
    """Return the sets last written of some agents, by agent and dimension; ``but``: dimensions that are left out."""
    table = tables.proposition_sets
    columns = (table.c.agent_id, table.c.dimension, table.c.content_hash, table.c.content)
    query = sa.select(*columns).where(among(table.c.agent_id, agent_ids), table.c.dimension.not_in(list(but)))
    found: dict[str, dict[str, StoredSet]] = {}
    with store.connect() as connection:
        for row in connection.execute(query):
            if row.agent_id in agent_ids:
                claims = PropositionSet.from_dict(row.content) if row.content else None
                found.setdefault(row.agent_id, {})[row.dimension] = StoredSet(row.content_hash, claims)
    return found
