"""The house in figures: how large it is, what its rooms show of themselves, and what may only fall from here."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import grimp

from docs.site import house

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "persona_pipeline"
FILES = sorted(PACKAGE.rglob("*.py"))
# What must be known to change an evaluation.
CORE = ("base", "world", "judging", "scoring", "guard", "evaluation", "reporting")
MOST_IN_A_FOLDER = 12
# One type a file, or those that are alike, and nothing but the members.
FAMILIES = {"suites/asserts", "suites/targets", "importing"}
# What stands today, and what is aimed at: lower the first as it falls.
CEILINGS = {
    "files": (329, 400),
    "lines": (69_212, 63_000),
    "lines of the core": (31_718, 28_500),
    "modules with one importer": (57, 60),
    "modules that other rooms import": (133, 70),
    "class names in several modules": (3, 8),
}


# What the others may know of a room; the rest is its own. The aim is eight for each.
SHOWN = {
    "api": {
        "evaluating", "frames",
    },
    "base": {
        "calls", "database.engine", "database.tables", "documents.json", "documents.yaml", "errors", "files", "http_server",
        "options", "settings", "shares", "status", "telemetry", "text", "turn_forms", "turns",
    },
    "cli": {
        "",
    },
    "corrections": {
        "configuration", "gate", "nudges", "replay", "service.app", "statistics", "watch",
    },
    "defs": {""},
    "deployment": {
        "",
    },
    "evaluation": {
        "against", "calibrate", "changes", "decide", "estimate", "folder", "history", "plan", "read", "run",
        "snapshot", "voice",
    },
    "guard": {
        "baselines.drift", "baselines.golden", "baselines.models", "baselines.regression",
        "baselines.statistics",
        "anchors", "drawing", "calibration", "findings", "gate", "known_drift",
        "labels.files", "labels.messages",
        "report",
    },
    "importing": {
        "run", "traces.collector",
    },
    "judging": {
        "batches", "cache", "claims", "estimate", "model.probe", "money", "open", "providers.base",
        "recordings.known", "recordings.replay", "synthetic", "verdict",
    },
    "lab": {
        "bisect.bisect", "claims.drafts", "claims.matrix", "claims.trial", "compare.compare",
        "first", "interview",
        "results", "scenes", "since",
    },
    "reporting": {
        "charts", "html", "notify", "pages.browser", "pages.evaluation", "pages.experiments",
        "pages.instruments", "pages.suites", "pages.versions", "render", "statistics",
        "text", "view",
    },
    "scoring": {
        "adherence", "facts.known", "facts.reading", "messages.reading", "messages.verdicts", "plan", "results",
        "style.likeness", "text.agreement", "text.repetition", "text.said_again", "text.tokens",
        "style.model", "style.monitor",
    },
    "suites": {
        "answering.base", "format.models", "grading.results", "importing.config",
        "running.history", "running.opening", "running.plan", "running.suite_run",
    },
    "viewer": {
        "app",
    },
    "world": {
        "cards.files", "changes", "messages.files",
        "messages.mirroring", "messages.revision", "messages.store", "models", "names", "people", "personas",
        "propositions.loading", "propositions.models", "revisions", "runs", "settings", "speakers", "world",
    },
}  # fmt: skip


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
        for name in re.findall(r"^ *class (\w+)[(:]", path.read_text(encoding="utf-8"), re.MULTILINE):
            found[name].add(path)
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


def test_it_does_not_grow() -> None:
    grown = {name: figure(name) for name, (ceiling, _) in CEILINGS.items() if figure(name) > ceiling}
    assert grown == {}, "make up for it elsewhere, or raise it in CEILINGS and say why in the commit"


def test_folders_are_short() -> None:
    count: dict[str, int] = defaultdict(int)
    for path in FILES:
        if path.name != "__init__.py":
            count[path.parent.relative_to(PACKAGE).as_posix()] += 1
    assert {folder: n for folder, n in count.items() if n > MOST_IN_A_FOLDER and folder not in FAMILIES} == {}


def test_a_room_shows_no_more_than_it_says() -> None:
    assert {*shown()} & {*house.rooms()} == {*SHOWN}
    for name, said in SHOWN.items():
        assert {module.partition(".")[2].partition(".")[2] for module in shown()[name]} <= said, name


# Suites could be a package of their own: only these modules know the world. ``opening`` names a type of it.
KNOW_THE_WORLD = {"asserts.persona", "asserts.persona_evaluation", "targets.persona", "running.opening"}


def test_only_persona_modules_of_suites_import_world_guard_or_scoring() -> None:
    users = [
        user for name, users in importers().items() if room(name) in ("world", "guard", "scoring") for user in users
    ]
    assert {user.partition(".suites.")[2] for user in users if room(user) == "suites"} <= KNOW_THE_WORLD


# Stages of an evaluation between reading a world and writing its run.
PURE = (
    "evaluation/decide",
    "evaluation/plan",
    "evaluation/snapshot",
    "guard/findings",
    "guard/gate",
    "guard/report",
)


def test_between_reading_and_writing_nobody_holds_a_world() -> None:
    """Planning, asking and deciding know snapshots: no world, no store, and no folder of one."""
    for name in PURE:
        tree = ast.parse((PACKAGE / f"{name}.py").read_text(encoding="utf-8"))
        named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        taken = {item.arg for node in ast.walk(tree) if isinstance(node, ast.arguments) for item in node.args}
        assert not named & {"World", "Store"}, name
        assert not taken & {"world", "store", "root"}, name


def test_evaluation_and_guard_write_no_sql() -> None:
    files = [path for name in ("evaluation", "guard") for path in (PACKAGE / name).rglob("*.py")]
    assert [path for path in files if "sqlalchemy" in path.read_text(encoding="utf-8")] == []


def test_the_rooms_are_those_in_the_picture() -> None:
    page = house.PAGE.read_text(encoding="utf-8")
    assert page == house.page(page), "run `make docs`"


if __name__ == "__main__":
    for name in CEILINGS:
        print(f"{name}: {figure(name):,}, aim {CEILINGS[name][1]:,}")
