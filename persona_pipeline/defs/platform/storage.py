"""Dagster's storage on SQLite and its logs in folders relative to DAGSTER_HOME, wherever a process is started.

Dagster itself takes a relative folder from the current one: a process that was started elsewhere would see another history.
"""

import os
from pathlib import Path
from typing import Any

from dagster._core.storage.local_compute_log_manager import LocalComputeLogManager
from dagster._core.storage.sqlite_storage import DagsterSqliteStorage


def at_home(folder: str) -> str:
    """Return a folder relative to DAGSTER_HOME; to the current folder where that is not set."""
    return str(Path(os.environ.get("DAGSTER_HOME", "")).expanduser().resolve() / folder)


class StorageAtHome(DagsterSqliteStorage):
    """Runs, events and schedules in ``base_dir``."""

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Any) -> "StorageAtHome":
        return cls.from_local(at_home(config_value["base_dir"]), inst_data)


class LogsAtHome(LocalComputeLogManager):
    """What steps print, in ``base_dir``."""

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Any) -> "LogsAtHome":
        return cls(**{**config_value, "base_dir": at_home(config_value["base_dir"])}, inst_data=inst_data)
