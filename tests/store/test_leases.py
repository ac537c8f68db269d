"""Locks over threads, processes and databases: one holder at a time, and free when the holder is gone."""

import subprocess
import threading
import time

import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import engine
from persona_pipeline.base.database.engine import Store, exclusive, is_held, open_store
from tests.support.forking import forked_python
from tests.support.waiting import PATIENCE, wait_until

HOLD = """
import sys
from persona_pipeline.base.database.engine import exclusive, open_store
with exclusive(open_store(sys.argv[1]), ["ann"]):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_two_who_want_the_same_take_turns(store: Store) -> None:
    inside, most = 0, 0
    counting = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(3):
            with exclusive(store, ["ann", "bob"]):
                with counting:
                    inside += 1
                    most = max(most, inside)
                time.sleep(0.01)
                with counting:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert not is_held(store, "ann")


def test_those_who_want_different_things_do_not_wait(store: Store) -> None:
    with exclusive(store, ["ann"]), exclusive(store, ["bob"]):
        assert is_held(store, "ann") and is_held(store, "bob")
        assert not is_held(store, "eve")


def test_very_many_are_held_at_once(store: Store) -> None:
    with exclusive(store, [f"agent{number}" for number in range(500)]):
        assert is_held(store, "agent7")
    # Postgres frees them once it has noticed that the connection is closed.
    wait_until(lambda: not is_held(store, "agent7"))


def test_an_error_inside_gives_the_locks_back(store: Store) -> None:
    with pytest.raises(ValueError, match="broken"), exclusive(store, ["ann"]):
        raise ValueError("broken")
    wait_until(lambda: not is_held(store, "ann"))


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "done"])
def test_a_process_that_was_killed_is_not_waited_for(store: Store, killed: bool) -> None:
    url = store.engine.url.render_as_string(hide_password=False)
    command = [forked_python(), "-W", "ignore", "-c", HOLD, url]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    assert is_held(store, "ann")
    if killed:
        process.kill()
    else:
        process.communicate("done\n", timeout=PATIENCE)
    with exclusive(store, ["ann"]):
        process.wait(PATIENCE)


def test_who_waits_long_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engine, "_SAID_AFTER", 0.01)
    done = threading.Event()

    def work() -> None:
        with exclusive(store, ["ann"]):
            done.set()

    with exclusive(store, ["ann"]):
        thread = threading.Thread(target=work)
        thread.start()
        wait_until(lambda: "waiting until ann is free" in caplog.text)
        assert not done.is_set()
    thread.join()


@pytest.mark.xdist_group("postgres")
def test_what_went_wrong_inside_is_the_news_where_the_server_went_too(
    postgres_url: str,
) -> None:
    store, other = open_store(postgres_url), open_store(postgres_url)
    holders = sa.text("SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory'")
    with pytest.raises(KeyError, match="inside"), exclusive(store, ["ann"]):
        assert other.value(holders)
        raise KeyError("inside")
    with exclusive(store, ["ann"]):
        assert is_held(other, "ann")
    for each in (store, other):
        each.close()
