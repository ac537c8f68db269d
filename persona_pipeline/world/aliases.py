"""Other names of agents: what comes under an alias in a persona file is the agent's own."""

import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from persona_pipeline.documents import parse_document
from persona_pipeline.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.world.canonical import content_hash
from persona_pipeline.world.files import find_yaml, is_agent_id, is_name, yaml_stems
from persona_pipeline.world.models import Message
from persona_pipeline.world.personas import PERSONAS

_MOST_CACHED = 4096
_LARGEST = 1_000_000


@dataclass(frozen=True)
class AgentNames:
    """What an agent is called, as far as its file tells, be it valid otherwise or not.

    Attributes:
        display_name: None: it cannot be told.
        aliases: each with its place in the file; None: the file cannot be read, so nobody knows.
    """

    agent_id: str
    display_name: str | None
    aliases: tuple[tuple[str, Problem], ...] | None


def same_name(name: str) -> str:
    """Return what two spellings of one alias have in common: neither case nor white space matters."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def read_names(root: Path) -> dict[str, AgentNames]:
    """Return what every agent is called, by id. Others' transcripts show it, whatever else is wrong with its file."""
    stems = [stem for stem in yaml_stems(root / PERSONAS) if is_agent_id(stem)]
    return {stem: _names_of(root, stem) for stem in stems}


def _names_of(root: Path, agent_id: str) -> AgentNames:
    try:
        path = find_yaml(root / PERSONAS, agent_id)
        if path is None or path.stat().st_size > _LARGEST:
            return AgentNames(agent_id, None, None)
        return _parsed(agent_id, str(path), path.read_bytes().decode("utf-8-sig"))
    except (ConfigError, OSError, UnicodeDecodeError):
        return AgentNames(agent_id, None, None)


# Sensors look at every persona twice a minute, and hardly any has changed.
@lru_cache(maxsize=_MOST_CACHED)
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
    """Return what is wrong with aliases, by agent: one that is another's id or alias leaves open who is meant."""
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
    """Whose message it is that comes under a name.

    Attributes:
        agent_ids: agents by their own names; ``by_name``: agents by what ``same_name`` makes of their aliases.
        unread: agents whose files cannot be read: what was known of them stays.
    """

    agent_ids: frozenset[str] = frozenset()
    by_name: Mapping[str, str] | None = None
    unread: frozenset[str] = frozenset()

    @classmethod
    def of(cls, names: Mapping[str, AgentNames]) -> "Aliases":
        """Return the aliases of agents; one that two agents claim is nobody's."""
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
        """Return the agent a name stands for, or the name itself where it stands for none."""
        return name if name in self.agent_ids else (self.by_name or {}).get(same_name(name), name)

    def owned(self, message: Message) -> Message:
        """Return a message as its agent's; the names it came under are kept beside."""
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
    """Look whether speakers can be mapped to agents.

    Args:
        speakers: who speaks in what is read.
        mapping: agent ids by speaker.

    Raises:
        ConfigError: one is no agent, or nobody of that name speaks.
    """
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
