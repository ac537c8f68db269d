"""Comparisons of two versions, and searches for what made a score fall.

**compare**

How often a comparison of two versions is wrong, and how many calls it saves: ``python benchmarks/versions.py compare``.

An agent of some claims answers scenes; an answer is better or worse than another one by chance (sd 0.7 a claim), a judge gives
each claim a rounded score with an error (sd 0.5 to 1.5), and 5 % of its verdicts are anything from 0 to 9. Two versions are the
same, or the second is 1 point lower in every claim.

First the statistics alone, many runs; then the whole way: targets that answer, a judge that is asked, ``compare_versions``.

**bisect**

Does ``bisect`` name what made a score fall? ``python benchmarks/versions.py bisect [--histories 300]``.

Each history is a git repository of its own: an agent with a persona, claims and messages, judged in every commit by a stand-in
whose verdicts are recorded, as CI keeps them. Somewhere one thing makes scores fall: a line of the persona, a claim, the judge's
model, or messages. Around it stand commits that change other things and no score: other lines, claims, agents, files, single
messages. In some histories another thing changes in the very same commit:

    harmless    another claim, another agent, a file that no judge sees: the cause can be told
    together    messages or the persona beside the cause, judged only together: it cannot, and that must be said

Named rightly is: the commit, the kind of cause, and which line, claim, model or message. No judge is asked.
"""

import argparse
import math
import random
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy import stats

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.evaluation.folder import folder_inputs
from persona_pipeline.guard.baselines.statistics import DIMENSIONS_SHARE, LEVEL
from persona_pipeline.judging.recordings.writing import RecordingWriter
from persona_pipeline.judging.verdict import (
    Evidence,
    JudgeRequest,
    Verdict,
)
from persona_pipeline.lab.answering import Answering
from persona_pipeline.lab.bisect.bisect import BisectRequest, bisect_commits
from persona_pipeline.lab.compare.compare import Contest, compare_versions, moments
from persona_pipeline.lab.results import (
    Bisection,
    CauseKind,
    ComparisonRequest,
    ScoreChange,
)
from persona_pipeline.lab.statistics import log_wealth
from persona_pipeline.lab.versions import Version
from persona_pipeline.suites.running.plan import Targets
from persona_pipeline.suites.targets import Request
from persona_pipeline.testing import ScriptedJudge, WorldBuilder
from persona_pipeline.world import World
from persona_pipeline.world.models import Window
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS

ANSWER_SD, OUTLIERS = 0.7, 0.05
Numbers = NDArray[np.float64]


def draw(rng: np.random.Generator, runs: int, scenes: int, claims: int, sd: float, drop: float) -> Numbers:
    """Return the differences of a dimension, after minus before, by run and scene."""
    level = rng.uniform(5.5, 8.0, (runs, 1, claims))
    scene = rng.normal(0, 0.7, (runs, scenes, 1)) + rng.normal(0, 0.5, (runs, scenes, claims))

    def judged(shift: float) -> Numbers:
        true = level + scene + shift + rng.normal(0, ANSWER_SD, (runs, scenes, claims))
        said = true + rng.normal(0, sd, true.shape)
        odd = rng.random(true.shape) < OUTLIERS
        return np.clip(np.rint(np.where(odd, rng.uniform(-0.5, 9.5, true.shape), said)), 0, 9)

    return (judged(-drop) - judged(0.0)).mean(axis=2)


def stops(differences: Numbers, level: float) -> Numbers:
    """Return after how many scenes each run shows a change, infinity where it never does."""
    found = np.full(len(differences), math.inf)
    for place, row in enumerate(differences):
        shown = np.flatnonzero(np.maximum(log_wealth(row), log_wealth(-row)) >= math.log(2 / level))
        if len(shown):
            found[place] = shown[0] + 1
    return found


def fixed_power(differences: Numbers, scenes: int, level: float) -> float:
    """Return how often a paired t test of so many scenes shows a change."""
    rows = differences[:, :scenes]
    t = rows.mean(axis=1) / (rows.std(axis=1, ddof=1) / math.sqrt(scenes))
    return float((2 * stats.t.sf(np.abs(t), scenes - 1) <= level).mean())


def fixed_size(differences: Numbers, power: float, level: float) -> int:
    """Return the fewest scenes with which a paired t test has a power, up to as many as were drawn."""
    low, high = 2, differences.shape[1]
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fixed_power(differences, middle, level) >= power else (middle + 1, high)
    return low


def statistics_alone(runs: int) -> None:
    """Print the table of the statistics."""
    level, most = LEVEL * DIMENSIONS_SHARE, 240
    print(
        f"{runs} runs a cell, looked at after every scene, at most {most} scenes; level {level:.4f} as for one dimension"
    )
    print(
        "claims | judge sd | sd of a difference | A/A shown | seen | scenes, mean | fixed size: power .95, .99, .999 | share"
    )
    for claims in (1, 3, 5, 8):
        for sd in (0.5, 1.0, 1.5):
            rng = np.random.default_rng([claims, int(sd * 10)])
            same = stops(draw(rng, runs, most, claims, sd, 0.0), level)
            other = draw(rng, runs, most, claims, sd, 1.0)
            seen = stops(other, level)
            sizes = [fixed_size(other, power, level) for power in (0.95, 0.99, 0.999)]
            mean = float(np.minimum(seen, most).mean())
            shares = ", ".join(f"{mean / size:.2f}" for size in sizes)
            print(
                f"{claims} | {sd} | {other.std(axis=1, ddof=1).mean():.2f} | {np.isfinite(same).mean():.3f} | "
                f"{np.isfinite(seen).mean():.4f} | {mean:.1f} | {', '.join(map(str, sizes))} | {shares}",
                flush=True,
            )


def world_of(folder: Path, claims: int) -> World:
    """Write an agent with claims and a few moments to answer in."""
    builder = WorldBuilder(folder).persona("ann", "Ann is dry and brief.").persona("bob", "Bob loves machines.")
    for number in range(claims):
        builder.claim("adherence", f"c{number}", f"{{{{agent_name}}}} has property {number}")
    for number in range(240):
        # Two lines are a conversation: the next is hours later.
        at = START + timedelta(hours=2 * (number // 2), minutes=number % 2)
        builder.say("ann" if number % 2 else "bob", f"Line {number}, said once.", at=at.isoformat())
    world = builder.open()
    world.sync()
    return world


def contest_of(world: World, seed: int, sd: float, drop: float, claims: int) -> tuple[Contest, dict[str, int]]:
    """Return two versions whose answers tell the judge how good they are, and the calls that were made."""
    rng = np.random.default_rng([seed, int(sd * 10), int(drop * 10)])
    level, scenes, calls, lock = rng.uniform(5.5, 8.0, claims), {}, {"judged": 0}, threading.Lock()

    def answering(shift: float) -> Any:
        def answer(request: Request) -> str:
            asked = request.test.id, request.attempt
            # Both sides answer at the same time, and what the scene does is done to both.
            with lock:
                if asked not in scenes:
                    scenes[asked] = rng.normal(0, 0.7) + rng.normal(0, 0.5, claims)
                true = level + scenes[asked] + shift + rng.normal(0, ANSWER_SD, claims)
            return " ".join(f"{value:.3f}" for value in true)

        return answer

    def judged(request: JudgeRequest) -> int:
        calls["judged"] += 1
        if rng.random() < OUTLIERS:
            return int(rng.integers(0, 10))
        true = float(request.trajectory.entries[-1].text.split()[int(request.proposition_id[1:])])
        return int(np.clip(np.rint(true + rng.normal(0, sd)), 0, 9))

    targets = Targets.of({"before": answering(0.0), "after": answering(-drop)})
    judge = ScriptedJudge(judged, live=True)
    asks = Answering((targets.open("before"), targets.open("after")))
    sides = (Version("before", world.root), Version("after", world.root))
    return Contest(world, sides, judge, asks), calls


def whole_way(runs: int, sd: float, claims: int) -> None:
    """Print what runs of the product itself come to."""
    request = ComparisonRequest(agents=["ann"], dimensions=["adherence"], scenes=120)
    for drop in (0.0, 1.0):
        shown, same, scenes, calls, covered = 0, 0, [], [], 0
        with tempfile.TemporaryDirectory() as folder:
            world = world_of(Path(folder), claims)
            drawn = {"ann": moments(world, "ann", request)}
            for seed in range(runs):
                contest, counted = contest_of(world, seed, sd, drop, claims)
                found = compare_versions(contest, drawn, request)
                item = found.agents["ann"].dimensions["adherence"]
                wrong = drop == 0.0 and bool(found.agents["ann"].moved)
                shown += item.moved in (ScoreChange.FELL, ScoreChange.ROSE) or wrong
                same += item.moved is ScoreChange.SAME
                scenes.append(found.agents["ann"].scenes)
                calls.append(counted["judged"] + found.answers)
                covered += item.low is None or item.low <= -drop <= (item.high or 0.0)
        print(
            f"drop {drop}: {shown / runs:.3f} shown, {same / runs:.3f} called the same, scenes {np.mean(scenes):.1f} (most "
            f"{max(scenes)}), calls {np.mean(calls):.0f}, interval holds {drop} in {covered / runs:.3f}",
            flush=True,
        )


def run_compare() -> None:
    """Run both parts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=4000, help="of the statistics alone, a cell")
    parser.add_argument("--whole", type=int, default=500, help="of the whole way")
    parser.add_argument("--sd", type=float, nargs="*", default=[0.5, 1.0, 1.5], help="of the judge, the whole way")
    told = parser.parse_args()
    if told.runs:
        statistics_alone(told.runs)
    for sd in told.sd if told.whole else ():
        print(f"the whole way, {told.whole} runs, 5 claims, judge sd {sd}")
        whole_way(told.whole, sd, 5)


AGENT, START = "ann", datetime(2026, 3, 2, 9, tzinfo=UTC)
CAUSES = (CauseKind.PERSONA, CauseKind.CLAIMS, CauseKind.JUDGE, CauseKind.MESSAGES)
BESIDE = ("", "harmless", "together")


@dataclass
class History:
    """A repository that grows commit by commit."""

    root: Path
    rng: random.Random
    persona: list[str] = field(default_factory=list)
    claims: dict[str, dict] = field(default_factory=dict)
    said: list[dict] = field(default_factory=list)
    model: str = "judge-1"
    salt: int = 0
    commits: int = 0
    planted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.git("init", "-q", "-b", "main")
        self.persona = [f"Ann cares about thing {number}." for number in range(8)]
        for number in range(self.rng.randint(4, 7)):
            self.claims[f"c{number}"] = {"claim": f"{{{{agent_name}}}} shows habit {number}"}
        for number in range(12):
            self.say(f"Plain line {number}.")

    def git(self, *arguments: str) -> str:
        """Run git in the repository."""
        moment = (START + timedelta(days=self.commits)).isoformat()
        environment = {
            "HOME": str(self.root), "PATH": "/usr/bin:/bin:/usr/local/bin", "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment,
        }  # fmt: skip
        command = ["git", "-C", str(self.root), "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()

    def say(self, text: str) -> str:
        """Add a message of the agent."""
        name = f"m{len(self.said)}"
        at = START + timedelta(minutes=len(self.said))
        self.said.append(
            {"id": name, "agent_id": AGENT, "channel": "general", "text": text, "created_at": at.isoformat()}
        )
        return name

    def write(self) -> None:
        """Write the world's files."""
        files = {
            f"personas/{AGENT}.yaml": "display_name: Ann\npersona: |\n"
            + "".join(f"  {line}\n" for line in self.persona),
            "personas/bob.yaml": f"display_name: Bob\npersona: Bob {self.salt}\n",
            "propositions/adherence/_default.yaml": yaml.safe_dump(
                {"dimension": "adherence", "propositions": [{"id": key, **item} for key, item in self.claims.items()]}
            ),
            "messages/all.jsonl": "".join(f"{_json(row)}\n" for row in self.said),
            "README.md": f"Version {self.salt}\n",
        }
        for path, text in files.items():
            place = self.root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")

    def record(self) -> None:
        """Record what the judge says of the world as it stands; what is not asked any more goes."""
        inputs = folder_inputs(self.root)
        assert inputs.messages.newest is not None
        agent = Version("", self.root).agent(AGENT, ALL_DIMENSIONS)
        requests = agent.plan(inputs, Window(inputs.messages.newest)).requests
        folder = self.root / "recordings"
        for path in folder.rglob("*.jsonl") if folder.is_dir() else ():
            path.unlink()
        RecordingWriter(folder).record(requests, [self.verdict(item) for item in requests], recorded_at=START)

    def verdict(self, request: JudgeRequest) -> Verdict:
        """Return what a judge says: about 8, and about 4 where it sees what is planted."""
        quotes = [entry for entry in request.trajectory.entries if "FOREIGN" in entry.text]
        seen = (
            "FORGETS" in (request.persona or "") or "IMPOSSIBLE" in request.claim or quotes or self.model == "judge-2"
        )
        noise = random.Random(f"{request.key}{self.model}").choice((-1, 0, 0, 0, 1))
        evidence = tuple(Evidence(entry.message_id, entry.text, verified=True) for entry in quotes[:2])
        return Verdict(
            request.proposition_id, score=max(0, (3 if seen else 8) + noise), reasoning="So it seems.", evidence=evidence,
            model=self.model, prompt_version="p1",
        )  # fmt: skip

    def commit(self, subject: str) -> str:
        """Commit the world and what is recorded of it."""
        self.write()
        self.record()
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        self.commits += 1
        return self.git("rev-parse", "HEAD")

    def harmless(self, *, without: CauseKind | None = None) -> str:
        """Change something that moves no score, of another kind than one."""
        self.salt += 1
        kinds = [kind for kind in ("persona", "claim", "message", "other") if kind != without]
        kind = self.rng.choice(kinds)
        if kind == "persona":
            self.persona[self.rng.randrange(4)] = f"Ann cares about thing {self.salt} now."
        elif kind == "claim":
            key = self.rng.choice([name for name in self.claims if name not in self.planted])
            self.claims[key] = {"claim": f"{{{{agent_name}}}} shows habit {self.salt} of late"}
        elif kind == "message":
            self.say(f"Another plain line {self.salt}.")
        return f"Change {kind} {self.salt}"


def _json(row: dict) -> str:
    import json

    return json.dumps(row)


@dataclass(frozen=True)
class Planted:
    """What was done, and what must be named."""

    kind: CauseKind
    commit: str
    names: tuple[str, ...]
    beside: str
    tellable: bool = True


def plant(history: History, kind: CauseKind, beside: str) -> Planted:
    """Let a score fall by one thing, with something else beside it."""
    names: tuple[str, ...]
    subject = "Tidy up"
    if kind is CauseKind.PERSONA:
        line = history.rng.randrange(4, 8)
        history.persona[line] = "Ann FORGETS who she is."
        names = (f"personas/{AGENT}.yaml:{line + 3}",)
    elif kind is CauseKind.CLAIMS:
        chosen = history.rng.sample(list(history.claims), 3)
        history.planted |= set(chosen)
        for key in chosen:
            history.claims[key] = {"claim": f"{{{{agent_name}}}} does the IMPOSSIBLE {key}"}
        names = tuple(f"adherence/{key}" for key in chosen)
    elif kind is CauseKind.JUDGE:
        history.model = "judge-2"
        names = ("judge-1 became judge-2",)
    else:
        names = tuple(history.say(f"A FOREIGN line {number}.") for number in range(3))
    if beside == "harmless":
        history.salt += 1
        if kind is CauseKind.CLAIMS:
            key = next(key for key in history.claims if f"adherence/{key}" not in names)
            history.claims[key] = {"claim": f"{{{{agent_name}}}} shows habit {history.salt} again"}
    elif beside == "together":
        other = CauseKind.MESSAGES if kind in (CauseKind.PERSONA, CauseKind.CLAIMS) else CauseKind.PERSONA
        if other is CauseKind.MESSAGES:
            history.say("A plain line beside it.")
        else:
            history.persona[0] = "Ann cares about tea."
    return Planted(kind, history.commit(subject), names, beside, beside != "together")


def generate(root: Path, seed: int, most: int = 8) -> tuple[Planted, int]:
    """Make a history and return what was planted in it, and how many commits it has."""
    rng = random.Random(seed)
    history = History(root, rng)
    history.commit("Begin")
    kind = CAUSES[seed % len(CAUSES)]
    beside = BESIDE[seed // len(CAUSES) % len(BESIDE)]
    for _ in range(rng.randint(1, most)):
        history.commit(history.harmless())
    planted = plant(history, kind, beside)
    for _ in range(rng.randint(1, most)):
        history.commit(history.harmless())
    return planted, history.commits


def judged(found: Bisection, planted: Planted) -> str:
    """Return how right the answer is, in a word."""
    if not found.falls:
        return "no fall seen"
    fall = found.falls[0]
    if fall.first_bad is None or fall.first_bad.commit != planted.commit:
        return "another commit"
    if not planted.tellable:
        if fall.cause is not None:
            return "named" if _right(fall.cause.kind, fall.cause.what, planted) else "wrongly named"
        return (
            "said that it cannot be told"
            if planted.kind in fall.candidates
            else "cannot tell, cause not among the candidates"
        )
    if fall.cause is None:
        return f"cannot tell: {fall.why_not}"
    return (
        "named"
        if _right(fall.cause.kind, fall.cause.what, planted)
        else f"wrongly named: {fall.cause.kind} {fall.cause.what}"
    )


def _right(kind: CauseKind, what: tuple[str, ...], planted: Planted) -> bool:
    # The judge quotes two of the messages, and those are named.
    names = set(what) <= set(planted.names) if kind is CauseKind.MESSAGES else set(what) == set(planted.names)
    return kind is planted.kind and bool(what) and names


def run_bisect() -> None:
    """Generate histories, search them, and count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--histories", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", action="store_true")
    told = parser.parse_args()
    results: Counter[tuple[str, str, str]] = Counter()
    calls = looked = commits = 0
    for seed in range(told.first, told.first + told.histories):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            planted, count = generate(root, seed)
            found, _ = bisect_commits(World.open(root), BisectRequest(AGENT, window="all"))
            answer = judged(found, planted)
            results[planted.kind.value, planted.beside or "alone", answer] += 1
            calls, looked, commits = calls + found.calls, looked + found.looked_at, commits + count
            if told.show and answer != "named":
                print(seed, planted, found.model_dump_json(indent=1))
    for (kind, beside, answer), count in sorted(results.items()):
        print(f"{kind:9} {beside:9} {count:4}  {answer}")
    tellable = sum(count for (_, beside, _), count in results.items() if beside != "together")
    right = sum(count for (_, beside, answer), count in results.items() if beside != "together" and answer == "named")
    both = [(answer, count) for (_, beside, answer), count in results.items() if beside == "together"]
    honest = sum(count for answer, count in both if answer in ("named", "said that it cannot be told"))
    unknown = sum(count for _, count in both)
    print(f"named where it can be told: {right} of {tellable}")
    print(f"where it cannot: right, or said to be unknown with the cause among the candidates: {honest} of {unknown}")
    print(
        f"calls {calls}; {looked / told.histories:.1f} points scored a history of {commits / told.histories:.1f} commits"
    )


COMMANDS = {"compare": run_compare, "bisect": run_bisect}


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"{__doc__}\nname one of {', '.join(COMMANDS)}")
    sys.exit(COMMANDS[sys.argv.pop(1)]())
