"""The Dagster layer is rooms with one way through them, and what is not public of Dagster stands in one module."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "persona_pipeline"
DEFS = PACKAGE / "defs"
MODULES = sorted(DEFS.rglob("*.py"))
INTERNALS = DEFS / "platform/dagster_internals.py"
# What reaches into Dagster past its public names; tags in keys of metadata that Dagster documents are none.
PRIVATE = ("dagster._", "event_log_storage", "compute_log_manager", "get_records_for_run")
PRIVATE_TAGS = ("dagster/input", "dagster/data_version", "dagster/code_version", "dagster/partition")


def imports(path: Path) -> Iterator[str]:
    """Yield the modules a file names in its imports, those inside functions too; ``from a import b`` as ``a`` and ``a.b``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def test_no_module_of_the_dagster_layer_needs_itself() -> None:
    names = {module_name(path) for path in MODULES}
    graph = {module_name(path): {name for name in imports(path) if name in names} for path in MODULES}
    graph = {name: needed - {name} for name, needed in graph.items()}
    # Raises CycleError, which names the circle.
    assert set(TopologicalSorter(graph).static_order()) == names


@pytest.mark.parametrize("path", [path for path in MODULES if path != INTERNALS], ids=module_name)
def test_what_is_not_public_of_dagster_stands_in_one_module(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [name for name in (*PRIVATE, *PRIVATE_TAGS) if name in text] == []


def test_a_module_has_one_idea() -> None:
    assert {module_name(path) for path in MODULES if len(path.read_text(encoding="utf-8").splitlines()) > 500} == set()
