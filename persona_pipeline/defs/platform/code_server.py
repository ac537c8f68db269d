"""A code server whose runs outlive a stop: ``python -m persona_pipeline.defs.platform.code_server --host 0.0.0.0 --port 4000``.

A run is a child of the code server that launched it. Dagster's own, when it is stopped, waits half a minute for its runs and then
goes; in a container they go with it. This one waits until they are done, as long as whoever stops it lets it. One that was killed,
with its machine or for its memory, left nobody to say that its runs are gone: they would count as running for hours and hold back
what waits for them. So the next one says it, and the daemon starts them again: they do what was not done yet. Only for
deployments with one code server at a time, as Compose has.
"""

import argparse
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import dagster as dg

from persona_pipeline.defs.platform.dagster_internals import LAUNCHED_BY, fail_run, run_code_server

_UNDER_WAY = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
_LOOK_SECONDS = 1.0


def runs_under_way(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """Return the runs that code servers execute, or did until they were killed."""
    return [run for run in instance.get_runs(dg.RunsFilter(statuses=_UNDER_WAY)) if LAUNCHED_BY in run.tags]


def serve(host: str, port: int) -> None:
    """Run Dagster's code server until it is stopped and its runs are done."""
    # Dagster takes a SIGTERM for a SIGINT, which a shell lets programs ignore that it starts in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with dg.DagsterInstance.get() as instance:
        telling = threading.Thread(target=_tell, args=(instance, runs_under_way(instance), port), daemon=True)
        telling.start()
        with suppress(subprocess.TimeoutExpired):
            # That is how it says that its patience is over. Its runs go on: they are children of a process of their own.
            run_code_server(["--host", host, "--port", str(port), "--module-name", "persona_pipeline.definitions"])
        while runs_under_way(instance):
            time.sleep(_LOOK_SECONDS)


def _tell(instance: dg.DagsterInstance, lost: Sequence[dg.DagsterRun], port: int) -> None:
    """Mark runs as lost once the code server answers: the daemon asks it how to start them again, and asks once."""
    while not _accepts(port):
        time.sleep(_LOOK_SECONDS)
    for run in lost:
        fail_run(instance, run, "The code server that executed this run is gone, and the run with it.")


def _accepts(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    serve(options.host, options.port)
