"""Asking a target, again where a failure can pass."""

import dataclasses
import random
import time

from persona_pipeline.suites.targets.base import Request, TargetError
from persona_pipeline.suites.targets.fields import TargetFields
from persona_pipeline.suites.targets.output import Output

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0


def ask(
    target: TargetFields, request: Request, *, most_retries: int, deadline: float | None = None
) -> tuple[Output, int]:
    """Return a target's answer and how many tries failed before it.

    Args:
        request: its timeout is that of each try.
        deadline: when the first try ends at the latest, on the monotonic clock; None: by its timeout.

    Raises:
        TargetError: there is no answer.
    """
    for retry in range(most_retries + 1):
        # A retry has the whole time again: what can pass is a timeout, and it would have none left.
        left = request.timeout if deadline is None or retry else deadline - time.monotonic()
        try:
            return target.respond(dataclasses.replace(request, timeout=max(0.001, left))), retry
        except TargetError as problem:
            if not problem.transient or retry == most_retries:
                raise
            time.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**retry) * random.uniform(0.5, 1.0))
    raise AssertionError("unreachable")
