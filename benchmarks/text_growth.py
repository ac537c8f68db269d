"""Fits how the time of every stage grows with the length of hostile texts, to a megabyte.

    .venv/bin/python -m benchmarks.text_growth [--longest 1000000] [--stage NAME]

Prints the worst exponent of each stage and the text it comes from; exits with 1 when one is above 1.2. A stage on a kind of text is
left out above the length at which it takes longer than two minutes.
"""

import argparse
import sys

from tests.trust_boundary.growth import HOSTILE, STAGES, Growth, growth

MOST = 1.2
PATIENCE_SECONDS = 120.0
# Below, the clock says more of other processes than of the text.
NOTHING_SECONDS = 0.25


def measured(stage: str, kind: str, longest: int) -> Growth:
    """Return the growth over three lengths, each four times the one before."""
    short = growth(stage, kind, (longest // 16,), tries=2)
    lengths = [longest // 16, longest // 4]
    if short.seconds[0][1] * 256 < PATIENCE_SECONDS:
        lengths.append(longest)
    return growth(stage, kind, lengths, tries=1 if len(lengths) == 2 else 2)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--longest", type=int, default=1_000_000)
    parser.add_argument("--stage", choices=list(STAGES))
    arguments = parser.parse_args()
    failed = False
    print(f"{'stage':<18}{'worst exponent':>15}  {'of text':<18}{'longest':>10}{'slowest':>10}  of text")
    for stage in [arguments.stage] if arguments.stage else STAGES:
        found = [measured(stage, kind, arguments.longest) for kind in HOSTILE]
        told = [item for item in found if item.seconds[-1][1] > NOTHING_SECONDS]
        slowest = max(found, key=lambda item: item.seconds[-1][1])
        worst = max(told, key=lambda item: item.exponent, default=None)
        exponent = "-" if worst is None else f"{worst.exponent:.2f}"
        kind, length = ("", "") if worst is None else (worst.kind, f"{worst.seconds[-1][0]:,}")
        print(
            f"{stage:<18}{exponent:>15}  {kind:<18}{length:>10}{slowest.seconds[-1][1]:>8.2f} s  {slowest.kind}",
            flush=True,
        )
        failed |= worst is not None and worst.exponent > MOST
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
