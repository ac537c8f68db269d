"""Each name of Dagster that is no public one, by name: a release that moves one fails here first."""

import ast
import importlib
import inspect
from collections.abc import Iterator

import dagster as dg
import pytest
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.event_log.base import EventLogStorage
from dagster_postgres import PostgresEventLogStorage

from persona_pipeline.defs.platform import dagster_internals

SOURCE = inspect.getsource(dagster_internals)

# What is called on objects Dagster hands us: (where, name, parameters we pass by position or name).
METHODS = [
    (EventLogStorage, "get_latest_storage_id_by_partition", ["asset_key", "event_type", "partitions"]),
    (EventLogStorage, "get_latest_tags_by_partition", ["asset_key", "event_type", "tag_keys", "asset_partitions"]),
    (SqliteEventLogStorage, "path_for_shard", ["run_id"]),
    (SqliteEventLogStorage, "index_connection", []),
    (PostgresEventLogStorage, "index_connection", []),
    (dg.DagsterInstance, "get_records_for_run", ["run_id", "of_type"]),
    (dg.DagsterInstance, "add_run_tags", ["run_id", "new_tags"]),
    (dg.DagsterInstance, "report_run_failed", ["dagster_run", "message"]),
]
ATTRIBUTES = [
    (dg.DagsterInstance, "event_log_storage"),
    (dg.DagsterInstance, "compute_log_manager"),
    (dg.DagsterEvent, "asset_check_evaluation_data"),
    (dg.DagsterEvent, "step_failure_data"),
    (dg.DagsterEvent, "event_specific_data"),
]
TAGS = {
    "CODE_VERSION_TAG": "dagster/code_version",
    "DATA_VERSION_IS_USER_PROVIDED_TAG": "dagster/data_version_is_user_provided",
    "DATA_VERSION_TAG": "dagster/data_version",
    "GRPC_INFO_TAG": ".dagster/grpc_info",
    "NULL_EVENT_POINTER": "NULL",
    "PARTITION_NAME_TAG": "dagster/partition",
    "ASSET_PARTITION_RANGE_START_TAG": "dagster/asset_partition_range_start",
    "ASSET_PARTITION_RANGE_END_TAG": "dagster/asset_partition_range_end",
}


def imported() -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(SOURCE)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(("dagster._", "dagster_celery")):
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("module, name", sorted(imported()))
def test_the_name_is_where_it_was(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize("owner, name, parameters", METHODS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_the_method_takes_what_it_took(owner: type, name: str, parameters: list[str]) -> None:
    known = [*inspect.signature(getattr(owner, name)).parameters]
    assert [parameter for parameter in parameters if parameter not in known] == []


@pytest.mark.parametrize("owner, name", ATTRIBUTES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_the_attribute_is_there(owner: type, name: str) -> None:
    assert hasattr(owner, name)


@pytest.mark.parametrize("name, value", TAGS.items())
def test_stored_events_are_read_by_the_tag_they_were_written_with(name: str, value: str) -> None:
    assert getattr(dagster_internals, name) == value
