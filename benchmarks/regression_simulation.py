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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from persona_pipeline.baselines.confirm import (
    CONFIRMATIONS,
    PropositionPair,
    Sampled,
    confirmed,
    judge_noise,
    test_dimension,
    test_proposition,
)
from persona_pipeline.baselines.statistics import holm, paired_drop

AGENTS, DIMENSIONS = 4, 4
DELTA, PROPOSITION_DELTA = 1.0, 3.0
SPREADS = (0.5, 1.0, 1.5, None)
MIXED = (0.5, 1.5)
Truth = np.ndarray  # (agents, dimensions, propositions), true scores 0-9


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


class Judge:
    """Draws judgments."""

    def __init__(self, spread: float | None, seed: int) -> None:
        self.spread = spread
        self.generator = np.random.default_rng(seed)
        self.fractions = np.random.default_rng(seed + 99).uniform(size=10_000)

    def samples(self, truth: np.ndarray, count: int) -> np.ndarray:
        """Return (..., count) whole scores of the true ones."""
        noise = self.generator.normal(0.0, 1.0, (*truth.shape, count))
        noise *= self._spreads(truth)[..., None]
        return np.clip(np.rint(truth[..., None] + noise), 0, 9)

    def _spreads(self, truth: np.ndarray) -> np.ndarray:
        """A mixed judge has one noise a claim: a claim keeps it through a run, by its place."""
        if self.spread is not None:
            return np.full(truth.shape, self.spread)
        low, high = MIXED
        return low + (high - low) * self.fractions[: truth.size].reshape(truth.shape)


def alarms(rule: Rule, judge: Judge, before: Truth, after: Truth) -> tuple[set[int], int]:
    """Return the agents a rule reports, and the judgments it cost beyond one a proposition."""
    golden = judge.samples(before, rule.baseline)
    current = judge.samples(after, rule.samples)
    cost = current.size - after.size
    rows = [
        [[list(current[a, d, p]) for p in range(PROPOSITIONS)] for d in range(DIMENSIONS)] for a in range(AGENTS)
    ]
    suspects, dropped = _beyond(rule, golden, rows)
    if rule.confirm:
        again = dropped | {(a, d, p) for a, d in suspects for p in range(PROPOSITIONS)}
        for a, d, p in again:
            rows[a][d][p] += list(judge.samples(after[a, d, p : p + 1], rule.confirm)[0])
        cost += rule.confirm * len(again)
        still, still_dropped = _beyond(rule, golden, rows)
        suspects, dropped = suspects & still, dropped & still_dropped
    if rule.test == "paired":
        return _paired(golden, rows), cost
    if rule.test == "within":
        suspects, dropped = _within(golden, rows, suspects, dropped)
    return {a for a, *_ in suspects} | {a for a, *_ in dropped}, cost


def _beyond(rule: Rule, golden: np.ndarray, rows: list) -> tuple[set[tuple], set[tuple]]:
    drops = golden.mean(axis=-1) - np.array([[[np.mean(s) for s in d] for d in a] for a in rows])
    suspects = set(zip(*np.nonzero(drops.mean(axis=-1) > DELTA + 1e-9), strict=True)) if rule.dimensions else set()
    dropped = set(zip(*np.nonzero(drops > PROPOSITION_DELTA + 1e-9), strict=True)) if rule.propositions else set()
    return suspects, dropped


def _paired(golden: np.ndarray, rows: list) -> set[int]:
    keys = [(a, d) for a in range(AGENTS) for d in range(DIMENSIONS)]
    tests = [
        paired_drop(golden[a, d].mean(axis=-1), [float(np.mean(s)) for s in rows[a][d]], alternative="greater")
        for a, d in keys
    ]
    return {key[0] for key, p in zip(keys, holm([test.p_value for test in tests]), strict=True) if p < 0.05}


def _within(golden: np.ndarray, rows: list, suspects: set[tuple], dropped: set[tuple]) -> tuple[set[tuple], set[tuple]]:
    if not suspects and not dropped:
        return suspects, dropped
    dimensions, propositions = {}, {}
    for a in range(AGENTS):
        for d in range(DIMENSIONS):
            pairs = [
                PropositionPair(str(p), Sampled.of(list(golden[a, d, p])), Sampled.of(rows[a][d][p]))
                for p in range(PROPOSITIONS)
            ]
            noise = judge_noise(pairs)
            if noise is None:
                continue
            dimensions[a, d] = test_dimension(pairs, noise)
            propositions |= {(a, d, p): test_proposition(pair, noise) for p, pair in enumerate(pairs)}
    # Where nothing was judged twice there is no test; such a comparison still belongs to the family.
    dimensions |= {(a, d): _UNTESTED for a in range(AGENTS) for d in range(DIMENSIONS) if (a, d) not in dimensions}
    propositions |= {
        (a, d, p): _UNTESTED
        for a in range(AGENTS)
        for d in range(DIMENSIONS)
        for p in range(PROPOSITIONS)
        if (a, d, p) not in propositions
    }
    return suspects & confirmed(dimensions).keys(), dropped & confirmed(propositions).keys()


_UNTESTED = paired_drop([0.0, 0.0], [0.0, 0.0])


def unchanged(generator: np.random.Generator) -> tuple[Truth, Truth]:
    """Return true scores between 6 and 8.5, the same before and after."""
    truth = generator.uniform(6.0, 8.5, (AGENTS, DIMENSIONS, PROPOSITIONS))
    return truth, truth.copy()


def collapse(generator: np.random.Generator) -> tuple[Truth, Truth]:
    """Return true scores of which the first agent's first proposition falls to 0."""
    before, after = unchanged(generator)
    after[0, 0, 0] = 0.0
    return before, after


def drift(generator: np.random.Generator) -> tuple[Truth, Truth]:
    """Return true scores of which the first agent's first dimension falls by 2."""
    before, after = unchanged(generator)
    after[0, 0] -= 2.0
    return before, after


def rate(rule: Rule, spread: float, world: Callable, runs: int, seed: int, *, anybody: bool) -> tuple[float, float]:
    """Return the share of runs with an alarm (for anybody, or for the first agent), and the mean extra judgments."""
    judge = Judge(spread, seed)
    hits = total = 0
    for _ in range(runs):
        agents, cost = alarms(rule, judge, *world(judge.generator))
        hits += bool(agents) if anybody else 0 in agents
        total += cost
    return hits / runs, total / runs


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description="False-alarm and detection rates of the regression rules.")
    parser.add_argument("--runs", type=int, default=1000, help="simulated runs a cell")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"{options.runs} runs a cell, seed {options.seed}\n")
    print("| rule | judge sd | false alarms | collapse | drift 2 | judgments |")
    print("|:--|--:|--:|--:|--:|--:|")
    for rule in RULES:
        for spread in SPREADS:
            false, cost = rate(rule, spread, unchanged, options.runs, options.seed, anybody=True)
            seen, _ = rate(rule, spread, collapse, options.runs, options.seed + 1, anybody=False)
            drifted, _ = rate(rule, spread, drift, options.runs, options.seed + 2, anybody=False)
            print(f"| {rule.name} | {spread} | {false:.1%} | {seen:.1%} | {drifted:.1%} | {cost:.0f} |", flush=True)


if __name__ == "__main__":
    main()
