"""Waiting for what another process or thread brings about."""

import time
from collections.abc import Callable

# Seconds that whatever comes by itself may take, on however busy a machine: it only ends what never comes.
PATIENCE = 1800.0


def wait_until(condition: Callable[[], bool], *, seconds: float = PATIENCE, pause: float = 0.2) -> None:
    """Return when a condition holds.

    Raises:
        TimeoutError: it does not in time.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"did not come true within {seconds} s")
        time.sleep(pause)
