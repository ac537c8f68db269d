"""Whether a planted half-life lies within the interval that is printed for it.

Run: python benchmarks/fading_simulation.py [--runs 500]

Conversations of 10-60 turns. The character of each is lost for good at a turn drawn from a geometric distribution with the planted
half-life; a message in character is judged 7.5, one out of it 2.5, with noise of sd 1, whole and within 0-9.
"""

import argparse
import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from persona_pipeline.scoring.fading import MessageValue, fading

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


def main() -> None:
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


if __name__ == "__main__":
    main()
