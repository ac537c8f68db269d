"""Mock evaluation of the sample world, against what it must cost at least, in one run so that the machine's mood cancels out.

    python benchmarks/evaluate.py [repeats]

Prints medians of whole processes: the command line against importing SQLAlchemy and scikit-learn, and `dagster job execute` of the
regression job against a job of one empty asset. The aims are ratios of at most 3 and 4.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).parents[1]
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


def main() -> None:
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


if __name__ == "__main__":
    main()
