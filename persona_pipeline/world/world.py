"""A world: a folder of personas, propositions, messages, recordings, baselines and suites, and the store behind it."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib.resources import as_file, files
from pathlib import Path
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, default_url, differing, is_held, open_store, upsert
from persona_pipeline.base.errors import ConfigError, NothingError, Problem, did_you_mean, raise_problems
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.base.settings import Settings, get_settings
from persona_pipeline.world import personas
from persona_pipeline.world.messages.files import FIELDS, Row, rows_of_records
from persona_pipeline.world.messages.mirroring import (
    LEASE,
    SyncResult,
    Unread,
    ingest_rows,
    is_any_known,
    mirror_files,
    unread_files,
)
from persona_pipeline.world.messages.revision import FUTURE_GRACE
from persona_pipeline.world.messages.store import (
    MESSAGES,
    later_messages,
    message_files,
    newest_message_time,
    read_messages,
)
from persona_pipeline.world.models import Message, Persona, Window
from persona_pipeline.world.names import (
    AgentNames,
    Aliases,
    alias_problems,
    are_names_followed,
    check_mapping,
    mapped,
    read_names,
    rename_stored,
)
from persona_pipeline.world.propositions.loading import PROPOSITIONS, StoredSet, read_claims
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS
from persona_pipeline.world.settings import WORLD_FILE, WorldFile, load_world_file, merged

_NONE: Mapping[Any, Any] = MappingProxyType({})


def utc_now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Brought:
    """Files brought into the store for an evaluation.

    ``claims``: by agent and dimension, of valid files. ``broken``: problems of the other files of the requested dimensions;
    ``invalid``: of claims of the rest. ``problems``: skipped lines of message files, and messages of the future.
    """

    personas: Mapping[str, Persona]
    claims: Mapping[str, Mapping[str, StoredSet]]
    broken: Mapping[str, tuple[Problem, ...]]
    invalid: Mapping[str, tuple[Problem, ...]]
    problems: Sequence[Problem]


@dataclass(frozen=True)
class World:
    """A world's folder and store. Cheap to create; it holds no data.

    Attributes:
        clock: returns the time, UTC.
        environment: settings of the caller or the environment; None: those of this process.
        file: contents of ``persona.yaml``; None: as it is now.
        decided_by: the folder whose baselines, labels and lexicons decide; None: the world's own.
    """

    root: Path
    store: Store
    clock: Callable[[], datetime] = utc_now
    decided_by: Path | None = None
    environment: Settings | None = field(default=None, compare=False)
    file: WorldFile | None = field(default=None, compare=False)

    @cached_property
    def written(self) -> WorldFile:
        """What ``persona.yaml`` says."""
        return self.file or load_world_file(self.rules_root)

    @cached_property
    def settings(self) -> Settings:
        """Its settings: as they were given, else the environment's, else those of ``persona.yaml``, else the defaults."""
        return merged(self.environment or get_settings(), self.written).model_copy(update={"root": self.root})

    @property
    def rules_root(self) -> Path:
        """The folder of everything that decides, see ``changes.DECIDING``."""
        return self.decided_by or self.root

    @classmethod
    def open(
        cls, root: Path | str | None = None, database_url: str | None = None, *, settings: Settings | None = None
    ) -> "World":
        """Open a world.

        Args:
            root: its folder; by default what the settings say.
            database_url: its store; by default the settings', else SQLite in ``<root>/.persona/store.db``.
            settings: None: the environment's.

        Raises:
            ConfigError: the folder has no ``personas`` folder, or the store cannot be opened.
        """
        settings = settings or get_settings()
        folder = personas.find_world(settings, root)
        if database_url is not None:
            return cls(folder, open_store(database_url), environment=settings)
        url = default_url(settings.model_copy(update={"root": folder}))
        return cls(folder, open_store(url), environment=settings)

    def agent_ids(self) -> list[str]:
        """Return the agents that have a persona file, sorted."""
        return personas.agent_ids(self.root)

    def chosen(self, agents: Sequence[str] | None) -> list[str]:
        """Return the requested agents, in order, each once; missing persona files are found when they are read.

        Args:
            agents: None: all but those that ``persona.yaml`` leaves out.

        Raises:
            NothingError: there are no agents, or all are left out.
            ConfigError: ``persona.yaml`` is not valid.
        """
        if agents is None:
            agents = [name for name in self.agent_ids() if name not in self.written.leave_out]
        if not agents:
            left_out = f"; {WORLD_FILE} leaves out all of {', '.join(known)}" if (known := self.agent_ids()) else ""
            raise NothingError(f"no agents: write personas/<agent_id>.yaml in {self.root}{left_out}")
        return list(dict.fromkeys(agents))

    def settled(self, request: EvaluationRequest) -> EvaluationRequest:
        """Return a request with what the settings say where it says nothing: the one place where an evaluation reads them."""
        file, settings = self.written, self.settings
        # The environment comes before the file, and the file before the defaults.
        ahead = {name: getattr(settings, name) for name in ("undecided_delta", "require_calibration")}
        said = {**ahead, **file.options, **{name: ahead[name] for name in ahead.keys() & settings.model_fields_set}}
        if settings.model_fields_set & {"min_coverage_live", "min_coverage_replay"}:
            said.pop("min_coverage", None)
        own = {"accepted_drops": file.accepted_drops, "by_dimension": file.allowed_drops, "usual": file.options}
        return request.settled({"judge": settings.judge, **said, **own})

    def bring_in(self, agent_ids: Iterable[str], dimensions: Sequence[str], *, named: bool) -> Brought:
        """Bring agents' persona files and all messages into the store, and return the files' content and the agents' claims.

        Args:
            named: an agent without claims of one of the dimensions is broken.
        """
        found, broken = self._read_personas(agent_ids)
        folder = self.root / PROPOSITIONS
        claims, wrong = read_claims(folder, found, ALL_DIMENSIONS, named=dimensions if named else ())
        invalid = dict[str, tuple[Problem, ...]]()
        for agent_id, own in wrong.items():
            for name, items in own.items():
                kept = broken if name in dimensions else invalid
                kept[agent_id] = (*kept.get(agent_id, ()), *items)
        names = self.names()
        self._write(found, names)
        problems = [*self.mirror_messages(names).problems, *self.future_messages()]
        return Brought(found, claims, broken, invalid, problems)

    def names(self) -> dict[str, AgentNames]:
        """Return what every agent is called, by id."""
        state = (self.environment or get_settings()).state or self.root / ".persona"
        return read_names(self.root, state / "names.json")

    def sync(self) -> SyncResult:
        """Bring persona and message files into the store, idempotently."""
        raise_problems(self.sync_personas(self.agent_ids())[1])
        return self.sync_messages()

    def sync_persona(self, agent_id: str) -> Persona:
        """Read one persona file, write it to the store and return it."""
        found, broken = self.sync_personas([agent_id])
        if broken:
            raise ConfigError(broken[agent_id])
        return found[agent_id]

    def sync_personas(self, agent_ids: Iterable[str]) -> tuple[dict[str, Persona], dict[str, tuple[Problem, ...]]]:
        """Read persona files, write them to the store, and return them by agent, and problems of invalid ones."""
        found, broken = self._read_personas(agent_ids)
        self._write(found)
        return found, broken

    def _read_personas(self, agent_ids: Iterable[str]) -> tuple[dict[str, Persona], dict[str, tuple[Problem, ...]]]:
        found: dict[str, Persona] = {}
        broken: dict[str, tuple[Problem, ...]] = {}
        wrong = cache(lambda: alias_problems(self.names()))
        for agent_id in agent_ids:
            try:
                persona = personas.load_persona(self.root, agent_id)
                if persona.aliases and agent_id in wrong():
                    broken[agent_id] = wrong()[agent_id]
                else:
                    found[agent_id] = persona
            except ConfigError as error:
                broken[agent_id] = error.problems
        return found, broken

    def _write(self, found: Mapping[str, Persona], names: Mapping[str, AgentNames] = _NONE) -> None:
        """Write changed personas and names in one transaction."""
        rows = [
            {"id": agent_id, "display_name": item.display_name, "persona": item.persona, "persona_hash": item.hash}
            for agent_id, item in found.items()
        ]
        configs = [
            {"agent_id": agent_id, **item.corrections.model_dump(), "source": "persona"}
            for agent_id, item in found.items()
        ]
        kept = tables.agent_evaluation_config
        named = [{"id": key, "display_name": item.display_name} for key, item in names.items() if item.display_name]
        with self.store.connect() as connection:
            # What a person or a program set is theirs.
            others = set(connection.execute(sa.select(kept.c.agent_id).where(kept.c.source != "persona")).scalars())
            own = [row for row in configs if row["agent_id"] not in others]
            new = [differing(connection, tables.agents, part) for part in (named, rows)]
            new_configs = differing(connection, kept, own, "agent_id")
        shown = self.display_names() if names else {}
        unnamed = [{"id": key, "display_name": key} for key in names if key not in shown]
        if unnamed or any(new) or new_configs:
            with self.store.begin() as connection:
                upsert(connection, tables.agents, unnamed, update=False)
                for part in new:
                    upsert(connection, tables.agents, part)
                upsert(connection, kept, new_configs, key=["agent_id"])

    def sync_messages(self) -> SyncResult:
        """Bring all names and messages into the store; messages of the future are among the problems."""
        # Read once: most of the work in a large world.
        names = self.names()
        self.agent_ids()
        # Transcripts show the names of all agents.
        self._write({}, names)
        result = self.mirror_messages(names)
        result.problems += self.future_messages()
        return result

    def mirror_messages(self, names: Mapping[str, AgentNames] | None = None) -> SyncResult:
        """Mirror ``messages/**`` into the store, aliases followed; files are read on from their last place.

        ``names``: names of every agent, if known already. An unreadable file is a problem and stops no other.
        """
        aliases = Aliases.of(self.names() if names is None else names)
        rename_stored(self.store, aliases)
        return mirror_files(self.store, self._named_files(), aliases)

    def unread_messages(self) -> Unread:
        """Return the message files to read, without opening unchanged ones; all messages where names changed.

        Names change through a new or removed alias, or where a runtime writes under one.
        """
        unread = unread_files(self.store, self._named_files())
        return replace(unread, renamed=not are_names_followed(self.store, Aliases.of(self.names())))

    @property
    def is_reading_messages(self) -> bool:
        """Whether message files are being read just now, by whatever process, or none of them ever was."""
        return is_held(self.store, LEASE) or (not is_any_known(self.store) and bool(self.message_files()))

    def _named_files(self) -> dict[str, Path]:
        return {path.relative_to(self.root).as_posix(): path for path in self.message_files()}

    def message_files(self) -> list[Path]:
        """Return the world's message files, sorted."""
        return message_files(self.root)

    def ingest_all(
        self,
        files: Sequence[tuple[str, str, Callable[[], Iterator[Row]]]],
        *,
        mapping: Mapping[str, str] | None = None,
        restore: bool = False,
    ) -> SyncResult:
        """Add the messages of any files; nothing is removed.

        Args:
            files: for each its name in the store, its name for people, and its reader.
            mapping: agents by speaker, whose messages in these files they take over.
            restore: add messages again that were removed from the store.

        Raises:
            ConfigError: a file cannot be read, or the mapping names an unknown agent or speaker.
        """
        names, result = self.names(), SyncResult()
        if mapping:
            found = (row.found for *_, rows in files for row in rows())
            check_mapping({item.agent_id for item in found if isinstance(item, Message)}, mapping, names.keys())
        aliases = Aliases.of(names)

        def owned(message: Message) -> Message:
            return aliases.owned(mapped(message, mapping) if mapping else message)

        for source, shown, rows in files:
            result.add(ingest_rows(self.store, rows(), source, owned, restore=restore, shown=shown))
        return result

    def message_source(self, path: Path | str) -> str:
        """Return the name under which the store has messages of a file: from the world's folder on, where it is in its messages."""
        whole = Path(path).expanduser().resolve()
        inside = whole.is_relative_to(self.root.resolve() / MESSAGES)
        return (whole.relative_to(self.root.resolve()) if inside else whole).as_posix()

    def persona(self, agent_id: str) -> Persona:
        """Return the stored persona."""
        agents = tables.agents.c
        row = self.store.row(sa.select(agents.display_name, agents.persona).where(agents.id == agent_id))
        if row is None or row.persona is None:
            raise ConfigError(f"agent {agent_id!r} has no persona in the store; write personas/{agent_id}.yaml")
        return Persona(agent_id, row.display_name, row.persona)

    def display_names(self) -> dict[str, str]:
        """Return the display names of all speakers and agents."""
        rows = self.store.rows(sa.select(tables.agents.c.id, tables.agents.c.display_name))
        return {row.id: row.display_name for row in rows}

    def messages(
        self,
        window: Window | None = None,
        *,
        agent_id: str | None = None,
    ) -> list[Message]:
        """Return real messages in order of time, none of the future; see ``read_messages``."""
        horizon = self.horizon
        span = Window(horizon) if window is None else Window(min(window.end, horizon), window.start)
        return read_messages(self.store, span, agent_id=agent_id)

    @property
    def horizon(self) -> datetime:
        """Up to when messages count: now, and five minutes of grace."""
        return self.clock() + FUTURE_GRACE

    def newest_message_time(self) -> datetime | None:
        """Return when the newest real message was sent that is not in the future."""
        return newest_message_time(self.store, until=self.horizon)

    def future_messages(self) -> list[Problem]:
        """Return a problem for each message dated in the future: it is not judged, and moves no window."""
        return [
            Problem(
                f"message {row.id!r} is dated {row.created_at.isoformat()}, in the future; it is not judged until then, "
                "correct created_at if it is wrong",
                row.source,
                row.line,
            )
            for row in later_messages(self.store, self.horizon)
        ]


def bring_rows(world: World, rows: Any, *, source: str, columns: Mapping[str, str] | None = None) -> SyncResult:
    """Bring rows into the store as messages; a known id is updated, nothing is removed.

    A row needs ``agent_id``, ``text`` and ``created_at``. A time without an offset counts as UTC. The default ``id`` is made
    of the content; without ``channel`` and ``recipient`` the channel is ``source``. Other columns are ignored. Raises
    ``ConfigError``: the rows have another type, or a field or column is unknown.

    Args:
        rows: a frame of pandas, polars or Arrow, records, or a mapping with such for values.
        source: origin of the messages in the store.
        columns: names of columns by message field, where they differ.
    """
    columns = dict(columns or {})
    for name in columns:
        if name not in FIELDS:
            raise ConfigError(f"a message has no {name!r}{did_you_mean(name, FIELDS)}; it has {', '.join(FIELDS)}")
    aliases = Aliases.of(world.names())
    return ingest_rows(world.store, rows_of_records(rows, source, columns), source, aliases.owned)


# Names that would mean something where the template itself is kept.
_RENAMED = {"gitignore": ".gitignore", "gitattributes": ".gitattributes", "keep": ".gitkeep"}


def template_languages() -> list[str]:
    """Return the codes of the languages that there is a template world in, sorted."""
    return sorted(["en", *(path.name for path in (files("persona_pipeline.world") / "languages").iterdir())])


def template_world(language: str = "en") -> dict[str, str]:
    """Return the files of the template world, text by path; its claims, personas and messages are in a language, such as ``de``.

    Raises ``ConfigError``: there is none in this language.
    """
    texts: dict[str, str] = {}
    if language not in (known := template_languages()):
        raise ConfigError(f"there is no example world in the language {language!r}; choose one of {', '.join(known)}")
    with as_file(files("persona_pipeline.world")) as folder:
        for root in (folder / "template", folder / "languages" / language):
            for source in sorted(
                path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts
            ):
                name = source.relative_to(root).with_name(_RENAMED.get(source.name, source.name))
                texts[name.as_posix()] = source.read_text(encoding="utf-8")
    return texts


def write_new(directory: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write files, text by path, and return them.

    Raises ``ConfigError``: a file is in the way (each is named), or the folder cannot be written; nothing is written then.
    """
    targets = {directory / name: text for name, text in texts.items()}
    # A broken link is in the way too.
    taken = [target for target in targets if os.path.lexists(target)]
    if taken:
        raise ConfigError([Problem("exists already; choose another folder or remove it", str(path)) for path in taken])
    written: list[Path] = []
    try:
        for target, text in targets.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("x", encoding="utf-8", newline="\n") as stream:
                written.append(target)
                stream.write(text)
    except OSError as error:
        _take_back(directory, targets, written)
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"{directory} cannot be written ({reason}); choose another folder") from error
    return written


def _take_back(directory: Path, targets: Iterable[Path], written: Iterable[Path]) -> None:
    """Remove the files that were written, and the folders that are empty without them."""
    for path in written:
        path.unlink(missing_ok=True)
    folders = {folder for target in targets for folder in target.parents if folder.is_relative_to(directory)}
    for folder in sorted(folders, reverse=True):
        with suppress(OSError):
            folder.rmdir()
