"""Each name of Dagster that is no public one, by name: a release that moves one fails here first."""

import ast
import importlib
import inspect
from collections.abc import Iterator

import dagster as dg
import pytest
from dagster._core.definitions import data_version
from dagster._core.definitions.partitions.utils import get_tags_from_multi_partition_key
from dagster._core.storage import tags
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
    (dg.DagsterInstance, "report_dagster_event", ["dagster_event", "run_id"]),
]
ATTRIBUTES = [
    (dg.DagsterInstance, "event_log_storage"),
    (dg.DagsterInstance, "compute_log_manager"),
    (dg.DagsterEvent, "asset_check_evaluation_data"),
    (dg.DagsterEvent, "step_failure_data"),
    (dg.DagsterEvent, "event_specific_data"),
]
# How Dagster calls what is written out here.
TAGS = {
    "CODE_VERSION": data_version.CODE_VERSION_TAG,
    "DATA_VERSION": data_version.DATA_VERSION_TAG,
    "VERSION_IS_OURS": data_version.DATA_VERSION_IS_USER_PROVIDED_TAG,
    "INPUT_VERSION": data_version.INPUT_DATA_VERSION_TAG_PREFIX,
    "INPUT_EVENT": data_version.INPUT_EVENT_POINTER_TAG_PREFIX,
    "NO_VERSION": data_version.DEFAULT_DATA_VERSION.value,
    "NO_EVENT": data_version.NULL_EVENT_POINTER,
    "PARTITION": tags.PARTITION_NAME_TAG,
    "RANGE": (tags.ASSET_PARTITION_RANGE_START_TAG, tags.ASSET_PARTITION_RANGE_END_TAG),
}


def imported() -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(SOURCE)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("dagster._"):
            yield from ((node.module, alias.name) for alias in node.names)


def test_they_are_few() -> None:
    assert len({*imported()}) <= 5


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
def test_stored_events_are_read_by_the_tag_they_were_written_with(name: str, value: object) -> None:
    assert getattr(dagster_internals, name) == value


def test_a_partition_of_two_dimensions_is_tagged_as_dagster_does() -> None:
    key = dg.MultiPartitionKey({"agent": "pam", "week": "2026-06-01"})
    assert dagster_internals.partition_tags(key) == get_tags_from_multi_partition_key(key)
