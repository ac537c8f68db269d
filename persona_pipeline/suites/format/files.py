"""Files and programs that a suite names: found next to the naming file, confined to roots, read once."""

import errno
import hashlib
import inspect
import itertools
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.files import read_regular, repository_of

MAX_BYTES = 64_000_000
# Limit of files for a pattern.
MOST_FOUND = 100_000
_OF_THE_KERNEL = ("/proc", "/sys", "/dev")


class ReasonedError(Exception):
    """A failure. ``reason``: a word for machines; ``message``: a sentence for people; ``where``: put before it in results."""

    where: ClassVar[str] = ""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


class FileError(ReasonedError):
    """A reference that cannot be used. The message has the reason and the places that were searched.

    ``path`` and ``line``: the file that is the problem, if it was found.
    """

    def __init__(self, said: str, path: Path | None = None, line: int | None = None) -> None:
        place = f"{path}:{line}: " if line else f"{path}: " if path else ""
        super().__init__("missing_file", f"{place}{said}")
        self.said, self.path, self.line = said, path, line

    def problem(self, path: Path | str) -> Problem:
        """Return a problem at the file, or at ``path`` if it was not found."""
        return Problem(self.said, str(self.path or path), self.line, 1 if self.line else None)


def default_roots(suite: Path) -> tuple[Path, ...]:
    """Return the default roots of a suite's files: the top of its repository, else its folder."""
    # A linked suite belongs to the folder of the link. Its target then is outside.
    return (repository_of(suite.absolute().parent.resolve()),)


def state_folder(suite: Path, state: Path | None = None) -> Path:
    """Return the folder for caches and workspaces of a suite: the given one, else ``.persona`` at the top of its repository."""
    return state or default_roots(suite)[0] / ".persona"


@dataclass
class Files:
    """Resolves references and reads the files.

    ``roots``: folders that a file must be in once links are followed; None: no limit. ``found``: the results of ``find``, in
    order.
    """

    roots: tuple[Path, ...] | None = None
    read_files: dict[Path, str] = field(default_factory=dict)
    found: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.roots is not None:
            self.roots = tuple(root.resolve() for root in self.roots)

    def find(self, reference: str, folders: Iterable[Path], *, folder: bool = False) -> Path:
        """Return the absolute path of the first match.

        ``reference``: a relative or absolute path, with or without ``file://``. ``folders``: start of relative paths, in order.
        ``folder``: the path must be a folder.
        """
        tried: list[Path] = []
        for candidate in self.candidates(reference, folders):
            try:
                if not (candidate.is_dir() if folder else candidate.exists()):
                    tried.append(candidate)
                    continue
                found = Path(os.path.realpath(candidate))
            except (OSError, ValueError) as error:
                raise FileError(f"{reference!r} is no usable path ({_reason(error)})") from error
            self.check_place(found, reference)
            if not folder and not found.is_file():
                raise FileError(f"{reference!r} is not a regular file")
            place = Path(os.path.normpath(candidate))
            if not folder:
                self.found.append(place)
            return place
        kind = "folder" if folder else "file"
        raise FileError(f"{kind} {reference!r} does not exist (tried {', '.join(map(str, tried))})")

    def candidates(self, reference: str, folders: Iterable[Path]) -> list[Path]:
        """Return the paths a reference can mean, in order."""
        text = reference
        if text.startswith("file://"):
            text = text.removeprefix("file://")
            if "%" in text:
                text = unquote(text)
        elif "://" in text:
            raise FileError(f"{reference!r} is a URL; only files can be named")
        if not text or "\0" in text:
            raise FileError(f"{reference!r} is no usable path")
        # A backslash is an ordinary character here, but authors mean a separator.
        spellings = [text] if "\\" not in text else [text, text.replace("\\", "/")]
        return [folder / spelling for spelling in spellings for folder in folders]

    def check_place(self, path: Path, reference: str) -> None:
        """Raise ``FileError`` for a path outside the roots once links are followed, even if it does not exist."""
        place = Path(os.path.realpath(path))
        if self.roots is None:
            return
        # The kernel's folders hold the environment and memory of programs; they are refused even if the root is ``/``.
        if any(place.is_relative_to(root) for root in self.roots) and not any(
            map(place.is_relative_to, _OF_THE_KERNEL)
        ):
            return
        raise FileError(
            f"{reference!r} lies outside {', '.join(map(str, self.roots))}; move it, or allow its folder with --allow-path"
        )

    def read(self, path: Path) -> str:
        if path in self.read_files:
            return self.read_files[path]
        try:
            # A link may have changed since ``find``.
            raw = read_regular(path, MAX_BYTES, self.roots)
        except (OSError, ValueError) as error:
            raise FileError(f"cannot be read ({_reason(error)})", path) from error
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise FileError("is not UTF-8; save it as UTF-8", path, line) from error
        self.read_files[path] = text
        return text

    def text_of(self, path: Path) -> str:
        """Return the text of a file that a user names. Raises ``ConfigError``: it cannot be read."""
        try:
            return self.read(self.find(str(path), [path.parent]))
        except FileError as problem:
            raise ConfigError(problem.problem(path)) from problem

    def content_hash(self, folder: Path) -> str:
        """Return a SHA-256 of the files read so far, with their paths relative to a folder."""
        digest = hashlib.sha256()
        for path in sorted(self.read_files):
            name = os.path.relpath(path, folder).replace(os.sep, "/")
            text = self.read_files[path].encode("utf-8")
            digest.update(f"{len(name)} {name} {len(text)} ".encode() + text)
        return digest.hexdigest()

    def glob(self, pattern: str, folders: Sequence[Path]) -> list[Path]:
        """Return the sorted regular files that match a pattern (``*``, ``?``, ``**``, ``[...]``, ``{a,b}``)."""
        found: set[Path] = set()
        for expanded in expand_braces(pattern):
            for candidate in self.candidates(expanded, folders[:1]):
                try:
                    base, rest = self._fixed(candidate, pattern)
                    matches = (path for path in base.glob(rest) if path.is_file())
                    found.update(itertools.islice(matches, MOST_FOUND))
                except (OSError, ValueError, IndexError, NotImplementedError) as error:
                    raise FileError(f"{pattern!r} is no usable pattern ({_reason(error)})") from error
        for path in found:
            self.check_place(path, pattern)
        return sorted(found)

    def _fixed(self, candidate: Path, pattern: str) -> tuple[Path, str]:
        """Return the fixed folder of a pattern, which must be inside the roots, and the rest of the pattern."""
        parts = Path(os.path.normpath(candidate)).parts
        fixed = next((at for at, part in enumerate(parts) if is_pattern(part)), len(parts) - 1)
        base = Path(*parts[:fixed])
        self.check_place(base, pattern)
        return base, str(Path(*parts[fixed:]))


def is_pattern(reference: str) -> bool:
    return any(sign in reference for sign in "*?{[")


def expand_braces(pattern: str, limit: int = 1000) -> list[str]:
    """Expand ``{a,b}`` in a pattern; other braces stay."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        text = waiting.pop()
        start = text.find("{")
        end = text.find("}", start)
        inner_start = text.rfind("{", 0, end) if end > 0 else -1
        if inner_start < 0 or "," not in text[inner_start:end]:
            done.append(text)
        else:
            choices = text[inner_start + 1 : end].split(",")
            waiting += [text[:inner_start] + choice + text[end + 1 :] for choice in choices]
        if len(done) + len(waiting) > limit:
            raise FileError(f"{pattern!r} expands to more than {limit:,} patterns")
    return done


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        return "a symbolic link points at itself"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


# The platform's shell, for a program written as one line of text (spec/3).
SHELL = ("cmd.exe", "/c") if os.name == "nt" else ("sh", "-lc")
_SHELLS = ("sh", "bash", "dash")
_SCRIPTS = (".py", ".js", ".mjs", ".cjs", ".ts", ".mts", ".sh", ".bash", ".rb", ".pl", ".ps1", ".php", ".r")
_SIGNS = frozenset("|&;<>$`*?[](){}#~=\n")


def single_command(script: Sequence[str]) -> list[str]:
    """Return the command of a program; for a shell with one command, that command; empty for any other shell line."""
    words = list(script)
    if len(words) != 3 or not (
        tuple(words[:2]) == SHELL or (Path(words[0]).name in _SHELLS and words[1] in ("-c", "-lc"))
    ):
        return words
    try:
        return [] if _SIGNS & set(words[2]) else shlex.split(words[2])
    except ValueError:
        return []


def missing_file(script: Sequence[str], folder: Path) -> str | None:
    """Return the name of a program's missing file; None without one.

    It is a program with a folder in its name, or the first argument that ends as a script does. Shell lines with several
    commands are not checked. ``folder``: where the program runs.
    """
    words = single_command(script)
    named = [words[0]] if words and ("/" in words[0] or "\\" in words[0]) else []
    named += [word for word in words[1:] if Path(word).suffix.lower() in _SCRIPTS and not word.startswith("-")][:1]
    return next((name for name in named if not (folder / name).exists()), None)


def source_file(call: Callable[..., Any]) -> Path | None:
    """Return the source file of a function; None without one."""
    try:
        found = inspect.getsourcefile(inspect.unwrap(call))
    except TypeError:
        return None
    return Path(found).resolve() if found and Path(found).is_file() else None
