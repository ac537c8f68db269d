"""Evaluations of the sample world.

**time**

Mock evaluation of the sample world, against what it must cost at least, in one run so that the machine's mood cancels out.

    python benchmarks/evaluate.py time [repeats]

Prints medians of whole processes: the command line against importing SQLAlchemy and scikit-learn, and `dagster job execute` of the
regression job against a job of one empty asset. The aims are ratios of at most 3 and 4.

**every-way**

The same noisy judge on every way into the product: do all of them find the same, and how often is a week without a fault red?

    python benchmarks/evaluate.py every-way [SEEDS]

The sample world before its drift, judged with noise of standard deviation 1.0 and 1.5 in turn.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from tests.support.every_way import found_by_every_way
from tests.support.noise import NoisyJudge

EMPTY_JOB = """
import dagster as dg

@dg.asset
def nothing() -> None: ...

defs = dg.Definitions(
    assets=[nothing], jobs=[dg.define_asset_job("empty", selection="nothing")], executor=dg.in_process_executor
)
"""


def seconds(command: list[str], folder: Path, expected: int = 0) -> float:
    """Return the wall time of a process; it must end with the expected code, and code 1 with the drift."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PERSONA_", "DAGSTER_"))}
    started = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    took = time.perf_counter() - started
    drifted = "fell from" in done.stdout + done.stderr
    if done.returncode != expected or (expected == 1 and not drifted):
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return took


def run_time() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    python, dagster = sys.executable, str(Path(sys.executable).with_name("dagster"))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "empty_job.py").write_text(EMPTY_JOB, encoding="utf-8")
        imports = "import sqlalchemy, sklearn.feature_extraction.text"
        runs = {
            "import SQLAlchemy and scikit-learn": ([python, "-c", imports], Path(folder), 0),
            "persona-pipeline evaluate --mock-judge": ([python, "-m", "persona_pipeline", "evaluate", "--mock-judge"], PROJECT, 1),
            "dagster job execute, one empty asset": (
                [dagster, "job", "execute", "-f", "empty_job.py", "-j", "empty"], Path(folder), 0
            ),
            "dagster job execute -j persona_regression": (
                [dagster, "job", "execute", "-m", "persona_pipeline.definitions", "-j", "persona_regression"], PROJECT, 1
            ),
        }  # fmt: skip
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(repeats):
            for name, arguments in runs.items():
                times[name].append(seconds(*arguments))
    median = {name: statistics.median(values) for name, values in times.items()}
    for name, value in median.items():
        print(f"{value:6.2f} s  {name}  (min {min(times[name]):.2f}, max {max(times[name]):.2f})")
    imported, evaluated, empty, regression = median.values()
    print(f"command line / imports: {evaluated / imported:.2f} (aim: at most 3)")
    print(f"regression job / empty job: {regression / empty:.2f} (aim: at most 4)")


FOLDERS = ("personas", "propositions", "messages", "recordings", "baselines")
BEFORE_THE_DRIFT = "2026-06-14T23:59:59Z"
FALLS = ("regression", "proposition_drop")


def every_way_main(seeds: int) -> None:
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


def run_every_way() -> None:
    every_way_main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)


COMMANDS = {"time": run_time, "every-way": run_every_way}


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"{__doc__}\nname one of {', '.join(COMMANDS)}")
    sys.exit(COMMANDS[sys.argv.pop(1)]())
