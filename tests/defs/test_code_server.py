"""Whose runs a code server ends when it starts: those of the one before it at its address, once that is gone."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.tags import AUTO_RETRY_RUN_ID_TAG
from dagster._daemon.auto_run_reexecution.auto_run_reexecution import should_retry

from persona_pipeline.base.database.engine import Store, default_url, exclusive, is_held, open_store
from persona_pipeline.base.settings import Settings
from persona_pipeline.defs.platform import code_server
from persona_pipeline.defs.platform.code_server import Address, runs_under_way, take_over
from persona_pipeline.defs.platform.dagster_internals import LAUNCHED_BY, fail_run
from tests.support.waiting import wait_until

STARTED, FAILED, DONE = dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS


@dg.job
def nothing() -> None: ...


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("PERSONA_DATABASE_URL", f"sqlite:///{tmp_path}/store.db")
    return open_store(default_url(Settings()))


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    # In files: two threads write, and a database in memory does not wait for a lock.
    with dg.DagsterInstance.local_temp(str(tmp_path)) as opened:
        yield opened


@pytest.fixture
def port() -> Iterator[int]:
    """A port that answers, as that of a code server does which has started."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def launched(instance: dg.DagsterInstance, host: str, port: int, status: dg.DagsterRunStatus = STARTED) -> str:
    tags = {LAUNCHED_BY: json.dumps({"host": host, "port": port})}
    return instance.create_run_for_job(nothing, tags=tags, status=status).run_id


def status(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRunStatus:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run.status


@contextmanager
def serving(instance: dg.DagsterInstance, address: Address) -> Iterator[None]:
    done = threading.Event()
    before = runs_under_way(instance, address)
    thread = threading.Thread(target=take_over, args=(instance, address, before, done))
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize(
    ("known_as", "lost"),
    [("code", ["own"]), ("code-two", ["other host"]), (None, ["own", "other host"])],
    ids=["its own host's", "the other's", "any host's, where it knows none"],
)
def test_runs_of_others_are_left_alone(
    instance: dg.DagsterInstance, port: int, known_as: str | None, lost: list[str]
) -> None:
    runs = {
        "own": launched(instance, "code", port),
        "own, over": launched(instance, "code", port, DONE),
        "other host": launched(instance, "code-two", port),
        "other port": launched(instance, "code", port + 1),
        "nobody's": instance.create_run_for_job(nothing, status=STARTED).run_id,
    }
    with serving(instance, Address(known_as, port)):
        wait_until(lambda: all(status(instance, runs[name]) is FAILED for name in lost))
        assert [name for name, run_id in runs.items() if status(instance, run_id) is FAILED] == lost
        assert status(instance, runs["own, over"]) is DONE


def test_runs_of_one_that_is_still_waiting_for_them_are_left_alone_until_it_is_gone(
    instance: dg.DagsterInstance, port: int, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, gone, told = Address("code", port), threading.Event(), []

    def tell(instance: dg.DagsterInstance, run: dg.DagsterRun, why: str) -> None:
        told.append((run.run_id, gone.is_set()))
        fail_run(instance, run, why)

    monkeypatch.setattr(code_server, "fail_run", tell)
    ends, killed = launched(instance, "code", port), launched(instance, "code", port)
    with ExitStack() as earlier:
        earlier.enter_context(exclusive(store, [f"code server {address}"]))
        with serving(instance, address):
            instance.report_dagster_event(
                dg.DagsterEvent(event_type_value=dg.DagsterEventType.RUN_SUCCESS.value, job_name="nothing"), ends
            )
            gone.set()
            earlier.close()
            wait_until(lambda: status(instance, killed) is FAILED)
    assert told == [(killed, True)]


@pytest.mark.parametrize("retried", [False, True])
def test_a_lost_run_that_nobody_started_again_is_told_of_once_more(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch, retried: bool
) -> None:
    monkeypatch.setattr(code_server, "_AGAIN_SECONDS", 0.2)
    overrides = {"run_retries": {"enabled": True, "max_retries": 1}}
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides) as instance:
        told = lambda: len(instance.get_records_for_run(lost, of_type=dg.DagsterEventType.RUN_FAILURE).records)  # noqa: E731
        lost = launched(instance, "code", port)
        # What the daemon that looks before the status is written makes of it.
        [record] = instance.get_run_records(dg.RunsFilter(run_ids=[lost]))
        assert not should_retry(record.dagster_run, instance)
        if retried:
            instance.add_run_tags(lost, {AUTO_RETRY_RUN_ID_TAG: "another"})
        with serving(instance, Address("code", port)):
            wait_until(lambda: told() > 0)
            if retried:
                time.sleep(0.6)
            else:
                wait_until(lambda: told() == 2)
        assert told() == (1 if retried else 2)
        [record] = instance.get_run_records(dg.RunsFilter(run_ids=[lost]))
        assert should_retry(record.dagster_run, instance)


def test_the_address_is_held_until_the_server_is_gone(instance: dg.DagsterInstance, port: int, store: Store) -> None:
    address = Address("code", port)
    with serving(instance, address):
        wait_until(lambda: is_held(store, f"code server {address}"))
    assert not is_held(store, f"code server {address}")
