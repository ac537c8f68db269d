"""What whole processes may take, in worlds of three sizes: CPU seconds, memory, modules imported and SQL statements.

    python benchmarks/budgets.py [--only evaluate,validate] [--sizes small,medium] [--database sqlite] [--rounds 3]

Each command of `benchmarks/budgets.yaml` runs as a process of its own. CPU seconds (with Postgres, the server's too) and
memory are the medians of some rounds. Modules and statements are counted in one further process. Ends with 1 where a figure is
above its budget: `make test` checks the counts, a nightly job checks everything.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.scale import PROJECT, Place, Row, write_files

# A run that finds something, or cannot tell, has done its work too.
ENDS = (0, 1, 3, 4)
# Agents and messages of the worlds, and the tests of the suite in them.
SIZES = {"small": (4, 1_000, 10), "medium": (48, 10_000, 100), "large": (192, 40_000, 1_000)}
FIGURES = ("cpu", "mb", "modules", "statements")


def budgets() -> dict[str, dict[str, Any]]:
    """Return each command by its name: ``command``, the words of it, and the budget of each size."""
    return yaml.safe_load((PROJECT / "benchmarks/budgets.yaml").read_text(encoding="utf-8"))


def prepare(place: Place, size: str) -> None:
    """Write a world of a size with recorded judgments, an export of its messages and a suite."""
    agents, messages, tests = SIZES[size]
    write_files(place.root, agents, messages, days=56, files=max(1, agents // 10))
    place.step("sync")
    place.step("record")
    export = place.folder / "export.jsonl"
    with export.open("wb") as file:
        for part in sorted((place.root / "messages").iterdir()):
            file.write(part.read_bytes())
    asserts = [
        {"type": "contains", "value": "answer"},
        {"type": "regex", "value": "an[a-z]+r"},
        {"type": "equals", "value": "an answer"},
        {"type": "starts_with", "value": "an"},
        {"type": "is_json", "negate": True},
    ]
    names = [f"test-{number}" for number in range(tests)]
    cases = [{"id": name, "input": "Hello?", "expected_output": "an answer"} for name in names]
    suite = {"description": "speed", "assert": asserts, "tests": cases}
    (place.folder / "speed.eval.yaml").write_text(yaml.safe_dump(suite), encoding="utf-8")
    answers = "".join(json.dumps({"id": name, "output_text": "an answer"}) + "\n" for name in names)
    (place.folder / "answers.jsonl").write_text(answers, encoding="utf-8")


def measured(place: Place, command: Sequence[str], rounds: int) -> Row:
    """Return the figures of a command: medians of CPU seconds and MB, and counts."""
    rows = [run(place, program(command)) for _ in range(rounds)]
    return {
        "cpu": statistics.median(row["CPU seconds"] for row in rows),
        "mb": statistics.median(row["MB"] for row in rows),
        **counts(place, command),
    }


def run(place: Place, arguments: Sequence[str]) -> Row:
    """Run Python. `try` does not write over its output, so an earlier one is deleted."""
    shutil.rmtree(place.folder / "tried", ignore_errors=True)
    return place.process(*arguments, ends=ENDS)


def counts(place: Place, command: Sequence[str]) -> Row:
    """Return the number of modules that a command imports and of SQL statements that it executes."""
    run(place, [str(Path(__file__).resolve()), "count", *command])
    return json.loads((place.folder / "counts.json").read_text(encoding="utf-8"))


def program(command: Sequence[str]) -> list[str]:
    """Return the arguments of Python that run a command: one of the command line, ``import MODULE`` or ``dagster ...``."""
    first, *rest = command
    if first == "import":
        return ["-c", f"import {rest[0]}"]
    return ["-m", *command] if first == "dagster" else ["-m", "persona_pipeline", *command]


def count(command: Sequence[str]) -> None:
    """Run a command in this process and write `counts.json` when it ends."""
    from runpy import run_module

    from sqlalchemy import Engine, event

    executed = 0

    def add(*_: object) -> None:
        nonlocal executed
        executed += 1

    event.listen(Engine, "before_cursor_execute", add)
    first, *rest = command
    name = {"import": rest[0] if rest else "", "dagster": "dagster"}.get(first, "persona_pipeline")
    sys.argv = [name, *(command if name == "persona_pipeline" else rest)]
    ended: str | int | None = 0
    try:
        if first == "import":
            __import__(name)
        else:
            run_module(name, run_name="__main__", alter_sys=True)
    except SystemExit as error:
        ended = error.code
    Path("counts.json").write_text(json.dumps({"modules": len(sys.modules), "statements": executed}), encoding="utf-8")
    sys.exit(ended)


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and return 1 where a figure is above its budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(budgets()), help="commands, separated by commas")
    parser.add_argument("--sizes", default=",".join(SIZES), help="small, medium and large, separated by commas")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    print(f"{options.database}, {options.rounds} rounds, load {os.getloadavg()[0]:.1f}; figure / budget")
    exceeded = False
    for size in options.sizes.split(","):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            place = Place(folder, stack, postgres=options.database == "postgres")
            prepare(place, size)
            for name in options.only.split(","):
                found, budget = (
                    measured(place, budgets()[name]["command"].split(), options.rounds),
                    budgets()[name][size],
                )
                over = {figure for figure in FIGURES if found[figure] > budget[figure]}
                exceeded |= bool(over)
                row = "  ".join(f"{figure} {found[figure]:>8,.4g} / {budget[figure]:<7,}" for figure in FIGURES)
                print(f"{size:<8}{name:<14}{row}{'  OVER: ' + ', '.join(sorted(over)) if over else ''}", flush=True)
    return int(exceeded)


if __name__ == "__main__":
    if sys.argv[1:2] == ["count"]:
        with contextlib.suppress(BrokenPipeError):
            count(sys.argv[2:])
    sys.exit(main(sys.argv[1:]))
