"""Changes to a world by name: added, edited and removed files that are evaluated or decide a verdict.

Read from git, without a checkout and without trusting the changed files.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from persona_pipeline.base.documents.json import JsonError, strict_json
from persona_pipeline.base.documents.yaml import parse_document
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.files import ask_git, read_regular

# Files that decide a verdict. A pull request is judged by its base's.
DECIDING = ("baselines", "labels", "lexicons", "background", "nudges", "persona.yaml")
FOLDERS = ("personas", "cards", "propositions", "messages", "recordings", "suites", "interviews", *DECIDING, ".persona")
# Of the whole repository: workflows, and settings of the checkout.
_EVERYWHERE = (
    ":(top).github",
    ":(top,glob)**/.gitattributes",
    ":(top).gitmodules",
    "targets.yaml",
    ":(glob)*.eval.y*ml",
)
_WHAT = {
    "personas": "persona",
    "cards": "card",
    "messages": "messages",
    "recordings": "recordings",
    "suites": "suite",
    "interviews": "interview",
    "labels": "labels",
    "baselines": "anchors",
    "lexicons": "lexicon",
    "background": "everyday language",
    "nudges": "nudges",
    "persona.yaml": "settings",
    ".persona": "store",
    ".github": "workflow",
}
_MOST_VALUES = 20
_ACCEPTED = "accepted"
_LARGEST, _MOST_DECIDING = 20_000_000, 50_000_000


class Kind(StrEnum):
    """How a thing differs between the two states."""

    ADDED = "added"
    EDITED = "edited"
    REMOVED = "removed"


@dataclass(frozen=True, order=True)
class Change:
    """One change to a world.

    Attributes:
        what: ``persona``, ``claim``, ``claims`` (other settings of a file, or an unreadable file), ``baseline``, ``card``,
            ``recordings``, ``messages``, ``labels``, ``judge changes``, ``lexicon``, ``nudges``, ``settings``, ``suite``,
            ``workflow``, ``store`` (files of a run, which should not be committed) or ``link`` (in the place of a file).
        name: agent id; of a claim ``dimension/file: id``; of recordings agent and dimension.
        path: relative to the world's folder.
        detail: old and new numbers of a baseline, such as ``adherence 8.7 → 0.5``.
        rows: numbers of removed, edited and added messages, labels or recordings.
    """

    what: str
    name: str
    kind: Kind
    path: str
    detail: str = ""
    rows: tuple[int, int, int] = (0, 0, 0)


def changed_things(root: Path, base: str, head: str = "HEAD") -> list[Change]:
    """Return the differences between two commits of the world's repository, in a fixed order.

    ``base``: the commit before, such as ``origin/main`` or ``HEAD^1`` of a merge. Raises ``ConfigError``: git, the repository
    or the commit is missing.
    """
    for commit in (base, head):
        if commit.startswith("-"):
            raise ConfigError(f"{commit!r} is no commit")
    prefix = ask_git(root, "rev-parse", "--show-prefix").decode("utf-8").strip()
    before = ask_git(root, "rev-parse", "--verify", "--quiet", f"{base}^{{commit}}").decode("ascii").strip()
    after = ask_git(root, "rev-parse", "--verify", "--quiet", f"{head}^{{commit}}").decode("ascii").strip()
    options = ("-r", "-z", "--no-renames", "--full-index")
    listed = ask_git(root, "diff-tree", *options, before, after, "--", *FOLDERS, *_EVERYWHERE)
    changes: set[Change] = set()
    for path, old, new, is_link in _entries(listed):
        shown = path.removeprefix(prefix)
        if is_link:
            changes.add(Change("link", shown, _kind(old, new), shown))
        else:
            changes.update(_changes(shown, _blob(root, old), _blob(root, new)))
    return sorted(changes)


def _entries(listed: bytes) -> Iterator[tuple[str, str | None, str | None, bool]]:
    """Yield of ``diff-tree -z`` each path that differs, its blobs before and after, and whether it is, or was, no regular file."""
    parts = listed.split(b"\0")
    for meta, path in zip(parts[0::2], parts[1::2], strict=False):
        *modes, old, new, _ = meta.decode("ascii").lstrip(":").split(" ")
        before, after = (name if name.strip("0") else None for name in (old, new))
        # A link, or a repository in the place of a folder.
        link = any(not mode.startswith("100") for mode in modes if mode.strip("0"))
        yield path.decode("utf-8", "replace"), before, after, link


def _kind(old: object, new: object) -> Kind:
    return Kind.ADDED if old is None else Kind.REMOVED if new is None else Kind.EDITED


def _blob(root: Path, name: str | None) -> bytes | None:
    if name is None:
        return None
    if int(ask_git(root, "cat-file", "-s", name)) > _LARGEST:
        return b""
    return ask_git(root, "cat-file", "blob", name)


def _changes(path: str, old: bytes | None, new: bytes | None) -> Iterator[Change]:
    parts = PurePosixPath(path).parts
    folder, stem, ending = parts[0], PurePosixPath(path).stem, PurePosixPath(path).suffix
    kind, named = _kind(old, new), "/".join(parts[1:]) or path
    if path.endswith(".gitattributes"):
        yield Change("settings", path, kind, path)
    elif folder == "recordings" and ending == ".jsonl":
        yield from _recordings(path, old, new)
    elif folder == "propositions" and ending in (".yaml", ".yml"):
        where, before, after = "/".join([*parts[1:-1], stem]), _yaml(old), _yaml(new)
        was, now = _claims(where, before), _claims(where, after)
        found = [name for name in was.keys() | now.keys() if was.get(name) != now.get(name)]
        for name in found:
            yield Change("claim", name, _kind(was.get(name), now.get(name)), path)
        if not found or _settings(before) != _settings(after):
            yield Change("claims", where, kind, path)
    elif folder == "baselines" and ending == ".json":
        yield Change("baseline", stem if len(parts) == 2 else named, kind, path, _baseline_detail(old, new))
    elif folder in ("messages", "labels"):
        yield Change(_WHAT[folder], named, kind, path, rows=_rows(_lines(old, "id"), _lines(new, "id")))
    else:
        what = _WHAT.get(folder, "suite" if ".eval." in path or path == "targets.yaml" else "settings")
        short = what in ("persona", "card") and len(parts) == 2
        yield Change(what, stem if short else path if what in ("store", "workflow", "settings") else named, kind, path)


def _recordings(path: str, old: bytes | None, new: bytes | None) -> Iterator[Change]:
    """Yield changes by agent and dimension. The same judgment with another answer is an edit."""
    before, after = _lines(old, "key"), _lines(new, "key")
    names = {key: _recording_name(row) for rows in (after, before) for key, (row, _) in rows.items()}
    for name in dict.fromkeys(names.values()):
        own = [{key: rows[key] for key in rows if names[key] == name} for rows in (before, after)]
        rows = _rows(*own)
        if any(rows):
            kind = Kind.EDITED if rows[1] or (rows[0] and rows[2]) else Kind.REMOVED if rows[0] else Kind.ADDED
            yield Change("recordings", name, kind, path, rows=rows)


def _rows(before: "_Rows", after: "_Rows") -> tuple[int, int, int]:
    both = before.keys() & after.keys()
    edited = sum(before[key][1] != after[key][1] for key in both)
    return len(before) - len(both), edited, len(after) - len(both)


_Rows = dict[str, tuple[Mapping[str, Any], str]]


def _lines(data: bytes | None, name: str) -> _Rows:
    """Return the lines of a file by what ``name`` calls them, else by themselves; one that cannot be read holds nothing."""
    found: _Rows = {}
    for line in (data or b"").decode("utf-8", "replace").split("\n"):
        if not line.strip():
            continue
        try:
            row = strict_json(line)
        except JsonError:
            row = None
        item = _object(row)
        said = item.get(name)
        key = said if isinstance(said, str) else line
        # Duplicate keys have all their lines.
        found[key] = (item, f"{found[key][1]}\n{line}" if key in found else line)
    return found


def _recording_name(item: Mapping[str, Any]) -> str:
    said = [item.get(name) for name in ("agent_id", "dimension", "kind", "label")]
    agent, dimension, kind, label = (value if isinstance(value, str) else "" for value in said)
    return (
        "/".join(filter(None, (agent, dimension) if dimension else (kind, agent, label))) or "lines that cannot be read"
    )


def _baseline_detail(old: bytes | None, new: bytes | None) -> str:
    """Return changed values of a golden file: why it was accepted first, then scores, then all others.

    Of an added or removed file only the acceptance is said.
    """
    before, after = _golden(old), _golden(new)
    if old is None or new is None:
        before, after = ({_ACCEPTED: item[_ACCEPTED]} if _ACCEPTED in item else {} for item in (before, after))
    names = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    said = [f"{name} {before.get(name, 'none')} → {after.get(name, 'none')}" for name in names[:_MOST_VALUES]]
    return ", ".join([*said, *([f"and {len(names) - len(said)} more values"] if len(names) > len(said) else [])])


def _golden(data: bytes | None) -> dict[str, str]:
    try:
        content = _object(strict_json((data or b"{}").decode("utf-8")))
    except (JsonError, UnicodeDecodeError):
        return {"readable": "no"}
    accepted, by = _object(content.get("accepted")), _object(content.get("accepted")).get("by")
    why = f"{accepted.get('reason')} ({accepted.get('day')}; {', '.join(map(str, by)) if isinstance(by, list) else by})"
    rest = {key: value for key, value in content.items() if key not in (_ACCEPTED, "dimensions", "capturedAt")}
    return ({_ACCEPTED: why} if accepted else {}) | dict([*_flat(content.get("dimensions")), *_flat(rest)])


def _flat(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield the values in an object by their places."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(item, f"{place}.{key}" if place else str(key))
    elif value is not None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        yield place, f"{value:.3g}" if is_number else str(value)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _claims(where: str, content: dict[str, Any] | None) -> dict[str, str]:
    entries = (content or {}).get("propositions")
    listed = entries if isinstance(entries, list) else []
    return {f"{where}: {_object(entry).get('id')}": json.dumps(entry, sort_keys=True) for entry in listed}


def _settings(content: dict[str, Any] | None) -> dict[str, Any] | None:
    return content and {name: value for name, value in content.items() if name != "propositions"}


def _yaml(data: bytes | None) -> dict[str, Any] | None:
    if data is None:
        return None
    try:
        content = parse_document(data.decode("utf-8-sig")).data
    except (ConfigError, UnicodeDecodeError):
        return None
    return content if isinstance(content, dict) else None


def deciding_files(root: Path) -> dict[str, bytes]:
    """Return the files of a world that decide, by their path; links are left out, as they are of a commit."""
    found: dict[str, bytes] = {}
    for name in DECIDING:
        place = root / name
        if place.is_symlink():
            continue
        paths = [Path(at, file) for at, _, files in os.walk(place) for file in files] if place.is_dir() else [place]
        for path in paths:
            # The lock of writers of labels.
            if path.is_file() and not path.is_symlink() and path.name != ".lock":
                found[path.relative_to(root).as_posix()] = read_regular(path)
    if sum(map(len, found.values())) > _MOST_DECIDING:
        raise ConfigError(
            f"{', '.join(DECIDING)} hold more than {_MOST_DECIDING:,} bytes; --against cannot compare them"
        )
    return found
