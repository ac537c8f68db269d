"""What changed since it was last evaluated: the data versions of what lies outside, and what must be evaluated again.

The versions are cheap enough to be taken of a thousand agents twice a minute.
"""

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.files import digest_within, regular_digest, repository_of
from persona_pipeline.guard.baselines.golden import BASELINES
from persona_pipeline.guard.labels.files import LABELS
from persona_pipeline.scoring.text.agreement import LEXICONS
from persona_pipeline.world.messages.revision import AgentRevision, newest_times, revisions
from persona_pipeline.world.personas import PERSONAS, is_agent_id
from persona_pipeline.world.propositions.loading import DEFAULT, PROPOSITIONS
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS

CONVERGENCE = "convergence"
PERSONA, MESSAGES, BASELINE = "persona", "messages", "baseline"
# A dimension stands for the claims about it.
SOURCES = (PERSONA, *ALL_DIMENSIONS, BASELINE, MESSAGES)
ABSENT = "absent"
_YAML = (".yaml", ".yml")
_DIGITS = 16


@dataclass(frozen=True)
class MessageVersion:
    """How often what an agent has said has changed so far, and when the newest message was sent."""

    revision: int
    newest: datetime | None = None

    def __str__(self) -> str:
        return f"r{self.revision}"

    @classmethod
    def parse(cls, version: str | None) -> "MessageVersion | None":
        """Return a recorded version without its time; None when there is none, or an earlier release recorded it."""
        mark, number = (version or "")[:1], (version or "")[1:]
        return cls(int(number)) if mark == "r" and number.isdigit() else None


# Versions by agent, by source: 'persona', 'messages', 'baseline', or a dimension, whose claims it is about.
Versions = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class SourceVersions:
    """The versions of all sources. A persona that has no file has no entry; every other file that is missing is ``absent``.

    The version of convergence is of the lexicons, too; that of a baseline of all by which drops are measured and read: golden
    file, labels. ``misnamed``: files whose names can be no agent's.
    """

    by_source: Versions
    messages: Mapping[str, MessageVersion]
    misnamed: tuple[str, ...] = ()

    @property
    def agent_ids(self) -> list[str]:
        """The agents, sorted."""
        return sorted(self.by_source[PERSONA])


def source_versions(root: Path, store: Store) -> SourceVersions:
    """Return the version of every source of every agent, valid or not: a broken file is a version like any other."""
    files = _digests(root / PERSONAS, _YAML)
    personas = {stem: version for stem, version in files.items() if is_agent_id(stem)}
    golden = _digests(root / BASELINES, (".json",))
    # What reports show beside the scores.
    weighing = _digests(root / LABELS, (".jsonl",))
    claims = {name: _proposition_versions(root / PROPOSITIONS / name, personas) for name in ALL_DIMENSIONS}
    words, said = _digests(root / LEXICONS, _YAML), message_versions(store, personas)
    by_source = {
        PERSONA: personas,
        **claims,
        CONVERGENCE: {name: _beside(found, words) for name, found in claims[CONVERGENCE].items()},
        BASELINE: {name: _beside(golden[name], weighing) if name in golden else ABSENT for name in personas},
        MESSAGES: {agent_id: str(version) for agent_id, version in said.items()},
    }
    return SourceVersions(by_source, said, tuple(sorted(files.keys() - personas.keys())))


def message_versions(store: Store, agent_ids: Iterable[str]) -> dict[str, MessageVersion]:
    """Return the version of what each agent has said up to now. New messages, edits and removals raise it.

    A change outside every window an agent was evaluated on does not, nor does a message of the future before its time.
    """
    found, newest = revisions(store), newest_times(store)
    return {name: MessageVersion(found.get(name, AgentRevision()).judged, newest.get(name)) for name in agent_ids}


def _beside(version: str, others: Mapping[str, str]) -> str:
    """Return a version with what counts beside the file; where there is nothing it stays as it is."""
    return _digest(f"{version} {sorted(others.items())}".encode()) if others else version


def _proposition_versions(folder: Path, agent_ids: Iterable[str]) -> dict[str, str]:
    files = _digests(folder, _YAML)
    default = files.get(DEFAULT, ABSENT)
    # An agent without a file of its own shares the default's version.
    return {
        agent_id: _digest(f"{default} {files[agent_id]}".encode()) if agent_id in files else default
        for agent_id in agent_ids
    }


def _digests(folder: Path, endings: tuple[str, ...]) -> dict[str, str]:
    """Return a digest by file stem; two spellings of one name (an error when it is read) are digested together."""
    found: dict[str, str] = {}
    try:
        with os.scandir(folder) as entries:
            files = {entry.name: entry for entry in entries if entry.name.endswith(endings)}
    except (FileNotFoundError, NotADirectoryError):
        return found
    for name in sorted(files):
        stem = name.rpartition(".")[0]
        if not stem or stem.startswith("."):
            continue
        try:
            digest = _known_digest(files[name])
        except FileNotFoundError:
            continue
        except OSError as error:
            # Its run will say what is wrong with it.
            digest = f"unreadable-{error.errno}"
        found[stem] = _digest(f"{found[stem]} {digest}".encode()) if stem in found else digest
    return found


def _known_digest(entry: os.DirEntry[str]) -> str:
    """Return a file's digest. Thousands a look: one that looks as it did is not opened, and a Path each would cost as much."""
    if entry.is_symlink():
        digest = digest_within(entry.path, [repository_of(Path(entry.path).parent)])
    else:
        digest = regular_digest(entry.path, entry.stat())
    return "unreadable" if digest is None else digest[:_DIGITS]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


Settled = Callable[[MessageVersion | None, MessageVersion], bool]


@dataclass(frozen=True)
class Debounce:
    """When new messages are worth an evaluation: at least ``messages`` changes, or ``quiet`` since the newest."""

    messages: int = 20
    quiet: timedelta = timedelta(minutes=15)

    def settled(self, before: MessageVersion | None, now: MessageVersion, at: datetime) -> bool:
        """Return whether to evaluate what an agent has said since ``before``."""
        if before is None or now.newest is None or now.revision - before.revision >= self.messages:
            return True
        silence = at - now.newest
        # A message from the future (a clock that is ahead) is not waited for.
        return silence >= self.quiet or silence < timedelta(0)


@dataclass(frozen=True)
class Work:
    """What to evaluate of one agent.

    Attributes:
        reasons: the sources that changed: 'persona', 'messages', 'baseline' or a dimension.
        dimensions: dimensions to score again; None: everything from the persona on.
    """

    agent_id: str
    reasons: tuple[str, ...]
    dimensions: tuple[str, ...] | None = None

    @property
    def whole(self) -> bool:
        """Whether all of the agent is evaluated."""
        return self.dimensions is None


@dataclass(frozen=True)
class SourceChange:
    """A source that is not as it was recorded."""

    agent_id: str
    source: str
    version: str


def find_changes(
    now: SourceVersions,
    recorded: Versions,
    *,
    known: Collection[str],
    is_settled: Settled,
    reading: bool = False,
) -> tuple[list[SourceChange], list[str]]:
    """Return what must be recorded, agent by agent, and the agents whose new messages are not settled.

    Args:
        known: the agents that are partitions; of another one everything is new, whatever was recorded before it was removed, and of
            one whose messages were never recorded.
        is_settled: whether messages are worth an evaluation, by what was recorded of them and what there is now.
        reading: message files are being read just now: half of what they say is no version, and new agents wait for all of it.
    """
    changes, waiting = [], []
    observed = recorded.get(MESSAGES, {})
    for agent_id in now.agent_ids:
        is_new = agent_id not in known or agent_id not in observed
        if reading and is_new:
            waiting.append(agent_id)
            continue
        for source, versions in now.by_source.items():
            version, before = versions[agent_id], recorded.get(source, {}).get(agent_id)
            if version == before and not is_new:
                continue
            heard = MessageVersion.parse(before)
            settled = is_new or (not reading and is_settled(heard, now.messages[agent_id]))
            if source == MESSAGES and not settled:
                waiting.append(agent_id)
            else:
                changes.append(SourceChange(agent_id, source, version))
    return changes, waiting


def work_of(agent_id: str, sources: Collection[str], *, in_parts: bool) -> Work:
    """Return what to evaluate of an agent these sources of which changed; ``in_parts``: a part alone can be evaluated."""
    reasons = tuple(source for source in SOURCES if source in sources)
    whole = not in_parts or PERSONA in sources or MESSAGES in sources
    return Work(agent_id, reasons, None if whole else tuple(name for name in ALL_DIMENSIONS if name in sources))
