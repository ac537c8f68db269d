"""Is a replay of a live run's recordings that run again? Same scores, comparison, findings, verdicts and exit code.

    python benchmarks/replays.py [--runs 300] [--failing 0.005] [--failing-again SHARE]

Three agents of five dimensions in two channels, with live baselines of three weeks judged three times; now judged once or three
times by a judge with noise (sd 0.5, 1.0, 1.5), of whose judgments a share fails. In the newest week nothing happens to one agent,
or a claim collapses, or a dimension drops by 2, or all drop by 1.5, so that falls are judged again. Every run records what it is
told and is replayed with a new store, through the stages of the product. Ends with 1 where a replay differs.
"""

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.replaying import Case, cases, live_and_replayed, told, write_world


def replayed(case: Case, world: Path) -> tuple[int, int, int, bool, bool]:
    """Return a run's exit code, judgments, failures, whether something was judged again, and whether its replay is the same."""
    with TemporaryDirectory() as folder:
        live, again, failed = live_and_replayed(case, world, Path(folder))
    items = [item for agent in live.agents.values() for item in agent.evaluation.dimensions.values()]
    confirmed = any(item.samples > case.samples for item in items)
    return live.exit_code, sum(item.n_expected for item in items), failed, confirmed, told(live) == told(again)


def main(runs: int, failing: float, failing_again: float | None, processes: int) -> int:
    chosen = cases(runs, failing, failing_again)
    with TemporaryDirectory() as folder, ProcessPoolExecutor(processes) as pool:
        world = write_world(Path(folder) / "world")
        found = list(pool.map(partial(replayed, world=world), chosen, chunksize=4))
    codes = Counter(code for code, *_ in found)
    judgments, failed = sum(row[1] for row in found), sum(row[2] for row in found)
    print(f"{runs} live runs, {judgments} judgments, {failed} failed ({failed / judgments:.2%})")
    print(
        f"runs with failed judgments: {sum(row[2] > 0 for row in found)}; judged again: {sum(row[3] for row in found)}"
    )
    print("exit codes: " + ", ".join(f"{code} in {count}" for code, count in sorted(codes.items())))
    same = sum(row[4] for row in found)
    print(f"replays with the same scores, comparison, findings, verdicts and exit code: {same} of {runs}")
    for case in (case for case, row in zip(chosen, found, strict=True) if not row[4]):
        print(f"another: {case}")
    return int(same < runs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--failing", type=float, default=0.005, help="Share of judgments that fail.")
    parser.add_argument("--failing-again", type=float, help="Share of those that confirm a fall; default: the same.")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    sys.exit(main(options.runs, options.failing, options.failing_again, options.processes))
