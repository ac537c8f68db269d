"""The house in figures: how large it is, what its rooms show of themselves, and what may only fall from here."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import grimp
import pytest

from docs.site import house

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "persona_pipeline"
FILES = sorted(PACKAGE.rglob("*.py"))
# What must be known to change an evaluation.
CORE = ("base", "world", "judging", "scoring", "guard", "evaluation", "reporting")
MOST_IN_A_FOLDER = 12
# One type a file, and nothing but the members.
FAMILIES = {"suites/asserts", "suites/targets", "importing"}
# What stands today, and what is aimed at: lower the first as it falls.
CEILINGS = {
    "files": (385, 400),
    "lines": (70_700, 63_000),
    "lines of the core": (34_200, 28_500),
    "modules with one importer": (73, 60),
    "modules that other rooms import": (182, 70),
    "class names in several modules": (2, 8),
}


@cache
def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


@cache
def importers() -> dict[str, set[str]]:
    graph = grimp.build_graph("persona_pipeline", cache_dir=None)
    return {name: set(graph.find_modules_that_directly_import(name)) for name in graph.modules}


def room(module: str) -> str:
    return [*module.split("."), ""][1]


@cache
def shown() -> dict[str, list[str]]:
    """Return, for each room, its modules that others import; the package's own front door counts for none."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, users in importers().items():
        if any(room(user) != room(name) for user in users if user != "persona_pipeline"):
            found[room(name)].append(name)
    return found


@cache
def classes() -> dict[str, set[Path]]:
    found: dict[str, set[Path]] = defaultdict(set)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].add(path)
    return found


def figure(name: str) -> int:
    match name:
        case "files":
            return len(FILES)
        case "lines":
            return sum(map(lines, FILES))
        case "lines of the core":
            return sum(lines(path) for path in FILES if path.relative_to(PACKAGE).parts[0] in CORE)
        case "modules with one importer":
            return sum(len(users) == 1 for users in importers().values())
        case "modules that other rooms import":
            return sum(map(len, shown().values()))
        case "class names in several modules":
            return sum(len(places) > 1 for places in classes().values())
    raise AssertionError(name)


@pytest.mark.parametrize("name", CEILINGS)
def test_it_does_not_grow(name: str) -> None:
    assert figure(name) <= CEILINGS[name][0]


def test_folders_are_short() -> None:
    count: dict[str, int] = defaultdict(int)
    for path in FILES:
        if path.name != "__init__.py":
            count[path.parent.relative_to(PACKAGE).as_posix()] += 1
    assert {folder: n for folder, n in count.items() if n > MOST_IN_A_FOLDER and folder not in FAMILIES} == {}


def test_the_rooms_are_those_in_the_picture() -> None:
    page = house.PAGE.read_text(encoding="utf-8")
    assert page == house.page(page), "run `make docs`"


if __name__ == "__main__":
    for name in CEILINGS:
        print(f"{name}: {figure(name):,}, aim {CEILINGS[name][1]:,}")
