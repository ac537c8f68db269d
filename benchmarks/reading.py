"""How often a judge that never reads passes the reading test, and one that reads does, in worlds the test was not made from.

Run: python benchmarks/reading.py [--runs 1000] [--seed 1]

An agent's own transcripts stand above others' under its name by a gap that differs by agent and claim; a transcript has a level of
its own (sd 1), and a claim has another (sd 1.5). A fifth of the claims is inverted. The worlds:

    cast      4 agents, 5 claims, 20 transcripts a side, gap 3: characters that are told apart at once
    pair      2 agents, 3 claims, 10 transcripts a side, gap 3: the least that is tested
    voices    4 agents, 4 claims, 20 transcripts a side, gap 1.5: support voices of one house
    uneven    4 agents, 5 claims, 12 transcripts a side, gap 4 for two claims of five, none for the others
    same      4 agents, 5 claims, 20 transcripts a side, gap 0: claims that hold of everybody (nobody should pass)

and the judges, who all round and stay within 0-9:

    dice      7-9 for what should be true and 0-2 for what should not, whatever it is shown
    usual     each claim's usual score, off by one now and then
    constant  7 for everything
    moody     a level for each transcript (sd 2), whatever stands in it
    sd 1, 2.5, 4: reads, with noise of that standard deviation
    lenient   reads with noise of 1, and gives half the distance from 9
"""

import argparse
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from persona_pipeline.guard.calibration.judge_change import JudgeName
from persona_pipeline.guard.calibration.reading import JudgedTranscript, ReadingTest

JUDGE = JudgeName(model="simulated", prompt_version="1")
JUDGES = ("dice", "usual", "constant", "moody", "sd 1", "sd 2.5", "sd 4", "lenient")


@dataclass(frozen=True)
class Setting:
    """A world: how much is shown, and by how much own transcripts stand above others'; ``of``: share of claims with that gap."""

    agents: int
    claims: int
    transcripts: int
    gap: float
    of: float = 1.0


WORLDS = {
    "cast": Setting(4, 5, 20, 3),
    "pair": Setting(2, 3, 10, 3),
    "voices": Setting(4, 4, 20, 1.5),
    "uneven": Setting(4, 5, 12, 4, 0.4),
    "same": Setting(4, 5, 20, 0),
}


def truth(generator: np.random.Generator, world: Setting) -> np.ndarray:
    """Return what is true of own and of others' transcripts, 0-9, high is good: [agent, own/others, transcript, claim]."""
    shape = world.agents, 2, world.transcripts, world.claims
    level = np.clip(generator.normal(7.2, 1.5, (world.agents, 1, 1, world.claims)), 3, 9)
    counts = np.arange(world.claims) < round(world.of * world.claims)
    gap = np.clip(generator.normal(world.gap, world.gap / 3, (world.agents, 1, 1, world.claims)), 0, None) * counts
    values = level + generator.normal(0, 1, (*shape[:3], 1)) + generator.normal(0, 0.5, shape)
    values[:, 1] -= gap[:, 0]
    return np.clip(values, 0, 9)


def judged(generator: np.random.Generator, values: np.ndarray, judge: str) -> np.ndarray:
    """Return what a judge gives, whole and 0-9."""
    shape = values.shape
    if judge == "dice":
        return generator.integers(7, 10, shape)
    if judge == "usual":
        return np.clip(np.round(values.mean((1, 2), keepdims=True)) + generator.integers(-1, 2, shape), 0, 9)
    if judge == "constant":
        return np.full(shape, 7)
    if judge == "moody":
        found = 6 + generator.normal(0, 2, (*shape[:3], 1)) + generator.normal(0, 1, shape)
    elif judge == "lenient":
        found = 9 - (9 - values) / 2 + generator.normal(0, 1, shape)
    else:
        found = values + generator.normal(0, float(judge.removeprefix("sd ")), shape)
    return np.clip(np.round(found), 0, 9)


def reading(scores: np.ndarray) -> ReadingTest:
    """Return scores as the reading test keeps them, each fifth claim inverted."""
    transcripts = []
    for (agent, side, _), own in ((place, scores[place]) for place in np.ndindex(scores.shape[:3])):
        normal = {f"claim-{n}": int(score) for n, score in enumerate(own) if n % 5 != 4}
        inverted = {f"claim-{n}": 9 - int(score) for n, score in enumerate(own) if n % 5 == 4}
        transcripts.append(JudgedTranscript(agent_id=str(agent), own=side == 0, scores=normal, inverted=inverted))
    return ReadingTest(judge=JUDGE, transcripts=transcripts)


def passes(world: Setting, judge: str, runs: int, seed: int) -> str:
    """Return the share of runs in which a judge is said to read, with Wilson's 95 % interval."""
    generator = np.random.default_rng(seed)
    hits = sum(reading(judged(generator, truth(generator, world), judge)).reads is True for _ in range(runs))
    low, high = binomtest(hits, runs).proportion_ci(method="wilson")
    return f"{hits / runs:.3f} ({low:.3f}-{high:.3f})"


def main() -> None:
    """Print a table, a judge a line and a world a column."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    print(f"share of {chosen.runs} tests in which the judge is said to read (95 %)\n")
    print("| judge | " + " | ".join(WORLDS) + " |")
    print("|---|" + "--:|" * len(WORLDS))
    for judge in JUDGES:
        cells = (passes(world, judge, chosen.runs, chosen.seed) for world in WORLDS.values())
        print(f"| {judge} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
