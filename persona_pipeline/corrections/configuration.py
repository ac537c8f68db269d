"""Correction settings of agents: those of the persona file, unless they are set by command line or service."""

import asyncio
import logging
import time
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

import sqlalchemy as sa
from pydantic import ValidationError

from persona_pipeline.base.calls import Breaker
from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, upsert
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.corrections.background import DaemonPool
from persona_pipeline.world.models import CorrectionSettings

FROM_PERSONA, FROM_API = "persona", "api"
_TABLE = tables.agent_evaluation_config
_FRESH_SECONDS = 1.0
_MOST_AGENTS = 10_000
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredConfig:
    """An agent's settings and where they come from (``persona`` or ``api``; None: nothing is stored, all is off)."""

    agent_id: str
    settings: CorrectionSettings
    source: str | None = None
    updated_at: datetime | None = None


def read_config(store: Store, agent_id: str) -> StoredConfig:
    """Return an agent's settings; all are off when none are stored.

    Raises:
        ConfigError: the stored values are not valid.
    """
    row = store.row(sa.select(_TABLE).where(_TABLE.c.agent_id == agent_id))
    if row is None:
        return StoredConfig(agent_id, CorrectionSettings())
    values = {name: getattr(row, name) for name in CorrectionSettings.model_fields}
    # REAL keeps seven digits: 0.6 must not come back as 0.60000002.
    values = {name: round(value, 6) if isinstance(value, float) else value for name, value in values.items()}
    try:
        settings = CorrectionSettings.model_validate(values)
    except ValidationError as error:
        wrong = ", ".join(f"{item['loc'][0]} {item['input']!r}" for item in error.errors())
        raise ConfigError(
            f"the stored settings of {agent_id!r} are not valid ({wrong}); "
            f"run persona-pipeline corrections config reset {agent_id}"
        ) from error
    return StoredConfig(agent_id, settings, row.source, row.updated_at)


def write_config(store: Store, agent_id: str, settings: CorrectionSettings, source: str = FROM_API) -> StoredConfig:
    """Set an agent's settings; only those ``FROM_PERSONA`` change with later edits of its persona file.

    Raises:
        ConfigError: the store does not know the agent.
    """
    if store.value(sa.select(tables.agents.c.id).where(tables.agents.c.id == agent_id)) is None:
        raise ConfigError(
            f"agent {agent_id!r} is not in the store; write personas/{agent_id}.yaml and run evaluate once"
        )
    row = {"agent_id": agent_id, **settings.model_dump(), "source": source}
    with store.begin() as connection:
        upsert(connection, _TABLE, [row], key=["agent_id"])
    return read_config(store, agent_id)


def reset_config(store: Store, agent_id: str, settings: CorrectionSettings) -> StoredConfig:
    """Give an agent its persona file's settings again; raises as ``write_config`` does."""
    return write_config(store, agent_id, settings, FROM_PERSONA)


@dataclass
class _Looked:
    """The settings that were read last (None: not yet), and the time of the last look."""

    settings: CorrectionSettings | None = None
    at: float = float("-inf")


class StoredSettings:
    """Reads settings within ``seconds``; else returns those that were read last, else all off."""

    def __init__(self, store: Store, *, seconds: float = 1.0) -> None:
        self._store, self._seconds = store, seconds
        self._pool = DaemonPool(2, "correction-settings")
        self._breaker = Breaker(threshold=5)
        # A client may make names up.
        self._of = lru_cache(_MOST_AGENTS)(lambda _: _Looked())

    def __call__(self, agent_id: str) -> CorrectionSettings:
        if self._breaker.refusal() is None:
            try:
                self._of(agent_id).settings = self._read(agent_id)
                self._breaker.succeeded()
            except ConfigError as error:
                self._breaker.succeeded()
                _LOGGER.warning("%s; the last known hold", error)
            except Exception as error:
                self._breaker.failed("database", type(error).__name__)
                _LOGGER.warning("settings of %r not read (%s); the last known hold", agent_id, type(error).__name__)
        return self._of(agent_id).settings or CorrectionSettings()

    async def soon(self, agent_id: str) -> CorrectionSettings | None:
        """Look them up without holding the event loop, once a second; None: nothing was ever known of them."""
        known = self._of(agent_id)
        if known.settings is None or time.monotonic() > known.at + _FRESH_SECONDS:
            known.at = time.monotonic()
            await asyncio.to_thread(self, agent_id)
        return self._of(agent_id).settings

    def _read(self, agent_id: str) -> CorrectionSettings:
        future = self._pool.submit(lambda: read_config(self._store, agent_id).settings)
        try:
            return future.result(self._seconds)
        finally:
            future.cancel()
