"""Importing sources of whatever formats into a world's store, each message once; formats by name, and the project's own."""

import shutil
import sys
import tempfile
import zipfile
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, BinaryIO, ClassVar

import sqlalchemy as sa

from persona_pipeline.base.database.engine import Store, chunks, open_store
from persona_pipeline.base.database.tables import run_messages
from persona_pipeline.base.documents.json import delimiter_of
from persona_pipeline.base.errors import ConfigError, NothingError, Problem
from persona_pipeline.base.options import Registry
from persona_pipeline.guard.labels.messages import MessageLabel
from persona_pipeline.importing.base import (
    IDENTITIES,
    TABLES,
    Found,
    Identities,
    Importer,
    ReadOptions,
    Skipped,
    Source,
)
from persona_pipeline.importing.marks import KEYS, marks_of
from persona_pipeline.importing.records import first_records
from persona_pipeline.importing.tables import (
    NoMessagesFormatError,
    Records,
    UnclearTableError,
    advice,
    columns_of,
    listed,
)
from persona_pipeline.world.messages.files import ENDINGS, FIELDS, REQUIRED, MessageFile, Row, cut_keys, parse_message
from persona_pipeline.world.messages.mirroring import SyncResult
from persona_pipeline.world.messages.store import read_messages
from persona_pipeline.world.models import Message
from persona_pipeline.world.names import Aliases, mapped
from persona_pipeline.world.world import World


class OwnMessages(Importer):
    """Lines with id, agent_id, channel or recipient, text and created_at, whatever else they have."""

    name: ClassVar[str] = "messages"
    about: ClassVar[str] = "JSON lines or CSV with id, agent_id, channel or recipient, text, created_at"

    def recognises(self, source: Source) -> bool:
        if source.is_folder or source.path.suffix.lower() not in ENDINGS:
            return False
        text, found = source.beginning.strip(), first_records(source)
        if source.is_table and text:
            header = text.partition("\n")[0]
            is_utf_8 = source.beginning.encode("utf-8", "replace")[:-4] in source.first_bytes
            return {*REQUIRED} <= {*columns_of(source)} and delimiter_of(header) == "," and is_utf_8
        return not text or any(len(record.keys() & set(REQUIRED)) > 2 for record in found)

    def may_be(self, source: Source) -> bool:
        """Return whether lines of a file that is of no other format are worth naming one by one."""
        if source.is_folder or source.path.suffix.lower() != ".jsonl":
            return False
        found = first_records(source)
        return not found or any(record.keys() & set(REQUIRED) for record in found)

    def rows(self, file: Source, options: ReadOptions) -> Iterator[Found]:
        if options.fields:
            # Lines of another program's may have some fields under their own names.
            yield from Records().rows(file, options)
            return
        try:
            with MessageFile(file.path) as opened:
                opened.require_text()
                yield from opened.rows(parse_message)
        except ConfigError as error:
            raise ConfigError([replace(problem, path=file.name) for problem in error.problems]) from error


_HERE = "persona_pipeline.importing"
_ENDINGS = (".jsonl", ".ndjson", ".json", *TABLES)
_PACKED, _NOT_READ = (".zip", ".xlsx"), (".", "__MACOSX")
_LARGEST_UNPACKED = 2_000_000_000
IMPORTERS = Registry(
    "persona_pipeline.importers",
    Importer,
    {
        "messages": f"{_HERE}.run:OwnMessages",
        "openai": f"{_HERE}.chats:OpenAIChats",
        "chatgpt": f"{_HERE}.chats:ChatGPTExport",
        "claude": f"{_HERE}.chats:ClaudeExport",
        "discord": f"{_HERE}.chats:DiscordExport",
        "slack": f"{_HERE}.slack:SlackExport",
        "langfuse": f"{_HERE}.platforms:LangfuseExport",
        "langsmith": f"{_HERE}.platforms:LangSmithExport",
        "sillytavern": f"{_HERE}.sillytavern:SillyTavernChats",
        "otlp": f"{_HERE}.traces.importer:OTLPFile",
        "table": f"{_HERE}.tables:Records",
    },
    what="importer",
)


def find_importer(name: str) -> Importer:
    """Return a new importer of a format; ConfigError: the format is unknown, or it cannot be loaded."""
    found = IMPORTERS.find(name)
    if found is None:
        raise ConfigError(f"--format {name}: unknown format{IMPORTERS.hint(name)}")
    made: type = found
    return made()


def files_of(source: Source, name: str | None = None) -> list[Source]:
    """Return a source, or, of a folder that is of no format as a whole, the files and exports in it that may be messages.

    ConfigError: no format of that name, or no such file in a folder.
    """
    whole = [item for item in map(find_importer, [name] if name else IMPORTERS.names()) if item.of_folders]
    if not source.is_folder or (name and whole) or any(item.recognises(source) for item in whole):
        return [source]
    found: list[Source] = []
    for path in sorted(source.path.rglob("*")):
        own = path.relative_to(source.path)
        part = Source(path, str(Path(source.name) / own))
        is_within = bool(found) and found[-1].is_folder and path.is_relative_to(found[-1].path)
        if is_within or any(each.startswith(_NOT_READ) for each in own.parts):
            continue
        if any(item.recognises(part) for item in whole) if path.is_dir() else _may_hold_messages(own):
            found.append(part)
    if not found:
        raise NothingError(Problem(f"has no file in it that ends in {', '.join(_ENDINGS)}", source.name))
    return found


def _may_hold_messages(path: PurePath) -> bool:
    """Return whether a file is read or, where it is packed, named."""
    return path.suffix.lower() in (*_ENDINGS, *_PACKED) and not any(part.startswith(_NOT_READ) for part in path.parts)


def importer_of(source: Source, name: str | None = None, *, mapped: bool = False) -> Importer:
    """Return the importer of a source, by the name of its format, or by a look at it.

    Raises:
        NoMessagesFormatError: it is of no format that is known.
        ConfigError: no format of that name, or it is not clear which one this is.
    """
    if name is not None:
        return find_importer(name)
    if not source.path.exists():
        raise ConfigError(Problem("does not exist; check the path", source.name))
    fitting = [importer for each in IMPORTERS.names() if (importer := find_importer(each)).recognises(source)]
    # The reader of tables is the last resort.
    fitting = [item for item in fitting if not isinstance(item, Records)] or fitting
    if len(fitting) > 1:
        said = f"could be {' or '.join(importer.name for importer in fitting)}; say which with --format"
        raise ConfigError(Problem(said, source.name))
    if fitting:
        return fitting[0]
    if not mapped and OwnMessages().may_be(source):
        return OwnMessages()
    if mapped or columns_of(source):
        return Records()
    raise NoMessagesFormatError(Problem(_no_format(source), source.name))


def _no_format(source: Source) -> str:
    if not source.beginning.strip():
        return "is empty; export it again"
    if source.beginning.startswith("PK"):
        return "is a workbook or an archive; save it as CSV, or unpack it"
    keys = listed(next(iter(first_records(source)), ()))
    return (
        f"is of no format that is known by its look; say which with --format ({', '.join(IMPORTERS.names())}), "
        f"or which of its keys{f' ({keys})' if keys else ''} are a message's with --map 'KEY=FIELD', "
        f"once for each FIELD of {', '.join(FIELDS)}; {advice(source)}"
    ).removesuffix("; ")


STDIN = "-"


@dataclass(frozen=True)
class ImportOptions:
    """Options of an import.

    Attributes:
        format: its name; None: each source's format is detected.
        speakers: agents by what the source calls them. ``reading``: how sources are read.
        restore: bring back messages that were taken out of the store.
        asked: a user can answer questions about files of a folder, so nothing is read until they are clear.
    """

    format: str | None = None
    speakers: Mapping[str, str] = field(default_factory=dict)
    reading: ReadOptions = field(default_factory=ReadOptions)
    restore: bool = False
    asked: bool = False


@dataclass
class Imported:
    """The result of an import.

    Attributes:
        formats: the format of each source. ``read``: number of messages of each given source. ``not_chats``: files of unknown
            format in folders and archives. ``result``: written messages, and every line that could not be read.
        skipped: numbers of skipped lines, by reason.
        extras: how many messages have a key beyond a message's own, by key; ``cut``: of how many some were too much.
        shared_names: a line for each name that several speakers or places have.
        marked: messages that users have marked. ``marks``: their labels; ``unread``: how many marks say neither in nor
            out of character, by what they are.
    """

    formats: dict[str, str] = field(default_factory=dict)
    read: Counter[str] = field(default_factory=Counter)
    not_chats: list[str] = field(default_factory=list)
    result: SyncResult = field(default_factory=SyncResult)
    skipped: Counter[str] = field(default_factory=Counter)
    extras: Counter[str] = field(default_factory=Counter)
    cut: int = 0
    shared_names: list[str] = field(default_factory=list)
    marked: list[Message] = field(default_factory=list)
    marks: list[MessageLabel] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)


def import_messages(world: World, given: Sequence[str | Path], options: ImportOptions) -> Imported:
    """Add the messages of files, folders and ``-`` (standard input) to the store; nothing is removed.

    Raises:
        ConfigError: a source cannot be read at all, its format is not clear, or a mapping names an unknown agent or speaker.
    """
    imported, names = Imported(), world.names()
    aliases = Aliases.of(names)
    known = {*options.speakers, *names}
    identities = Identities(lambda name: name in known or aliases.agent_of(name) in names)
    rules = world.written.import_rules
    reading = replace(
        options.reading,
        remembered={**rules.fields, **options.reading.remembered},
        roles=rules.roles,
        aliases=aliases,
    )
    with ExitStack() as stack:
        files: list[tuple[str, str, _SourceRows]] = []
        for item in map(str, given):
            named = _stdin(stack) if item == STDIN else _unpacked(stack, Source(Path(item), item))
            imported.read[item] = 0
            for source in files_of(named, options.format):
                part = source is not named
                try:
                    importer = importer_of(source, options.format, mapped=bool(reading.fields or reading.remembered))
                    found = importer.files(source)
                    importer.require_clear(source, reading)
                except ConfigError as error:
                    if not part or (options.asked and isinstance(error, UnclearTableError)):
                        raise
                    is_chat = not isinstance(error, NoMessagesFormatError)
                    imported.result.problems += error.problems if is_chat else []
                    imported.not_chats += [] if is_chat else [source.name]
                    continue
                imported.formats[source.name] = importer.name
                for file in found:
                    stored = file.name if named.path != Path(item) else world.message_source(file.path)
                    rows = _SourceRows(importer, file, reading, identities, item, part)
                    if importer.looks_ahead:
                        deque(rows(), maxlen=0)
                    files.append((stored, file.name, rows))
        wrong = imported.result.problems
        imported.result = world.ingest_all(files, mapping=options.speakers, restore=options.restore)
        imported.result.problems += wrong
    imported.shared_names = identities.lines() + identities.others(
        _stored_ids(world.store, identities, options.speakers)
    )
    for *_, rows in files:
        imported.read.update(rows.counted.read)
        imported.skipped += rows.counted.skipped
        imported.extras += rows.counted.extras
        imported.cut += rows.counted.cut
        imported.marked += rows.counted.marked
        imported.unread += rows.counted.unread
    for message in imported.marked:
        own = aliases.owned(mapped(message, options.speakers))
        if own.agent_id in names:
            imported.marks += marks_of(own, imported.unread)
    return imported


def _stored_ids(store: Store, identities: Identities, mapping: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the names of speakers and places in stored messages that were read now too, each with an id that has it."""
    for name, key in (("agent_id", "speaker_id"), ("channel_id", "place_id")):
        column, identity = run_messages.c[name], run_messages.c.extras[key].as_string()
        query = sa.select(column, identity).where(identity.is_not(None)).distinct()
        for names in chunks(sorted(identities.names - mapping.keys())):
            with store.connect() as connection:
                yield from map(tuple, connection.execute(query.where(column.in_(names))))


def explained(world: World, path: Path) -> Iterator[str]:
    """Yield lines on who wrote the spans in a file of traces, how many have words, whose they are, and why others have none."""
    traces: Any = find_importer("otlp")
    return traces.explained(Source(path, str(path)), Aliases.of(world.names()))


def read_export(
    given: Sequence[str | Path], options: ImportOptions, root: Path | None = None
) -> tuple[list[Message], Imported]:
    """Return the messages of sources as ``import_messages`` would store them, oldest first, and how they were read.

    ``root``: the folder of the world whose names and settings hold; without one, speakers are mapped to any name.

    Raises:
        ConfigError: a source cannot be read at all, or its format is not clear.
    """
    with tempfile.TemporaryDirectory(prefix="persona-") as folder:
        world = World(root or Path(folder), open_store(f"sqlite:///{folder}/store.db"))
        try:
            imported = import_messages(world, given, options if root else replace(options, speakers={}))
            return [mapped(message, options.speakers) for message in read_messages(world.store)], imported
        finally:
            world.store.close()


@dataclass
class _SourceRows:
    """Reads a file from its start, as often as it is called, and counts what it holds."""

    importer: Importer
    file: Source
    options: ReadOptions
    identities: Identities
    given: str = ""
    part: bool = False
    counted: Imported = field(default_factory=Imported)
    swiped: Message | None = None

    def __call__(self) -> Iterator[Row]:
        self.counted, self.swiped = Imported(), None
        for found in self._found():
            if isinstance(found, Skipped):
                self.counted.skipped[found.reason] += 1
                continue
            if isinstance(found.found, Message):
                message = self.identities.told_apart(found.found)
                found = replace(found, found=message)
                self.counted.read[self.given] += 1
                self.counted.extras.update(message.extras.keys() - {*IDENTITIES.values()})
                self.counted.cut += bool(cut_keys(message.extras))
                self._keep_marked(message)
            yield found
        if self.swiped:
            # Without a reply, the user may still swipe on.
            self.counted.unread["swipes of a message that nobody answered"] += 1

    def _found(self) -> Iterator[Found]:
        try:
            yield from self.importer.rows(self.file, self.options)
        except ConfigError as error:
            if not self.part:
                raise
            # A file that cannot be read does not stop the others.
            yield from (Row(problem.line or 1, ValueError(problem.message)) for problem in error.problems)

    def _keep_marked(self, message: Message) -> None:
        if self.swiped and message.agent_id != self.swiped.agent_id:
            self.counted.marked.append(self.swiped)
            self.swiped = None
        if not KEYS.intersection((*message.extras, *cut_keys(message.extras))):
            return
        if "swipes" in message.extras:
            others = {key: value for key, value in message.extras.items() if key not in KEYS - {"swipes"}}
            self.swiped = replace(message, extras=others)
        kept = {key: value for key, value in message.extras.items() if key != "swipes"}
        self.counted.marked.append(replace(message, extras=kept))


def _unpacked(stack: ExitStack, source: Source) -> Source:
    """Return an archive as a folder of its unpacked files."""
    name = source.path.name.lower()
    if not source.path.is_file() or not name.endswith(".zip"):
        return source
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="persona-")))
    try:
        with zipfile.ZipFile(source.path) as archive:
            listed = [item for item in archive.infolist() if _may_hold_messages(PurePath(item.filename))]
            if sum(item.file_size for item in listed) > _LARGEST_UNPACKED:
                raise ConfigError(Problem("is larger than 2 GB unpacked; unpack it and name its parts", source.name))
            archive.extractall(folder, listed)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise ConfigError(Problem(f"cannot be unpacked ({error})", source.name)) from error
    return replace(source, path=folder)


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
