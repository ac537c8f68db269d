"""The same noisy judge on every way into the product: do all of them find the same, and how often is a week without a fault red?

    python benchmarks/every_way.py [SEEDS]

The sample world before its drift, judged with noise of standard deviation 1.0 and 1.5 in turn.
"""

import shutil
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.every_way import found_by_every_way
from tests.support.noise import NoisyJudge

PROJECT = Path(__file__).parents[1]
FOLDERS = ("personas", "propositions", "messages", "recordings", "baselines")
BEFORE_THE_DRIFT = "2026-06-14T23:59:59Z"
FALLS = ("regression", "proposition_drop")


def main(seeds: int) -> None:
    different, red = 0, dict.fromkeys(("run_evaluation", "ci_job", "cohort", "an_agent_a_run"), 0)
    with TemporaryDirectory() as folder:
        for name in FOLDERS:
            shutil.copytree(PROJECT / name, Path(folder) / name)
        for seed in range(seeds):
            judge = NoisyJudge(Path(folder) / "recordings", 1.0 if seed % 2 == 0 else 1.5, seed)
            # The CI job prints its table.
            with redirect_stdout(StringIO()):
                found = found_by_every_way(Path(folder), judge, BEFORE_THE_DRIFT)
            different += len({str(sorted(its.items())) for its in found.values()}) > 1
            for way, its in found.items():
                red[way] += any(kind in FALLS for _, findings in its.values() for kind, _ in findings)
    print(f"{seeds} seeds, runs in which the ways differ: {different}")
    for way, count in red.items():
        print(f"{way:15} runs with a fall although nothing changed: {count} ({count / seeds:.0%})")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
