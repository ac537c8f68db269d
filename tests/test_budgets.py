"""What commands import and ask the database, against `benchmarks/budgets.yaml`; CPU and memory are checked every night."""

import ast
import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.budgets import FIGURES, SIZES, budgets, counts, prepare
from benchmarks.scale import Place

BENCHMARKS = sorted((Path(__file__).parents[1] / "benchmarks").rglob("*.py"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with ExitStack() as stack:
        made = Place(tmp_path_factory.mktemp("budgets"), stack, postgres=False)
        # Counts do not depend on where bytecode is kept, and here it is there already.
        del made.environment["PYTHONPYCACHEPREFIX"]
        prepare(made, "small")
        yield made


@pytest.mark.slow
@pytest.mark.xdist_group("budgets")
@pytest.mark.parametrize("name", ["evaluate", "validate", "report", "suite", "definitions"])
def test_modules_and_statements_are_within_their_budget(name: str, place: Place) -> None:
    command, budget = budgets()[name]["command"].split(), budgets()[name]["small"]
    found = counts(place, command)
    assert {figure for figure in found if found[figure] > budget[figure]} == set(), (found, budget)


def test_every_command_has_a_budget_of_every_size_and_figure() -> None:
    for name, budget in budgets().items():
        assert set(budget) == {"command", *SIZES}, name
        assert all(set(budget[size]) == set(FIGURES) for size in SIZES), name


def test_a_process_that_fails_is_not_a_measurement(tmp_path: Path) -> None:
    with ExitStack() as stack:
        place = Place(tmp_path, stack, postgres=False)
        assert place.process("-c", "raise SystemExit(3)", ends=(0, 3))["CPU seconds"] > 0
        with pytest.raises(SystemExit, match="broke"):
            place.process("-c", "raise ValueError('broke')")


def test_benchmarks_import_names_that_the_package_has() -> None:
    """Imports inside functions too: a benchmark runs seldom, so a rename would break it unnoticed."""
    for path in BENCHMARKS:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or (node.module or "").split(".")[0] not in (
                "persona_pipeline",
                "tests",
            ):
                continue
            module = importlib.import_module(node.module or "")
            missing = [name.name for name in node.names if not hasattr(module, name.name)]
            submodules = [name for name in missing if importlib.util.find_spec(f"{node.module}.{name}")]
            assert set(missing) <= set(submodules), f"{path.stem}: {node.module}"
