"""The rooms of the package as one picture and one table, drawn from its imports and kept in CONTRIBUTING.md."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "CONTRIBUTING.md"
PACKAGE = "persona_pipeline"
_BEGIN, _END = "<!-- rooms: drawn by `make docs` -->\n", "<!-- end of rooms -->\n"


def rooms() -> dict[str, set[str]]:
    """Return, for each folder of the package, which others it imports."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None, exclude_type_checking_imports=True)
    folders = {
        name for name in graph.find_children(PACKAGE) if (PROJECT.joinpath(*name.split("."), "__init__.py")).exists()
    }
    for name in folders:
        graph.squash_module(name)
    short = {name: name.partition(".")[2] for name in folders}
    return {
        short[name]: {short[other] for other in (graph.find_modules_directly_imported_by(name) & folders) - {name}}
        for name in folders
    }


def drawn() -> str:
    """Return the picture and the table.

    Raises:
        graphlib.CycleError: rooms import one another in a ring.
    """
    uses = rooms()
    order = [*TopologicalSorter({room: sorted(uses[room]) for room in sorted(uses)}).static_order()][::-1]
    lines = ["```mermaid", "flowchart TD"]
    for room in order:
        lines += [f"    {room} --> {other}" for other in order if other in _nearest(room, uses)]
    lines += ["```", "", "| room | what is in it |", "|---|---|"]
    lines += [f"| `{room}/` | {_about(room)} |" for room in order]
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """Return a page with the rooms drawn anew between their marks."""
    before, _, rest = text.partition(_BEGIN)
    return f"{before}{_BEGIN}{drawn()}{_END}{rest.partition(_END)[2]}"


def _nearest(room: str, uses: dict[str, set[str]]) -> set[str]:
    """Return the rooms that a room uses and none of the others it uses does: an arrow for each would hide the house."""
    further: set[str] = set()
    todo = [*uses[room]]
    while todo:
        for other in uses[todo.pop()]:
            if other not in further:
                further.add(other)
                todo.append(other)
    return uses[room] - further


def _about(room: str) -> str:
    text = (PROJECT / PACKAGE / room / "__init__.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0].rstrip(".")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
