"""Where what steps print is kept: a folder, or with PERSONA_STEP_LOGS an object store. ``dagster.yaml`` names this class."""

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from dagster import Field, StringSource

from persona_pipeline.defs.platform.dagster_internals import (
    IO_TYPE_EXTENSION,
    CloudStorageComputeLogManager,
    ComputeIOType,
    ConfigurableClass,
    ConfigurableClassData,
    LocalComputeLogManager,
    PollingComputeLogSubscriptionManager,
)

VARIABLE = "PERSONA_STEP_LOGS"
_UPLOAD_SECONDS = 30


class EnvironmentStepLogs(CloudStorageComputeLogManager, ConfigurableClass):
    """Writes to a folder of this machine, and to the store at PERSONA_STEP_LOGS when a step is done and every half minute before.

    Without that variable it is Dagster's own for folders.
    """

    def __init__(self, url: str, inst_data: ConfigurableClassData | None = None) -> None:
        self._url, self._inst_data = url, inst_data
        self._local = LocalComputeLogManager(mkdtemp(prefix="step-logs-"))
        self._subscriptions = PollingComputeLogSubscriptionManager(self)

    @classmethod
    def config_type(cls) -> Mapping[str, Field]:
        return {"base_dir": Field(StringSource)}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> Any:
        url = os.environ.get(VARIABLE)
        if not url:
            return LocalComputeLogManager(config_value["base_dir"], inst_data=inst_data)
        return cls(url, inst_data)

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        return self._inst_data

    @property
    def local_manager(self) -> LocalComputeLogManager:
        return self._local

    @property
    def upload_interval(self) -> int:
        return _UPLOAD_SECONDS

    @cached_property
    def _folder(self) -> Path:
        from persona_pipeline.defs.platform.assets import open_folder

        return open_folder(self._url, VARIABLE)

    def _path(self, log_key: Sequence[str], io_type: ComputeIOType, partial: bool = False) -> Path:
        *folders, name = log_key
        ending = f"{IO_TYPE_EXTENSION[io_type]}{'.partial' if partial else ''}"
        return self._folder.joinpath(*folders, f"{name}.{ending}")

    def _local_path(self, log_key: Sequence[str], io_type: ComputeIOType, partial: bool = False) -> Path:
        return Path(self._local.get_captured_local_path(log_key, IO_TYPE_EXTENSION[io_type], partial=partial))

    def cloud_storage_has_logs(self, log_key: Sequence[str], io_type: ComputeIOType, partial: bool = False) -> bool:
        return self._path(log_key, io_type, partial).exists()

    def upload_to_cloud_storage(self, log_key: Sequence[str], io_type: ComputeIOType, partial: bool = False) -> None:
        source, target = self._local_path(log_key, io_type), self._path(log_key, io_type, partial)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes() if source.exists() else b"")

    def download_from_cloud_storage(
        self, log_key: Sequence[str], io_type: ComputeIOType, partial: bool = False
    ) -> None:
        target = self._local_path(log_key, io_type, partial)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(self._path(log_key, io_type, partial).read_bytes())

    def delete_logs(self, log_key: Sequence[str] | None = None, prefix: Sequence[str] | None = None) -> None:
        self._local.delete_logs(log_key=log_key, prefix=prefix)
        if log_key:
            for io_type in ComputeIOType:
                for partial in (False, True):
                    self._path(log_key, io_type, partial).unlink(missing_ok=True)
        elif prefix:
            for path in self._folder.joinpath(*prefix).rglob("*"):
                if path.is_file():
                    path.unlink()

    def get_log_keys_for_log_key_prefix(
        self, log_key_prefix: Sequence[str], io_type: ComputeIOType
    ) -> Sequence[list[str]]:
        ending = f".{IO_TYPE_EXTENSION[io_type]}"
        folder = self._folder.joinpath(*log_key_prefix)
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
        return [[*log_key_prefix, name.removesuffix(ending)] for name in sorted(names) if name.endswith(ending)]

    def download_url_for_type(self, log_key: Sequence[str], io_type: ComputeIOType) -> str | None:
        return None

    def display_path_for_type(self, log_key: Sequence[str], io_type: ComputeIOType) -> str:
        return str(self._path(log_key, io_type))

    def on_subscribe(self, subscription: Any) -> None:
        self._subscriptions.add_subscription(subscription)

    def on_unsubscribe(self, subscription: Any) -> None:
        self._subscriptions.remove_subscription(subscription)

    def dispose(self) -> None:
        self._subscriptions.dispose()
        self._local.dispose()
