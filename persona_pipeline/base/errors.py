"""The errors a user can cause, with place and remedy; and exit codes."""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from persona_pipeline.base.text import printable

if TYPE_CHECKING:
    from pydantic import ValidationError

EXIT_OK, EXIT_REGRESSION, EXIT_CONFIG, EXIT_COVERAGE, EXIT_BUDGET = 0, 1, 2, 3, 4


class PersonaError(Exception):
    """Base of every error this package raises on purpose."""


@dataclass(frozen=True)
class Problem:
    """A problem in an input: its place (1-based line and column) and what to do about it."""

    message: str
    path: str | None = None
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = [str(part) for part in (self.path, self.line, self.column) if part is not None]
        # Names and texts of files are of others.
        return printable(f"{':'.join(place)}: {self.message}" if place else self.message)


# Parts that differ between problems of the same kind: quoted names and values, and numbers.
_VARIES = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")


def by_kind(problems: Iterable[Problem]) -> list[str]:
    """Return a line for each kind of problem in a file: its first one, and how many more there are."""
    kinds: dict[tuple[str | None, str], list[Problem]] = {}
    for problem in problems:
        kinds.setdefault((problem.path, _VARIES.sub("", problem.message)), []).append(problem)
    more = {key: f" ({len(found) - 1} more like it, up to line {found[-1].line})" for key, found in kinds.items()}
    return [f"{found[0]}{more[key] if len(found) > 1 else ''}" for key, found in kinds.items()]


class ConfigError(PersonaError):
    """Bad input. The message holds every problem, one a line, as ``file:line:column: what and how to fix it``."""

    exit_code = EXIT_CONFIG

    def __init__(self, problems: str | Problem | Sequence[Problem]) -> None:
        if isinstance(problems, str):
            problems = Problem(problems)
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class NothingError(ConfigError):
    """Nothing to read. The message names the expected input and its place."""

    exit_code = EXIT_COVERAGE


class NewerStoreError(ConfigError):
    """The store is of a version of this package that this one does not know: nothing in it is touched."""

    exit_code = EXIT_COVERAGE


def raise_problems(broken: Mapping[str, Sequence[Problem]]) -> None:
    """Raise the problems of some agents, if there are any. A problem of a default file, which all agents share, is named once."""
    problems = dict.fromkeys(problem for found in broken.values() for problem in found)
    if problems:
        raise ConfigError(list(problems))


def not_valid(error: "ValidationError", said: str, path: str | None = None) -> ConfigError:
    """Return pydantic's problems as an error. ``said`` is the text of each: ``{name}`` is the path to the value, ``{variable}`` the
    same in capitals, ``{value}`` the value, and ``{why}`` the reason.
    """
    problems = []
    for item in error.errors(include_url=False):
        name, why = ".".join(map(str, item["loc"])) or "the file", f"{item['msg'][0].lower()}{item['msg'][1:]}"
        told = said.format(name=name, variable=name.upper(), value=item["input"], why=why)
        problems.append(Problem(told, path))
    return ConfigError(problems)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest known word, else an empty string."""
    matches = nearest(word, known)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """Return the nearest known word, where one is near enough; capital letters make no difference."""
    spelled = {name.lower(): name for name in known}
    return [spelled[name] for name in difflib.get_close_matches(word.lower(), [*spelled], n=1, cutoff=0.6)]


_SEVERITY = (EXIT_CONFIG, EXIT_REGRESSION, EXIT_BUDGET, EXIT_COVERAGE)


def worst_exit_code(codes: Collection[int]) -> int:
    """Return the worst code: 2 over 1 over 4 over 3 over 0."""
    return next((code for code in _SEVERITY if code in codes), EXIT_OK)
