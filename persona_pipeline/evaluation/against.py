"""A pull request judged by its base: what decides is the base's, and the file is named that makes another verdict.

Judged are the personas, claims, messages and recordings that stand in the world's folder. Baselines, labels, judge changes and
lexicons come from a commit before, so that nobody moves the limits by which their own change is judged.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TypeVar

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.base.settings import Settings
from persona_pipeline.base.status import Result
from persona_pipeline.guard.report import (
    EXIT_COVERAGE,
    EXIT_OK,
    EXIT_REGRESSION,
    Conclusion,
    Finding,
    LooserRule,
    RunReport,
)
from persona_pipeline.judging.verdict import Ask, Judge, JudgeRequest, Usage, Verdict
from persona_pipeline.world.changes import DECIDING, deciding_files
from persona_pipeline.world.revisions import files_at, find_revision, write_files
from persona_pipeline.world.settings import world_file_at
from persona_pipeline.world.world import World

Item = TypeVar("Item")
Evaluate = Callable[[World, EvaluationRequest], RunReport]

BASELINES = "baselines/"
# Files beyond so many are told apart by their folders only: each question is a replay of the whole run.
MOST_FILES = 12
MOST_NAMED = 3


_ORDER = (Result.FELL, Result.CANNOT_TELL, Result.HELD)

# What is said of a dimension of an agent; of an agent as a whole under no dimension.
Verdicts = Mapping[tuple[str, str], Result]


@dataclass(frozen=True)
class Difference:
    """Where two verdicts on the same messages differ, and the files that make it so.

    Attributes:
        better: what the change's own files make better, with what the base says; worse: what they make worse, with what they say.
        green: what of it the change calls held.
        files: taken from the change, they are enough to make the difference.
    """

    better: Verdicts = field(default_factory=dict)
    worse: Verdicts = field(default_factory=dict)
    green: Collection[tuple[str, str]] = ()
    files: Sequence[str] = ()


def verdicts_of(report: RunReport) -> dict[tuple[str, str], Result]:
    """Return what a run says, by agent and dimension. What there was nothing to judge of has held."""
    said: dict[tuple[str, str], Result] = {}
    for agent_id, agent in report.agents.items():
        told = {"": agent.conclusion, **agent.conclusions}
        said |= {(agent_id, name): item.verdict or Result.HELD for name, item in told.items()}
    for finding in report.findings:
        if item := Conclusion.of([finding]):
            key = (finding.agent_id or "", finding.dimension or "")
            said[key] = min(item.verdict or Result.HELD, said.get(key, Result.HELD), key=_ORDER.index)
    return said


def difference(by_base: RunReport, by_change: RunReport) -> Difference:
    """Return what two verdicts differ in, without the files."""
    before, after = verdicts_of(by_base), verdicts_of(by_change)
    keys = sorted({*before, *after})
    pairs = {key: (before.get(key, Result.HELD), after.get(key, Result.HELD)) for key in keys}
    better = {key: old for key, (old, new) in pairs.items() if _ORDER.index(old) < _ORDER.index(new)}
    worse = {key: new for key, (old, new) in pairs.items() if _ORDER.index(old) > _ORDER.index(new)}
    return Difference(better, worse, [key for key in better if pairs[key][1] is Result.HELD])


def undecided(by_base: RunReport, green: Collection[tuple[str, str]]) -> RunReport:
    """Return the base's verdict, in which what only the change's own files call held has not fallen: it cannot be told."""
    report = by_base.model_copy(deep=True)
    for finding in report.all_findings():
        if (finding.agent_id or "", finding.dimension or "") in green and finding.exit_code == EXIT_REGRESSION:
            finding.exit_code = EXIT_COVERAGE
    if report.exit_code == EXIT_REGRESSION and report.conclusion.verdict is not Result.FELL:
        report.exit_code = EXIT_COVERAGE
    return report


def needed(enough: Callable[[Sequence[Item]], bool], items: Sequence[Item]) -> list[Item]:
    """Return a smallest part of items that is still enough, where all of them are (QuickXplain, Junker 2004)."""

    def search(background: Sequence[Item], asked: bool, rest: Sequence[Item]) -> list[Item]:
        if asked and enough(background):
            return []
        if len(rest) <= 1:
            return list(rest)
        left, right = rest[: len(rest) // 2], rest[len(rest) // 2 :]
        second = search([*background, *left], bool(left), right)
        return [*search([*background, *second], bool(second), left), *second]

    return search((), True, items)


@contextmanager
def fresh_world(
    root: Path | None = None, against: str | None = None, *, settings: Settings | None = None
) -> Iterator[World]:
    """Give a world with a store of its own that nobody wrote to; ``against``: the commit whose whole ``persona.yaml`` counts."""
    with TemporaryDirectory(prefix="persona-store-") as folder:
        world = World.open(root, f"sqlite:///{folder}/store.db", settings=settings)
        try:
            yield (
                world if against is None else replace(world, file=world_file_at(world.root, _base(world.root, against)))
            )
        finally:
            world.store.close()


def judged_against(world: World, request: EvaluationRequest, evaluate: Evaluate) -> RunReport:
    """Return the report of a run by what decides in ``request.against``, with what the change's own files would make of it.

    ``world`` is best a ``fresh_world``; ``ConfigError``: there is no such commit here, or the input is bad.
    """
    if request.update_baseline:
        raise ConfigError("--against writes no baselines; take them without it")
    root, name = world.root, request.against or ""
    commit = _base(root, name)
    base, own = files_at(root, commit, DECIDING), deciding_files(root)
    changed = [path for path in sorted({*base, *own}) if _text(base.get(path)) != _text(own.get(path))]
    new = [path for path in changed if path.startswith(BASELINES) and path not in base]
    golden = [path for path in changed if path.startswith(BASELINES)]
    with TemporaryDirectory(prefix="persona-base-") as folder:
        alone = request.model_copy(update={"against": None, "accept_baseline": False})
        trial = _Trial(world, alone, evaluate, Path(folder), base, own)
        taken = new
        by_base = trial.run(new)
        if new and _of_others(trial.run([]), new) != _of_others(by_base, new):
            # New golden files are for new agents; they do not move what is said of the others.
            taken, by_base = [], trial.run([])
        # What decides is the base's, or with it the golden files that are accepted.
        accepted = golden if request.accept_baseline else taken
        judged, by_change = trial.run(accepted), trial.run(changed)
        changes = [
            (trial.explained(by_base, judged, taken, golden), True),
            (trial.explained(judged, by_change, accepted, changed), False),
        ]
    report = undecided(judged, changes[1][0].green)
    told = [finding for found, meant in changes for finding in _findings(found, name, meant)]
    report.findings = [*told, *_new_baselines(taken, name), *report.findings]
    if request.accept_baseline and golden:
        report.terms.looser.append(LooserRule(rule="accept_baseline", text="baselines of this change decide"))
    report.provenance["against"] = {
        "base": name,
        "commit": commit,
        "exit_code_by_base": by_base.exit_code,
        "exit_code_by_change": by_change.exit_code,
        "difference_made_by": [path for found, _ in changes for path in found.files],
        "new_baselines": taken,
        "baselines_accepted": golden if request.accept_baseline else [],
    }
    return report


@dataclass
class AskedOnce:
    """A live judge that is asked everything once, however often a run is repeated."""

    judging: Judge
    told: dict[tuple[str, str], Verdict] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.judging.name

    @property
    def live(self) -> bool:
        return self.judging.live

    @property
    def notes(self) -> Sequence[str]:
        """What a report should say of where its judgments come from."""
        return getattr(self.judging, "notes", ())

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        """Return verdicts in the order of the requests; what was told before costs nothing now."""
        keys = [(request.proposition_id, request.key) for request in requests]
        new = {key: request for key, request in zip(keys, requests, strict=True) if key not in self.told}
        self.told |= dict(zip(new, await self.judging.judge(list(new.values())), strict=True))
        return [self.told[key] if key in new else replace(self.told[key], usage=Usage()) for key in keys]

    @property
    def ask(self) -> Ask | None:
        """Answers other questions than claims; the judge's own cache has what was paid for. None: it answers none."""
        return getattr(self.judging, "ask", None)


@dataclass
class _Trial:
    """Runs by the base's files with some of the change's in their place, each once."""

    world: World
    request: EvaluationRequest
    evaluate: Evaluate
    folder: Path
    base: Mapping[str, bytes]
    own: Mapping[str, bytes]
    runs: dict[frozenset[str], RunReport] = field(default_factory=dict)

    def run(self, taken: Collection[str]) -> RunReport:
        """Return the report with these files as the change has them."""
        key = frozenset(taken)
        if key not in self.runs:
            place = self.folder / str(len(self.runs))
            kept = {path: data for path, data in self.base.items() if path not in key}
            write_files(kept | {path: self.own[path] for path in key if path in self.own}, place)
            self.runs[key] = self._evaluated(place)
        return self.runs[key]

    def explained(
        self, before: RunReport, after: RunReport, taken: Collection[str], changed: Sequence[str]
    ) -> Difference:
        """Return what two verdicts differ in, and as few of the files ``changed`` beyond ``taken`` as make the difference."""
        found = difference(before, after)
        target, keys = verdicts_of(after), {*found.better, *found.worse}
        own = [path for path in changed if path not in taken]
        if not keys or not own:
            return found

        def enough(groups: Sequence[Sequence[str]]) -> bool:
            said = verdicts_of(self.run([*taken, *(path for group in groups for path in group)]))
            return all(said.get(key, Result.HELD) == target.get(key, Result.HELD) for key in keys)

        # Nearly always it is the golden file of whom it is about, which is asked in one run.
        likely = [path for path in own if path in {f"{BASELINES}{agent_id}.json" for agent_id, _ in keys}]
        if likely and enough([likely]):
            return replace(found, files=likely)
        groups = [[path] for path in own]
        if len(groups) > MOST_FILES:
            folders = dict.fromkeys(PurePosixPath(path).parts[0] for path in own)
            groups = [[path for path in own if PurePosixPath(path).parts[0] == folder] for folder in folders]
        return replace(found, files=[path for group in needed(enough, groups) for path in group])

    def _evaluated(self, place: Path) -> RunReport:
        try:
            return self.evaluate(replace(self.world, decided_by=place, file=None), self.request)
        except ConfigError as error:
            # Its files are known by where they stand in the world.
            own = f"{place}{os.sep}"
            known = [replace(item, path=item.path and item.path.replace(own, "")) for item in error.problems]
            raise ConfigError(known) from error


def _of_others(report: RunReport, new: Collection[str]) -> dict[tuple[str, str], Result]:
    agents = {PurePosixPath(path).stem for path in new}
    return {key: said for key, said in verdicts_of(report).items() if key[0] and key[0] not in agents}


def _findings(found: Difference, base: str, accepted: bool) -> Iterator[Finding]:
    files = _named(found.files)
    if found.better:
        held = "green" if accepted or found.green else "not red"
        yield Finding(
            kind="base",
            exit_code=EXIT_OK if accepted else EXIT_COVERAGE,
            message=f"{held} only because of {files}: by {base}, {_told(found.better)}",
            remedy="" if accepted else f"read what changes in {files}; whoever means it merges it",
        )
    if found.worse:
        yield Finding(
            kind="base",
            exit_code=EXIT_OK,
            message=f"red as soon as {files} {'are' if len(found.files) > 1 else 'is'} merged: by it, {_told(found.worse)}",
        )


def _new_baselines(paths: Sequence[str], base: str) -> Iterator[Finding]:
    if paths:
        names = _named([PurePosixPath(path).stem for path in paths])
        message = f"compared with baselines of this change, for {base} has none of them: {names}"
        yield Finding(kind="new_baseline", exit_code=EXIT_OK, message=message)


def _told(verdicts: Verdicts) -> str:
    grouped: dict[tuple[str, Result], list[str]] = {}
    named = {agent_id for agent_id, dimension in verdicts if dimension}
    for (agent_id, dimension), said in verdicts.items():
        if not dimension and agent_id in named:
            continue
        grouped.setdefault((agent_id, said), []).extend([dimension] if dimension else [])
    told = [
        f"{agent or 'the run'} {said.status.word}{f' ({_named(own)})' if own else ''}"
        for (agent, said), own in grouped.items()
    ]
    return _named(told, "; ")


def _named(names: Sequence[str], mark: str = ", ") -> str:
    more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return mark.join([*names[:MOST_NAMED], *more])


def _base(root: Path, name: str) -> str:
    try:
        return find_revision(root, name).id
    except ConfigError as error:
        raise ConfigError(
            f"--against {name}: there is no such commit here; a shallow clone has only the newest: check out with "
            f"`fetch-depth: 0`, or fetch it ({error.problems[0].message})"
        ) from error


def _text(data: bytes | None) -> bytes | None:
    return None if data is None else data.replace(b"\r\n", b"\n")
