"""Live runs of a judge that varies and sometimes fails, recorded, and the same runs replayed with a store of their own."""

import random
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.guard.report import RunReport
from persona_pipeline.judging.claims import suspicious_entries
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.judging.verdict import Evidence, Judge, JudgeRequest, Unscored, Verdict
from persona_pipeline.testing.worlds import FIRST_MESSAGE, WorldBuilder
from persona_pipeline.world import World
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS
from tests.support.judging import recorded_by

AGENTS = ("ann", "bob", "cid")
CLAIMS, WEEKS = 4, 4
LAST_WEEK = f"week {WEEKS} "
CHANGES = ("nothing", "a claim collapses", "a dimension drops by 2", "all drop by 1.5")
_FAILURES = (
    Unscored.TIMEOUT,
    Unscored.REFUSAL,
    Unscored.API_ERROR,
    Unscored.INVALID_OUTPUT,
    Unscored.TRUNCATED,
    Unscored.UNSUPPORTED,
    Unscored.COMPROMISED,
)
_NOT_APPLICABLE = 0.03
NEW = "new.db"


@dataclass(frozen=True)
class Case:
    """One live run.

    Attributes:
        change: what has happened to ann in the last week, one of ``CHANGES``.
        samples: judgments a claim.
        spread: standard deviation of a judgment, in points.
        failing: share (0-1) of judgments that fail; ``failing_again``: of those that confirm a fall.
    """

    seed: int
    change: str = CHANGES[0]
    samples: int = 1
    spread: float = 1.0
    failing: float = 0.005
    failing_again: float = 0.005


@dataclass
class FallibleJudge:
    """A live judge whose score depends on seed, claim and week alone, and that fails now and then."""

    case: Case
    name: str = "fallible"
    live: bool = True
    failed: int = 0
    asked: Counter[str] = field(default_factory=Counter)

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        return [self._verdict(request) for request in requests]

    def _verdict(self, request: JudgeRequest) -> Verdict:
        # Asked a second time it may answer.
        again, self.asked[request.key] = "again" * self.asked[request.key], self.asked[request.key] + 1
        case, dice = self.case, random.Random(f"{self.case.seed}/{request.key}{again}")
        suspected = bool(suspicious_entries(request.trajectory))
        if dice.random() < (case.failing if request.sample < case.samples else case.failing_again):
            self.failed += 1
            reason = dice.choice(_FAILURES)
            detail = f"{reason}: no answer to {request.claim}"
            return Verdict(request.proposition_id, unscored=reason, detail=detail, injection_suspected=suspected)
        first = request.trajectory.entries[0]
        said = {
            "evidence": (Evidence(first.message_id, first.text, verified=True),),
            "reasoning": f"Because of {dice.random():.3f}.",
            "model": "fallible-1",
            "prompt_version": "1",
            "injection_suspected": suspected,
        }
        if dice.random() < _NOT_APPLICABLE:
            return Verdict(request.proposition_id, unscored=Unscored.NOT_APPLICABLE, **said)
        ideas = ("an idea", "another") if request.lists_ideas else ()
        score = round(dice.gauss(_truth(case, request), case.spread))
        return Verdict(request.proposition_id, score=max(0, min(9, score)), ideas=ideas, **said)


def _truth(case: Case, request: JudgeRequest) -> float:
    usual = random.Random(f"{request.agent_id}/{request.proposition_id}").uniform(6.5, 8.5)
    if request.agent_id != "ann" or not any(LAST_WEEK in entry.text for entry in request.trajectory.entries):
        return usual
    if case.change == CHANGES[1] and request.proposition_id == "adherence-0":
        return 0.5
    if case.change == CHANGES[2] and request.dimension == "adherence":
        return usual - 2
    return usual - 1.5 if case.change == CHANGES[3] else usual


def write_world(root: Path) -> Path:
    """Write a world of three agents and four weeks, with live baselines of three of them judged 3 times, and return its folder."""
    builder = WorldBuilder(root)
    for agent_id in AGENTS:
        builder.persona(agent_id, f"{agent_id.title()} is dry.")
    for dimension in ALL_DIMENSIONS:
        for number in range(CLAIMS):
            claim = (
                f"{{{{agent_name}}}} is interesting, {number}" if dimension == "adherence" else f"It is so, {number}"
            )
            builder.claim(dimension, f"{dimension}-{number}", claim)
    for week in range(WEEKS):
        for number in range(12):
            when = FIRST_MESSAGE + timedelta(days=7 * week, hours=number)
            words = f"Kettle {number} of week {week + 1} was dull, and {AGENTS[number % 3]} mended it."
            builder.say(AGENTS[number % 3], words, at=when, channel=("kettles", "irons")[number // 3 % 2])
    before = FIRST_MESSAGE + timedelta(days=7 * (WEEKS - 1)) - timedelta(seconds=1)
    request = EvaluationRequest(as_of=before, samples=3, update_baseline=True, baseline_windows=WEEKS - 1)
    calm = Case(seed=-1, samples=3, failing=0.0, failing_again=0.0)
    _run(root, root / "baseline.db", recording(FallibleJudge(calm), root / "recordings"), request)
    (root / "baseline.db").unlink()
    # A new store is a copy of this one, in which nothing was ever judged.
    world = World.open(root, f"sqlite:///{root / NEW}")
    world.sync()
    world.store.close()
    return root


def recording(judge: Judge, folder: Path) -> Judge:
    """Return a live judge whose verdicts are recorded, as ``open_judge`` opens one."""
    return recorded_by(judge, folder, first=True)


def cases(count: int, failing: float = 0.005, failing_again: float | None = None) -> list[Case]:
    """Return runs of every change, number of samples and spread in turn; ``failing_again`` None: as ``failing``."""
    again = failing if failing_again is None else failing_again
    spreads, samples = (0.5, 1.0, 1.5), (1, 3)
    ways = [(change, times, spread) for spread in spreads for times in samples for change in CHANGES]
    return [Case(seed, *ways[seed % len(ways)], failing=failing, failing_again=again) for seed in range(count)]


def live_and_replayed(case: Case, world: Path, folder: Path) -> tuple[RunReport, RunReport, int]:
    """Return a live run and its replay, with how many judgments failed; each has a store of its own.

    Args:
        world: see ``write_world``; it is copied.
    """
    root = Path(shutil.copytree(world, folder / "world"))
    judge = FallibleJudge(case)
    request = EvaluationRequest(samples=case.samples, window="7d")
    live = _run(root, folder / "live.db", recording(judge, root / "recordings"), request)
    replayed = _run(root, folder / "replay.db", OpenedJudge(RecordedBackend(root / "recordings")), request)
    return live, replayed, judge.failed


def told(report: RunReport) -> dict[str, Any]:
    """Return all that a report says, but who judged, what that cost, and that failures are recorded."""
    agents = {}
    for agent_id, agent in report.agents.items():
        evaluation = agent.evaluation.model_dump(mode="json", exclude={"run_id", "usage", "provenance"})
        for item in evaluation["dimensions"].values():
            item.pop("usage")
            item.pop("min_coverage", None)
        comparison = agent.comparison.model_dump(mode="json")
        findings = [finding.model_dump(mode="json") for finding in agent.findings]
        conclusions = [agent.conclusion, *agent.conclusions.values()]
        agents[agent_id] = (evaluation, comparison, findings, [item.model_dump(mode="json") for item in conclusions])
    findings = [finding.model_dump(mode="json") for finding in report.findings]
    return {"exit_code": report.exit_code, "conclusion": report.conclusion, "agents": agents, "findings": findings}


def _run(root: Path, database: Path, judge: Judge, request: EvaluationRequest) -> RunReport:
    if (root / NEW).exists():
        shutil.copy(root / NEW, database)
    world = World.open(root, f"sqlite:///{database}")
    try:
        return run_evaluation(world, judge, request).report
    finally:
        world.store.close()
