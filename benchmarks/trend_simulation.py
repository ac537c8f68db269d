"""How soon a slow drift is seen, and how often a steady series is taken for one.

Run: python benchmarks/trend_simulation.py [--runs 300]

Scores of 20 agents with 5 dimensions of 5 claims, made as in guard_simulation.py and judged 3 times a claim, over 8 steady weeks
and then 6 more. ``drift``: all claims of one dimension fall by 0.3 a week. ``one of four``: one dimension of four falls by 2
at once, which the overall score hides (0.5). ``steady``: nothing happens. The rules:

    CUSUM          this package's, over each dimension's windows
    textbook       the same with each series' own sd and the textbook limit of 4, allowance 0.5
    change point   the best split of the overall score into two levels a point apart (what reports showed before)
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from guard_simulation import judged, wilson

from persona_pipeline.baselines.trend import FEWEST_WINDOWS, LIMIT, cusum
from persona_pipeline.baselines.variance import means

AGENTS, DIMENSIONS, CLAIMS, WEEKS = 20, 5, 5, 6
TEXTBOOK_LIMIT, ALLOWANCE = 4.0, 0.5


def scores(generator: np.random.Generator, week: float, samples: int, weeks: int, scenario: str) -> np.ndarray:
    """Return scores (agents, dimensions, windows); the first agent's first dimension is the one that changes."""
    windows = FEWEST_WINDOWS + weeks
    truth = generator.uniform(6.0, 8.5, (AGENTS, DIMENSIONS, CLAIMS))
    spreads = np.repeat(generator.uniform(0.5, 1.5, truth.shape)[..., None], windows, axis=-1)
    level = truth[..., None] + week * generator.standard_normal((*truth.shape, windows))
    if scenario == "drift":
        level[0, 0, :, FEWEST_WINDOWS:] -= 0.3 * np.arange(1, weeks + 1)
    elif scenario == "one of four":
        level[0, 0, :, FEWEST_WINDOWS:] -= 2.0
    by_claim: np.ndarray = means(judged(generator, level, spreads, samples))
    return means(np.swapaxes(by_claim, 2, 3))


def alarms(series: np.ndarray, rule: str) -> np.ndarray:
    """Return whether each series (series x windows) alarms at any time after its first windows."""
    if rule == "CUSUM":
        return np.asarray((cusum(series)[0] > LIMIT).any(axis=1))
    first = series[:, :FEWEST_WINDOWS]
    level, deviation = first.mean(axis=1), first.std(axis=1, ddof=1)
    value, seen = np.zeros(len(series)), np.zeros(len(series), bool)
    for window in range(FEWEST_WINDOWS, series.shape[1]):
        value = np.maximum(0, value + (level - series[:, window]) / deviation - ALLOWANCE)
        seen |= value > TEXTBOOK_LIMIT
    return seen


def change_points(overall: np.ndarray) -> np.ndarray:
    """Return whether each overall series has a split a point apart that explains half of its variation."""
    centred = overall - overall.mean(axis=1, keepdims=True)
    found = np.zeros(len(overall), bool)
    for cut in range(1, overall.shape[1]):
        before, after = overall[:, :cut].mean(axis=1), overall[:, cut:].mean(axis=1)
        gain = cut * (overall.shape[1] - cut) / overall.shape[1] * (after - before) ** 2
        found |= (np.abs(after - before) >= 1) & (gain >= (centred**2).sum(axis=1) / 2)
    return found


def simulate(week: float, samples: int, weeks: int, scenario: str, runs: int, seed: int) -> dict[str, tuple[int, int]]:
    """Return hits and tries by rule: of the changed series, or for steady ones of all."""
    generator = np.random.default_rng([seed, round(week * 10), samples, weeks])
    found = {rule: [0, 0] for rule in ("CUSUM", "textbook", "change point")}
    for _ in range(runs):
        values = scores(generator, week, samples, weeks, scenario)
        flat = values.reshape(AGENTS * DIMENSIONS, -1)
        steady = scenario == "steady"
        seen = {rule: alarms(flat, rule) for rule in ("CUSUM", "textbook")}
        seen["change point"] = change_points(values[:, :4].mean(axis=1))
        for rule, hits in seen.items():
            found[rule][0] += int(hits.sum() if steady else hits[0])
            found[rule][1] += len(hits) if steady else 1
    return {rule: (hits, tries) for rule, (hits, tries) in found.items()}


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description="Slow drift, seen and imagined.")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--weeks", type=int, default=WEEKS, help="weeks after the first eight")
    options = parser.parse_args()
    print(f"{options.runs} fleets a line, seed {options.seed}, {options.samples} judgments, {options.weeks} weeks\n")
    print("| c | scenario | CUSUM | textbook | change point of the overall score |")
    print("|--:|:--|:--|:--|:--|")
    for week in (0.0, 0.5, 1.0):
        for scenario in ("steady", "drift", "one of four"):
            found = simulate(week, options.samples, options.weeks, scenario, options.runs, options.seed)
            cells = []
            for hits, tries in found.values():
                low, high = wilson(hits, tries)
                cells.append(f"{hits / tries:.3f} ({low:.3f}-{high:.3f})")
            print(f"| {week:g} | {scenario} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
