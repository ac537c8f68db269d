"""Names of agents: messages under an alias of a persona file are the agent's."""

import os
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, upsert
from persona_pipeline.base.documents.json import content_hash, write_atomically
from persona_pipeline.base.documents.yaml import parse_document
from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.base.files import read_regular, regular_digest
from persona_pipeline.world.models import Message
from persona_pipeline.world.personas import PERSONAS, is_agent_id, is_name, yaml_files, yaml_stems

# Bytes of a file that is read; agents from which on what they are called is kept between processes.
_LARGEST, _FEWEST_KEPT = 1_000_000, 200


@dataclass(frozen=True)
class AgentNames:
    """Names of an agent in its file, valid otherwise or not.

    ``display_name``: None: unknown. ``aliases``: each with its place in the file; None: the file cannot be read.
    """

    agent_id: str
    display_name: str | None
    aliases: tuple[tuple[str, Problem], ...] | None


def same_name(name: str) -> str:
    """Return an alias without case and white space."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def plain_words(text: str) -> str:
    """Return words without case, accents and signs, with one space between them."""
    plain = (sign for sign in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(sign))
    return " ".join("".join(sign if sign.isalnum() else " " for sign in plain).split())


# Path and digest of each persona file, and its names.
Seen = dict[str, tuple[str, AgentNames]]
# By where it is kept: sensors look at every file twice a minute, and hardly any has changed.
_SEEN: dict[Path, Seen] = {}


def read_names(root: Path, kept: Path | None = None) -> dict[str, AgentNames]:
    """Return names of every agent by id, also of invalid files: other transcripts show them.

    ``kept``: a file that keeps the names of a large world between processes; unchanged files are not read again.
    """
    seen: Seen = _SEEN.get(kept, {}) if kept else {}
    if kept and not seen:
        # There is none, or it is another release's.
        with suppress(OSError, ValidationError):
            seen = _adapter().validate_json(read_regular(kept))
    files = {stem: own for stem, own in sorted(yaml_files(root / PERSONAS).items()) if is_agent_id(stem)}
    looked = {agent_id: _looked(agent_id, own, seen.get(agent_id)) for agent_id, own in files.items()}
    if kept:
        now = {agent_id: found for agent_id, found in looked.items() if found[0]}
        if len(now) >= _FEWEST_KEPT and now != seen:
            with suppress(OSError):
                write_atomically(kept, _adapter().dump_json(now))
        _SEEN[kept] = now
    return {agent_id: names for agent_id, (_, names) in looked.items()}


def named_agents(root: Path) -> list[str]:
    """Return the agents with a persona file; no file is read."""
    return [stem for stem in yaml_stems(root / PERSONAS) if is_agent_id(stem)]


@cache
def _adapter() -> TypeAdapter[Seen]:
    return TypeAdapter(Seen)


def _looked(
    agent_id: str, files: Sequence[os.DirEntry[str]], seen: tuple[str, AgentNames] | None
) -> tuple[str, AgentNames]:
    """Return path and digest of an agent's file, and its names; "": it is to be read again."""
    with suppress(ConfigError, OSError, UnicodeDecodeError):
        path = files[0].path
        if len(files) == 1 and (digest := regular_digest(path, files[0].stat(), _LARGEST)):
            look = f"{path} {digest}"
            if seen is not None and seen[0] == look:
                return seen
            return look, _parsed(agent_id, path, read_regular(path).decode("utf-8-sig"))
    return "", AgentNames(agent_id, None, None)


def _parsed(agent_id: str, path: str, text: str) -> AgentNames:
    document = parse_document(text, path)
    data = document.data if isinstance(document.data, dict) else {}
    name, listed = data.get("display_name"), data.get("aliases")
    aliases = [
        (alias, document.problem(("aliases", place), ""))
        for place, alias in enumerate(listed if isinstance(listed, list) else ())
        if isinstance(alias, str) and is_name(alias)
    ]
    return AgentNames(agent_id, name.strip() or None if isinstance(name, str) else None, tuple(aliases))


def alias_problems(names: Mapping[str, AgentNames]) -> dict[str, tuple[Problem, ...]]:
    """Return the problems of aliases by agent: one that is another agent's id or alias is ambiguous."""
    found: dict[str, list[Problem]] = {}
    owners: dict[str, tuple[str, Problem]] = {}
    for agent_id in sorted(names):
        for alias, place in names[agent_id].aliases or ():
            key = same_name(alias)
            other, first = owners.setdefault(key, (agent_id, place))
            if key in names and key != agent_id:
                said = f"alias {alias!r} is the id of another agent ({PERSONAS}/{key}.yaml); remove it"
                found.setdefault(agent_id, []).append(replace(place, message=said))
            elif other != agent_id:
                said = (
                    f"alias {alias!r} is an alias of {other!r} too ({first.path}:{first.line}); remove one of the two"
                )
                for either in (agent_id, other):
                    found.setdefault(either, []).append(replace(place, message=said))
    return {agent_id: tuple(problems) for agent_id, problems in found.items()}


@dataclass(frozen=True)
class Aliases:
    """Agents by the names of their messages.

    ``agent_ids``: agents with persona files; ``by_name``: agents by ``same_name`` of their aliases. ``unread``: agents with
    unreadable files: stored names stay.
    """

    agent_ids: frozenset[str] = frozenset()
    by_name: Mapping[str, str] | None = None
    unread: frozenset[str] = frozenset()

    @classmethod
    def of(cls, names: Mapping[str, AgentNames]) -> "Aliases":
        """Return the aliases of agents; an alias claimed by two agents is ignored."""
        owners: dict[str, set[str]] = {}
        for agent_id, item in names.items():
            for alias, _ in item.aliases or ():
                owners.setdefault(same_name(alias), set()).add(agent_id)
        by_name = {
            name: min(claimed) for name, claimed in owners.items() if len(claimed | ({name} & names.keys())) == 1
        }
        unread = frozenset(agent_id for agent_id, item in names.items() if item.aliases is None)
        return cls(frozenset(names), by_name, unread)

    @property
    def digest(self) -> str:
        """SHA-256 of all of it."""
        return content_hash([sorted(self.agent_ids), sorted((self.by_name or {}).items()), sorted(self.unread)])

    def agent_of(self, name: str) -> str:
        """Return the agent of a name, or the name itself."""
        return name if name in self.agent_ids else (self.by_name or {}).get(same_name(name), name)

    def owned(self, message: Message) -> Message:
        """Return a message as its agent's; its original names are kept."""
        said, told = message.speaker or message.agent_id, message.addressee or message.recipient
        agent_id, recipient = self.agent_of(said), told and self.agent_of(told)
        return replace(
            message,
            agent_id=agent_id,
            recipient=recipient,
            speaker=None if agent_id == said else said,
            addressee=None if recipient == told else told,
        )


def check_mapping(speakers: Collection[str], mapping: Mapping[str, str], agent_ids: Collection[str]) -> None:
    """Check that speakers can be mapped to agents; ConfigError: an agent or a speaker is missing."""
    problems = [
        Problem(f"--map {speaker}={agent_id}: there is no personas/{agent_id}.yaml{did_you_mean(agent_id, agent_ids)}")
        for speaker, agent_id in mapping.items()
        if agent_id not in agent_ids
    ]
    problems += [
        Problem(f"--map {speaker}={agent_id}: no message is by {speaker!r}{did_you_mean(speaker, sorted(speakers))}")
        for speaker, agent_id in mapping.items()
        if speaker not in speakers
    ]
    if problems:
        raise ConfigError(problems)


def mapped(message: Message, mapping: Mapping[str, str]) -> Message:
    """Return a message as if its source had called some speakers by the ids of agents, which are given by speaker."""
    return replace(
        message,
        agent_id=mapping.get(message.agent_id, message.agent_id),
        recipient=message.recipient and mapping.get(message.recipient, message.recipient),
    )


_TABLE = tables.run_messages
_CHUNK = 5000
_FOLLOWED = "aliases that stored messages follow"
# Who it is here, and what its source says where that is another name.
_COLUMNS = ((_TABLE.c.agent_id, _TABLE.c.speaker), (_TABLE.c.recipient_id, _TABLE.c.addressee))


def rename_stored(store: Store, aliases: Aliases) -> None:
    """Assign stored messages to the agents of their names and aliases."""
    if are_names_followed(store, aliases):
        return
    for named, written in _COLUMNS:
        said = sa.func.coalesce(written, named)
        for name, current in store.rows(sa.select(said, named).where(named.is_not(None)).distinct()):
            agent_id = aliases.agent_of(name)
            if agent_id == current or current in aliases.unread:
                continue
            values = {named.name: agent_id, written.name: None if agent_id == name else name}
            with store.begin() as connection:
                upsert(connection, tables.agents, [{"id": agent_id, "display_name": agent_id}], update=False)
            some = sa.select(_TABLE.c.id).where(named == current, said == name).limit(_CHUNK)
            renamed = _CHUNK
            while renamed == _CHUNK:
                with store.begin() as connection:
                    renamed = connection.execute(sa.update(_TABLE).where(_TABLE.c.id.in_(some)).values(values)).rowcount
    with store.begin() as connection:
        upsert(connection, tables.remembered, [{"name": _FOLLOWED, "value": aliases.digest}])


def are_names_followed(store: Store, aliases: Aliases) -> bool:
    """Return whether stored messages follow these aliases; each name is looked up in an index."""
    known = sa.select(tables.remembered.c.value).where(tables.remembered.c.name == _FOLLOWED)
    if store.value(known) != aliases.digest:
        return False
    told = sa.select(_TABLE.c.recipient_id).where(_TABLE.c.recipient_id.is_not(None))
    names = {row[0] for row in store.rows(sa.union(sa.select(tables.agents.c.id), told))}
    moved = [name for name in names if aliases.agent_of(name) != name]
    raw = (sa.select(named).where(named.in_(moved), written.is_(None)).limit(1) for named, written in _COLUMNS)
    # A runtime may have written under an alias.
    return not moved or all(store.value(query) is None for query in raw)
