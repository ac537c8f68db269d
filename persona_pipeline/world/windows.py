"""Which entries of a trajectory are shown, and how a window of time is written."""

import re
from datetime import timedelta

from persona_pipeline.errors import ConfigError

_WINDOW = re.compile(r"([0-9]{1,6})([hd])")
_HOURS = {"h": 1, "d": 24}


def window_indices(length: int, first_n: int, last_n: int) -> list[int]:
    """Return the indexes of the first ``first_n`` and the last ``last_n`` of ``length`` entries, each once, ascending.

    Raises:
        ValueError: an argument is negative.
    """
    if min(length, first_n, last_n) < 0:
        raise ValueError("length, first_n and last_n must not be negative")
    if first_n + last_n >= length:
        return list(range(length))
    return [*range(first_n), *range(length - last_n, length)]


def parse_window(text: str) -> timedelta:
    """Return the length of a window such as ``12h`` or ``7d``: whole hours or days.

    Raises:
        ConfigError: the text is no such window.
    """
    match = _WINDOW.fullmatch(text)
    if not match:
        raise ConfigError(f"window {text!r} is not a length of time; write whole hours or days such as 12h or 7d")
    return timedelta(hours=int(match[1]) * _HOURS[match[2]])
