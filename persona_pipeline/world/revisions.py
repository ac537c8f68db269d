"""A world as of a commit: read from git as data into a temporary folder, without a checkout and without running anything.

Without git, a repository or the commit, all functions raise ``ConfigError``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.files import ask_git
from persona_pipeline.base.text import printable

LEXICONS = "lexicons"
# All of a commit that is read by an evaluation.
READ = ("personas", "propositions", "messages", "recordings", LEXICONS)
_LARGEST = 200_000_000


@dataclass(frozen=True)
class Revision:
    """A commit of the world's repository.

    ``id``: all 40 digits; ``name``: as requested; ``subject``: the first line of its message.
    """

    id: str
    name: str
    subject: str = ""
    at: datetime | None = None

    @property
    def short(self) -> str:
        return self.id[:10]


def find_revision(root: Path, name: str) -> Revision:
    """Return the commit that a name means, such as ``origin/main`` or ``HEAD~3``."""
    if not name or name.startswith("-"):
        raise ConfigError(f"{name!r} is no commit")
    found = ask_git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return next(iter(_revisions(root, ["-1", found.decode("ascii").strip()], name)))


def revisions_between(root: Path, good: str, bad: str, paths: Sequence[str]) -> list[Revision]:
    """Return the commits from ``good`` to ``bad`` that touch paths of a world's folder, oldest first, along first parents.

    ``good`` is always first. Raises ``ConfigError``: git, the repository or a commit is missing, or ``good`` is not an
    ancestor.
    """
    first, last = find_revision(root, good), find_revision(root, bad)
    if first.id == last.id:
        return [first]
    base = ask_git(root, "merge-base", first.id, last.id).decode("ascii").strip()
    if base != first.id:
        raise ConfigError(f"{good} is no ancestor of {bad}; name a commit that {bad} came from, such as {base[:10]}")
    span = ["--first-parent", "--reverse", f"{first.id}..{last.id}", "--", *paths]
    return [first, *_revisions(root, span)]


def revisions_of(root: Path, paths: Sequence[str], most: int) -> list[Revision]:
    """Return the newest commits up to now that touch paths of a world's folder, oldest first, along first parents."""
    return _revisions(root, ["--first-parent", f"--max-count={most}", "HEAD", "--", *paths])[::-1]


def tree_of(root: Path, commit: str, folders: Sequence[str] = READ) -> dict[str, str]:
    """Return the blobs of a commit's regular files by their path in the world's folder; links are left out."""
    prefix = ask_git(root, "rev-parse", "--show-prefix").decode("utf-8").strip()
    listed = ask_git(root, "ls-tree", "-r", "-z", "--full-tree", commit, "--", *(f"{prefix}{name}" for name in folders))
    found = {}
    for entry in listed.split(b"\0"):
        if not entry:
            continue
        meta, path = entry.split(b"\t", 1)
        mode, kind, blob = meta.decode("ascii").split(" ")
        name = path.decode("utf-8", "surrogateescape").removeprefix(prefix)
        if kind == "blob" and mode.startswith("100") and ".." not in PurePosixPath(name).parts:
            found[name] = blob
    return found


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Write files of a commit, by their path as of ``tree_of``, into a folder; ConfigError: one would lie elsewhere."""
    for path, data in files.items():
        place = folder / path
        if not place.resolve().is_relative_to(folder.resolve()):
            raise ConfigError(f"{path!r} leads out of the world's folder; the commit is not read")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def read_blobs(root: Path, blobs: Iterable[str]) -> list[bytes]:
    """Return the content of blobs, in their order: the bytes that are stored, without any filter.

    Raises ``ConfigError``: git cannot read one, or all together are larger than 200 MB.
    """
    wanted = list(blobs)
    if not wanted:
        return []
    names = "".join(f"{name}\n" for name in wanted).encode("ascii")
    sizes = ask_git(root, "cat-file", "--batch-check=%(objectsize)", standard_input=names).split()
    if sum(map(int, sizes)) > _LARGEST:
        raise ConfigError(f"the world's files of a commit are larger than {_LARGEST:,} bytes; compare folders instead")
    told = ask_git(root, "cat-file", "--batch", standard_input=names)
    found, at = [], 0
    for size in map(int, sizes):
        at = told.index(b"\n", at) + 1
        found.append(told[at : at + size])
        at += size + 1
    return found


def files_at(root: Path, commit: str, folders: Sequence[str] = READ) -> dict[str, bytes]:
    """Return the files of a commit by their path in the world's folder; links are left out."""
    blobs = tree_of(root, commit, folders)
    return dict(zip(blobs, read_blobs(root, blobs.values()), strict=True))


def _revisions(root: Path, arguments: Sequence[str], name: str | None = None) -> list[Revision]:
    form = ("-z", "--no-show-signature", "--format=%H%x1f%cI%x1f%s")
    lines = ask_git(root, "log", *form, *arguments).decode("utf-8", "replace").split("\0")
    # No subject has a NUL.
    found = (line.split("\x1f", 2) for line in lines if line)
    return [Revision(id, name or id[:10], printable(subject), datetime.fromisoformat(at)) for id, at, subject in found]
