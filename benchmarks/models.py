"""Two models in one interview: how often ``compare --interview`` says what was planted, and what that takes.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.models [--runs 200] [--worlds en de ja] [--faults stock fades] [--jobs 2]

Three worlds, of other languages, claims and judges: the voices of ``benchmarks/everyday``, which nothing here was made from. The
agent's first 100 lines are its messages, its answers are drawn from the other 60. An answer is better or worse than another by
chance (sd 0.7 a claim), and so is a scene for both; the stand-in judge rounds, errs, and 5 % of its verdicts are anything.
The second target has a fault:

    same      none
    slight    1 point worse by every claim of adherence, in every scene
    stock     the lines of a stock assistant; the judge sees nothing of it, only the voice tells
    other     plain lines of somebody else, and 3 points worse by the claims of adherence
    pressure  5 points worse by the claims of adherence where a visitor presses, and only there; ``touchy``: 2.5 points
    fades     5 points worse by the claims of adherence from the sixth answer of a conversation on
    repeats   one answer in two says an earlier one of the conversation again; the judge sees nothing
    dearer    none, but twice the price and 1.5 times the time

    seen      runs in which something fell, and in which the row that is meant did
    held      runs in which a row was called held that the fault is in (``pressure`` and ``fades``: adherence)
    fixed     the fewest scenes, all kinds in turn, with which a paired t test of the same level sees the row as often

An answer costs $0.002, a judgment $0.001.
"""

import argparse
import random
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from benchmarks.everyday import LINES, messages
from benchmarks.versions import ANSWER_SD, OUTLIERS, fixed_size
from persona_pipeline.guard.baselines.statistics import DIMENSIONS_SHARE, LEVEL
from persona_pipeline.judging.verdict import JudgeRequest, Usage, Verdict
from persona_pipeline.lab.compare import compare as comparing
from persona_pipeline.lab.compare import signals
from persona_pipeline.lab.compare.compare import Contest, compare_versions, scenes_of
from persona_pipeline.lab.compare.scenes import Answering
from persona_pipeline.lab.compare.tally import differences_of
from persona_pipeline.lab.results import INTERVIEW_SCENES, AgentDifference, ComparisonRequest, ScoreChange
from persona_pipeline.lab.states import Side
from persona_pipeline.scoring.voice_alarm.learning import LearntVoice, learn_voice
from persona_pipeline.scoring.voice_alarm.model import VoiceModel
from persona_pipeline.suites.running.plan import Targets
from persona_pipeline.suites.targets import Request
from persona_pipeline.testing import ScriptedJudge, WorldBuilder
from persona_pipeline.world import World

ANSWER_USD, JUDGMENT_USD = 0.002, 0.001
ROWS = {"slight": "adherence", "stock": "voice", "other": "adherence", "pressure": "adherence", "fades": "late_turns",
        "repeats": "said_again"}  # fmt: skip
FAULTS = ("same", *ROWS, "dearer", "touchy")


@dataclass(frozen=True)
class Kind:
    """A world: claims by dimension, and the judge's error."""

    claims: dict[str, int]
    judge_sd: float


WORLDS = {
    "en": Kind({"adherence": 5, "consistency": 3, "fluency": 2}, 1.0),
    "de": Kind({"adherence": 3, "consistency": 2}, 0.7),
    "ja": Kind({"adherence": 8}, 1.5),
}


@cache
def lines_of(language: str) -> dict[str, list[str]]:
    """Return the lines of a world's agent, a stock assistant and somebody else."""
    return yaml.safe_load((LINES / f"{language}.yaml").read_text("utf-8"))


def world_of(folder: Path, language: str) -> World:
    """Write an agent with a voice that can be learnt and some claims."""
    builder = WorldBuilder(folder).persona("ann", "Ann is as she speaks.")
    for dimension, count in WORLDS[language].claims.items():
        for number in range(count):
            builder.claim(dimension, f"c{number}", f"{{{{agent_name}}}} has property {number} of {dimension}")
    for message in messages(lines_of(language)["voice"][:100]):
        builder.say("ann", message.text, at=message.created_at.isoformat(), channel=message.channel)
    world = builder.open()
    world.sync()
    voice = learn_voice("ann", world.messages(), root=world.root)
    assert voice is not None
    READ.clear()
    signals.stored_voice = lambda *_: LearntVoice("ann", "", KnownLines(**dict(voice)))
    return world


class KnownLines(VoiceModel, frozen=True):
    """A voice that remembers what it read: the number at the end of an answer is no part of how it sounds."""

    def differences(self, text: str) -> Any:
        line = text.rpartition(" ")[0]
        if line not in READ:
            READ[line] = super().differences(line)
        return READ[line]


READ: dict[str, Any] = {}


@dataclass
class Contestants:
    """Two targets, and a judge that knows how good each answer is."""

    language: str
    fault: str
    seed: int
    calls: int = 0
    qualities: dict[str, np.ndarray] = field(default_factory=dict)
    said: dict[str, list[str]] = field(default_factory=dict)
    shared: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([self.seed, FAULTS.index(self.fault), [*WORLDS].index(self.language)])
        self.draw = random.Random(self.seed)
        self.lines, self.kind = lines_of(self.language), WORLDS[self.language]
        self.width = max(self.kind.claims.values())
        self.level = self.rng.uniform(5.5, 8.0, (len(self.kind.claims), self.width))

    def answer(self, request: Request, after: bool) -> dict[str, Any]:
        """Return the next line of a talk, of a quality that the judge is told by the line itself."""
        fault, scene = self.fault if after else "same", request.test.id
        with self.lock:
            place = (scene, request.attempt)
            if place not in self.shared:
                self.shared[place] = self.rng.normal(0, 0.7) + self.rng.normal(0, 0.5, self.level.shape)
            quality = self.level + self.shared[place] + self.rng.normal(0, ANSWER_SD, self.level.shape)
            quality[0] -= {
                "slight": 1.0,
                "other": 3.0,
                "pressure": 5.0 * scene.startswith("pressure"),
                "touchy": 2.5 * scene.startswith("pressure"),
                "fades": 5.0 * (request.turn >= 5),
            }.get(fault, 0.0)
            own = self.said.setdefault(request.conversation, [])
            pool = {"stock": self.lines["assistant"], "other": self.lines["normal"]}.get(
                fault, self.lines["voice"][100:]
            )
            line = self.draw.choice([item for item in pool if item not in own])
            if fault == "repeats" and own and self.draw.random() < 0.5:
                line = self.draw.choice(own)
            own.append(line)
            # No two answers are the same to the letter.
            text = f"{line} {len(self.qualities)}"
            self.qualities[text] = quality
            times = 1.5 if fault == "dearer" else 1.0
            took = float(self.rng.lognormal(0, 0.4)) * 1500 * times
            return {"text": text, "cost_usd": ANSWER_USD * (2.0 if fault == "dearer" else 1.0), "duration_ms": took}

    def judged(self, request: JudgeRequest) -> Verdict:
        """Return a score with an error."""
        self.calls += 1
        told = [self.qualities[entry.text] for entry in request.trajectory.entries if entry.text in self.qualities]
        row, claim = [*self.kind.claims].index(request.dimension), int(request.proposition_id[1:])
        true = float(np.mean([quality[row, claim] for quality in told]))
        score = true + self.rng.normal(0, self.kind.judge_sd)
        if self.rng.random() < OUTLIERS:
            score = self.rng.uniform(-0.5, 9.5)
        return Verdict(
            request.proposition_id, score=int(np.clip(np.rint(score), 0, 9)), usage=Usage(calls=1, usd=JUDGMENT_USD)
        )

    def contest(self, world: World) -> Contest:
        """Return both sides."""
        before, after = lambda request: self.answer(request, False), lambda request: self.answer(request, True)
        targets = Targets.of({"before": before, "after": after})
        # Threads would only be made.
        one, other = (targets.open(name).model_copy(update={"workers": 1}) for name in ("before", "after"))
        judge, sides = ScriptedJudge(self.judged, live=True), (Side("before", world.root), Side("after", world.root))
        return Contest(world, sides, (judge, judge), Answering((one, other)))


@dataclass(frozen=True)
class Run:
    """What one comparison said and took.

    ``first``: calls when something had first fallen, 0 where nothing did. ``differences``: of the row that is meant, by scene.
    """

    agent: AgentDifference
    calls: int
    usd: float
    first: int
    differences: tuple[float, ...]


@contextmanager
def watched(both: Contestants, row: str) -> Iterator[tuple[list[int], list[float]]]:
    """Give the calls at which something had fallen, look by look, and the differences of a row."""
    decide, lines, calls, differences = comparing._decide, comparing.with_lines, list[int](), list[float]()

    def decided(tallies: Any, request: ComparisonRequest) -> bool:
        told = decide(tallies, request)
        found = differences_of([*tallies.values()], request.change, looking=True)
        if any(moved(agent) for agent in found):
            calls.append(both.calls + len(both.qualities))
        return told

    def kept(agent: AgentDifference, answered: Any) -> AgentDifference:
        for item in answered:
            one, other = (
                {name: own.score for name, own in judged.items()} | dict(told)
                for judged, told in zip(item.judged, item.signals, strict=True)
            )
            if one.get(row) is not None and other.get(row) is not None:
                differences.append(other[row] - one[row])
        return lines(agent, answered)

    comparing._decide, comparing.with_lines = decided, kept
    try:
        yield calls, differences
    finally:
        comparing._decide, comparing.with_lines = decide, lines


def compared(language: str, fault: str, seeds: range, look: bool | None) -> list[Run]:
    """Return the runs of some seeds."""
    found: list[Run] = []
    with tempfile.TemporaryDirectory() as folder:
        world = world_of(Path(folder), language)
        for seed in seeds:
            request = ComparisonRequest(scenes=INTERVIEW_SCENES, seed=seed, interview=True, look=look)
            both = Contestants(language, fault, seed)
            contest = both.contest(world)
            with watched(both, ROWS.get(fault, "")) as (calls, differences):
                told = compare_versions(contest, scenes_of(contest, request), request)
            agent = told.agents["ann"].model_copy(update={"lines": ()})
            first = calls[0] if calls else 0
            found.append(Run(agent, told.answers + both.calls, told.usd or 0.0, first, tuple(differences)))
    return found


def fell(agent: AgentDifference) -> set[str]:
    """Return the rows that fell, and the dimensions of claims that did."""
    rows = {name for name, item in agent.rows.items() if item.moved is ScoreChange.FELL}
    return rows | {item.dimension for item in agent.moved if item.difference.moved is ScoreChange.FELL}


def moved(agent: AgentDifference) -> bool:
    """Return whether anything was said to have changed."""
    return any(item.moved in (ScoreChange.FELL, ScoreChange.ROSE) for item in agent.rows.values()) or bool(agent.moved)


def line_of(language: str, fault: str, runs: list[Run]) -> str:
    """Return one line of the table."""
    agents, row = [run.agent for run in runs], "adherence" if fault == "touchy" else ROWS.get(fault, "")
    share = lambda found: sum(map(bool, found)) / len(runs)  # noqa: E731
    held = {"pressure": "adherence", "touchy": "adherence", "fades": "adherence"}.get(fault, row)
    wrongly = share(agent.rows[held].moved is ScoreChange.SAME for agent in agents) if held else 0.0
    said = Counter(name for agent in agents for name in fell(agent))
    costs = [
        share(
            agent.expenses[name].low > 1
            if fault == "dearer"
            else agent.expenses[name].high >= 0.999 and agent.expenses[name].low <= 1.001
            for agent in agents
        )
        for name in ("cost_usd", "latency_seconds")
    ]
    every = share(all(item.moved is ScoreChange.SAME for item in agent.rows.values()) for agent in agents)
    return (
        f"{language} | {fault:8} | any moved {share(moved(agent) for agent in agents):.3f} | fell "
        f"{share(fell(agent) for agent in agents):.3f} | meant {said[row] / len(runs) if row else 0:.3f} | "
        f"wrongly held {wrongly:.3f} | all held {every:.3f} | cost, latency right {costs[0]:.3f}, {costs[1]:.3f} | scenes "
        f"{np.mean([agent.scenes for agent in agents]):.1f} | calls {np.mean([run.calls for run in runs]):.0f} | "
        f"${np.mean([run.usd for run in runs]):.2f} | {dict(said.most_common(4))}"
    )


def against_fixed(language: str, fault: str, runs: int, every: int) -> str:
    """Return what a fixed number of scenes takes that sees the row as often as it was seen."""
    looked, whole = (
        compared(language, fault, range(runs), None),
        compared(language, fault, range(1000, 1000 + every), False),
    )
    rows, rng = [*whole[0].agent.rows], np.random.default_rng(1)
    each = np.array([value for run in whole for value in run.differences])
    # Scenes that tell of the row, of all that were asked.
    told = len(each) / (len(whole) * INTERVIEW_SCENES)
    most = fixed_size(rng.choice(each, (4000, 240)), 0.99, LEVEL * DIMENSIONS_SHARE / len(rows))
    a_scene, first = (
        np.mean([run.calls for run in whole]) / INTERVIEW_SCENES,
        [run.first for run in looked if run.first],
    )
    return (
        f"{language} | {fault:8} | first red after {np.mean(first):.0f} calls ({len(first)} of {runs}), all decided "
        f"after {np.mean([run.calls for run in looked]):.0f} | fixed, power .99: "
        f"{most / told:.0f} scenes, {most / told * a_scene:.0f} calls"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--worlds", nargs="*", default=[*WORLDS])
    parser.add_argument("--faults", nargs="*", default=[*FAULTS])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--fixed", type=int, default=0, help="runs of a comparison with a fixed number of scenes")
    told = parser.parse_args()
    with ProcessPoolExecutor(told.jobs) as pool:
        for language in told.worlds:
            for fault in [name for name in told.faults if name in ROWS] if told.fixed else ():
                print(against_fixed(language, fault, told.fixed, 8), flush=True)
            for fault in () if told.fixed else told.faults:
                parts = [range(start, told.runs, told.jobs) for start in range(told.jobs)]
                each = pool.map(compared, *zip(*[(language, fault, part, None) for part in parts], strict=True))
                print(line_of(language, fault, [run for part in each for run in part]), flush=True)


if __name__ == "__main__":
    main()
