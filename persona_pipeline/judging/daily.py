"""Dollars a day over all runs and hosts that share a store: a call is set aside there before it is sent."""

from datetime import UTC, date, datetime

import sqlalchemy as sa

from persona_pipeline.settings import Settings
from persona_pipeline.store import Store, open_store, tables, upsert

_DAYS = tables.spending_days
# Sums of many small numbers.
_ROUNDING = 1e-9


class DailyLimit:
    """A limit in dollars a UTC day. What a process that was killed had set aside counts as spent until the day ends."""

    def __init__(self, store: Store, max_usd: float) -> None:
        self.max_usd = max_usd
        self._store = store

    @property
    def remaining(self) -> float:
        """Dollars of today neither spent nor set aside, by anybody."""
        spent = sa.select(_DAYS.c.usd).where(_DAYS.c.day == _today())
        with self._store.connect() as connection:
            return max(0.0, self.max_usd - (connection.execute(spent).scalar() or 0.0))

    def take(self, usd: float) -> date | None:
        """Set dollars of today aside and return the day; None: that would pass the limit."""
        day = _today()
        with self._store.begin() as connection:
            upsert(self._store, connection, _DAYS, [{"day": day, "usd": 0.0}], update=False)
            # Looked at and taken in one statement: two hosts cannot both take the last of it.
            fits = (_DAYS.c.day == day) & (_DAYS.c.usd + usd <= self.max_usd + _ROUNDING)
            taken = connection.execute(sa.update(_DAYS).where(fits).values(usd=_DAYS.c.usd + usd))
        return day if taken.rowcount else None

    def settle(self, day: date, taken: float, spent: float) -> None:
        """Say what was spent of dollars that were set aside."""
        with self._store.begin() as connection:
            left = sa.update(_DAYS).where(_DAYS.c.day == day).values(usd=_DAYS.c.usd - taken + spent)
            connection.execute(left)


def daily_limit(settings: Settings, store: Store | None) -> DailyLimit | None:
    """Return the limit of the settings, kept in a store (None: that of the settings); None: there is no limit."""
    return DailyLimit(store or open_store(), settings.daily_usd) if settings.daily_usd else None


def _today() -> date:
    return datetime.now(UTC).date()
