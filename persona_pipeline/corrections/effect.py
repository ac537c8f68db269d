"""What corrections did to every dimension: they buy adherence and can cost consistency and fluency, so all are shown."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict
from sqlalchemy.engine import Connection

from persona_pipeline.corrections.decision import Outcome
from persona_pipeline.store import Store, tables

_RUNS = tables.evaluation_runs
_LOGS = tables.correction_logs


class DimensionChange(BaseModel):
    """A dimension's score (0-9) before the first correction and in the newest evaluation after it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    before: float | None
    after: float | None

    @property
    def change(self) -> float | None:
        """after - before; None when one of them is missing."""
        return None if self.before is None or self.after is None else self.after - self.before


class CorrectionEffect(BaseModel):
    """An agent's evaluations around its corrections.

    Attributes:
        first_correction: when the first text was rejected.
        before, after: ends of the windows that are compared: the newest that ended before, the newest of all.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    first_correction: datetime
    before: datetime
    after: datetime
    dimensions: dict[str, DimensionChange]


def correction_effects(store: Store, agent_ids: Iterable[str]) -> dict[str, CorrectionEffect]:
    """Return the effect for each agent that was evaluated both before its first correction and after it."""
    effects = {}
    with store.connect() as connection:
        for agent_id in agent_ids:
            rejected = (_LOGS.c.agent_id == agent_id, _LOGS.c.outcome == Outcome.CORRECTED.value)
            moment = connection.execute(sa.select(sa.func.min(_LOGS.c.created_at)).where(*rejected)).scalar()
            if moment is None:
                continue
            before = _newest_run(connection, agent_id, _RUNS.c.window_end <= moment)
            after = _newest_run(connection, agent_id, _RUNS.c.window_end > moment)
            if before is not None and after is not None:
                effects[agent_id] = _effect(moment, before, after)
    return effects


def _newest_run(connection: Connection, agent_id: str, when: sa.ColumnElement[bool]) -> sa.Row | None:
    query = (
        sa.select(_RUNS.c.window_end, _RUNS.c.summary)
        .where(
            _RUNS.c.agent_id == agent_id,
            _RUNS.c.status == "completed",
            _RUNS.c.synthetic.is_(False),
            _RUNS.c.summary.is_not(None),
            when,
        )
        .order_by(_RUNS.c.window_end.desc(), _RUNS.c.created_at.desc())
        .limit(1)
    )
    return connection.execute(query).one_or_none()


def _effect(moment: datetime, before: sa.Row, after: sa.Row) -> CorrectionEffect:
    old, new = _scores(before.summary), _scores(after.summary)
    names = [*old, *(name for name in new if name not in old)]
    return CorrectionEffect(
        first_correction=moment,
        before=before.window_end,
        after=after.window_end,
        dimensions={name: DimensionChange(before=old.get(name), after=new.get(name)) for name in names},
    )


def _scores(summary: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: dimension.get("score") for name, dimension in summary.get("dimensions", {}).items()}
