"""Opening suites, their targets, and the judge."""

import contextlib
import hashlib
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dotenv import dotenv_values

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.documents.yaml import parse_document
from persona_pipeline.base.errors import ConfigError, NothingError, Problem, did_you_mean
from persona_pipeline.base.files import read_regular, repository_of
from persona_pipeline.base.settings import Settings
from persona_pipeline.suites.answering.base import OWN, Grants
from persona_pipeline.suites.format.files import Files, default_roots, is_pattern
from persona_pipeline.suites.format.models import Suite
from persona_pipeline.suites.format.problems import ConfigEntry
from persona_pipeline.suites.format.suite import build_suite, check_numbers
from persona_pipeline.suites.format.suite import load_suite as load_suite
from persona_pipeline.suites.grading.suite_judge import BackedJudge, GivenJudge, SuiteJudge
from persona_pipeline.suites.running.plan import Targets, target_names

if TYPE_CHECKING:
    from persona_pipeline.world.world import World

SUITES = "suites"
ENDINGS = (".eval.yaml", ".eval.yml")
FILE_NAMES = ("targets.yaml", "targets.yml", ".agentv/targets.yaml", ".agentv/targets.yml")
_KEYS = ("$schema", "targets")
_MOST_ENV = 1_000_000
_OF_A_WORLD = (".eval.jsonl", *ENDINGS)
_ENDING = re.compile(r"\.eval\.(jsonl|ya?ml)\Z")
_UNSAFE = re.compile(r"[^A-Za-z0-9_]")


def suite_roots(path: Path, settings: Settings, further: Iterable[Path | str] = ()) -> list[Path]:
    """Return the roots of a suite's files: its repository (else its folder), those of the settings, and further ones."""
    return [*default_roots(path), *settings.suite_paths, *map(Path, further)]


# Keys of a suite in Python that a file has under ``execution``.
_HOW = ("target", "targets", "trials", "cache", "cache_path")


def make_suite(
    name: str, tests: Sequence[Any], path: Path, line: int, roots: Iterable[Path | str], **fields: Any
) -> Suite:
    """Return a suite made in Python: tests with the keys of the format, asserts that may be functions.

    ``path``, ``line``: its place in the program. Raises ``ConfigError`` with every problem.
    """
    data = {
        "name": name,
        "description": name,
        **_in_place(fields),
        "tests": [{"id": f"test-{n}", **_in_place(test)} for n, test in enumerate(tests, start=1)],
    }
    suite = build_suite(data, path, line, roots)
    return replace(suite, content_hash=content_hash([suite.content_hash, suite.model_dump()]))


def _in_place(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return a suite or a test with its keys where the format has them."""
    data = {key: value for key, value in said.items() if key not in ("asserts", *_HOW)}
    given = {"assert": [*said.get("asserts", ()), *said.get("assert", ())], "each_turn": said.get("each_turn", ())}
    for key, items in given.items():
        if items:
            data[key] = [{"type": "function", "call": item} if callable(item) else item for item in items]
    if isinstance(said.get("turns"), list | tuple):
        data["turns"] = [_in_place(turn) if isinstance(turn, Mapping) else turn for turn in said["turns"]]
    how = {key: said[key] for key in _HOW if key in said}
    return {**data, "execution": {**how, **said.get("execution", {})}} if how else data


def find_suites(places: Iterable[Path | str]) -> list[Path]:
    """Return the suites at these places, each once: a file, every suite in a folder, or the matches of a glob.

    Raises ``NothingError``: no suite was found; ``ConfigError``: some places have no suite.
    """
    found: dict[Path, None] = {}
    problems: list[Problem] = []
    for place in map(Path, places):
        if place.is_dir():
            files = sorted(file for file in place.rglob("*") if file.name.endswith(ENDINGS) and file.is_file())
        elif not place.exists() and is_pattern(str(place)):
            files = sorted(file for file in _matches(place) if file.is_file())
        else:
            files = [place]
        if not files:
            problems.append(Problem(f"holds no suite; their names end in {' or '.join(ENDINGS)}", str(place)))
        found |= dict.fromkeys(files)
    if problems:
        raise (ConfigError if found else NothingError)(problems)
    return list(found)


def _matches(pattern: Path) -> Iterator[Path]:
    try:
        yield from Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))
    except (ValueError, NotImplementedError) as error:
        raise ConfigError(Problem(f"is no usable pattern ({error})", str(pattern))) from error


@dataclass(frozen=True)
class SuiteFile:
    """A suite file. ``name``: its path without ending, in letters, digits and underscores; ``path``: below suites/."""

    name: tuple[str, ...]
    path: str

    @property
    def label(self) -> str:
        return "/".join(self.name)

    def within(self, root: Path) -> Path:
        """Return its path in a world."""
        return root / SUITES / self.path


@dataclass(frozen=True)
class OpenedSuite:
    """A valid suite. ``target_names``: its targets, at least one if there are tests."""

    suite: Suite
    targets: Targets | None
    target_names: tuple[str, ...]


def suite_files(root: Path) -> list[SuiteFile]:
    """Return the suite files of a world, by name. They are listed, not read, so broken ones are included."""
    folder = root / SUITES
    paths = sorted(path.relative_to(folder) for ending in _OF_A_WORLD for path in folder.rglob(f"*{ending}"))
    shown = [path for path in paths if not any(part.startswith(".") for part in path.parts)]
    stems = {path: path.with_name(_ENDING.sub("", path.name) or "_") for path in shown}
    lines = {stem for path, stem in stems.items() if path.suffix == ".jsonl"}
    # YAML next to JSON lines of the same name is their sidecar.
    chosen = {path: stem for path, stem in stems.items() if path.suffix == ".jsonl" or stem not in lines}
    names: dict[str, SuiteFile] = {}
    # Files whose names need no change keep them.
    for path, stem in sorted(
        chosen.items(), key=lambda item: (_UNSAFE.search("".join(item[1].parts)) is not None, item)
    ):
        name = tuple(_UNSAFE.sub("_", part) for part in stem.parts)
        # Names of Dagster steps are joined.
        if "__".join(name) in names:
            name = (*name[:-1], f"{name[-1]}_{hashlib.sha256(path.as_posix().encode()).hexdigest()[:6]}")
        names["__".join(name)] = SuiteFile(name, path.as_posix())
    return sorted(names.values(), key=lambda file: file.name)


def choose_files(files: Sequence[SuiteFile], labels: Iterable[str]) -> list[SuiteFile]:
    """Return the files of these labels, by default all. Raises ``ConfigError``: a label is unknown."""
    known = {file.label: file for file in files}
    wanted = list(dict.fromkeys(labels))
    unknown = [label for label in wanted if label not in known]
    if unknown:
        raise ConfigError([Problem(f"there is no suite {label!r}{did_you_mean(label, known)}") for label in unknown])
    return [known[label] for label in wanted] or list(files)


def open_suite(root: Path, file: SuiteFile, settings: Settings) -> OpenedSuite:
    """Load a suite with its targets file. Raises ``ConfigError``: a file is not valid, or no target answers."""
    path = file.within(root)
    suite = load_suite(path, suite_roots(path, settings, [root]))
    targets = open_targets(path, None, settings)
    names = target_names(suite, targets)
    for name in names:
        if "..." in name or not name.isprintable():
            raise ConfigError(Problem(f"target {name!r} cannot be a partition; rename it", str(path)))
    return OpenedSuite(suite, targets, tuple(names))


def open_targets(
    suite: Suite | Path,
    path: Path | None,
    settings: Settings,
    *,
    environment: Iterable[str] | None = None,
    network: bool = False,
) -> Targets | None:
    """Return the targets of a file, by default the nearest one; None without one.

    ``suite``: loaded, or its path; only a loaded one adds its roots. ``environment``, ``network``: further permissions of a
    file inside the suite's repository; a file outside is the user's own.
    """
    beside, folders = (suite.path, suite.roots or ()) if isinstance(suite, Suite) else (suite, ())
    found = path or find_targets_file(beside)
    if found is None:
        return None
    given = grants_for(found, beside, settings, environment=environment or (), network=network, folders=folders)
    return load_targets(found, given)


def grants_for(
    targets: Path,
    suite: Path,
    settings: Settings,
    *,
    environment: Iterable[str] = (),
    network: bool = False,
    folders: Iterable[Path] = (),
) -> Grants:
    """Return the permissions of a targets file for a suite: all if it is outside the suite's repository (else folder).

    Args:
        environment, network: permissions of a file inside, by default those of the settings.
        folders: further folders for its files.
    """
    from persona_pipeline.world.personas import is_world

    (top,) = default_roots(suite)
    # A link in the repository belongs to the repository, also as a folder on the path.
    named = Path(os.path.abspath(targets))  # noqa: PTH100 -- links on the way stay
    places = [place.resolve() for place in (targets, named, *named.parents)]
    world = settings.world_root if is_world(settings.world_root) else None
    return Grants(
        frozenset([*environment] or settings.suite_environment),
        network or settings.suite_allow_targets,
        tuple(place.resolve() for place in (top, world or top, *settings.suite_paths, *folders)),
        own=not any(place.is_relative_to(top) for place in places),
        world=world,
        prices=settings.judge_prices,
    )


def find_targets_file(suite: Path) -> Path | None:
    """Return the nearest targets file: in the suite's folder or above, up to the repository's top."""
    folder, (top,) = suite.absolute().parent.resolve(), default_roots(suite)
    for place in (folder, *folder.parents):
        for name in FILE_NAMES:
            if (place / name).is_file():
                return place / name
        if place == top:
            return None
    return None


def load_targets(path: Path | str, grants: Grants = OWN) -> Targets:
    """Read a targets file: ``targets: [{name, provider, ...}]``.

    ``grants``: its permissions, by default all; for a file next to a suite see ``grants_for``. Raises ``ConfigError``: it
    cannot be read, or is not a list of targets with distinct names.
    """
    path = Path(path).absolute()
    document = parse_document(Files(grants.within).text_of(path), str(path))
    check_numbers(document.data, document)
    problems: list[Problem] = []
    data = document.data
    if not isinstance(data, dict) or not isinstance(data.get("targets"), list):
        raise ConfigError(document.problem((), "must be a mapping with targets, a list"))
    for key in data:
        if key not in _KEYS:
            problems.append(document.problem((key,), f"unknown key {key!r}{did_you_mean(key, _KEYS)}", key=True))
    entries: dict[str, ConfigEntry] = {}
    for index, item in enumerate(data["targets"]):
        entry = ConfigEntry(item, document, ("targets", index))
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str) or not name:
            problems.append(entry.problem(f"targets[{index}] must be a mapping with name and provider"))
        elif name in entries:
            problems.append(entry.problem(f"target {name!r} is there twice; rename one", "name"))
        else:
            entries[name] = entry
    if problems:
        raise ConfigError(problems)
    return Targets(str(path), entries, {**_dotenv(path.parent, grants), **os.environ}, grants)


def _dotenv(folder: Path, grants: Grants) -> dict[str, str]:
    """Return variables of ``.env`` files from the repository's top to the folder; nearer files win. Only for references."""
    folder = folder.resolve()
    top = repository_of(folder)
    found: dict[str, str] = {}
    for place in reversed([place for place in (folder, *folder.parents) if place.is_relative_to(top)]):
        with contextlib.suppress(OSError):
            text = read_regular(place / ".env", _MOST_ENV, grants.within).decode("utf-8", "replace")
            values = dotenv_values(stream=io.StringIO(text), interpolate=False)
            found |= {name: value for name, value in values.items() if value is not None}
    return found


def judge_identity(name: str, settings: Settings) -> Any:
    """Return all that a judge's answers depend on: server, model, options, and wording of questions."""
    from persona_pipeline.judging.claims import PROMPT_VERSION
    from persona_pipeline.judging.open import RECORDED
    from persona_pipeline.judging.providers.base import ModelOptions
    from persona_pipeline.suites.grading.judge_questions import RULES

    if name == RECORDED:
        return RECORDED
    try:
        options = ModelOptions.from_settings(settings, name)
        where = [options.name, options.endpoint, options.effort, options.max_tokens]
    except ConfigError as error:
        # Opening the judge reports it.
        where = [name, str(error)]
    return [*where, settings.judge_grouping, PROMPT_VERSION, content_hash(RULES)[:8]]


def named_judge(
    name: str, settings: Settings, root: Path, given: GivenJudge = None, max_usd: float | None = None
) -> SuiteJudge:
    """Return the judge of a name, with the recordings of a world's folder. ``given`` None: only its identity is used."""
    from persona_pipeline.judging.open import RECORDED, RECORDINGS

    recordings = root / RECORDINGS if name == RECORDED else None
    return SuiteJudge(given, lambda: judge_identity(name, settings), recordings, max_usd)


def open_judge(
    name: str, settings: Settings, *, record: bool = False, max_usd: float | None = None, world: "World | None" = None
) -> SuiteJudge:
    """Return the judge of a name, opened on first use: suites without judged asserts need no recordings, key or settings.

    ``max_usd``: limit in US dollars for the judge and the targets of a run. ``world``: its recordings and store are used;
    None: those of the settings. Raises ``ConfigError``: the name is unknown, or the options do not fit.
    """
    from persona_pipeline.judging import open as judging

    if name != judging.RECORDED:
        judging.find_provider(name)
    elif record:
        raise ConfigError("--record needs a live judge; add --judge anthropic")

    def opened() -> BackedJudge:
        options = judging.JudgeOptions(max_usd, record, recorded=False)
        return judging.open_judge(name, world, options, settings=settings)

    return named_judge(name, settings, world.root if world else settings.world_root, opened, max_usd)
