"""Forgetting what old runs say of each claim; their scores stay, and with them histories, trends and comparisons."""

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from persona_pipeline.evaluation.history import newest_ids
from persona_pipeline.store import Store, tables

_RUNS, _SCORES = tables.evaluation_runs, tables.evaluation_scores
# Runs of one transaction, so that other writers have their turn.
_AT_ONCE = 200


def forget_reasons(store: Store, days: int, *, now: datetime | None = None) -> int:
    """Take claims, reasons and quotes out of runs whose windows ended more than some days ago; return of how many.

    An agent's newest run stays whole, and so does the one its baseline was taken from. Of the others remain scores by dimension,
    findings and what histories and trends are drawn from.
    """
    before = (now or datetime.now(UTC)) - timedelta(days=days)
    old = (
        sa.select(_RUNS.c.id)
        .where(_RUNS.c.window_end < before, _RUNS.c.result.is_not(None), _RUNS.c.is_baseline.is_(False))
        .where(_RUNS.c.id.not_in(newest_ids()))
    )
    with store.connect() as connection:
        ids = connection.execute(old).scalars().all()
    for start in range(0, len(ids), _AT_ONCE):
        some = ids[start : start + _AT_ONCE]
        with store.begin() as connection:
            connection.execute(sa.delete(_SCORES).where(_SCORES.c.evaluation_run_id.in_(some)))
            connection.execute(sa.update(_RUNS).where(_RUNS.c.id.in_(some)).values(result=None, comparison=None))
    return len(ids)
