"""When agents were evaluated last, over all hosts that share the store: whoever was just now, waits."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

import sqlalchemy as sa

from persona_pipeline.store import Store, tables, upsert

_ASKED, _RUNS = tables.evaluations_asked, tables.evaluation_runs
_CHUNK = 500


def evaluated_since(store: Store, agent_ids: Collection[str], moment: datetime) -> set[str]:
    """Return the agents whose evaluation a sensor asked for, or anybody made, after a moment."""
    found: set[str] = set()
    names = sorted(agent_ids)
    with store.connect() as connection:
        for start in range(0, len(names), _CHUNK):
            some = names[start : start + _CHUNK]
            asked = sa.select(_ASKED.c.agent_id).where(_ASKED.c.agent_id.in_(some), _ASKED.c.asked_at > moment)
            made = sa.select(_RUNS.c.agent_id).where(_RUNS.c.agent_id.in_(some), _RUNS.c.created_at > moment)
            found |= set(connection.execute(sa.union(asked, made)).scalars())
    return found


def note_asked(store: Store, agent_ids: Sequence[str]) -> None:
    """Note that a sensor asks for evaluations now."""
    now = datetime.now(UTC)
    if agent_ids:
        with store.begin() as connection:
            upsert(store, connection, _ASKED, [{"agent_id": name, "asked_at": now} for name in agent_ids])
