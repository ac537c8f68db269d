"""Importers by name: the built-in ones, and those other packages add by entry point ``persona_pipeline.importers``."""

from collections.abc import Sequence
from pathlib import Path

from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.importing.base import Importer, Source
from persona_pipeline.importing.own import OwnMessages
from persona_pipeline.registry import Registry

_HERE = "persona_pipeline.importing"
_ENDINGS = (".jsonl", ".json", ".csv")
IMPORTERS = Registry(
    "persona_pipeline.importers",
    Importer,
    {
        "messages": f"{_HERE}.own:OwnMessages",
        "openai": f"{_HERE}.openai:OpenAIChats",
        "slack": f"{_HERE}.slack:SlackExport",
        "langfuse": f"{_HERE}.langfuse:LangfuseExport",
        "langsmith": f"{_HERE}.langsmith:LangSmithExport",
        "sillytavern": f"{_HERE}.sillytavern:SillyTavernChats",
        "otlp": "persona_pipeline.traces.importer:OTLPFile",
    },
    what="importer",
)


def find_importer(name: str) -> type[Importer]:
    """Return the importer of a format.

    Raises:
        ConfigError: nobody offers one of that name, or it cannot be loaded.
    """
    found = IMPORTERS.find(name)
    if found is None:
        raise ConfigError(f"--format {name}: unknown format{IMPORTERS.hint(name)}")
    return found


def files_of(source: Source, name: str | None = None) -> list[Source]:
    """Return a source, or, of a folder that is of no format as a whole, the files in it that may be messages.

    Raises:
        ConfigError: no format of that name, or no such file in a folder.
    """
    whole = [name] if name is not None else IMPORTERS.names()
    if not source.is_folder or any(
        find_importer(each).of_folders and (name is not None or _made(each).recognises(source)) for each in whole
    ):
        return [source]
    paths = sorted(path for path in source.path.rglob("*") if path.suffix.lower() in _ENDINGS and path.is_file())
    if not paths:
        raise ConfigError(Problem(f"has no file in it that ends in {', '.join(_ENDINGS)}", source.name))
    return [Source(path, str(Path(source.name) / path.relative_to(source.path))) for path in paths]


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
    fitting = [importer for each in IMPORTERS.names() if (importer := _made(each)).recognises(source)]
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
        f"is of no format that is known by its look; say which with --format ({', '.join(IMPORTERS.names())}), "
        "or which of its keys are a message's with --map KEY=FIELD"
    )
