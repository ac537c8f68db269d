"""How often what agents said on a day has changed, as the store counts it."""

from collections.abc import Sequence
from datetime import date

import sqlalchemy as sa

from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.database.tables import message_days
from persona_pipeline.world.messages.revision import raise_revisions


def day_revisions(store: Store, agent_ids: Sequence[str], first: date, last: date) -> dict[tuple[str, date], int]:
    """Return the number of changes by agent and UTC day of a span."""
    raise_revisions(store)
    days = message_days.c
    query = sa.select(message_days).where(days.agent_id.in_(agent_ids), days.day.between(first, last))
    return {(row.agent_id, row.day): row.revision for row in store.rows(query)}
