"""Ending a process with everything it started."""

import contextlib
import os
import signal
import subprocess


def stop_group(process: "subprocess.Popen[str] | subprocess.Popen[bytes]") -> None:
    """Kill a process that leads its group, and all in it. Asked to end, Dagster starts anew what ended before it did."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
