"""Whether the score people would give lies within the interval that is printed for it, and how wide that is.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/calibration_simulation.py [--draws 1000] [--labels 50]

Judgments of 12 agents, 8 claims and 6 windows, 0-9 and whole. People's score = agent + claim + judgment, the judge's = the same,
seen through its quality: each line is one. Labels are random within strata of the judge's score.
*All* is the mean of all judgments, *one agent* the mean of one agent's newest window; *alone* is what labels alone would give.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from persona_pipeline.calibration.measures import Measure, bias
from persona_pipeline.calibration.prediction import PeoplesScores, peoples_mean

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
class World:
    """Every judgment of a dimension."""

    people: Numbers
    judge: Numbers
    agent: Numbers
    newest: Numbers


def world(generator: np.random.Generator, judging: Judging) -> World:
    """Return a world judged so."""
    shape = (AGENTS, CLAIMS, WINDOWS)
    people = 5.8 + generator.normal(0, 1, (AGENTS, 1, 1)) + generator.normal(0, 1, (1, CLAIMS, 1))
    people = _whole(people + generator.normal(0, 1.5, shape)).ravel()
    agent, _, window = (values.ravel() for values in np.indices(shape))
    return World(people, judging(generator, people, agent), agent, window == WINDOWS - 1)


def sampled(generator: np.random.Generator, judge: Numbers, count: int) -> Numbers:
    """Return which judgments are labelled: random within three strata of the judge's score, as many of each where it can be."""
    groups = [np.flatnonzero(np.digitize(judge, (4, 7)) == part) for part in range(3)]
    chosen: list[int] = []
    for left, group in zip((3, 2, 1), sorted(groups, key=len), strict=True):
        chosen += generator.permutation(group)[: (count - len(chosen)) // left].tolist()
    known = np.zeros(len(judge), dtype=bool)
    known[chosen] = True
    return known


def main() -> None:
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


if __name__ == "__main__":
    main()
