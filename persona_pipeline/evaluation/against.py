"""A pull request judged by its base: the base's files decide, and changed files that make a difference are named.

Personas, claims, messages and recordings are the world's. Baselines, labels and lexicons come from an earlier commit, so that
a change cannot move the limits by which it is judged.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory, mkdtemp

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.base.settings import Settings
from persona_pipeline.base.status import Result
from persona_pipeline.base.text import some
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
from persona_pipeline.world.models import grouped
from persona_pipeline.world.revisions import files_at, find_revision, write_files
from persona_pipeline.world.settings import world_file_at
from persona_pipeline.world.world import World

Evaluate = Callable[[World, EvaluationRequest], RunReport]

BASELINES = "baselines/"

# Verdicts by agent and dimension; of an agent as a whole under no dimension.
Verdicts = Mapping[tuple[str, str], Result]


def verdicts_of(report: RunReport) -> dict[tuple[str, str], Result]:
    """Return the verdicts of a run by agent and dimension. Nothing to judge counts as held."""
    said: dict[tuple[str, str], Result] = {}
    for agent_id, agent in report.agents.items():
        told = {"": agent.conclusion, **agent.conclusions}
        said |= {(agent_id, name): item.verdict or Result.HELD for name, item in told.items()}
    for finding in report.findings:
        if item := Conclusion.of([finding]):
            key = (finding.agent_id or "", finding.dimension or "")
            said[key] = min(item.verdict or Result.HELD, said.get(key, Result.HELD), key=lambda result: result.rank)
    return said


def differences(before: RunReport, after: RunReport) -> tuple[Verdicts, Verdicts]:
    """Return verdicts that the second report improves, as the first has them, and those that it worsens, as it has them."""
    first, second = verdicts_of(before), verdicts_of(after)
    pairs = {key: (first.get(key, Result.HELD), second.get(key, Result.HELD)) for key in sorted({*first, *second})}
    better = {key: old for key, (old, new) in pairs.items() if old.rank < new.rank}
    return better, {key: new for key, (old, new) in pairs.items() if old.rank > new.rank}


def undecided(by_base: RunReport, green: Collection[tuple[str, str]]) -> RunReport:
    """Return the base's verdict; what only the change's own files call held is inconclusive instead of a regression."""
    report = by_base.model_copy(deep=True)
    for finding in report.all_findings():
        if (finding.agent_id or "", finding.dimension or "") in green and finding.exit_code == EXIT_REGRESSION:
            finding.exit_code = EXIT_COVERAGE
    if report.exit_code == EXIT_REGRESSION and report.conclusion.verdict is not Result.FELL:
        report.exit_code = EXIT_COVERAGE
    return report


@contextmanager
def fresh_world(
    root: Path | None = None, against: str | None = None, *, settings: Settings | None = None
) -> Iterator[World]:
    """Give a world with an empty store; ``against``: the commit whose whole ``persona.yaml`` counts."""
    with TemporaryDirectory(prefix="persona-store-") as folder:
        world = World.open(root, f"sqlite:///{folder}/store.db", settings=settings)
        try:
            yield (
                world if against is None else replace(world, file=world_file_at(world.root, _base(world.root, against)))
            )
        finally:
            world.store.close()


def judged_against(world: World, request: EvaluationRequest, evaluate: Evaluate) -> RunReport:
    """Return the report of a run by the files of ``request.against``, with the difference that the change's files make.

    ``world`` is best a ``fresh_world``; ``ConfigError``: the commit is missing, or bad input.
    """
    if request.update_baseline:
        raise ConfigError("--against writes no baselines; take them without it")
    root, name = world.root, request.against or ""
    commit = _base(root, name)
    base, own = files_at(root, commit, DECIDING), deciding_files(root)
    changed = [path for path in sorted({*base, *own}) if _text(base.get(path)) != _text(own.get(path))]
    golden = frozenset(path for path in changed if path.startswith(BASELINES))
    new = golden.difference(base)
    with TemporaryDirectory(prefix="persona-base-") as folder:
        alone = request.model_copy(update={"against": None, "accept_baseline": False})

        @cache
        def run(taken: frozenset[str]) -> RunReport:
            """Return the report by the base's files, with these as the change has them."""
            place = Path(mkdtemp(dir=folder))
            kept = {path: data for path, data in base.items() if path not in taken}
            write_files(kept | {path: own[path] for path in taken if path in own}, place)
            return _evaluated(evaluate, replace(world, decided_by=place, file=None), alone)

        none, taken = frozenset[str](), new
        by_base = run(taken)
        if _of_others(run(none), new) != _of_others(by_base, new):
            # New golden files are for new agents; they do not change the verdicts on others.
            taken, by_base = none, run(none)
        # What decides is the base's, or with it the golden files that are accepted.
        accepted = golden if request.accept_baseline else taken
        judged, by_change = run(accepted), run(frozenset(changed))
    better, worse = differences(judged, by_change)
    green = [key for key in better if verdicts_of(by_change).get(key, Result.HELD) is Result.HELD]
    report = undecided(judged, green)
    found = [
        (differences(by_base, judged), golden - taken, "green", True),
        ((better, worse), {*changed} - accepted, "green" if green else "not red", False),
    ]
    told = [item for verdicts, files, held, meant in found for item in _findings(verdicts, files, name, held, meant)]
    if taken:
        names = some([PurePosixPath(path).stem for path in sorted(taken)])
        message = f"compared with baselines of this change, for {name} has none of them: {names}"
        told.append(Finding(kind="new_baseline", message=message))
    report.findings = [*told, *report.findings]
    if request.accept_baseline and golden:
        report.terms.looser.append(LooserRule(rule="accept_baseline", text="baselines of this change decide"))
    report.provenance["against"] = {
        "base": name,
        "commit": commit,
        "exit_code_by_base": by_base.exit_code,
        "exit_code_by_change": by_change.exit_code,
        "difference_made_by": sorted({path for verdicts, files, _, _ in found if any(verdicts) for path in files}),
        "new_baselines": sorted(taken),
        "baselines_accepted": sorted(golden) if request.accept_baseline else [],
    }
    return report


@dataclass
class AskedOnce:
    """A live judge whose answers are kept, so that repeated runs ask nothing twice."""

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
        """Notes on the judgments for reports."""
        return getattr(self.judging, "notes", ())

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        """Return verdicts in the order of the requests; kept answers cost nothing."""
        keys = [(request.proposition_id, request.key) for request in requests]
        new = {key: request for key, request in zip(keys, requests, strict=True) if key not in self.told}
        self.told |= dict(zip(new, await self.judging.judge(list(new.values())), strict=True))
        return [self.told[key] if key in new else replace(self.told[key], usage=Usage()) for key in keys]

    @property
    def ask(self) -> Ask | None:
        """Answers other questions than claims; the judge's own cache keeps those. None: it only answers claims."""
        return getattr(self.judging, "ask", None)


def _evaluated(evaluate: Evaluate, world: World, request: EvaluationRequest) -> RunReport:
    try:
        return evaluate(world, request)
    except ConfigError as error:
        # Its files are known by where they are in the world.
        own = f"{world.decided_by}{os.sep}"
        known = [replace(item, path=item.path and item.path.replace(own, "")) for item in error.problems]
        raise ConfigError(known) from error


def _of_others(report: RunReport, new: Collection[str]) -> dict[tuple[str, str], Result]:
    agents = {PurePosixPath(path).stem for path in new}
    return {key: said for key, said in verdicts_of(report).items() if key[0] and key[0] not in agents}


def _findings(
    found: tuple[Verdicts, Verdicts], changed: Iterable[str], base: str, held: str, accepted: bool
) -> Iterator[Finding]:
    """Yield the verdicts that changed files improve and worsen, with these files, the agents' baselines first."""
    better, worse = found
    own = {f"{BASELINES}{agent_id}.json" for agent_id, _ in {**better, **worse}}
    # Other agents' baselines count, too: by how many agents are watched, chance is corrected for.
    paths = sorted(changed, key=lambda path: (path not in own, path.startswith(BASELINES), path))
    files = some(paths)
    if better:
        yield Finding(
            kind="base",
            exit_code=EXIT_OK if accepted else EXIT_COVERAGE,
            message=f"{held} only because of {files}: by {base}, {_told(better)}",
            remedy="" if accepted else f"read what changes in {files}; merge it if it is meant",
        )
    if worse:
        yield Finding(
            kind="base",
            exit_code=EXIT_OK,
            message=f"red as soon as {files} {'are' if len(paths) > 1 else 'is'} merged: by it, {_told(worse)}",
        )


def _told(verdicts: Verdicts) -> str:
    named = {agent_id for agent_id, dimension in verdicts if dimension}
    shown = ((key, said) for key, said in verdicts.items() if key[1] or key[0] not in named)
    alike = grouped(shown, lambda item: (item[0][0], item[1]))
    dimensions = {key: [name for (_, name), _ in own if name] for key, own in alike.items()}
    told = [
        f"{agent or 'the run'} {said.status.word}{f' ({some(own)})' if own else ''}"
        for (agent, said), own in dimensions.items()
    ]
    return some(told, between="; ")


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
