"""Names that Dagster does not publish: classes, and tags. A test fails when a release changes one."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from dagster._core.errors import DagsterUserCodeProcessError
from dagster._core.storage.local_compute_log_manager import LocalComputeLogManager
from dagster._core.storage.sqlite_storage import DagsterSqliteStorage
from dagster_shared.error import SerializableErrorInfo

from persona_pipeline.base.database.engine import chunks

# An event says with this tag which version it is of, and a run with this one which partition it is about.
DATA_VERSION, PARTITION = "dagster/data_version", "dagster/partition"
# Or with these two, which partitions, the first and the last.
RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
# The version comes from the project; the code version; the version and the event of an input.
VERSION_IS_OURS, CODE_VERSION = "dagster/data_version_is_user_provided", "dagster/code_version"
INPUT_VERSION, INPUT_EVENT = "dagster/input_data_version", "dagster/input_event_pointer"
NO_VERSION, NO_EVENT = "INITIAL", "NULL"

MATERIALIZED = dg.DagsterEventType.ASSET_MATERIALIZATION
PLANNED = dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED


class PlainError(DagsterUserCodeProcessError, dg.Failure):
    """A failure that Dagster shows by its text alone: its stack trace, which says nothing of bad input, is left out."""

    def __init__(self, failure: dg.Failure) -> None:
        text = failure.description or ""
        said = {"metadata": failure.metadata, "allow_retries": failure.allow_retries}
        shown = SerializableErrorInfo(message=f"{text}\n", stack=[], cls_name=None)
        super().__init__(text, user_code_process_error_infos=[shown], **said)


def partition_tags(key: dg.MultiPartitionKey) -> dict[str, str]:
    """Return the tags of an event about a multi-dimensional partition; Dagster reads its key from them."""
    return {f"{PARTITION}/{name}": part for name, part in key.keys_by_dimension.items()}


def lineage_tags(
    version: str, code_version: str | None, inputs: Mapping[dg.AssetKey, tuple[str | None, int | None]]
) -> dict[str, str]:
    """Return the tags of a materialization from which Dagster finds out-of-date assets.

    A step that materializes for many agents has to write them: Dagster offers no other way. ``code_version`` None: the asset has
    none. ``inputs``: version and event of each dependency, None: never recorded.
    """
    tags = {
        DATA_VERSION: version,
        VERSION_IS_OURS: "true",
        # Dagster writes this for an asset without a code version.
        CODE_VERSION: code_version or "0",
    }
    for key, (seen, event) in inputs.items():
        tags[f"{INPUT_VERSION}/{key.to_user_string()}"] = seen or NO_VERSION
        tags[f"{INPUT_EVENT}/{key.to_user_string()}"] = NO_EVENT if event is None else str(event)
    return tags


def newest_events(
    instance: dg.DagsterInstance,
    key: dg.AssetKey,
    kind: dg.DagsterEventType,
    partitions: set[str] | None = None,
) -> dict[str, int]:
    """Return the newest event of each partition: one query, where the public way is one a partition."""
    return dict(instance.event_log_storage.get_latest_storage_id_by_partition(key, kind, partitions))


def newest_versions(
    instance: dg.DagsterInstance, key: dg.AssetKey, kind: dg.DagsterEventType, partitions: Sequence[str] | None = None
) -> dict[str, str]:
    """Return the newest data version of each partition, in one query likewise."""
    storage = instance.event_log_storage
    found = storage.get_latest_tags_by_partition(key, kind, [DATA_VERSION], partitions)
    return {partition: tags[DATA_VERSION] for partition, tags in found.items()}


def input_versions(
    instance: dg.DagsterInstance, key: dg.AssetKey, events: Mapping[str, int], inputs: Sequence[dg.AssetKey]
) -> dict[str, dict[dg.AssetKey, str | None]]:
    """Return by partition the versions of inputs that its materialization rests on; ``events``: the materializations."""
    found: dict[str, dict[dg.AssetKey, str | None]] = {}
    for some in chunks(list(events)):
        asked = dg.AssetRecordsFilter(asset_key=key, storage_ids=[events[name] for name in some])
        for record in instance.fetch_materializations(asked, limit=len(some)).records:
            tags = (record.asset_materialization.tags if record.asset_materialization else None) or {}
            versions = {item: tags.get(f"{INPUT_VERSION}/{item.to_user_string()}") for item in inputs}
            found[record.partition_key or ""] = versions
    return found


def newest_materialization(
    instance: dg.DagsterInstance, key: dg.AssetKey
) -> AssetCheckEvaluationTargetMaterializationData | None:
    """Return a check's target: the asset's latest materialization in any partition; None: never materialized."""
    for record in instance.fetch_materializations(key, limit=1).records:
        return AssetCheckEvaluationTargetMaterializationData(
            run_id=record.run_id, storage_id=record.storage_id, timestamp=record.timestamp
        )
    return None


def upstream_asset(context: dg.AssetExecutionContext, key: dg.AssetKey) -> Any:
    """Return an asset that a step reads; ``execute_in_process`` has no public ``repository_def`` with it."""
    return context.job_def.asset_layer.get(key)


def upstream_values(context: dg.AssetExecutionContext, key: dg.AssetKey) -> dg.AssetValueLoader:
    """Return a loader for an asset that a step reads. It uses the asset's own IO manager, one partition at a time."""
    asset = upstream_asset(context, key).assets_def
    if not asset.resource_defs:
        # An asset of another code location has no resources: the project's default IO manager loads it, as an input.
        [asset] = dg.with_resources([asset], {"io_manager": context.job_def.resource_defs["io_manager"]})
    return dg.AssetValueLoader({key: asset}, context.instance)


def events_of_run(instance: dg.DagsterInstance, run_id: str, kind: dg.DagsterEventType) -> list[dg.DagsterEvent]:
    """Return the events of a run, oldest first: public methods can only query by asset."""
    records = instance.get_records_for_run(run_id, of_type=kind).records
    return [record.event_log_entry.get_dagster_event() for record in records]


def delete_run(instance: dg.DagsterInstance, run_id: str) -> None:
    """Delete a run with its output, and on SQLite the file of its events if it has one, which Dagster empties and leaves behind."""
    path_of = getattr(instance.event_log_storage, "path_for_shard", None)
    own = Path(path_of(run_id)) if path_of else None
    instance.delete_run(run_id)
    if own and own.stem == run_id:
        for ending in ("", "-wal", "-shm"):
            Path(f"{own}{ending}").unlink(missing_ok=True)
    instance.compute_log_manager.delete_logs(prefix=[run_id])


def at_home(folder: str) -> str:
    """Return a folder relative to DAGSTER_HOME; to the current folder where that is not set.

    Dagster takes it from the current one: a process that was started elsewhere would see another history.
    """
    return str(Path(os.environ.get("DAGSTER_HOME", "")).expanduser().resolve() / folder)


class StorageAtHome(DagsterSqliteStorage):
    """Runs, events and schedules on SQLite in ``base_dir``, see ``at_home``."""

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Any) -> "StorageAtHome":
        return cls.from_local(at_home(config_value["base_dir"]), inst_data)


class LogsAtHome(LocalComputeLogManager):
    """What steps print, in ``base_dir``, see ``at_home``."""

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Any) -> "LogsAtHome":
        return cls(**{**config_value, "base_dir": at_home(config_value["base_dir"])}, inst_data=inst_data)
