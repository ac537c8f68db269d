"""Changes since the last evaluation: data versions of files and messages, and what to evaluate again.

Versions of a thousand agents are cheap enough for two looks a minute.
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
from persona_pipeline.world.messages.revision import newest_times, revisions
from persona_pipeline.world.personas import PERSONAS, is_agent_id
from persona_pipeline.world.propositions.loading import DEFAULT, PROPOSITIONS
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS

CONVERGENCE = "convergence"
PERSONA, MESSAGES, BASELINE = "persona", "messages", "baseline"
# A dimension is the source of its claims.
ABSENT = "absent"
_YAML = (".yaml", ".yml")
_DIGITS = 16


@dataclass(frozen=True)
class MessageVersion:
    """Number of changes of an agent's messages, and the time of the newest."""

    revision: int
    newest: datetime | None = None

    def __str__(self) -> str:
        return f"r{self.revision}"

    @classmethod
    def parse(cls, version: str | None) -> "MessageVersion | None":
        """Return a recorded version without its time; None: missing, or of an earlier release."""
        mark, number = (version or "")[:1], (version or "")[1:]
        return cls(int(number)) if mark == "r" and number.isdigit() else None


# Versions by agent, by source: 'persona', 'messages', 'baseline', or a dimension, whose claims it is about.
Versions = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class SourceVersions:
    """Versions of all sources. Agents without a persona file have no entry; other missing files are ``absent``.

    The version of convergence includes lexicons; that of a baseline its golden file and labels. ``misnamed``: files whose
    names cannot be agent ids.
    """

    by_source: Versions
    messages: Mapping[str, MessageVersion]
    misnamed: tuple[str, ...] = ()

    @property
    def agent_ids(self) -> list[str]:
        """The agents, sorted."""
        return sorted(self.by_source[PERSONA])


def source_versions(root: Path, store: Store) -> SourceVersions:
    """Return the version of every source of every agent; a broken file has a version, too."""
    files = _digests(root / PERSONAS, _YAML)
    personas = {stem: version for stem, version in files.items() if is_agent_id(stem)}
    golden = _digests(root / BASELINES, (".json",))
    # Labels are shown in reports.
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
    """Return the version of each agent's messages. New messages, edits and removals raise it.

    A change outside every evaluated window does not, nor does a message of the future before its time.
    """
    found, newest = revisions(store), newest_times(store)
    return {name: MessageVersion(found.get(name, 0), newest.get(name)) for name in agent_ids}


def _beside(version: str, others: Mapping[str, str]) -> str:
    """Return a version combined with further files; unchanged without any."""
    return _digest(f"{version} {sorted(others.items())}".encode()) if others else version


def _proposition_versions(folder: Path, agent_ids: Iterable[str]) -> dict[str, str]:
    files = _digests(folder, _YAML)
    default = files.get(DEFAULT, ABSENT)
    # An agent without a separate file shares the default's version.
    return {
        agent_id: _digest(f"{default} {files[agent_id]}".encode()) if agent_id in files else default
        for agent_id in agent_ids
    }


def _digests(folder: Path, endings: tuple[str, ...]) -> dict[str, str]:
    """Return a digest by file stem; two spellings of a name (an error when they are read) are combined."""
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
            # Its run reports the problem.
            digest = f"unreadable-{error.errno}"
        found[stem] = _digest(f"{found[stem]} {digest}".encode()) if stem in found else digest
    return found


def _known_digest(entry: os.DirEntry[str]) -> str:
    """Return a file's digest. Thousands are looked at, so unchanged files are not opened and no Path is made."""
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
    """When new messages are worth an evaluation: ``messages`` changes, or ``quiet`` since the newest."""

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
class SourceChange:
    """A source that differs from its record."""

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
    """Return the changes to record, agent by agent, and the agents whose new messages are not settled.

    Args:
        known: the agents that are partitions; everything is new of others, and of agents whose messages were never recorded.
        is_settled: whether messages are worth an evaluation, by their recorded and current version.
        reading: message files are being read: their messages are incomplete, and new agents wait.
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
