"""What may be asked for by name: a name that is not known is an error, as with any function."""

from collections.abc import Mapping
from typing import Any

from persona_pipeline.errors import did_you_mean


def check_keywords(given: Mapping[str, Any], known: type) -> None:
    """Check the names of what was given against a ``TypedDict``.

    Raises:
        TypeError: one is unknown.
    """
    for name in given:
        if name not in known.__annotations__:
            raise TypeError(f"unexpected keyword argument {name!r}{did_you_mean(name, known.__annotations__)}")
