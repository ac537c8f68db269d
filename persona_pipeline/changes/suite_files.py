"""The suite files of a world: what they are called, whom they ask, what they are made of. No Dagster here."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from persona_pipeline.baselines.golden import baseline_path
from persona_pipeline.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.propositions import PROPOSITIONS
from persona_pipeline.propositions.loading import DEFAULT
from persona_pipeline.world.canonical import content_hash
from persona_pipeline.world.files import is_agent_id
from persona_pipeline.world.personas import PERSONAS

if TYPE_CHECKING:
    from persona_pipeline.suites import Suite, Test
    from persona_pipeline.suites.format.assert_fields import AssertFields as Assert
    from persona_pipeline.suites.targets import Targets

SUITES = "suites"
ENDINGS = (".eval.jsonl", ".eval.yaml", ".eval.yml")
_UNSAFE = re.compile(r"[^A-Za-z0-9_]")
_DIGITS = 16
_LONGEST_PATH = 300


@dataclass(frozen=True)
class SuiteFile:
    """A suite file. ``name``: its path without ending, each part in letters, digits and underscores; ``path``: below suites/."""

    name: tuple[str, ...]
    path: str

    @property
    def label(self) -> str:
        return "/".join(self.name)

    def within(self, root: Path) -> Path:
        """Return the file in a world."""
        return root / SUITES / self.path


@dataclass(frozen=True)
class OpenedSuite:
    """A suite that is valid. ``target_names``: who answers, at least one when there are tests."""

    suite: "Suite"
    targets: "Targets | None"
    target_names: tuple[str, ...]


def suite_files(root: Path) -> list[SuiteFile]:
    """Return the suite files of a world, by name. They are listed, not read: a broken one is a file like any other."""
    folder = root / SUITES
    paths = sorted(path.relative_to(folder) for ending in ENDINGS for path in folder.rglob(f"*{ending}"))
    stems = {path: _without_ending(path) for path in paths if not any(part.startswith(".") for part in path.parts)}
    lines = {stem for path, stem in stems.items() if path.suffix == ".jsonl"}
    # YAML beside JSON lines of the same name is their sidecar.
    chosen = {path: stem for path, stem in stems.items() if path.suffix == ".jsonl" or stem not in lines}
    names: dict[str, SuiteFile] = {}
    # Who needs no other name keeps it, whoever else would get it.
    for path, stem in sorted(
        chosen.items(), key=lambda item: (_UNSAFE.search("".join(item[1].parts)) is not None, item)
    ):
        name = tuple(_UNSAFE.sub("_", part) for part in stem.parts)
        # Steps are called by the joined name.
        if "__".join(name) in names:
            name = (*name[:-1], f"{name[-1]}_{hashlib.sha256(path.as_posix().encode()).hexdigest()[:6]}")
        names["__".join(name)] = SuiteFile(name, path.as_posix())
    return sorted(names.values(), key=lambda file: file.name)


def choose_files(files: Sequence[SuiteFile], labels: Iterable[str]) -> list[SuiteFile]:
    """Return the files of these labels, all for none.

    Raises:
        ConfigError: there is none of that label.
    """
    known = {file.label: file for file in files}
    wanted = list(dict.fromkeys(labels))
    problems = [
        Problem(f"there is no suite {label!r}{did_you_mean(label, known)}") for label in wanted if label not in known
    ]
    if problems:
        raise ConfigError(problems)
    return [known[label] for label in wanted] or list(files)


def open_suite(root: Path, file: SuiteFile) -> OpenedSuite:
    """Load a suite with its targets file; nobody is asked anything.

    Raises:
        ConfigError: one of its files is not valid, at file, line and column; or nobody answers.
    """
    from persona_pipeline.suites.running.plan import target_names
    from persona_pipeline.suites.running.suite_files import load_suite, suite_roots
    from persona_pipeline.suites.targets import find_targets_file, grants_for, load_targets

    path = file.within(root)
    suite = load_suite(path, suite_roots(path, [root]))
    found = find_targets_file(path)
    targets = None if found is None else load_targets(found, grants_for(found, path))
    names = target_names(suite, targets)
    for name in names:
        if "..." in name or not name.isprintable():
            raise ConfigError(Problem(f"target {name!r} cannot be a partition; rename it", str(path)))
    return OpenedSuite(suite, targets, tuple(names))


def suite_version(root: Path, file: SuiteFile) -> str:
    """Return a digest of a suite and of every file it names: tests, prompts, targets, recorded answers, programs, workspaces,
    and of the agents it asks about or asks: persona, propositions and baseline, as far as they are used.

    A suite that does not load has a version too, which changes with the file and with what is wrong.
    """
    path = file.within(root)
    try:
        opened = open_suite(root, file)
    except ConfigError as error:
        return f"invalid-{content_hash([_digest(path), str(error)])[:_DIGITS]}"
    asked = [opened.targets.entries.get(name) for name in opened.target_names] if opened.targets else []
    entries = [entry.data for entry in asked if entry is not None]
    beside_targets = Path(opened.targets.path).parent if opened.targets else path.parent
    found = {
        *_named_files(entries, [beside_targets]),
        *_named_files(_programs(opened.suite), [path.parent]),
        *(part for test in opened.suite.tests for part in _prompt_files(opened.suite, test)),
        *_workspace_files(opened.suite),
        *(part for test in opened.suite.tests for item in test.asserts for part in _agent_files(root, item)),
        *_played_personas(root, beside_targets, entries),
    }
    files = [[item.as_posix(), _digest(item)] for item in sorted(found)]
    return content_hash([opened.suite.content_hash, entries, files])[:_DIGITS]


def _without_ending(path: Path) -> Path:
    ending = next(ending for ending in ENDINGS if path.name.endswith(ending))
    return path.with_name(path.name.removesuffix(ending) or "_")


def _programs(suite: "Suite") -> Iterator[Any]:
    workspaces = {id(item): item for item in (suite.workspace, *(test.workspace for test in suite.tests)) if item}
    for workspace in workspaces.values():
        yield from (list(hook.script) for hook in workspace.hooks.values())
    for test in suite.tests:
        yield from (item.dump() for item in test.asserts if item.needs_code)


def _prompt_files(suite: "Suite", test: "Test") -> Iterator[Path]:
    from persona_pipeline.suites.format.files import FileError
    from persona_pipeline.suites.targets.prompts import PromptFiles

    files = PromptFiles(suite)
    for message in test.input_messages:
        parts = message.get("content")
        for part in parts if isinstance(parts, list) else ():
            if part.get("type") == "file" and isinstance(part.get("value"), str):
                try:
                    yield files.find(part["value"], test)
                except FileError:
                    # The run says so.
                    continue


def _workspace_files(suite: "Suite") -> Iterator[Path]:
    templates = {item.template for item in (suite.workspace, *(t.workspace for t in suite.tests)) if item}
    for template in templates:
        if template is not None:
            yield from (path for path in Path(template).rglob("*") if path.is_file())


def _agent_files(root: Path, item: "Assert") -> Iterator[Path]:
    """Yield what an assert about an agent reads of the world, also where it is not there yet."""
    from persona_pipeline.suites.asserts.composite import Composite
    from persona_pipeline.suites.asserts.persona_drift import PersonaDrift
    from persona_pipeline.suites.asserts.propositions import Propositions

    if isinstance(item, Composite):
        for member in item.members:
            yield from _agent_files(root, member)
    # A name that is no agent's is the run's to report, and no path to look at.
    elif isinstance(item, Propositions | PersonaDrift) and is_agent_id(item.agent):
        yield from _spellings(root / PERSONAS, item.agent)
        for dimension in [item.dimension] if isinstance(item, Propositions) else item.dimensions:
            yield from _spellings(root / PROPOSITIONS / dimension, DEFAULT)
            yield from _spellings(root / PROPOSITIONS / dimension, item.agent)
        if isinstance(item, PersonaDrift):
            yield baseline_path(root, item.agent)


def _played_personas(root: Path, beside_targets: Path, entries: Iterable[Any]) -> Iterator[Path]:
    for data in entries:
        agent = data.get("agent")
        if data.get("provider") == "persona" and isinstance(agent, str) and is_agent_id(agent):
            world = beside_targets / data["root"] if isinstance(data.get("root"), str) else root
            yield from _spellings(world / PERSONAS, agent)


def _spellings(folder: Path, stem: str) -> list[Path]:
    return [folder / f"{stem}.yaml", folder / f"{stem}.yml"]


def _named_files(values: Iterable[Any], folders: Sequence[Path]) -> Iterator[Path]:
    for text in _strings(list(values)):
        if not text or len(text) > _LONGEST_PATH:
            continue
        for folder in folders:
            try:
                if (folder / text).is_file():
                    yield folder / text
            except (OSError, ValueError):
                continue


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        return f"unreadable-{error.errno}"
