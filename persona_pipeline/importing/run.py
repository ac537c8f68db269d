"""Importing: sources of whatever formats into a world's store, each message once."""

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from persona_pipeline.errors import ConfigError
from persona_pipeline.importing.base import Importer, ReadOptions, Skipped, Source
from persona_pipeline.importing.registry import files_of, importer_of
from persona_pipeline.world.ingest import cut_keys
from persona_pipeline.world.mirroring import Came, SyncResult
from persona_pipeline.world.models import Message
from persona_pipeline.world.reading import Row
from persona_pipeline.world.world import World

STDIN = "-"


@dataclass(frozen=True)
class ImportOptions:
    """What is asked of an import.

    Attributes:
        format: its name; None: it is told by a look at each source.
        speakers: agents by what the source calls them. ``reading``: how sources are read.
        restore: bring back messages that were taken out of the store.
    """

    format: str | None = None
    speakers: Mapping[str, str] = field(default_factory=dict)
    reading: ReadOptions = field(default_factory=ReadOptions)
    restore: bool = False


@dataclass
class Imported:
    """What an import did.

    Attributes:
        formats: the format of each source. ``result``: what was written, and every line that could not be read.
        skipped: how many lines nobody said, by what they are.
        extras: how many messages have a key beyond a message's own, by key; ``cut``: of how many some were too much.
    """

    formats: dict[str, str] = field(default_factory=dict)
    result: SyncResult = field(default_factory=SyncResult)
    skipped: Counter[str] = field(default_factory=Counter)
    extras: Counter[str] = field(default_factory=Counter)
    cut: int = 0


def import_messages(world: World, given: Sequence[str | Path], options: ImportOptions) -> Imported:
    """Add the messages of files, folders and ``-`` (standard input) to the store; nothing is removed.

    Raises:
        ConfigError: a source cannot be read at all, its format is not clear, or a mapping names no agent or nobody who speaks.
    """
    imported = Imported()
    with ExitStack() as stack:
        files: list[tuple[Came, _Rows]] = []
        for item in given:
            named = _stdin(stack) if str(item) == STDIN else Source(Path(item), str(item))
            for source in files_of(named, options.format):
                importer = importer_of(source, options.format, mapped=bool(options.reading.fields))
                imported.formats[source.name] = importer.name
                for file in importer.files(source):
                    stored = source.name if str(item) == STDIN else world.message_source(file.path)
                    files.append((Came(stored, file.name), _Rows(importer, file, options.reading)))
        imported.result = world.ingest_all(files, mapping=options.speakers, restore=options.restore)
    for _, rows in files:
        imported.skipped += rows.counted.skipped
        imported.extras += rows.counted.extras
        imported.cut += rows.counted.cut
    return imported


@dataclass
class _Rows:
    """Reads a file from its start, as often as it is called, and counts what it holds."""

    importer: Importer
    file: Source
    options: ReadOptions
    counted: Imported = field(default_factory=Imported)

    def __call__(self) -> Iterator[Row]:
        self.counted = Imported()
        for found in self.importer.rows(self.file, self.options):
            if isinstance(found, Skipped):
                self.counted.skipped[found.reason] += 1
                continue
            if isinstance(found.found, Message) and found.found.extras:
                self.counted.extras.update(found.found.extras.keys())
                self.counted.cut += bool(cut_keys(found.found.extras))
            yield found


def _stdin(stack: ExitStack) -> Source:
    """Return standard input as a file: formats look at it twice."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="persona-")))
    path = folder / "stdin"
    stream: BinaryIO = sys.stdin.buffer
    if stream.isatty():
        raise ConfigError("standard input is a terminal; pipe a file into it, or name one")
    with path.open("wb") as copy:
        shutil.copyfileobj(stream, copy)
    source = Source(path, "stdin")
    ending = ".jsonl" if source.beginning.lstrip()[:1] in ("{", "[", "") else ".csv"
    return replace(source, path=path.rename(path.with_suffix(ending)))
