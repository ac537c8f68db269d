"""How often each regression rule raises a false alarm, and how often it sees a real drop.

Run: python benchmarks/regression_simulation.py

A judge gives whole scores: the true score of a claim plus normal noise, rounded and kept within 0-9. A run is 4 agents with
4 dimensions each, compared with a baseline that the same judge gave. ``mixed`` is a judge whose noise differs from claim to
claim, 0.5-1.5.

    false alarms   share of runs without any change in which some rule fires, for any agent
    collapse       share of runs in which the agent is reported when one of its propositions falls to 0
    drift 2        ... when all propositions of one of its dimensions fall by 2 points
    judgments      judgments a run makes, on average, for each that one sample a proposition makes
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from persona_pipeline.baselines.confirm import (
    CONFIRMATIONS,
    PropositionPair,
    Sampled,
    confirmed,
    dimension_drop,
    judge_noise,
    proposition_drop,
)
from persona_pipeline.baselines.statistics import paired_drop

AGENTS, DIMENSIONS = 4, 4
DELTA, PROPOSITION_DELTA = 1.0, 3.0
SPREADS = (0.5, 1.0, 1.5, None)  # None: mixed
MIXED = (0.5, 1.5)
Place = tuple[int, ...]  # of a dimension (agent, dimension) or of a proposition (agent, dimension, proposition)


@dataclass(frozen=True)
class Rule:
    """A way to decide. ``baseline`` and ``samples``: judgments a claim, then and now; ``confirm``: further ones for suspects."""

    name: str
    baseline: int
    samples: int
    confirm: int = 0
    dimensions: bool = True
    propositions: bool = True
    test: str = ""


RULES = (
    Rule("dimension 1.0", 1, 1, propositions=False),
    Rule("dimension 1.0 + proposition 3.0", 1, 1),
    Rule("the same", 5, 3),
    Rule("paired t over propositions + Holm", 5, 3, test="paired", propositions=False),
    Rule("deltas, then confirmed", 1, 1, confirm=CONFIRMATIONS),
    Rule("deltas, then confirmed", 5, 1, confirm=CONFIRMATIONS),
    Rule("deltas + test within propositions", 5, 3, test="within"),
    Rule("deltas, then confirmed + test", 1, 1, confirm=CONFIRMATIONS, test="within"),
    Rule("deltas, then confirmed + test", 3, 1, confirm=CONFIRMATIONS, test="within"),
    Rule("deltas, then confirmed + test", 5, 1, confirm=CONFIRMATIONS, test="within"),
    Rule("deltas, then confirmed + test", 5, 3, confirm=CONFIRMATIONS, test="within"),
)


@dataclass(frozen=True)
class World:
    """True scores (agents, dimensions, propositions) before and after, and the judge's noise on each claim."""

    before: np.ndarray
    after: np.ndarray
    spreads: np.ndarray

    @property
    def propositions(self) -> int:
        return self.before.shape[-1]


class Judge:
    """Draws judgments."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def samples(self, truth: np.ndarray, spreads: np.ndarray, count: int) -> np.ndarray:
        """Return (..., count) whole scores of the true ones."""
        noise = self.generator.normal(0.0, 1.0, (*truth.shape, count)) * spreads[..., None]
        return np.clip(np.rint(truth[..., None] + noise), 0, 9)


def alarms(rule: Rule, judge: Judge, world: World) -> tuple[set[int], float]:
    """Return the agents a rule reports, and the judgments it made for each proposition."""
    golden = judge.samples(world.before, world.spreads, rule.baseline)
    current = judge.samples(world.after, world.spreads, rule.samples)
    rows = {place: list(current[place]) for place in np.ndindex(world.after.shape)}
    suspects, dropped = _beyond(rule, golden, rows)
    if rule.confirm:
        again = dropped | {(*place, p) for place in suspects for p in range(world.propositions)}
        for place in again:
            rows[place] += list(judge.samples(world.after[place], world.spreads[place], rule.confirm))
        still, still_dropped = _beyond(rule, golden, rows)
        suspects, dropped = suspects & still, dropped & still_dropped
    cost = sum(len(samples) for samples in rows.values()) / len(rows)
    if rule.test == "paired":
        return _paired(golden, rows), cost
    if rule.test == "within" and (suspects or dropped):
        suspects, dropped = _within(golden, rows, suspects, dropped)
    return {a for a, *_ in suspects} | {a for a, *_ in dropped}, cost


def _beyond(rule: Rule, golden: np.ndarray, rows: dict[Place, list[float]]) -> tuple[set[Place], set[Place]]:
    """Return the dimensions and the propositions that fell beyond their deltas."""
    now = np.array([np.mean(rows[place]) for place in np.ndindex(golden.shape[:-1])]).reshape(golden.shape[:-1])
    drops = golden.mean(axis=-1) - now
    suspects = set(zip(*np.nonzero(drops.mean(axis=-1) > DELTA + 1e-9), strict=True)) if rule.dimensions else set()
    dropped = set(zip(*np.nonzero(drops > PROPOSITION_DELTA + 1e-9), strict=True)) if rule.propositions else set()
    return suspects, dropped


def _paired(golden: np.ndarray, rows: dict[Place, list[float]]) -> set[int]:
    tests = {}
    for place in np.ndindex(golden.shape[:2]):
        now = [float(np.mean(rows[*place, p])) for p in range(golden.shape[2])]
        tests[place] = paired_drop(golden[place].mean(axis=-1), now, alternative="greater")
    return {a for a, _ in confirmed(tests, 0.05)}


def _within(
    golden: np.ndarray, rows: dict[Place, list[float]], suspects: set[Place], dropped: set[Place]
) -> tuple[set[Place], set[Place]]:
    dimensions, propositions = {}, {}
    for place in np.ndindex(golden.shape[:2]):
        pairs = [
            PropositionPair(str(p), Sampled.of(list(golden[*place, p])), Sampled.of(rows[*place, p]))
            for p in range(golden.shape[2])
        ]
        noise = judge_noise(pairs)
        # Where nothing was judged twice there is no test; such a comparison still belongs to the family.
        dimensions[place] = dimension_drop(pairs, noise) if noise else _UNTESTED
        propositions |= {
            (*place, p): proposition_drop(pair, noise) if noise else _UNTESTED for p, pair in enumerate(pairs)
        }
    return suspects & confirmed(dimensions).keys(), dropped & confirmed(propositions).keys()


_UNTESTED = paired_drop([0.0, 0.0], [0.0, 0.0])


def unchanged(generator: np.random.Generator, propositions: int, spread: float | None) -> World:
    """Return true scores between 6 and 8.5, the same before and after."""
    truth = generator.uniform(6.0, 8.5, (AGENTS, DIMENSIONS, propositions))
    low, high = (spread, spread) if spread is not None else MIXED
    return World(truth, truth.copy(), generator.uniform(low, high, truth.shape))


def collapse(generator: np.random.Generator, propositions: int, spread: float | None) -> World:
    """Return a world in which the first agent's first proposition falls to 0."""
    world = unchanged(generator, propositions, spread)
    world.after[0, 0, 0] = 0.0
    return world


def drift(generator: np.random.Generator, propositions: int, spread: float | None) -> World:
    """Return a world in which the first agent's first dimension falls by 2."""
    world = unchanged(generator, propositions, spread)
    world.after[0, 0] -= 2.0
    return world


def rates(rule: Rule, propositions: int, spread: float | None, runs: int, seed: int) -> list[float]:
    """Return the shares of false alarms, collapses and drifts seen, and the judgments a proposition."""
    shares, cost = [], 0.0
    for number, make in enumerate((unchanged, collapse, drift)):
        judge, hits = Judge(seed + number), 0
        for _ in range(runs):
            agents, judgments = alarms(rule, judge, make(judge.generator, propositions, spread))
            hits += bool(agents) if make is unchanged else 0 in agents
            cost += judgments / runs if make is unchanged else 0.0
        shares.append(hits / runs)
    return [*shares, cost]


def main() -> None:
    """Print a table for each number of propositions, as Markdown."""
    parser = argparse.ArgumentParser(description="False-alarm and detection rates of the regression rules.")
    parser.add_argument("--runs", type=int, default=1000, help="simulated runs a cell")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--propositions", type=int, nargs="+", default=[5, 12], help="propositions a dimension")
    options = parser.parse_args()
    for propositions in options.propositions:
        print(f"\n{propositions} propositions a dimension, {options.runs} runs a cell, seed {options.seed}\n")
        print("| rule | baseline x | run x | judge sd | false alarms | collapse | drift 2 | judgments |")
        print("|:--|--:|--:|--:|--:|--:|--:|--:|")
        for rule in RULES:
            for spread in SPREADS:
                false, seen, drifted, cost = rates(rule, propositions, spread, options.runs, options.seed)
                print(
                    f"| {rule.name} | {rule.baseline} | {rule.samples} | {spread or 'mixed'} "
                    f"| {false:.1%} | {seen:.1%} | {drifted:.1%} | {cost:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
