"""Classes by name: the package's own, and those other packages add by entry point."""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint
from typing import Generic, TypeVar

from persona_pipeline.base.errors import ConfigError, did_you_mean

Base = TypeVar("Base")


@lru_cache
def offered(group: str) -> dict[str, EntryPoint]:
    """Return what installed packages offer under an entry point group, by name."""
    # Looking through every installed package takes time, so only an unknown name brings us here.
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=group)}


class Registry(Generic[Base]):
    """The classes of a kind by name, each imported when it is asked for. A built-in name is nobody else's to take."""

    def __init__(
        self,
        group: str,
        base: type[Base],
        built_in: Mapping[str, str],
        *,
        what: str,
        spelled: Callable[[str], str] = str,
    ) -> None:
        """Declare a kind.

        Args:
            group: of the entry points.
            built_in: ``module:Class`` by name.
            what: what one is called where it cannot be used, such as ``judge``.
            spelled: the registered spelling of a name.
        """
        self.group, self.base, self.built_in = group, base, built_in
        self.what, self.spelled = what, spelled
        self.loaded: dict[str, type[Base]] = {}

    def find(self, name: str) -> type[Base] | None:
        """Return a class by its registered spelling, None where nobody offers it.

        Raises:
            ConfigError: it cannot be loaded, or is no subclass of the kind's base.
        """
        if name not in self.loaded:
            point = EntryPoint(name, self.built_in[name], self.group) if name in self.built_in else self._others(name)
            if point is None:
                return None
            self.loaded[name] = self._load(point)
        return self.loaded[name]

    def add(self, name: str, found: type[Base]) -> None:
        """Add a class in this process.

        Raises:
            ConfigError: the name is taken.
        """
        name = self.spelled(name)
        known = self.find(name) or found
        if known is not found:
            raise ConfigError(f"{self.what} {name!r} is taken by {known.__name__}; choose another name")
        self.loaded[name] = found

    def names(self) -> list[str]:
        """Return every name, built-in ones first."""
        others = {*self.loaded, *map(self.spelled, offered(self.group))} - self.built_in.keys()
        return [*self.built_in, *sorted(others)]

    def hint(self, name: str, also: Iterable[str] = ()) -> str:
        """Return what ends a sentence about an unknown name: the nearest one, else all."""
        known = [*also, *self.names()]
        return did_you_mean(self.spelled(name), known) or "; known: " + ", ".join(known)

    def _others(self, name: str) -> EntryPoint | None:
        return next((point for other, point in offered(self.group).items() if self.spelled(other) == name), None)

    def _load(self, point: EntryPoint) -> type[Base]:
        said = f"{self.what} {point.name!r} ({point.value})"
        try:
            found = point.load()
        except Exception as error:
            raise ConfigError(f"{said} cannot be loaded: {error}") from error
        if not (isinstance(found, type) and issubclass(found, self.base)):
            raise ConfigError(f"{said} is no subclass of {self.base.__module__}.{self.base.__qualname__}")
        return found
