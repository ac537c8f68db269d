"""How far a world is carried through an evaluation: the functions it is handed to, in the order in which the code is written.

    python benchmarks/world_walk.py [MODULE:FUNCTION:PARAMETER ...]

Followed are a world, its store, its folder, a connection to it, and whatever is handed on as such, each function once; and an
object that was made of one is followed into its methods, so that nobody hides a world in a class. A stop is a function, a return a
stop in a file that was left before. Stops in the world's own room and below are counted apart: there a world is read and written,
above it is only carried. Then: how many functions of evaluation and guard take one, and which of their files write SQL.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1] / "persona_pipeline"
ENTRIES = ("evaluation.run:run_evaluation:world", "cli.running:run_and_print:world")
# Parts of a world that are as good as the world.
PARTS = frozenset({"store", "root", "rules_root"})
# Where a function that takes one of these would be going back to the world.
HOLDERS = frozenset({"World", "Store"})
GUARDED = ("evaluation", "guard")
# The rooms in which a store or a folder is read and written.
DEEP = ("world", "base")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Module:
    """A file: its functions and classes, and what it imports from where."""

    name: str
    tree: ast.Module
    functions: dict[str, Function] = field(default_factory=dict)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.tree.body:
            if isinstance(node, Function):
                self.functions[node.name] = node
            elif isinstance(node, ast.ClassDef):
                own = {item.name: item for item in node.body if isinstance(item, Function)}
                self.functions |= {f"{node.name}.{name}": item for name, item in own.items()}
                self.functions.setdefault(node.name, own.get("__init__") or _fields(node))
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("persona_pipeline"):
                for alias in node.names:
                    self.imported[alias.asname or alias.name] = (node.module or "", alias.name)


def _fields(node: ast.ClassDef) -> Function:
    """Return the fields of a dataclass as the function that makes one."""
    names = [
        item.target.id for item in node.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    ]
    made = ast.parse(f"def {node.name}(self, {', '.join(names)}): pass").body[0]
    assert isinstance(made, ast.FunctionDef)
    return made


@cache
def module(name: str) -> Module | None:
    """Return a module by its dotted name."""
    inside = ROOT.joinpath(*name.split(".")[1:])
    path = next((p for p in (inside.with_suffix(".py"), inside / "__init__.py") if p.is_file()), None)
    return None if path is None else Module(name, ast.parse(path.read_text(encoding="utf-8")))


def found(start: Module, name: str) -> tuple[Module, str] | None:
    """Return where a function stands that a module calls by a name."""
    if name in start.functions:
        return start, name
    head, _, rest = name.partition(".")
    source, own = start.imported.get(head, ("", ""))
    other = module(source) if source else None
    if other is None:
        return None
    whole = module(f"{source}.{own}")
    if whole is not None and rest:
        return found(whole, rest)
    return found(other, f"{own}.{rest}" if rest else own)


class Walk:
    """The functions a parameter is handed to, depth first, each once with the same parameters."""

    def __init__(self) -> None:
        self.stops: list[tuple[str, str]] = []
        self._seen: set[tuple[str, str, frozenset[str]]] = set()

    def enter(self, place: Module, name: str, parameters: frozenset[str]) -> None:
        """Go through a function that is handed a world under these names."""
        if (place.name, name, parameters) in self._seen:
            return
        self._seen.add((place.name, name, parameters))
        if (place.name, name) not in self.stops:
            self.stops.append((place.name, name))
        held = set(parameters)
        made: dict[str, tuple[Module, str]] = {}
        owner = name.partition(".")[0] if "." in name else ""
        body = place.functions[name]
        for node in _in_order(body):
            if isinstance(node, ast.Assign):
                targets, values = node.targets, [node.value]
                if isinstance(targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
                    targets, values = targets[0].elts, node.value.elts
                for target, value in zip(targets, values, strict=False):
                    if isinstance(target, ast.Name) and self._is_held(value, held):
                        held.add(target.id)
                    elif isinstance(target, ast.Name) and (kept := self._made(place, value, held)):
                        made[target.id] = kept
            elif isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
                if any(self._is_held(part, held) for part in ast.walk(node.context_expr)):
                    held.add(node.optional_vars.id)
            elif isinstance(node, ast.Call):
                if isinstance(node.func, ast.Attribute):
                    value = node.func.value
                    kept = made.get(value.id) if isinstance(value, ast.Name) else self._made(place, value, held)
                    if kept and f"{kept[1]}.{node.func.attr}" in kept[0].functions:
                        self.enter(kept[0], f"{kept[1]}.{node.func.attr}", frozenset({"self"}))
                self._call(place, owner, node, held)

    def _made(self, place: Module, node: ast.AST, held: set[str]) -> tuple[Module, str] | None:
        """Return the class of which an expression makes an object that keeps the world."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return None
        given = [*node.args, *(item.value for item in node.keywords)]
        target = found(place, node.func.id) if any(self._is_held(value, held) for value in given) else None
        return target if target and target[1][:1].isupper() and target[1] not in HOLDERS else None

    def _call(self, place: Module, owner: str, node: ast.Call, held: set[str]) -> None:
        callee = ast.unparse(node.func)
        if isinstance(node.func, ast.Attribute) and self._is_held(node.func.value, held):
            kind = (
                "World"
                if not isinstance(node.func.value, ast.Name) or node.func.value.id in ("world", "source")
                else ""
            )
            world = module("persona_pipeline.world.world")
            if node.func.attr in ("connect", "begin", "insert"):
                return
            if kind and world and f"World.{node.func.attr}" in world.functions:
                self.enter(world, f"World.{node.func.attr}", frozenset({"self"}))
            elif owner and f"{owner}.{node.func.attr}" in place.functions:
                self.enter(place, f"{owner}.{node.func.attr}", frozenset({"self"}))
            return
        target = found(place, callee)
        if target is None:
            return
        other, name = target
        arguments = other.functions[name].args
        names = [item.arg for item in (*arguments.posonlyargs, *arguments.args) if item.arg not in ("self", "cls")]
        given = {n for n, value in zip(names, node.args, strict=False) if self._is_held(value, held)}
        given |= {item.arg for item in node.keywords if item.arg and self._is_held(item.value, held)}
        if given:
            self.enter(other, name, frozenset(given))

    def _is_held(self, node: ast.AST, held: set[str]) -> bool:
        if isinstance(node, ast.Attribute):
            return self._is_held(node.value, held) and (node.attr in PARTS or ast.unparse(node.value) == "self")
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "replace" and node.args:
            return self._is_held(node.args[0], held)
        return isinstance(node, ast.Name) and node.id in held


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a function does, in the order in which it is written."""
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)
        yield child


def returns(stops: list[tuple[str, str]]) -> int:
    """Return how often a file was come back to that had been left."""
    left: set[str] = set()
    count = 0
    for before, now in pairwise(stops):
        if before[0] != now[0]:
            left.add(before[0])
            count += now[0] in left
    return count


def takers() -> tuple[int, int, list[str]]:
    """Return how many functions of evaluation and guard take a world, a store or a folder, of how many, and who writes SQL."""
    taking, every, sql = 0, 0, []
    for room in GUARDED:
        for path in sorted((ROOT / room).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if "sqlalchemy" in text:
                sql.append(path.relative_to(ROOT).as_posix())
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, Function):
                    every += 1
                    named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                    kinds = {ast.unparse(item.annotation) if item.annotation else "" for item in named}
                    taking += any(item.arg == "root" for item in named) or bool(kinds & HOLDERS)
    return taking, every, sql


def main(entries: list[str]) -> None:
    for entry in entries:
        name, function, parameter = entry.split(":")
        start = module(f"persona_pipeline.{name}")
        assert start is not None, name
        walk = Walk()
        walk.enter(start, function, frozenset({parameter}))
        files = {place for place, _ in walk.stops}
        above = [stop for stop in walk.stops if stop[0].split(".")[1] not in DEEP]
        print(
            f"{entry}: {len(walk.stops)} stops, {len(files)} files, {returns(walk.stops)} returns;"
            f" above the world's room {len(above)} stops, {returns(above)} returns"
        )
        if "-v" in sys.argv:
            for place, stop in walk.stops:
                print(f"    {place.removeprefix('persona_pipeline.')}:{stop}")
    taking, every, sql = takers()
    print(
        f"{taking} of {every} functions of {', '.join(GUARDED)} take a world, a store or a root; SQL in {len(sql)}: {sql}"
    )


if __name__ == "__main__":
    main([item for item in sys.argv[1:] if item != "-v"] or list(ENTRIES))
