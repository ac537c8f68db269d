"""Every name of Dagster that is no public one, each with why it is needed. A test fails by name when a release moves one."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import sqlalchemy as sa
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from dagster._core.definitions.assets.graph.asset_graph import AssetNode
from dagster._core.definitions.data_version import (
    CODE_VERSION_TAG,
    DATA_VERSION_IS_USER_PROVIDED_TAG,
    DATA_VERSION_TAG,
    DEFAULT_DATA_VERSION,
    NULL_EVENT_POINTER,
    get_input_data_version_tag,
    get_input_event_pointer_tag,
)

# What an event carries that is about a partition of two dimensions: by it Dagster reads its key.
from dagster._core.definitions.partitions.utils import get_tags_from_multi_partition_key as partition_tags
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition as AssetJob
from dagster._core.events import AssetMaterializationPlannedData
from dagster._core.storage.event_log.schema import (
    AssetEventTagsTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    AUTO_RETRY_RUN_ID_TAG,
    GRPC_INFO_TAG,
    PARTITION_NAME_TAG,
    WILL_RETRY_TAG,
)

__all__ = [
    "AssetJob",
    "partition_tags",
]

# An observation says with this tag which version it saw, and a run with this one which partition it is about.
DATA_VERSION, PARTITION = DATA_VERSION_TAG, PARTITION_NAME_TAG
# Or with these two, which partitions, the first and the last.
RANGE = (ASSET_PARTITION_RANGE_START_TAG, ASSET_PARTITION_RANGE_END_TAG)

# A run that a code server executes as its child has this tag.
LAUNCHED_BY = GRPC_INFO_TAG

OBSERVED, MATERIALIZED = dg.DagsterEventType.ASSET_OBSERVATION, dg.DagsterEventType.ASSET_MATERIALIZATION
PLANNED = dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED


def lineage_tags(
    version: str, code_version: str | None, inputs: Mapping[dg.AssetKey, tuple[str | None, int | None]]
) -> dict[str, str]:
    """Return what a step's materialization carries, from which Dagster tells what is out of date.

    An op that materializes for many agents has to write it itself: there is no other way to say what an event rests on.
    ``code_version``: None: the asset has none. ``inputs``: version and event of each dependency, None: never recorded.
    """
    tags = {
        DATA_VERSION_TAG: version,
        DATA_VERSION_IS_USER_PROVIDED_TAG: "true",
        # What Dagster notes for an asset without a version of its code.
        CODE_VERSION_TAG: code_version or "0",
    }
    for key, (seen, event) in inputs.items():
        tags[get_input_data_version_tag(key)] = seen or DEFAULT_DATA_VERSION.value
        tags[get_input_event_pointer_tag(key)] = NULL_EVENT_POINTER if event is None else str(event)
    return tags


def newest_events(
    instance: dg.DagsterInstance,
    key: dg.AssetKey,
    kind: dg.DagsterEventType,
    partitions: set[str] | None = None,
    *,
    after: int | None = None,
) -> dict[str, int]:
    """Return the newest event of each partition, of those after an event: one query, where the public way is one a partition."""
    # Older versions of Dagster that are promised cannot be told where to begin.
    newest = instance.event_log_storage.get_latest_storage_id_by_partition(key, kind, partitions)
    return {name: number for name, number in newest.items() if after is None or number > after}


def newest_versions(
    instance: dg.DagsterInstance, key: dg.AssetKey, kind: dg.DagsterEventType, partitions: Sequence[str] | None = None
) -> dict[str, str]:
    """Return the newest data version of each partition, in one query likewise."""
    storage = instance.event_log_storage
    found = storage.get_latest_tags_by_partition(key, kind, [DATA_VERSION_TAG], partitions)
    return {partition: tags[DATA_VERSION_TAG] for partition, tags in found.items()}


def newest_materialization(
    instance: dg.DagsterInstance, key: dg.AssetKey
) -> AssetCheckEvaluationTargetMaterializationData | None:
    """Return what a check is about that an asset was materialized last, whatever the partition; None: it never was."""
    for record in instance.fetch_materializations(key, limit=1).records:
        return AssetCheckEvaluationTargetMaterializationData(
            run_id=record.run_id, storage_id=record.storage_id, timestamp=record.timestamp
        )
    return None


def upstream_asset(context: dg.AssetExecutionContext, key: dg.AssetKey) -> AssetNode:
    """Return an asset that a step reads; in a run in one's own process there is no public ``repository_def`` that knows it."""
    return context.job_def.asset_layer.get(key)


def upstream_values(context: dg.AssetExecutionContext, key: dg.AssetKey) -> dg.AssetValueLoader:
    """Return what loads the values of an asset that a step reads by its own IO manager, a partition at a time."""
    asset = upstream_asset(context, key).assets_def
    if not asset.resource_defs:
        # One that is made elsewhere has no resources of its own: the project's default loads it, as it would an input.
        [asset] = dg.with_resources([asset], {"io_manager": context.job_def.resource_defs["io_manager"]})
    return dg.AssetValueLoader({key: asset}, context.instance)


def plan_materialization(instance: dg.DagsterInstance, run: dg.DagsterRun, key: dg.AssetKey, partition: str) -> None:
    """Note that a run under way means to materialize an asset. If it then fails without, the partition is red in the catalog."""
    planned = dg.DagsterEvent(
        PLANNED.value,
        run.job_name,
        event_specific_data=AssetMaterializationPlannedData(key, partition=partition),
    )
    instance.report_dagster_event(planned, run.run_id)


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
    return run is not None and run.tags.get(WILL_RETRY_TAG) == "true" and AUTO_RETRY_RUN_ID_TAG not in run.tags


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


def forget_observations(instance: dg.DagsterInstance, keys: Iterable[dg.AssetKey], before: datetime) -> int:
    """Delete what sensors observed of assets before a time, but the newest of each partition, and return how many there were.

    No run holds them, so none takes them along when it is deleted.
    """
    columns, tags = SqlEventLogStorageTable.c, AssetEventTagsTable
    observed = (columns.dagster_event_type == OBSERVED.value) & columns.asset_key.in_([key.to_string() for key in keys])
    newest = sa.select(sa.func.max(columns.id)).where(observed).group_by(columns.asset_key, columns.partition)
    superseded = observed & (columns.run_id == "") & columns.id.not_in(newest)
    query = sa.select(columns.id).where(superseded, columns.timestamp < before.astimezone(UTC).replace(tzinfo=None))
    storage: Any = instance.event_log_storage
    with storage.index_connection() as connection:
        old = list(connection.execute(query).scalars())
        for start in range(0, len(old), _AT_ONCE):
            part = old[start : start + _AT_ONCE]
            connection.execute(tags.delete().where(tags.c.event_id.in_(part)))
            connection.execute(SqlEventLogStorageTable.delete().where(columns.id.in_(part)))
    return len(old)


_AT_ONCE = 1000


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
