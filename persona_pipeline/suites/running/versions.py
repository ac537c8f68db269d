"""The suite files of a world: what they are called, whom they ask, what they are made of. No Dagster here."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.base.files import digest_within, repository_of
from persona_pipeline.base.settings import get_settings
from persona_pipeline.judging.open import RECORDED

if TYPE_CHECKING:
    from persona_pipeline.suites.format.models import Suite
    from persona_pipeline.suites.grading.suite_judge import SuiteJudge
    from persona_pipeline.suites.running.targets_file import Targets

SUITES = "suites"
ENDINGS = (".eval.jsonl", ".eval.yaml", ".eval.yml")
_UNSAFE = re.compile(r"[^A-Za-z0-9_]")
_DIGITS = 16


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
    from persona_pipeline.suites.answering.base import grants_for
    from persona_pipeline.suites.running.plan import target_names
    from persona_pipeline.suites.running.suite_files import load_suite, suite_roots
    from persona_pipeline.suites.running.targets_file import find_targets_file, load_targets

    path = file.within(root)
    suite = load_suite(path, suite_roots(path, [root]))
    found = find_targets_file(path)
    targets = None if found is None else load_targets(found, grants_for(found, path))
    names = target_names(suite, targets)
    for name in names:
        if "..." in name or not name.isprintable():
            raise ConfigError(Problem(f"target {name!r} cannot be a partition; rename it", str(path)))
    return OpenedSuite(suite, targets, tuple(names))


def suite_version(root: Path, file: SuiteFile, judge: str | None = None) -> str:
    """Return a digest of all that a suite's verdicts rest on, test by test and target by target (``Bases``).

    A suite that does not load has a version too, which changes with the file and with what is wrong.

    Args:
        judge: who would judge; None: as the settings say.
    """
    from persona_pipeline.suites.running.basis import Bases
    from persona_pipeline.suites.running.opening import RECORDINGS, JudgeOpener, SharedJudge
    from persona_pipeline.suites.running.plan import RunOptions, targets_of

    path = file.within(root)
    try:
        opened = open_suite(root, file)
    except ConfigError as error:
        try:
            digest = digest_within(path, [repository_of(root)])
        except OSError as unreadable:
            digest = f"unreadable-{unreadable.errno}"
        return f"invalid-{content_hash([digest, str(error)])[:_DIGITS]}"
    name = judge or get_settings().judge
    shared = SharedJudge(JudgeOpener(_nobody, name, root / RECORDINGS if name == RECORDED else None))
    options = RunOptions(world_root=lambda: root)
    bases = Bases(opened.suite, opened.targets, None, shared, options)
    asked = [
        (test, target)
        for test in opened.suite.tests
        for target in targets_of(opened.suite, test, options, opened.targets, None)
    ]
    return content_hash([[test.id, target, bases.digest(test, target)] for test, target in asked])[:_DIGITS]


def _nobody() -> "SuiteJudge":
    raise ConfigError("nobody judges while a version is taken")


def _without_ending(path: Path) -> Path:
    ending = next(ending for ending in ENDINGS if path.name.endswith(ending))
    return path.with_name(path.name.removesuffix(ending) or "_")
