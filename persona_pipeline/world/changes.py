"""What a change to a world adds, edits or removes, by name: every persona, claim, baseline, recording, message file and suite.

Read from git, without checking anything out and without believing what the changed files say of themselves.
"""

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from persona_pipeline.documents import JsonError, parse_document, strict_json
from persona_pipeline.errors import ConfigError

FOLDERS = ("personas", "cards", "propositions", "baselines", "recordings", "messages", "suites")
_WHAT = {"personas": "persona", "cards": "card", "baselines": "baseline", "messages": "messages", "suites": "suite"}
_LARGEST = 20_000_000
_MOST_COMMITS = 200
_GIT_SECONDS = 60


class Kind(StrEnum):
    """How a thing differs between the two states."""

    ADDED = "added"
    EDITED = "edited"
    REMOVED = "removed"


@dataclass(frozen=True, order=True)
class Change:
    """One thing that a change touches.

    Attributes:
        what: ``persona``, ``claim``, ``claims`` (a file's other settings, or a file that cannot be read), ``baseline``,
            ``card``, ``recording``, ``messages`` or ``suite``.
        name: the agent's id; of a claim ``dimension/file: id``; of a recording what it is of.
        path: relative to the world's folder.
    """

    what: str
    name: str
    kind: Kind
    path: str


def changed_things(root: Path, base: str, head: str = "HEAD") -> list[Change]:
    """Return what differs between two commits of the repository a world stands in, in a fixed order.

    Args:
        base: the commit before, such as ``origin/main`` or ``HEAD^1`` of a merge.

    Raises:
        ConfigError: there is no git, no repository, or no such commit.
    """
    for commit in (base, head):
        if commit.startswith("-"):
            raise ConfigError(f"{commit!r} is no commit")
    prefix = ask_git(root, "rev-parse", "--show-prefix").decode("utf-8").strip()
    before = ask_git(root, "rev-parse", "--verify", "--quiet", f"{base}^{{commit}}").decode("ascii").strip()
    after = ask_git(root, "rev-parse", "--verify", "--quiet", f"{head}^{{commit}}").decode("ascii").strip()
    listed = ask_git(root, "diff-tree", "-r", "-z", "--no-renames", "--full-index", before, after, "--", *FOLDERS)
    changes: set[Change] = set()
    for path, old, new in _entries(listed):
        shown = path.removeprefix(prefix)
        changes.update(_changes(shown, _blob(root, old), _blob(root, new)))
    return sorted(changes)


@dataclass(frozen=True)
class Commit:
    """A commit of the repository a world stands in: when it was made, its short id, its subject and the files it touches."""

    at: datetime
    id: str
    subject: str
    paths: tuple[str, ...]


def commits_between(root: Path, start: datetime, end: datetime) -> list[Commit]:
    """Return the commits to a world's folder in a span of time, the newest first, at most 200; paths as in ``Change``.

    Raises:
        ConfigError: there is no git, or no repository.
    """
    prefix = ask_git(root, "rev-parse", "--show-prefix").decode("utf-8").strip()
    span = (f"--since={start.isoformat()}", f"--until={end.isoformat()}", f"--max-count={_MOST_COMMITS}")
    form = ("-z", "--no-show-signature", "--name-only", "--format=%x1e%cI%x1f%h%x1f%s%x1f")
    listed = ask_git(root, "log", *span, *form, "HEAD", "--", ".").decode("utf-8", "replace")
    found = []
    for entry in listed.split("\x1e")[1:]:
        at, name, subject, files = entry.split("\x1f", 3)
        paths = tuple(path.strip("\n").removeprefix(prefix) for path in files.split("\0") if path.strip("\n"))
        found.append(Commit(datetime.fromisoformat(at), name, subject, paths))
    return found


def change_counts(changes: Iterable[Change]) -> dict[tuple[str, Kind], int]:
    """Return how many things of each sort were added, edited and removed."""
    return dict(sorted(Counter((change.what, change.kind) for change in changes).items()))


def _entries(listed: bytes) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield path, old and new blob of each entry of ``diff-tree -z``; None where there is none or it is no regular file."""
    parts = listed.split(b"\0")
    for meta, path in zip(parts[0::2], parts[1::2], strict=False):
        old_mode, new_mode, old, new, _ = meta.decode("ascii").lstrip(":").split(" ")
        yield (
            path.decode("utf-8", "replace"),
            old if old_mode.startswith("100") else None,
            new if new_mode.startswith("100") else None,
        )


def _blob(root: Path, name: str | None) -> bytes | None:
    if name is None or not name.strip("0"):
        return None
    if int(ask_git(root, "cat-file", "-s", name)) > _LARGEST:
        return b""
    return ask_git(root, "cat-file", "blob", name)


def _changes(path: str, old: bytes | None, new: bytes | None) -> Iterator[Change]:
    parts = PurePosixPath(path).parts
    if len(parts) < 2:
        return
    folder, stem, ending = parts[0], PurePosixPath(path).stem, PurePosixPath(path).suffix
    kind = Kind.ADDED if old is None else Kind.REMOVED if new is None else Kind.EDITED
    if folder == "recordings" and ending == ".jsonl":
        yield from _by_name(path, "recording", _recordings(old), _recordings(new), kind)
    elif folder == "propositions" and ending in (".yaml", ".yml"):
        before, after = _claims(parts, stem, old), _claims(parts, stem, new)
        found = [] if before is None and after is None else list(_by_name(path, "claim", before, after, kind))
        yield from found
        if not found or _settings(old) != _settings(new):
            yield Change("claims", "/".join([*parts[1:-1], stem]), kind, path)
    else:
        yield Change(
            _WHAT.get(folder, "recordings" if folder == "recordings" else "file"), _named(parts, stem), kind, path
        )


def _named(parts: tuple[str, ...], stem: str) -> str:
    return stem if len(parts) == 2 and parts[0] in ("personas", "cards", "baselines") else "/".join(parts[1:])


def _by_name(
    path: str, what: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None, kind: Kind
) -> Iterator[Change]:
    if old is None and new is None:
        yield Change(what, PurePosixPath(path).name, kind, path)
        return
    before, after = old or {}, new or {}
    for name in before.keys() | after.keys():
        if before.get(name) != after.get(name):
            how = Kind.ADDED if name not in before else Kind.REMOVED if name not in after else Kind.EDITED
            yield Change(what, name, how, path)


def _recordings(data: bytes | None) -> dict[str, Any] | None:
    """The lines of a recordings file by what they are of; a line that cannot be read stands for itself."""
    if data is None:
        return None
    found: dict[str, Any] = {}
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            item = strict_json(line)
        except JsonError:
            item = None
        name = _recording_name(item) if isinstance(item, dict) else f"line {number}, which cannot be read"
        # A recording made anew has another key; the list keeps several of one name apart.
        found.setdefault(name, []).append(line)
    return {name: sorted(lines) for name, lines in found.items()}


def _recording_name(item: Mapping[str, Any]) -> str:
    said = [item.get(name) for name in ("agent_id", "dimension", "proposition_id", "kind", "label")]
    agent, dimension, proposition, kind, label = (value if isinstance(value, str) else "" for value in said)
    return "/".join(filter(None, (agent, dimension, proposition) if dimension else (kind, agent, label)))


def _claims(parts: tuple[str, ...], stem: str, data: bytes | None) -> dict[str, Any] | None:
    content = _yaml(data)
    if content is None:
        return None
    where = "/".join([*parts[1:-1], stem])
    entries = content.get("propositions")
    found = {}
    for entry in entries if isinstance(entries, list) else []:
        name = entry.get("id") if isinstance(entry, dict) else None
        found[f"{where}: {name}"] = json.dumps(entry, sort_keys=True)
    return found


def _settings(data: bytes | None) -> dict[str, Any] | None:
    content = _yaml(data)
    return content and {name: value for name, value in content.items() if name != "propositions"}


def _yaml(data: bytes | None) -> dict[str, Any] | None:
    if data is None:
        return None
    try:
        content = parse_document(data.decode("utf-8-sig")).data
    except (ConfigError, UnicodeDecodeError):
        return None
    return content if isinstance(content, dict) else None


def ask_git(root: Path, *arguments: str, standard_input: bytes | None = None) -> bytes:
    """Return what a git command prints about the repository a folder stands in.

    Args:
        standard_input: what it reads; None: nothing.

    Raises:
        ConfigError: there is no git, no repository, or no such commit.
    """
    # Neither hooks nor programs that the repository's configuration names are run by these commands.
    command = ["git", "-C", str(root), "--no-optional-locks", "-c", "core.fsmonitor=false", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_GIT_SECONDS, check=False, input=standard_input or b""
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"git cannot be run ({type(error).__name__}); what has changed cannot be told") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        what = said[0] if said else f"no such commit: {arguments[-1]}"
        raise ConfigError(f"git cannot tell what has changed ({what}); fetch the commit that is compared with")
    return done.stdout
