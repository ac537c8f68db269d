"""Importers by name: the built-in ones, and those other packages add by entry point ``persona_pipeline.importers``."""

from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import EntryPoint

from persona_pipeline.entry_points import load_class, offered
from persona_pipeline.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.importing.base import Importer, Source
from persona_pipeline.importing.own import OwnMessages

ENTRY_POINTS = "persona_pipeline.importers"
_HERE = "persona_pipeline.importing"
# Known without the metadata of an installed package, and nobody else's to name.
BUILT_IN = {
    "messages": f"{_HERE}.own:OwnMessages",
    "openai": f"{_HERE}.openai:OpenAIChats",
    "slack": f"{_HERE}.slack:SlackExport",
    "langfuse": f"{_HERE}.langfuse:LangfuseExport",
    "langsmith": f"{_HERE}.langsmith:LangSmithExport",
    "sillytavern": f"{_HERE}.sillytavern:SillyTavernChats",
}


@lru_cache
def find_importer(name: str) -> type[Importer]:
    """Return the importer of a format.

    Raises:
        ConfigError: nobody offers one of that name, or it cannot be loaded.
    """
    point = EntryPoint(name, BUILT_IN[name], ENTRY_POINTS) if name in BUILT_IN else offered(ENTRY_POINTS).get(name)
    if point is None:
        known = format_names()
        hint = did_you_mean(name, known) or "; the formats are " + ", ".join(known)
        raise ConfigError(f"--format {name}: unknown format{hint}")
    return load_class(point, Importer, "importer")


def format_names() -> list[str]:
    """Return what ``--format`` takes: the built-in formats, then others'."""
    return [*BUILT_IN, *sorted(offered(ENTRY_POINTS).keys() - BUILT_IN.keys())]


def importer_of(source: Source, name: str | None = None, *, mapped: bool = False) -> Importer:
    """Return the importer of a source, by the name of its format, or by a look at it.

    Args:
        mapped: keys of its lines are mapped to those of messages.

    Raises:
        ConfigError: no format of that name, or it is not clear which one this is.
    """
    if name is not None:
        return _made(name)
    if not source.path.exists():
        raise ConfigError(Problem("does not exist; check the path", source.name))
    fitting = [importer for each in format_names() if (importer := _made(each)).recognises(source)]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting and OwnMessages().may_be(source, mapped=mapped):
        return OwnMessages()
    raise ConfigError(Problem(_unclear([importer.name for importer in fitting]), source.name))


def _made(name: str) -> Importer:
    made: type = find_importer(name)
    return made()


def _unclear(fitting: Sequence[str]) -> str:
    if fitting:
        return f"could be {' or '.join(fitting)}; say which with --format"
    return (
        f"is of no format that is known by its look; say which with --format ({', '.join(format_names())}), "
        "or which of its keys are a message's with --map KEY=FIELD"
    )
