"""Worlds whose truth is known: how often people's score, fading and tests of claims are right.

**people**

Whether the score people would give lies within the interval that is printed for it, and how wide that is.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/simulations.py people [--draws 1000] [--labels 50]

Judgments of 12 agents, 8 claims and 6 windows, 0-9 and whole. People's score = agent + claim + judgment, the judge's = the same,
seen through its quality: each line is one. Labels are random within strata of the judge's score.
*All* is the mean of all judgments, *one agent* the mean of one agent's newest window; *alone* is what labels alone would give.

**fading**

Whether a planted half-life lies within the interval that is printed for it.

Run: python benchmarks/simulations.py fading [--runs 500]

Conversations of 10-60 turns. The character of each is lost for good at a turn drawn from a geometric distribution with the planted
half-life; a message in character is judged 7.5, one out of it 2.5, with noise of sd 1, whole and within 0-9.

**claims**

How often a test of claims sees a kill that is the judge's noise alone, and how often it sees a real one.

Run: python benchmarks/simulations.py claims [--runs 100]

The sample world's michael with 20 claims, six faults and two other agents, planned and evaluated by the package's own
functions. A judge gives each claim its true level plus a normal of sd, rounds, and stays within 0-9; with outliers 5 % of its
verdicts are any score.

    false kills   share of tests in which noise alone catches something, where no claim catches anything (aim: at most 5 %
                  judged 3 times and without outliers)
    seen          share of real kills that are seen, by how far the claim falls from 8

**belief**

How often people's labels make a judge believed that never reads, and one that reads, in worlds the rule was not made from.

Run: python benchmarks/simulations.py belief [--runs 1000]

``cast``: 12 agents, 8 claims, 6 windows, of which some collapse. ``faults``: one agent, nine behaviours that people
call true (9) or false (0), true in 2 to 35 % of 60 windows. ``fleet``: 30 agents, 5 claims, one window each, all good (around 8).
Every second claim is turned round. People err by sd 1 (``faults``: one in ten answers). *Dice*, *usual* and *own usual* never
read: they throw dice within polarity, give each claim its usual score, give each claim of each agent its own.
"""

import argparse
import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.guard.baselines.models import Measure
from persona_pipeline.guard.calibration.calibrate import Rated, agreement, belief_of, within_claims
from persona_pipeline.guard.calibration.measures import PeoplesScores, bias, peoples_mean
from persona_pipeline.judging.verdict import JudgeRequest, Verdict
from persona_pipeline.lab.claims.trial import Trial, TrialRequest, plan_trial, run_trial
from persona_pipeline.scoring.fading import MessageValue, fading
from persona_pipeline.world import World
from tests.claims.test_trial import windows_of, write_claims

AGENTS, CLAIMS, WINDOWS = 12, 8, 6
Numbers = np.ndarray
Judging = Callable[[np.random.Generator, Numbers, Numbers], Numbers]


def _whole(values: Numbers) -> Numbers:
    return np.clip(np.rint(values), 0, 9)


# What a judge makes of what people mean, by name; ``agent`` is the index of the agent.
JUDGES: dict[str, Judging] = {
    "good": lambda g, people, agent: _whole(people + g.normal(0, 0.8, people.shape)),
    "noisy": lambda g, people, agent: _whole(people + g.normal(0, 2.5, people.shape)),
    "mild: +1.5, all high": lambda g, people, agent: _whole(7.5 + 0.35 * (people - 5) + g.normal(0, 0.8, people.shape)),
    "unlike by agent": lambda g, people, agent: _whole(
        people + g.normal(0, 1, AGENTS)[agent] + g.normal(0, 1.2, people.shape)
    ),
    "knows no middle": lambda g, people, agent: np.where(people + g.normal(0, 1.5, people.shape) > 5.5, 9.0, 1.0),
    "chance": lambda g, people, agent: g.integers(0, 10, people.shape).astype(float),
}


@dataclass(frozen=True)
class CalibrationWorld:
    """Every judgment of a dimension."""

    people: Numbers
    judge: Numbers
    agent: Numbers
    newest: Numbers


def world(generator: np.random.Generator, judging: Judging) -> CalibrationWorld:
    """Return a world judged so."""
    shape = (AGENTS, CLAIMS, WINDOWS)
    people = 5.8 + generator.normal(0, 1, (AGENTS, 1, 1)) + generator.normal(0, 1, (1, CLAIMS, 1))
    people = _whole(people + generator.normal(0, 1.5, shape)).ravel()
    agent, _, window = (values.ravel() for values in np.indices(shape))
    return CalibrationWorld(people, judging(generator, people, agent), agent, window == WINDOWS - 1)


def sampled(generator: np.random.Generator, judge: Numbers, count: int) -> Numbers:
    """Return which judgments are labelled: random within three strata of the judge's score, as many of each where it can be."""
    groups = [np.flatnonzero(np.digitize(judge, (4, 7)) == part) for part in range(3)]
    chosen: list[int] = []
    for left, group in zip((3, 2, 1), sorted(groups, key=len), strict=True):
        chosen += generator.permutation(group)[: (count - len(chosen)) // left].tolist()
    known = np.zeros(len(judge), dtype=bool)
    known[chosen] = True
    return known


def run_people() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description="Coverage and width of the score people would give.")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--labels", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(
        f"{options.draws} draws a line, {options.labels} labels of {AGENTS * CLAIMS * WINDOWS} judgments, seed {options.seed}"
    )
    print("Aim: each coverage at least .94\n")
    print(
        "| judge | rank correlation | all: coverage | width | alone | one agent: coverage | width | alone: coverage | width |"
    )
    print("|:--|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name, judging in JUDGES.items():
        print(_line(name, judging, options.draws, options.labels, options.seed), flush=True)


def _line(name: str, judging: Judging, draws: int, count: int, seed: int) -> str:
    from scipy.stats import spearmanr

    generator = np.random.default_rng(seed)
    seen: list[tuple[Measure, Measure, Measure, Measure]] = []
    hits = np.zeros((draws, 4))
    rho = []
    for draw in range(draws):
        made = world(generator, judging)
        known = sampled(generator, made.judge, count)
        labels = [float(p) if k else None for p, k in zip(made.people, known, strict=True)]
        rho.append(spearmanr(made.people, made.judge)[0])
        alone = generator.permutation(len(known))[:count]
        one = int(generator.integers(AGENTS))
        own = (made.agent == one) & made.newest
        model = PeoplesScores.learnt(made.judge[known], made.people[known], [str(a) for a in made.agent[known]])
        told = model.mean(str(one), made.judge[own], [labels[i] for i in np.flatnonzero(own)])
        theirs = np.flatnonzero((made.agent == one) & known)
        found = (
            peoples_mean(made.judge, labels),
            _mean(made.people[alone]),
            told,
            _mean(made.people[theirs]),
        )
        truth = (made.people.mean(), made.people.mean(), made.people[own].mean(), made.people[own].mean())
        hits[draw] = [
            item.low is not None and item.high is not None and item.low <= true <= item.high
            for item, true in zip(found, truth, strict=True)
        ]
        seen.append(found)
    widths = [
        np.mean([m.high - m.low for m in column if m.high is not None and m.low is not None])
        for column in zip(*seen, strict=True)
    ]
    cover = hits.mean(axis=0)
    return (
        f"| {name} | {np.mean(rho):.2f} | {cover[0]:.3f} | {widths[0]:.2f} | {widths[1]:.2f} | {cover[2]:.3f} | "
        f"{widths[2]:.2f} | {cover[3]:.3f} | {widths[3]:.2f} |"
    )


def _mean(values: Numbers) -> Measure:
    return bias(values, np.zeros(len(values)))


HALF_LIVES, CONVERSATIONS = (5, 10, 20), (20, 50, 100)


def conversations(generator: np.random.Generator, half_life: float, count: int) -> dict[str, list[MessageValue]]:
    """Return conversations whose character is lost after ``half_life`` turns in half of the cases."""
    # Lost at or before turn t in 1 - 2^(-t / half_life) of the conversations.
    ends = generator.geometric(1 - 2 ** (-1 / half_life), count)
    found = {}
    for number, end in enumerate(ends):
        length = int(generator.integers(10, 61))
        level = np.where(np.arange(1, length + 1) < end, 7.5, 2.5)
        values = np.clip(np.rint(level + generator.standard_normal(length)), 0, 9)
        found[str(number)] = [MessageValue(turn, float(value)) for turn, value in enumerate(values, start=1)]
    return found


def run_fading() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description="Planted half-lives found again.")
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    generator = np.random.default_rng(options.seed)
    print(f"{options.runs} runs a line, seed {options.seed}; aim: within the interval in at least 90 %\n")
    print("| half-life | conversations | within | median found | median width |\n|--:|--:|--:|--:|--:|")
    for half_life in HALF_LIVES:
        for count in CONVERSATIONS:
            results = [fading(conversations(generator, half_life, count)) for _ in range(options.runs)]
            known = [item for item in results if item]
            bounds = [
                (item.half_life_low or math.inf, math.inf if item.half_life_high is None else item.half_life_high)
                for item in known
            ]
            within = np.mean([low <= half_life <= high for low, high in bounds])
            middle = np.median([math.inf if item.half_life is None else item.half_life for item in known])
            width = np.median([high - low for low, high in bounds])
            print(f"| {half_life} | {count} | {within:.3f} | {middle:g} | {width:g} |", flush=True)


CLAIMS_CLAIMS, LEVEL = 20, 8
FALLS = (4, 5, 6, 8)
FAULT = "boilerplate"


@dataclass
class Judge:
    """Attributes: falls: by claim, how far it falls under the fault; outliers: share of verdicts that are any score."""

    windows: dict[str, str]
    sd: float
    outliers: float
    seed: int
    falls: dict[str, int]
    name: str = "simulated"
    live: bool = True

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        return [self._verdict(request) for request in requests]

    def _verdict(self, request: JudgeRequest) -> Verdict:
        draw = random.Random(f"{self.seed}/{request.key}")
        broken = self.windows[request.subject["trajectory"]] == FAULT
        level = LEVEL - (self.falls.get(request.proposition_id, 0) if broken else 0)
        score = draw.randrange(10) if draw.random() < self.outliers else round(draw.gauss(level, self.sd))
        return Verdict(request.proposition_id, score=max(0, min(9, score)))


def measure(trial: Trial, sd: float, outliers: float, runs: int) -> str:
    windows = windows_of(trial)
    false = 0
    seen = dict.fromkeys(FALLS, 0)
    falls = {f"claim-{n}": fall for n, fall in enumerate(FALLS)}
    for seed in range(runs):
        idle = run_trial(trial, Judge(windows, sd, outliers, seed, {}))
        false += any(row.kills for row in idle.claims)
        working = run_trial(trial, Judge(windows, sd, outliers, seed, falls))
        for row in working.claims:
            if row.id in falls and FAULT in row.kills:
                seen[falls[row.id]] += 1
    told = "  ".join(f"{fall}: {count / runs:4.0%}" for fall, count in seen.items())
    return f"{sd:>4} {outliers:>9.0%} {trial.request.samples:>8}   {false / runs:>11.0%}   {told}"


def run_claims() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    runs = parser.parse_args().runs
    request = TrialRequest("michael", as_of=datetime(2026, 6, 14, 23, 59, 59, tzinfo=UTC))
    sample = Path(__file__).resolve().parents[1]
    with TemporaryDirectory() as folder, patch("persona_pipeline.lab.claims.trial.read_signals", lambda *_: {}):
        root = Path(folder)
        for name in ("personas", "messages"):
            (root / name).symlink_to(sample / name)
        write_claims(root, {"adherence": {f"claim-{n}": {} for n in range(CLAIMS_CLAIMS)}})
        world = World.open(root)
        print("  sd  outliers  samples   false kills   seen, by the fall")
        for samples in (1, 3, 5):
            trial = plan_trial(world, replace(request, samples=samples))
            for sd in (0.5, 1.0, 1.5):
                for outliers in (0.0, 0.05):
                    print(measure(trial, sd, outliers, runs), flush=True)
        world.store.close()


def believed_worlds(generator: np.random.Generator, kind: str) -> tuple[Numbers, Numbers, Numbers]:
    """Return the truth (agents, claims, windows), what people give, and which claims are turned round."""
    shape = {"cast": (12, 8, 6), "faults": (1, 9, 60), "fleet": (30, 5, 1)}[kind]
    turned = np.arange(shape[1]) % 2 == 1
    if kind == "faults":
        rates = np.linspace(0.02, 0.35, shape[1])[None, :, None]
        truth = np.where(generator.random(shape) < rates, 9.0, 0.0)
        return truth, np.where(generator.random(shape) < 0.1, 9 - truth, truth), np.zeros_like(turned)
    truth = generator.normal(8.0 if kind == "fleet" else 6.5, 1.5, shape)
    if kind == "cast":
        truth += generator.normal(0, 1, shape[:2])[..., None]
        truth -= 4 * (generator.random((shape[0], 1, shape[2])) < 0.15)
    truth = np.where(turned[None, :, None], 9 - truth, truth).clip(0, 9)
    return truth, _whole(truth + generator.normal(0, 1, shape)), turned


def believed_judges(generator: np.random.Generator, truth: Numbers, turned: Numbers) -> dict[str, Numbers]:
    """Return what judges give."""
    down = turned[None, :, None]
    little = generator.integers(-1, 2, truth.shape)
    found = {
        "dice": np.where(down, generator.integers(0, 3, truth.shape), generator.integers(7, 10, truth.shape)),
        "usual": truth.mean((0, 2))[None, :, None] + little,
        "own usual": truth.mean(2)[..., None] + little,
        "lenient": np.where(down, truth / 2, 9 - (9 - truth) / 2) + generator.normal(0, 1, truth.shape),
    }
    noisy = {f"sd {sd}": truth + generator.normal(0, sd, truth.shape) for sd in (1.0, 2.5, 4.0)}
    return {name: _whole(given) for name, given in {**found, **noisy}.items()}


def run_belief() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    runs, generator = parser.parse_args().runs, np.random.default_rng(20261123)
    for kind in ("cast", "faults", "fleet"):
        for labels in (50, 100):
            believed: dict[str, int] = {}
            for _ in range(runs):
                truth, people, turned = believed_worlds(generator, kind)
                chosen = generator.permutation(truth.size)[:labels]
                agents, claims, _ = (index.tolist() for index in np.unravel_index(chosen, truth.shape))
                for name, given in believed_judges(generator, truth, turned).items():
                    pairs = zip(agents, claims, given.ravel()[chosen], people.ravel()[chosen], strict=True)
                    rated = [
                        Rated(str(n), f"a{a}", "adherence", f"c{c}", j, people=(p,))
                        for n, (a, c, j, p) in enumerate(pairs)
                    ]
                    found = belief_of(
                        labels, agreement((item.judge, item.peoples) for item in rated).rank, within_claims(rated)
                    )
                    believed[name] = believed.get(name, 0) + (found == "believed")
            shown_rates = "  ".join(f"{name} {count / runs:.3f}" for name, count in believed.items())
            print(f"{kind:>6} {labels:>3} labels   {shown_rates}", flush=True)


COMMANDS = {
    "people": run_people,
    "fading": run_fading,
    "claims": run_claims,
    "belief": run_belief,
}


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"{__doc__}\nname one of {', '.join(COMMANDS)}")
    sys.exit(COMMANDS[sys.argv.pop(1)]())
