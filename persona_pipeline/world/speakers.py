"""Names that do not match: speakers without a persona, and personas without messages."""

import json
import os
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from persona_pipeline.base.errors import Problem
from persona_pipeline.base.text import plural
from persona_pipeline.world.messages.store import speaker_counts, speakers
from persona_pipeline.world.models import Message
from persona_pipeline.world.names import AgentNames, Aliases, named_agents, plain_words, same_name
from persona_pipeline.world.personas import PERSONAS, yaml_stems
from persona_pipeline.world.world import World

# Many names close to an agent's are people's, which are not listed on a screen.
_MOST_NAMED = 3
_SHORT = 5


@dataclass(frozen=True)
class Stranger:
    """A speaker without a persona.

    ``agent_id``: the agent with a similar name; None: there is none. ``spelling``: the same name but for case, accents and
    signs.
    """

    name: str
    messages: int
    agent_id: str | None = None
    spelling: bool = False

    @property
    def said(self) -> str:
        """How much it says."""
        return plural(self.messages, "message")

    @property
    def text(self) -> str:
        """The problem and its remedy."""
        said = f"{self.name!r} has {self.said} and no persona"
        return f"{said}; did you mean {self.agent_id!r}? {self.remedy}" if self.agent_id else said

    @property
    def remedy(self) -> str:
        """How to assign these messages to the agent; empty without a similar name."""
        if self.agent_id is None:
            return ""
        # JSON's strings are YAML's.
        alias, once = json.dumps(self.name, ensure_ascii=False), shlex.quote(f"{self.name}={self.agent_id}")
        return f"If so, write aliases: [{alias}] into {PERSONAS}/{self.agent_id}.yaml, or ingest the file again with --map {once}"


@dataclass(frozen=True)
class NameMatch:
    """Match of speakers and personas.

    ``strangers``: speakers without a persona by number of messages, people among them. ``silent``: agents without messages;
    empty while there are no messages at all.
    """

    strangers: tuple[Stranger, ...] = ()
    silent: tuple[str, ...] = ()

    def of(self, agent_ids: Collection[str]) -> "NameMatch":
        """Return what concerns some agents: those of them that are silent, and who might be one of them."""
        return NameMatch(
            tuple(item for item in self.strangers if item.agent_id in agent_ids),
            tuple(agent_id for agent_id in self.silent if agent_id in agent_ids),
        )

    def among(self, speakers: Collection[str]) -> "NameMatch":
        """Return the same with those strangers only who are among some speakers."""
        return NameMatch(tuple(item for item in self.strangers if item.name in speakers), self.silent)

    def warnings(self) -> list[str]:
        """Return probable mistakes: names similar to an agent's, and agents without messages."""
        return [*first_few([item.text for item in self.strangers if item.agent_id]), *map(silence, self.silent)]

    def note(self, *, named: bool = False) -> str:
        """Return one sentence about all other speakers without a persona; empty where there are none.

        ``named``: each by name. Most are people, whose names belong neither on a screen nor in a log.
        """
        others = [item for item in self.strangers if item.agent_id is None]
        if not others:
            return ""
        shown = ", ".join(f"{item.name} ({item.said})" for item in others)
        if not named:
            said = plural(sum(item.messages for item in others), "message")
            shown = f"{plural(len(others), 'speaker')} ({said})"
        return f"without a persona, and so not evaluated: {shown}"

    def lines(self, *, named: bool = False) -> list[str]:
        """Return all of it, a line each; ``named``: speakers without a persona by name."""
        return [*self.warnings(), *filter(None, [self.note(named=named)])]


def first_few(lines: Sequence[str]) -> list[str]:
    """Return the first of some lines about names that are nearly an agent's, and how many more there are."""
    more = [f"and {len(lines) - _MOST_NAMED} more names that are nearly an agent's"] if len(lines) > _MOST_NAMED else []
    return [*lines[:_MOST_NAMED], *more]


def silence(agent_id: str) -> str:
    """Return the sentence about an agent without messages."""
    return f"{agent_id!r} has a persona and no messages"


def match_names(said: Mapping[str, int], names: Mapping[str, AgentNames], people: Sequence[str] = ()) -> NameMatch:
    """Return the match of speakers and agents; ``people``: names of known people.

    ``said``: number of messages by agent, or by name without a persona. ``names``: names of every agent.
    """
    silent = _silent(said, names)
    known = _Known.of(names, silent)
    apart = {same_name(name) for name in people}
    others = [name for name in said if name not in names and same_name(name) not in apart]
    strangers = [known.stranger(name, said[name]) for name in others]
    return NameMatch(tuple(sorted(strangers, key=lambda item: (-item.messages, item.name))), silent)


def stored_names(world: World) -> NameMatch:
    """Return the match of the store's speakers and the agents."""
    said, agents = dict.fromkeys(speakers(world.store), 1), named_agents(world.root)
    # Names of agents only matter where a stranger may be an agent.
    if strangers := said.keys() - {*agents}:
        return match_names(said | speaker_counts(world.store, strangers), world.names(), world.written.people)
    return NameMatch((), _silent(said, agents))


def _silent(said: Mapping[str, int], agents: Collection[str]) -> tuple[str, ...]:
    return tuple(agent_id for agent_id in sorted(agents) if not said.get(agent_id)) if said else ()


def count_speakers(messages: Iterable[Message], names: Mapping[str, AgentNames], said: dict[str, int]) -> None:
    """Add how many of some messages are whose, aliases followed, to ``said``."""
    aliases = Aliases.of(names)
    for message in messages:
        agent_id = aliases.agent_of(message.agent_id)
        said[agent_id] = said.get(agent_id, 0) + 1


@dataclass(frozen=True)
class _Known:
    """Agents by their names; where several match, one without messages comes first.

    ``whole``: by letters of the names; ``first``: by first names. ``near``: names and agents by each of their first two
    letters, one of which a slip keeps.
    """

    silent: Collection[str]
    whole: Mapping[str, Sequence[str]]
    first: Mapping[str, Sequence[str]]
    near: Mapping[str, Sequence[tuple[str, str]]]

    @classmethod
    def of(cls, names: Mapping[str, AgentNames], silent: Collection[str]) -> "_Known":
        quiet = frozenset(silent)
        whole, first, near = defaultdict(list), defaultdict(list), defaultdict(list)
        for agent_id in sorted(names, key=lambda agent_id: (agent_id not in quiet, agent_id)):
            called = _called(names[agent_id])
            for form in dict.fromkeys(filter(None, map(_letters, called))):
                whole[form].append(agent_id)
                for letter in set(form[:2]):
                    near[letter].append((form, agent_id))
            for name in {words[0] for text in called if (words := plain_words(text).split())}:
                first[name].append(agent_id)
        return cls(quiet, whole, first, near)

    def stranger(self, name: str, count: int) -> Stranger:
        """Return a speaker without a persona, with the probable agent."""
        own, (first_name, *_) = _letters(name), [*plain_words(name).split(), ""]
        if own in self.whole:
            return Stranger(name, count, self.whole[own][0], spelling=True)
        namesakes = self.first.get(first_name, [])
        quiet = [agent_id for agent_id in namesakes if agent_id in self.silent]
        if len(namesakes) == 1 or len(quiet) == 1:
            return Stranger(name, count, namesakes[0])
        like = dict.fromkeys(pair for letter in own[:2] for pair in self.near.get(letter, ()))
        found = [(distance, agent_id) for form, agent_id in like if (distance := _slips(own, form)) is not None]
        return Stranger(name, count, min(found, key=lambda item: item[0])[1] if found else None)


def _called(item: AgentNames) -> list[str]:
    return [item.agent_id, *filter(None, [item.display_name]), *(alias for alias, _ in item.aliases or ())]


def _letters(text: str) -> str:
    """Return a name without case, accents, white space and signs."""
    return plain_words(text).replace(" ", "")


def _slips(one: str, other: str) -> int | None:
    """Return in how many letters two names differ; None: too many for a slip, or another number."""
    shorter = min(len(one), len(other))
    most = 1 if shorter <= _SHORT else 2
    # A slip changes at most two letters of a name: a cheap test that excludes most pairs.
    if shorter <= 2 or abs(len(one) - len(other)) > most or len(set(one) ^ set(other)) > 2 * most:
        return None
    numbers = [[sign for sign in name if sign.isdigit()] for name in (one, other)]
    if all(numbers) and numbers[0] != numbers[1]:
        return None
    # Letters that are left out, changed, or swapped with their neighbour.
    same = sum(block.size for block in SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks())
    distance = max(len(one), len(other)) - same
    return distance if distance <= most else None


BASELINES = "baselines"


def missing_agents(root: Path, decided_by: Path | None = None) -> list[str]:
    """Return the agents that have a golden baseline (in ``decided_by``, where it is another folder) and no persona file, sorted."""
    folder = (decided_by or root) / BASELINES
    if not folder.is_dir():
        return []
    stems = {entry.name.removesuffix(".json") for entry in os.scandir(folder) if entry.name.endswith(".json")}
    return sorted(stem for stem in stems - set(yaml_stems(root / PERSONAS)) if not stem.startswith("."))


def missing_agent_problems(root: Path) -> list[Problem]:
    """Return a problem for each such agent, placed at its baseline."""
    return [
        Problem(
            f"agent {agent_id!r} has a baseline and no persona; restore {PERSONAS}/{agent_id}.yaml, or delete the baseline too",
            str(root / BASELINES / f"{agent_id}.json"),
        )
        for agent_id in missing_agents(root)
    ]
