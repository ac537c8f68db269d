"""Regular expressions of the suite format: those of Python's ``regex`` package, with a limit of time.

``$`` matches at the very end only, as in JavaScript; Python's also matches before a last line break.
"""

from functools import lru_cache
from typing import Any

import regex

from persona_pipeline.suites.format.problems import ReasonedError

MAX_PATTERN = 10_000
# A pattern of a few letters can take years for a few letters of text.
MOST_SECONDS = 2.0
_END = regex.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<end>\$)", regex.DOTALL)


class PatternError(ValueError):
    """The pattern cannot be used; the message says why and what to write instead."""


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> Any:
    """Return a compiled pattern. Raises ``PatternError``: it is too long, or not a regular expression."""
    if len(pattern) > MAX_PATTERN:
        raise PatternError(f"the pattern is longer than {MAX_PATTERN:,} characters; shorten it")
    try:
        return regex.compile(_END.sub(lambda match: r"\Z" if match["end"] else match[0], pattern))
    except (regex.error, ValueError, OverflowError, RecursionError) as error:
        said = f"is not a valid regular expression ({error})"
        raise PatternError(f"{said}; escape characters meant literally with a backslash") from error


def search(pattern: str, text: str) -> bool:
    """Return whether a pattern matches anywhere in a text.

    Raises:
        PatternError: the pattern cannot be used.
        ReasonedError: the search takes longer than ``MOST_SECONDS``.
    """
    try:
        return compile_pattern(pattern).search(text, timeout=MOST_SECONDS, concurrent=True) is not None
    except TimeoutError:
        said = (
            f"the search for {pattern[:100]!r} takes more than {MOST_SECONDS:g} s; avoid a repetition in a repetition"
        )
        raise ReasonedError("pattern_too_slow", said) from None
