"""Do the tests notice a wrong result? Small faults are put into functions, one at a time, and the tests that reach them are run.

    python benchmarks/mutants.py persona_pipeline/guard/baselines --tests tests/baselines tests/evaluation
    python benchmarks/mutants.py persona_pipeline/importing --tests tests/importing --each 6 --out found.jsonl

All tests are collected once. Each mutant is a fork of that process in which the function's code is exchanged; those tests that call
it run, quickest first, until one fails. What survives is printed: it needs a test, or changes no result. Tests that start processes
of their own do not see the mutant there. ``--out`` keeps what was found, a line a mutant; what stands in it is not judged again.
"""

import argparse
import ast
import contextlib
import copy
import gc
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

PROJECT = Path(__file__).resolve().parents[1]
COMPARED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
COMPUTED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
NAMED = {
    "min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum", "argmin": "argmax",
    "argmax": "argmin", "floor": "ceil", "ceil": "floor",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A fault: ``function`` of ``file`` in which, on ``line``, ``before`` became ``after``; ``code`` is the function's new code."""

    file: str
    function: str
    line: int
    before: str
    after: str
    code: CodeType

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line} {self.function}: {self.before} -> {self.after}"


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield the functions of a module and of its classes, with their qualified names."""
    open_: list[tuple[str, ast.AST]] = [("", tree)]
    while open_:
        prefix, node = open_.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield prefix + child.name, child
            elif isinstance(child, ast.ClassDef):
                open_.append((f"{prefix}{child.name}.", child))


def parts(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Yield (parent, field, index, node) of what decides a result: not annotations, defaults, sentences or errors."""
    open_: list[ast.AST] = [function]
    while open_:
        parent = open_.pop()
        for field, value in ast.iter_fields(parent):
            if field in ("args", "returns", "annotation", "decorator_list", "type_params"):
                continue
            for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if isinstance(node, ast.AST) and not isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
                    yield parent, field, index, node
                    open_.append(node)


def replacements(parent: ast.AST, field: str, node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a node may wrongly be."""
    match node:
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                new = copy.copy(node)
                new.ops = [*node.ops]
                new.ops[index] = COMPARED[type(operator)]()
                yield new
        case ast.BinOp() | ast.AugAssign() | ast.BoolOp() if type(node.op) in COMPUTED:
            if not any(isinstance(part, ast.JoinedStr) or _is_text(part) for part in ast.iter_child_nodes(node)):
                new = copy.copy(node)
                new.op = COMPUTED[type(node.op)]()
                yield new
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield ast.Constant(node.value + 1)
        case ast.Return(value=ast.expr()) if not (isinstance(node.value, ast.Constant) and not node.value.value):
            yield ast.Return(None)
        case ast.Name() | ast.Attribute():
            name = node.id if isinstance(node, ast.Name) else node.attr
            if field == "func" and name in NAMED:
                new = copy.copy(node)
                setattr(new, "id" if isinstance(node, ast.Name) else "attr", NAMED[name])
                yield new
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()
    if (field == "test" or field == "ifs") and isinstance(node, ast.Name | ast.Attribute | ast.Call):
        yield ast.UnaryOp(ast.Not(), node)
    if field == "ifs":
        yield ast.Constant(True)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def mutants(path: Path, each: int, seed: int) -> Iterator[Mutant]:
    """Yield mutants of a file, at most so many a function: of another line as long as there are lines, drawn by the seed."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    file = str(path.relative_to(PROJECT))
    for qualified, function in functions(tree):
        found = [
            (parent, field, index, node, new)
            for parent, field, index, node in parts(function)
            for new in replacements(parent, field, node)
        ]
        random.Random(f"{seed} {file} {qualified}").shuffle(found)
        seen: Counter[int] = Counter()
        ranked = []
        for number, item in enumerate(found):
            line = getattr(item[3], "lineno", function.lineno)
            ranked.append((seen[line], number, line, item))
            seen[line] += 1
        for _, _, line, (parent, field, index, node, new) in sorted(ranked, key=lambda row: row[:2])[:each]:
            put(parent, field, index, ast.copy_location(new, node))
            code = code_of(
                compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True), qualified, function
            )
            texts = ast.unparse(node), ast.unparse(new)
            put(parent, field, index, node)
            if code is not None:
                yield Mutant(file, qualified, line, *texts, code)


def put(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def code_of(module: CodeType, qualified: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> CodeType | None:
    """Return the code of a function in that of its module."""
    open_ = [module]
    while open_:
        for constant in open_.pop().co_consts:
            if isinstance(constant, CodeType):
                lines = range(first_line(function), (function.end_lineno or function.lineno) + 1)
                if constant.co_qualname == qualified and constant.co_firstlineno in lines:
                    return constant
                open_.append(constant)
    return None


def first_line(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return min([function.lineno, *(item.lineno for item in function.decorator_list)])


class Survey:
    """pytest plugin: runs the mutants in place of the tests."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.files = [
            file
            for path in map(Path.resolve, options.what)
            for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))
        ]
        self.folder = Path(tempfile.mkdtemp(prefix="mutants"))
        self.items: list[pytest.Item] = []

    def pytest_sessionstart(self) -> None:
        from hypothesis import HealthCheck, Phase, settings

        # Examples are the same for every mutant, and none is made smaller or kept.
        settings.register_profile(
            "mutants", deadline=None, database=None, derandomize=True, phases=(Phase.explicit, Phase.generate),
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = session.items
        # What all tests share is made once, before anything is reached.
        self._holds(self.items[0])
        for file in self.files:
            importlib.import_module(".".join(file.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__"))
        reached = self._reached()
        live: dict[tuple[str, str, int], list[FunctionType]] = {}
        # Some of the package freezes what is loaded (see `definitions`), and what is frozen is not listed.
        gc.unfreeze()
        for found in gc.get_objects():
            if isinstance(found, FunctionType):
                code = found.__code__
                live.setdefault((code.co_filename, code.co_qualname, code.co_firstlineno), []).append(found)
        known = self.options.out.read_text().splitlines() if self.options.out and self.options.out.exists() else []
        judged = {json.loads(line)["name"] for line in known}
        asked = None
        if self.options.again:
            rows = map(json.loads, self.options.again.read_text().splitlines())
            asked = {row["name"] for row in rows if row["verdict"] in ("survived", "never run")}
        counts: Counter[str] = Counter()
        started = time.monotonic()
        for file in self.files:
            drawn = [*mutants(file, self.options.each, self.options.seed)]
            random.Random(f"{self.options.seed} {file.relative_to(PROJECT)}").shuffle(drawn)
            for mutant in drawn[: self.options.most]:
                if mutant.name in judged or (asked is not None and mutant.name not in asked):
                    continue
                code = mutant.code
                swapped = live.get((code.co_filename, code.co_qualname, code.co_firstlineno), [])
                key = (code.co_filename, code.co_firstlineno)
                tests, spent = [], 0.0
                for seconds, number, hits in reached:
                    if key in hits and (spent := spent + seconds) <= self.options.seconds:
                        tests.append(number)
                verdict, by = self._judge(code, swapped, tests) if swapped and tests else ("never run", "")
                counts[verdict] += 1
                row = {"name": mutant.name, "verdict": verdict, "by": by, "tests": len(tests)}
                if self.options.out:
                    with self.options.out.open("a") as out:
                        print(json.dumps(row), file=out)
                if verdict in ("survived", "never run"):
                    print(f"{verdict} ({len(tests)} tests)  {mutant.name}", flush=True)
        print(dict(counts), f"{time.monotonic() - started:.0f} s", flush=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        return True

    def _reached(self) -> list[tuple[float, int, set[tuple[str, int]]]]:
        """Return the tests that hold, quickest first: their seconds, and the functions they call by file and first line."""
        said = self.folder / "reached.jsonl"

        def run() -> None:
            names = {str(file) for file in self.files}
            hits: set[tuple[str, int]] = set()

            def trace(frame: Any, event: str, _: Any) -> None:
                if frame.f_code.co_filename in names:
                    hits.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

            with said.open("w") as out:
                for number, item in enumerate(self.items):
                    hits.clear()
                    threading.settrace(trace)
                    sys.settrace(trace)
                    started = time.process_time()
                    held = self._holds(item)
                    sys.settrace(None)
                    threading.settrace(None)  # pyright: ignore[reportArgumentType]
                    spent = time.process_time() - started
                    if held and spent <= self.options.slowest:
                        print(json.dumps([spent, number, sorted(hits)]), file=out, flush=True)
                    else:
                        print(
                            f"left out: {item.nodeid} ({spent:.1f} s, {'held' if held else 'failed'})",
                            file=sys.__stderr__,
                        )

        self._forked(run, 3600, 3600, quiet=False)
        rows = sorted(map(json.loads, said.read_text().splitlines()))
        print(f"{len(rows)} tests, {sum(row[0] for row in rows):.0f} s", flush=True)
        return [(seconds, number, {(file, line) for file, line in hits}) for seconds, number, hits in rows]

    def _holds(self, item: pytest.Item) -> bool:
        # Whatever comes next, fixtures of the session are kept.
        following: Any = SimpleNamespace(listchain=lambda: [item.session])
        reports = runtestprotocol(item, nextitem=following, log=False)
        return all(report.outcome != "failed" for report in reports)

    def _judge(self, code: CodeType, swapped: list[FunctionType], tests: list[int]) -> tuple[str, str]:
        said = self.folder / "by"
        said.unlink(missing_ok=True)

        def run() -> None:
            for function in swapped:
                function.__code__ = code
            for number in tests:
                said.write_text(self.items[number].nodeid)
                if not self._holds(self.items[number]):
                    os._exit(1)

        status = self._forked(run, 4 * self.options.seconds + 10, 20 * self.options.seconds + 60)
        verdict = {0: "survived", 256: "killed"}.get(status, "timeout")
        return verdict, said.read_text() if verdict != "survived" and said.exists() else ""

    def _forked(self, run: Callable[[], None], processor: float, wall: float, *, quiet: bool = True) -> int:
        """Return how a fork of this process ended that ran so long at most, in seconds."""
        child = os.fork()
        if not child:
            os.setsid()
            if quiet:
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, 1)
                os.dup2(nothing, 2)
            resource.setrlimit(resource.RLIMIT_CPU, (int(processor), int(processor)))
            temporary = self.items[0].config._tmp_path_factory  # type: ignore[attr-defined]
            temporary._basetemp = Path(tempfile.mkdtemp(dir=self.folder))
            try:
                run()
            except BaseException:  # pytest's own ways out, too
                os._exit(1)
            os._exit(0)
        end = time.monotonic() + wall
        while not (found := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > end:
                os.killpg(child, signal.SIGKILL)
                found = os.waitpid(child, 0)
                break
            time.sleep(0.005)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        for folder in self.folder.iterdir():
            if folder.is_dir():
                shutil.rmtree(folder, ignore_errors=True)
        return found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", type=Path, help="files or folders of the package")
    parser.add_argument("--tests", nargs="+", required=True, help="tests beside them")
    parser.add_argument("--each", type=int, default=8, help="mutants a function at most")
    parser.add_argument("--most", type=int, help="mutants a file at most, drawn by the seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slowest", type=float, default=5.0, help="tests that take longer are left out, in seconds")
    parser.add_argument(
        "--seconds", type=int, default=20, help="of tests a mutant at most; who takes 4 times that is noticed"
    )
    parser.add_argument("--again", type=Path, help="what was found (see --out): only what no test noticed then")
    parser.add_argument("--out", type=Path, help="what was found, a line a mutant")
    options = parser.parse_args()
    arguments = [*options.tests, "-s", "-p", "no:cacheprovider", "-n", "0"]
    raise SystemExit(pytest.main(arguments, plugins=[Survey(options)]))


if __name__ == "__main__":
    main()
