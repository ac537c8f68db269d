"""Waiting for what another process or thread brings about."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], *, seconds: float = 480, pause: float = 0.2) -> None:
    """Return when a condition holds.

    Raises:
        TimeoutError: it does not in time.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"did not come true within {seconds} s")
        time.sleep(pause)
