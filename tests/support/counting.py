"""Whether what is counted as messages come is what all messages come to."""

import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store
from persona_pipeline.world.messages.counting import count_messages, said_by_agent, said_on_days
from persona_pipeline.world.messages.store import read_messages


def counted_wrongly(store: Store) -> dict[str, str]:
    """Return the agents whose counted days or totals are not those of a count from nothing, with what was counted."""
    count_messages(store)
    messages = read_messages(store)
    if not messages:
        return {name: str(said) for name, said in said_by_agent(store).items()}
    span = min(m.created_at for m in messages).date(), max(m.created_at for m in messages).date()
    agents = sorted({m.agent_id for m in messages} | {*said_by_agent(store)})
    before = {name: said.all for name, said in said_by_agent(store).items()}, said_on_days(store, agents, *span)
    with store.begin() as connection:
        connection.execute(sa.delete(tables.message_days))
        connection.execute(sa.delete(tables.message_totals))
        noted = [{"agent_id": m.agent_id, "day": m.created_at.date()} for m in messages]
        connection.execute(sa.insert(tables.message_changes), noted)
    after = {name: said.all for name, said in said_by_agent(store).items()}, said_on_days(store, agents, *span)
    days = {
        key: before[1].get(key) for key in before[1].keys() | after[1].keys() if before[1].get(key) != after[1].get(key)
    }
    wrong = {name: before[0].get(name) for name in agents if before[0].get(name) != after[0].get(name)}
    return {
        **{name: str(said) for name, said in wrong.items()},
        **{name: f"{day}: {said}" for (name, day), said in days.items()},
    }
