"""Ending a process with everything it started."""

import contextlib
import os
import signal
import subprocess

PATIENCE = 20


def stop_group(process: "subprocess.Popen[str] | subprocess.Popen[bytes]") -> None:
    """Ask a process that leads its group to end; what is still there after 20 seconds is killed."""
    for way in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, way)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
            return
