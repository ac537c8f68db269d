"""kill -9 and full disks at random points of whatever writes: commands, batches and the two services.

    python -m benchmarks.interruptions [--kills 60] [--full 20] [--seed 1] [--task NAME ...]

After each the database and all files must be sound, and the command, run to its end, must bring what an undisturbed run brings.
A disk is full where files may not grow beyond a size.
"""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.trust_boundary.interrupted_work import MORE
from tests.trust_boundary.interruptions import TASKS, Interrupted, killed, starved

SIZES = (512, 2_000, 8_000, 30_000, 60_000, 100_000, 200_000, 400_000, 800_000)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--full", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    named = {task.name: task for task in (*TASKS, *MORE)}
    parser.add_argument("--task", nargs="*", choices=list(named), default=list(named))
    arguments = parser.parse_args()
    tasks = [named[name] for name in arguments.task]
    dice = random.Random(arguments.seed)
    print(f"{'what':<12}{'task':<16}{'calm s':>8}{'times':>7}{'hit':>5}  problems")
    wrong = 0
    for what, total in (("kill -9", arguments.kills), ("disk full", arguments.full)):
        for number, task in enumerate(tasks):
            times = total // len(tasks) + (number < total % len(tasks))
            if not times:
                continue
            with tempfile.TemporaryDirectory() as folder:
                if what == "kill -9":
                    found = killed(task, Path(folder), times, dice)
                else:
                    found = starved(task, Path(folder), [dice.choice(SIZES) for _ in range(times)])
            wrong += len(found.problems)
            print(_line(what, found), flush=True)
    return int(wrong > 0)


def _line(what: str, found: Interrupted) -> str:
    said = "".join(f"\n    {problem}" for problem in found.problems) or "none"
    return f"{what:<12}{found.task:<16}{found.seconds:>8.1f}{found.times:>7}{found.interrupted:>5}  {said}"


if __name__ == "__main__":
    sys.exit(main())
