"""What a large eval suite costs: whole processes, wall time and memory.

    python benchmarks/suites.py [tests] [repeats] [--python OTHER] [--stages]

Writes a suite of 1,000 tests with 5 deterministic asserts each, and grades recorded answers with the command line: the suite as one
YAML file, and its tests as JSON lines. Beside it stands importing Typer, PyYAML and pydantic, so that the machine's mood cancels
out. ``--python`` names the interpreter of another release, to compare two in one sitting.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))


def test_entry(number: int) -> dict[str, Any]:
    """Return one test: five asserts of five types."""
    return {
        "id": f"order-{number}",
        "input": f"What became of order {number}?",
        "criteria": f"Says what became of order {number}",
        "assert": [
            {"type": "contains", "value": f"order {number}", "required": True},
            {"type": "regex", "value": r"order \d+ (?:left|waits)"},
            {"type": "equals", "value": f"The order {number} left on Thursday."},
            {"type": "latency", "max_ms": 1000},
            {"type": "token_usage", "max_total": 500, "weight": 0.5},
        ],
    }


def answer(number: int) -> dict[str, Any]:
    """Return a recorded answer; every tenth is wrong."""
    left = "left" if number % 10 else "was lost"
    return {
        "text": f"The order {number} {left} on Thursday.",
        "duration_ms": 200 + number % 500,
        "token_usage": {"input": 120, "output": 40},
    }


def write_suite(folder: Path, count: int) -> None:
    """Write the suite in both forms (`orders.eval.yaml`, `lines.eval.yaml`), and the answers."""
    entries = [test_entry(number) for number in range(count)]
    lines = ["name: orders\n", "description: What became of orders\n", "tests:\n"]
    for entry in entries:
        lines += [f"  - id: {entry['id']}\n", f"    input: {json.dumps(entry['input'])}\n"]
        lines += [f"    criteria: {entry['criteria']}\n", "    assert:\n"]
        for item in entry["assert"]:
            first, *rest = [f"{key}: {json.dumps(value)}\n" for key, value in item.items()]
            lines += [f"      - {first}", *(f"        {text}" for text in rest)]
    (folder / "orders.eval.yaml").write_text("".join(lines), encoding="utf-8")
    (folder / "lines.eval.yaml").write_text("tests: ./lines.jsonl\n", encoding="utf-8")
    rows = "".join(json.dumps(entry) + "\n" for entry in entries)
    (folder / "lines.jsonl").write_text(rows, encoding="utf-8")
    answers = {f"order-{number}": answer(number) for number in range(count)}
    (folder / "answers.json").write_text(json.dumps(answers), encoding="utf-8")


def measure(
    command: list[str], folder: Path, repeats: int, expected: int = 0
) -> tuple[list[float], list[float], float]:
    """Return the wall and CPU seconds of each process, and the most memory in MB that one took."""
    wall, cpu, memory = [], [], 0.0
    for _ in range(repeats):
        with (folder / "printed.txt").open("wb") as printed:
            started = time.perf_counter()
            process = subprocess.Popen(command, cwd=folder, stdout=printed, stderr=printed)
            _, status, usage = os.wait4(process.pid, 0)
            wall.append(time.perf_counter() - started)
        if os.waitstatus_to_exitcode(status) != expected:
            raise SystemExit(f"{command} ended with {status}:\n{(folder / 'printed.txt').read_text()[-2000:]}")
        cpu.append(usage.ru_utime + usage.ru_stime)
        memory = max(memory, usage.ru_maxrss / 1024)
    return wall, cpu, memory


def stages(path: Path, folder: Path) -> dict[str, float]:
    """Return the seconds each stage takes in one process."""
    took: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        result = work()
        took[name] = time.perf_counter() - started
        return result

    def imported() -> Any:
        from persona_pipeline import suites

        return suites

    suites = timed("import", imported)
    suite = timed("load and check", lambda: suites.load_suite(path))
    responses = timed("read answers", lambda: suites.load_responses(folder / "answers.json"))
    result = timed("grade", lambda: suites.run_suite(suite, responses=responses))
    timed("write JSON", lambda: json.dumps(result.to_dict()))
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="?", type=int, default=1000)
    parser.add_argument("repeats", nargs="?", type=int, default=7)
    parser.add_argument("--python", default=sys.executable, help="interpreter of the release to measure")
    parser.add_argument("--stages", action="store_true", help="also the stages in one process, of this release")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write_suite(options.write, options.tests)
        return
    count, repeats, python = options.tests, options.repeats, options.python
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # By another process: what this one once held would count as memory of its children.
        subprocess.run([sys.executable, __file__, str(count), "--write", name], check=True)
        paths = {"one YAML file": folder / "orders.eval.yaml", "tests in JSON lines": folder / "lines.eval.yaml"}
        run = [python, "-m", "persona_pipeline", "suite", "run"]
        rows = {
            "import typer, yaml, pydantic": ([python, "-c", "import typer, yaml, pydantic"], 0),
            **{
                f"suite run, {form}": ([*run, path.name, "--responses", "answers.json", "--out", "results.jsonl"], 1)
                for form, path in paths.items()
            },
        }
        print(f"{count:,} tests of 5 asserts, {repeats} runs each: median seconds (least) of CPU and wall, most memory")
        for label, (command, expected) in rows.items():
            wall, cpu, memory = measure(command, folder, repeats, expected)
            print(
                f"  {label:<34} {statistics.median(cpu):6.2f} ({min(cpu):.2f}) {statistics.median(wall):6.2f} ({min(wall):.2f}) "
                f"{memory:5.0f} MB"
            )
        if options.stages:
            print("in one process:")
            for label, seconds in stages(paths["one YAML file"], folder).items():
                print(f"  {label:<34} {seconds:.3f}")


if __name__ == "__main__":
    main()
