"""Upkeep of what the gate leaves behind: checks summed up as they come, texts forgotten when they are old."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from functools import partial

import sqlalchemy as sa

from persona_pipeline.corrections.background import DaemonPool
from persona_pipeline.corrections.counting import count_new_checks
from persona_pipeline.store import Store, tables

_LOGS = tables.correction_logs
# Often enough that whoever asks for statistics finds next to nothing left to count.
_COUNTING_SECONDS = 10.0
_PRUNING_SECONDS = 3600.0
_MOST_AT_A_TIME = 5000
_BYPASS_DAYS = 90
_PAUSE_SECONDS = 0.05
_LOGGER = logging.getLogger(__name__)


def forget_texts(store: Store, days: int, *, now: datetime | None = None) -> int:
    """Remove the words from corrections older than some days, and return from how many; numbers and reasons in words stay apart.

    What was written, what replaced it and the judge's reasons, which quote it, become empty.
    """
    before = (now or datetime.now(UTC)) - timedelta(days=days)
    has_words = sa.or_(_LOGS.c.original_text != "", _LOGS.c.corrected_text.is_not(None), _LOGS.c.reasoning != "")
    change = sa.update(_LOGS).where(_LOGS.c.created_at < before, has_words)
    with store.begin() as connection:
        return connection.execute(change.values(original_text="", corrected_text=None, reasoning="")).rowcount


def forget_bypasses(store: Store, days: int = _BYPASS_DAYS, *, now: datetime | None = None) -> int:
    """Delete counts of bypasses older than some days, and return how many rows there were."""
    before = (now or datetime.now(UTC)) - timedelta(days=days)
    with store.begin() as connection:
        return connection.execute(
            sa.delete(tables.gate_bypasses).where(tables.gate_bypasses.c.created_at < before)
        ).rowcount


async def keep_in_order(store: Store, keep_text_days: int | None) -> None:
    """Sum checks up and forget old texts for as long as the service runs; a store that fails is tried again."""
    pool = DaemonPool(1, "gate-upkeep")
    pruned_at: float | None = None
    clock = asyncio.get_running_loop().time
    while True:
        try:
            # A backlog is worked off in pieces, between which other writers have their turn.
            while await pool.run(lambda: count_new_checks(store, most=_MOST_AT_A_TIME)) >= _MOST_AT_A_TIME:
                await asyncio.sleep(_PAUSE_SECONDS)
            if pruned_at is None or clock() - pruned_at > _PRUNING_SECONDS:
                await pool.run(partial(forget_bypasses, store))
                if keep_text_days is not None:
                    await pool.run(partial(forget_texts, store, keep_text_days))
                pruned_at = clock()
        except Exception as error:
            _LOGGER.warning("the gate's records are not put in order now: %s", type(error).__name__)
        await asyncio.sleep(_COUNTING_SECONDS)
