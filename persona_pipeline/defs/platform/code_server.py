"""A code server whose runs outlive a stop: ``python -m persona_pipeline.defs.platform.code_server --host 0.0.0.0 --port 4000``.

A run is a child of the code server that launched it. Dagster's own, when it is stopped, waits half a minute for its runs and then
goes; in a container they go with it. This one waits until they are done, as long as whoever stops it lets it. One that was killed,
with its machine or for its memory, left nobody to say that its runs are gone: they would count as running for hours and hold back
what waits for them. So the next one at the same address says it, and the daemon starts them again: they do what was not done yet.

Any number run side by side, one a world, each at an address of its own. Where a new one takes the address of one that is still
waiting for its runs, it leaves those alone until the other is gone: the one that is there holds a lock of the store.
"""

import argparse
import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import dagster as dg

from persona_pipeline.base.database.engine import default_url, exclusive, open_store
from persona_pipeline.base.settings import get_settings
from persona_pipeline.defs.platform.dagster_internals import LAUNCHED_BY, fail_run, run_code_server, waits_for_retry

_UNDER_WAY = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
_LOOK_SECONDS, _GIVE_BACK_SECONDS, _NOTICED_SECONDS = 1.0, 5.0, 10.0
# The daemon looks every five seconds.
_AGAIN_SECONDS = 60.0
_GONE = "The code server that executed this run is gone, and the run with it."


@dataclass(frozen=True)
class Address:
    """Where webserver and daemon find a code server. ``host`` None: whatever they call it, the port tells it apart."""

    host: str | None
    port: int

    def launched(self, run: dg.DagsterRun) -> bool:
        """Return whether the code server of this address executes a run, or did until it was killed."""
        by = json.loads(run.tags.get(LAUNCHED_BY, "{}"))
        return by.get("port") == self.port and self.host in (None, by["host"])

    def __str__(self) -> str:
        return f"{self.host or ''}:{self.port}"


def runs_under_way(instance: dg.DagsterInstance, address: Address) -> list[dg.DagsterRun]:
    """Return the runs that the code server of an address executes, or did until it was killed."""
    runs = instance.get_runs(dg.RunsFilter(statuses=_UNDER_WAY))
    return [run for run in runs if address.launched(run)]


def serve(host: str, address: Address, module: str = "persona_pipeline.definitions") -> None:
    """Run Dagster's code server on an interface until it is stopped and its runs are done.

    ``address``: as the workspace file has it; ``module``: the definitions.
    """
    # Dagster takes a SIGTERM for a SIGINT, which a shell lets programs ignore that it starts in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    done = threading.Event()
    with dg.DagsterInstance.get() as instance:
        before = runs_under_way(instance, address)
        telling = threading.Thread(target=take_over, args=(instance, address, before, done), daemon=True)
        telling.start()
        try:
            with suppress(subprocess.TimeoutExpired):
                # That is how it says that its patience is over. Its runs go on: they are children of a process of their own.
                arguments = ["--host", host, "--port", str(address.port)]
                run_code_server([*arguments, "--module-name", module])
            own = runs_under_way(instance, address)
            while _still(instance, own):
                time.sleep(_LOOK_SECONDS)
        finally:
            done.set()
            # Where it waits for an earlier one there is nothing to give back.
            telling.join(_GIVE_BACK_SECONDS)


def take_over(
    instance: dg.DagsterInstance, address: Address, before: Sequence[dg.DagsterRun], done: threading.Event
) -> None:
    """Mark the runs that an earlier code server of this address left behind, and hold the address until ``done``.

    ``before``: what was under way when this one came; where the earlier one is alive, it is waited for first.
    """
    # The daemon tries once to start a lost run again. It must have noticed by then that this code server answers.
    while not _accepts(address.port):
        if done.wait(_LOOK_SECONDS):
            return
    if before and done.wait(_NOTICED_SECONDS):
        return
    with exclusive(open_store(default_url(get_settings())), [f"code server {address}"]):
        lost = _still(instance, before)
        for run in lost:
            fail_run(instance, run, _GONE)
        if lost and not done.wait(_AGAIN_SECONDS):
            # Dagster writes the event before the run's status: a daemon that looks in between passes the run over for good.
            for run in lost:
                if waits_for_retry(instance, run.run_id):
                    fail_run(instance, run, _GONE)
        done.wait()


def _still(instance: dg.DagsterInstance, runs: Sequence[dg.DagsterRun]) -> list[dg.DagsterRun]:
    if not runs:
        return []
    return list(instance.get_runs(dg.RunsFilter(run_ids=[run.run_id for run in runs], statuses=_UNDER_WAY)))


def _accepts(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--known-as", metavar="HOST", help="the host that the workspace file has for it; without: any")
    parser.add_argument("--module-name", default="persona_pipeline.definitions", help="definitions of your own")
    options = parser.parse_args()
    serve(options.host, Address(options.known_as, options.port), options.module_name)
