"""How often a judge that changed is found out, and one that did not is suspected, by number of anchors.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/judge_canary.py [--runs 500]

A scripted judge of claims whose truth is known: its error is partly its own (the same whenever it is asked) and partly chance,
scores are 0-9 and whole. *Labelled*: people rated every anchor, with an error of their own. *Recorded*: only the earlier judge's
verdicts are known.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from persona_pipeline.calibration.judge_change import Anchor, JudgeName, judge_change

Numbers = np.ndarray
ANCHORS = (20, 40, 80, 160)
DIMENSIONS = ("adherence", "consistency", "fluency", "convergence", "ideas_quantity")
BEFORE, NOW = JudgeName(model="before", prompt_version="1"), JudgeName(model="now", prompt_version="1")
# With people whose error has sd 1 and claims whose truth has sd 2, the judge's rank correlation with people is about .53.
LEVEL, TRUTH, PEOPLE, OWN, CHANCE = 5.5, 2.0, 1.0, 2.2, 1.0


@dataclass(frozen=True)
class Drift:
    """What became of the judge. ``sees``: how much of the truth it still sees; ``new_errors``: its own errors are others now."""

    name: str
    sees: float = 1.0
    shift: float = 0.0
    spread: float = 1.0
    new_errors: bool = False


DRIFTS = (
    Drift("none (the same judge again)"),
    Drift("another judge, as good, unlike errors", new_errors=True),
    Drift("rank correlation .53 -> .12", sees=0.18, new_errors=True),
    Drift("1 point milder", shift=1.0),
    Drift("1 point stricter, scale half as wide", shift=-1.0, spread=0.5),
)


def anchors(generator: np.random.Generator, count: int, drift: Drift, labelled: bool) -> list[Anchor]:
    """Return judgments made before and after the drift."""
    truth = generator.normal(0, TRUTH, count)
    own = generator.normal(0, OWN, count)
    people = _whole(LEVEL + truth + generator.normal(0, PEOPLE, count))
    before = _whole(LEVEL + truth + own + generator.normal(0, CHANCE, count))
    kept = generator.normal(0, OWN, count) if drift.new_errors else own
    seen = drift.spread * (drift.sees * truth + kept + generator.normal(0, CHANCE, count))
    now = _whole(LEVEL + drift.shift + seen)
    return [
        Anchor(
            DIMENSIONS[place % 5], float(before[place]), float(now[place]), float(people[place]) if labelled else None
        )
        for place in range(count)
    ]


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description="Power and false alarms of the judge canary.")
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"{options.runs} runs a cell, seed {options.seed}; share of runs in which the judge counts as changed\n")
    columns = [f"{count} {kind}" for kind in ("labelled", "recorded") for count in ANCHORS]
    print("| drift | rank correlation with people, before and now | " + " | ".join(columns) + " |")
    print("|:--|:--|" + "--:|" * len(columns))
    for drift in DRIFTS:
        generator = np.random.default_rng(options.seed)
        cells, ranks = [], []
        for labelled in (True, False):
            for count in ANCHORS:
                found = [
                    judge_change(BEFORE, NOW, anchors(generator, count, drift, labelled)) for _ in range(options.runs)
                ]
                cells.append(f"{np.mean([item.changed for item in found]):.3f}")
                ranks += [
                    (item.rank_before.value, item.rank_now.value or 0.0) for item in found if item.rank_before.value
                ]
        mean = np.mean(ranks, axis=0)
        print(f"| {drift.name} | {mean[0]:.2f}, {mean[1]:.2f} | " + " | ".join(cells) + " |", flush=True)


def _whole(values: Numbers) -> Numbers:
    return np.clip(np.rint(values), 0, 9)


if __name__ == "__main__":
    main()
