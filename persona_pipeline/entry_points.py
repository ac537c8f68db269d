"""Classes that other packages add by entry point: judges, targets, asserts and importers are found so."""

from functools import lru_cache
from importlib.metadata import EntryPoint
from typing import TypeVar

from persona_pipeline.errors import ConfigError

Base = TypeVar("Base")


@lru_cache
def offered(group: str) -> dict[str, EntryPoint]:
    """Return what installed packages offer under an entry point group, by name."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=group)}


def load_class(point: EntryPoint, base: type[Base], what: str) -> type[Base]:
    """Return the class an entry point names.

    Args:
        what: what it is called where it cannot be used, such as ``judge``.

    Raises:
        ConfigError: it cannot be loaded, or is no subclass of ``base``.
    """
    said = f"{what} {point.name!r} ({point.value})"
    try:
        found = point.load()
    except Exception as error:
        raise ConfigError(f"{said} cannot be loaded: {error}") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigError(f"{said} is no subclass of {base.__module__}.{base.__qualname__}")
    return found
