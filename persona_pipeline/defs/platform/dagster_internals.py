"""What of Dagster is no public name: one class, and the spelling of tags. A test fails by name when a release changes one."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import sqlalchemy as sa
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData

# An event says with this tag which version it is of, and a run with this one which partition it is about.
DATA_VERSION, PARTITION = "dagster/data_version", "dagster/partition"
# Or with these two, which partitions, the first and the last.
RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
# That the version is the project's own, of which code it is, and which version and event of another asset it rests on.
VERSION_IS_OURS, CODE_VERSION = "dagster/data_version_is_user_provided", "dagster/code_version"
INPUT_VERSION, INPUT_EVENT = "dagster/input_data_version", "dagster/input_event_pointer"
NO_VERSION, NO_EVENT = "INITIAL", "NULL"
# A run that a code server executes as its child has the first tag, one that is to be started again the second, and the third
# once it was.
LAUNCHED_BY, WILL_RETRY, RETRIED_BY = ".dagster/grpc_info", "dagster/will_retry", "dagster/auto_retry_run_id"

OBSERVED, MATERIALIZED = dg.DagsterEventType.ASSET_OBSERVATION, dg.DagsterEventType.ASSET_MATERIALIZATION
PLANNED = dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED


def partition_tags(key: dg.MultiPartitionKey) -> dict[str, str]:
    """Return what an event carries that is about a partition of several dimensions: by it Dagster reads its key."""
    return {f"{PARTITION}/{name}": part for name, part in key.keys_by_dimension.items()}


def lineage_tags(
    version: str, code_version: str | None, inputs: Mapping[dg.AssetKey, tuple[str | None, int | None]]
) -> dict[str, str]:
    """Return what a step's materialization carries, from which Dagster tells what is out of date.

    An op that materializes for many agents has to write it itself: there is no other way to say what an event rests on.
    ``code_version``: None: the asset has none. ``inputs``: version and event of each dependency, None: never recorded.
    """
    tags = {
        DATA_VERSION: version,
        VERSION_IS_OURS: "true",
        # What Dagster notes for an asset without a version of its code.
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


def input_versions(instance: dg.DagsterInstance, key: dg.AssetKey, partition: str) -> dict[dg.AssetKey, str]:
    """Return by asset the version that the newest materialization of a partition rests on."""
    asked = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition])
    prefix = f"{INPUT_VERSION}/"
    for record in instance.fetch_materializations(asked, limit=1).records:
        tags = (record.asset_materialization.tags if record.asset_materialization else None) or {}
        named = {name.removeprefix(prefix): text for name, text in tags.items() if name.startswith(prefix)}
        return {dg.AssetKey.from_user_string(name): text for name, text in named.items()}
    return {}


def newest_materialization(
    instance: dg.DagsterInstance, key: dg.AssetKey
) -> AssetCheckEvaluationTargetMaterializationData | None:
    """Return what a check is about that an asset was materialized last, whatever the partition; None: it never was."""
    for record in instance.fetch_materializations(key, limit=1).records:
        return AssetCheckEvaluationTargetMaterializationData(
            run_id=record.run_id, storage_id=record.storage_id, timestamp=record.timestamp
        )
    return None


def upstream_asset(context: dg.AssetExecutionContext, key: dg.AssetKey) -> Any:
    """Return an asset that a step reads; in a run in one's own process there is no public ``repository_def`` that knows it."""
    return context.job_def.asset_layer.get(key)


def upstream_values(context: dg.AssetExecutionContext, key: dg.AssetKey) -> dg.AssetValueLoader:
    """Return what loads the values of an asset that a step reads by its own IO manager, a partition at a time."""
    asset = upstream_asset(context, key).assets_def
    if not asset.resource_defs:
        # One that is made elsewhere has no resources of its own: the project's default loads it, as it would an input.
        [asset] = dg.with_resources([asset], {"io_manager": context.job_def.resource_defs["io_manager"]})
    return dg.AssetValueLoader({key: asset}, context.instance)


def events_of_run(instance: dg.DagsterInstance, run_id: str, kind: dg.DagsterEventType) -> list[dg.DagsterEvent]:
    """Return what happened in a run, oldest first: public methods ask by asset only."""
    records = instance.get_records_for_run(run_id, of_type=kind).records
    return [record.event_log_entry.get_dagster_event() for record in records]


def fail_run(instance: dg.DagsterInstance, run: dg.DagsterRun, why: str) -> None:
    """End a run that is under way as failed, as Dagster's monitoring does with a run whose process is gone."""
    instance.report_run_failed(run, why)


def waits_for_retry(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Return whether a run is to be started again and was not yet."""
    run = instance.get_run_by_id(run_id)
    return run is not None and run.tags.get(WILL_RETRY) == "true" and RETRIED_BY not in run.tags


def run_code_server(arguments: Sequence[str]) -> None:
    """Run ``dagster code-server start`` in this process until a signal stops it."""
    from dagster._cli.code_server import start_command

    start_command.main(list(arguments), standalone_mode=False)


def delete_run(instance: dg.DagsterInstance, run_id: str) -> None:
    """Delete a run with its output, and on SQLite the file of its events if it has one, which Dagster empties and leaves behind."""
    path_of = getattr(instance.event_log_storage, "path_for_shard", None)
    own = Path(path_of(run_id)) if path_of else None
    instance.delete_run(run_id)
    if own and own.stem == run_id:
        for ending in ("", "-wal", "-shm"):
            Path(f"{own}{ending}").unlink(missing_ok=True)
    instance.compute_log_manager.delete_logs(prefix=[run_id])


def forget_reported(instance: dg.DagsterInstance, keys: Iterable[dg.AssetKey], before: datetime) -> int:
    """Delete what sensors reported of assets before a time, but the newest of each partition, and return how many there were.

    No run holds them, so none takes them along when it is deleted.
    """
    log, tags = (sa.table(name, *map(sa.column, columns)) for name, columns in _TABLES.items())
    kinds = log.c.dagster_event_type.in_([OBSERVED.value, MATERIALIZED.value])
    about = kinds & log.c.asset_key.in_([key.to_string() for key in keys])
    newest = sa.select(sa.func.max(log.c.id)).where(about).group_by(log.c.asset_key, log.c.partition)
    old = about & (log.c.run_id == "") & (log.c.timestamp < before.astimezone(UTC).replace(tzinfo=None))
    superseded = sa.select(log.c.id).where(old, log.c.id.not_in(newest))
    storage: Any = instance.event_log_storage
    with storage.index_connection() as connection:
        numbers = list(connection.execute(superseded).scalars())
        for start in range(0, len(numbers), _AT_ONCE):
            part = numbers[start : start + _AT_ONCE]
            connection.execute(tags.delete().where(tags.c.event_id.in_(part)))
            connection.execute(log.delete().where(log.c.id.in_(part)))
    return len(numbers)


_AT_ONCE = 1000
_TABLES = {
    "event_logs": ("id", "run_id", "dagster_event_type", "timestamp", "asset_key", "partition"),
    "asset_event_tags": ("event_id",),
}


def celery_application(broker: str, backend: str, lost_seconds: int) -> tuple[Any, Any]:
    """Return the application of a Celery worker and its task, which the command ``dagster-celery`` lets nobody configure."""
    from dagster_celery.config import DEFAULT_CONFIG, dict_wrapper
    from dagster_celery.make_app import make_app
    from dagster_celery.tasks import create_task

    transport = {**DEFAULT_CONFIG["broker_transport_options"], "visibility_timeout": lost_seconds}
    config = {**DEFAULT_CONFIG, "broker_transport_options": transport, "broker_connection_retry_on_startup": True}
    app = make_app({"broker": broker, "backend": backend, "config_source": dict_wrapper(config)})
    # A step may be executed twice: it writes the same rows, and judgments already paid for are in the store. So it leaves the
    # queue when it is done, not when it begins, and goes back when its process was killed.
    return app, create_task(app, acks_late=True, reject_on_worker_lost=True)
