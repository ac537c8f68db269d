"""The parts of a package build on one another in one direction: no module imports, by whatever way round, itself."""

import ast
from collections.abc import Mapping, Set
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

from docs.site import house

# Hooks of pytest stand in their package itself.
ROOMS = sorted(f"persona_pipeline.{room}" for room in house.rooms() if room != "pytest_plugin")


def module_graph(package: str) -> dict[str, set[str]]:
    """Return which modules of a package each of them imports, read from the source and never run.

    Imports inside functions and those for type checkers only count like any other.
    """
    graph = import_graph(package.partition(".")[0])
    modules = {package, *graph.find_descendants(package)}
    return {name: graph.find_modules_directly_imported_by(name) & modules for name in modules}


@cache
def import_graph(package: str) -> grimp.ImportGraph:
    return grimp.build_graph(package, cache_dir=None)


def folder_graphs(graph: Mapping[str, Set[str]]) -> dict[str, dict[str, set[str]]]:
    """Return, for each folder, which of its modules and folders import which others, whatever is inside them counted in."""
    folders: dict[str, dict[str, set[str]]] = {}
    for name, imported in graph.items():
        for other in imported:
            own, its = name.split("."), other.split(".")
            shared = next((i for i, (a, b) in enumerate(zip(own, its, strict=False)) if a != b), None)
            if shared is not None:
                siblings = folders.setdefault(".".join(own[:shared]), {})
                siblings.setdefault(own[shared], set()).add(its[shared])
    return folders


def cycle(graph: Mapping[str, Set[str]]) -> list[str]:
    """Return modules that import one another in a ring, the first again at the end; nothing where there is no ring."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_module_or_folder_imports_itself_by_a_way_round() -> None:
    for package in ROOMS:
        modules = module_graph(package)
        rings = [cycle(graph) for graph in (modules, *folder_graphs(modules).values())]
        assert [ring for ring in rings if ring] == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("top", "from {0}.upper.roof import tiles"),
        ("function", "def build():\n    from {0}.upper import roof\n"),
        ("checking", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import {0}.upper.roof\n"),
        ("relative", "from ..upper.roof import tiles"),
    ],
)
def test_a_ring_is_found_wherever_the_import_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str
) -> None:
    house = f"house_with_import_{name}"
    for path, text in {
        "upper/roof.py": f"from {house}.lower import wall",
        "lower/wall.py": source.format(house),
        "lower/floor.py": "",
    }.items():
        file = tmp_path / house / path
        file.parent.mkdir(parents=True, exist_ok=True)
        (file.parent / "__init__.py").touch()
        file.write_text(text, encoding="utf-8")
    (tmp_path / house / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    graph = module_graph(house)
    assert {*cycle(graph)} == {f"{house}.upper.roof", f"{house}.lower.wall"}
    assert {*cycle(folder_graphs(graph)[house])} == {"upper", "lower"}


def test_folders_may_form_a_ring_where_modules_do_not() -> None:
    graph = {"h.upper.roof": {"h.lower.wall"}, "h.lower.floor": {"h.upper.attic"}}
    assert cycle(graph) == []
    assert {*cycle(folder_graphs(graph)["h"])} == {"upper", "lower"}


def test_the_request_is_handed_on_as_one_value() -> None:
    """No stage of an evaluation strings arguments from function to function."""
    too_many = []
    for path in sorted((Path(__file__).parents[1] / "persona_pipeline" / "evaluation").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                if len([name for name in names if name.arg not in ("self", "cls")]) > 5:
                    too_many.append(f"{path.name}: {node.name}")
    assert too_many == []
