"""What a large eval suite costs: whole processes, wall time and memory.

    python benchmarks/suites.py [tests] [repeats]

Writes a suite of 1,000 tests with 5 deterministic asserts each, and grades recorded answers with the command line: the suite as one
YAML file, and its tests as JSON lines. Beside it stand the interpreter alone and importing Typer, PyYAML and pydantic, so that the
machine's mood cancels out. Then the same suite in one process, stage by stage.
"""

import json
import resource
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
AIM = 1.0


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


def write_suite(folder: Path, count: int) -> dict[str, Path]:
    """Write the suite in both forms, and the answers."""
    entries = [test_entry(number) for number in range(count)]
    lines = ["name: orders\n", "description: What became of orders\n", "tests:\n"]
    for entry in entries:
        lines += [f"  - id: {entry['id']}\n", f"    input: {json.dumps(entry['input'])}\n"]
        lines += [f"    criteria: {entry['criteria']}\n", "    assert:\n"]
        for item in entry["assert"]:
            first, *rest = [f"{key}: {json.dumps(value)}\n" for key, value in item.items()]
            lines += [f"      - {first}", *(f"        {text}" for text in rest)]
    paths = {"one YAML file": folder / "orders.eval.yaml", "tests in JSON lines": folder / "lines.eval.yaml"}
    paths["one YAML file"].write_text("".join(lines), encoding="utf-8")
    paths["tests in JSON lines"].write_text("tests: ./lines.jsonl\n", encoding="utf-8")
    rows = "".join(json.dumps(entry) + "\n" for entry in entries)
    (folder / "lines.jsonl").write_text(rows, encoding="utf-8")
    answers = {f"order-{number}": answer(number) for number in range(count)}
    (folder / "answers.json").write_text(json.dumps(answers), encoding="utf-8")
    return paths


def measure(command: list[str], folder: Path, repeats: int, expected: int = 0) -> tuple[list[float], float]:
    """Return the wall times of a process, and the largest memory in MB that it or an earlier one took."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
        times.append(time.perf_counter() - started)
        if done.returncode != expected:
            raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stderr.decode()[-2000:]}")
    return times, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


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
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    python = sys.executable
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = write_suite(folder, count)
        run = [python, "-m", "persona_pipeline", "suite", "run"]
        rows = {
            "python -c pass": ([python, "-c", "pass"], 0),
            "import typer, yaml, pydantic": ([python, "-c", "import typer, yaml, pydantic"], 0),
            **{
                f"suite run, {form}": ([*run, path.name, "--responses", "answers.json", "--json"], 1)
                for form, path in paths.items()
            },
        }
        print(
            f"{count:,} tests of 5 asserts, {repeats} runs each, wall seconds: median (least to greatest), peak memory"
        )
        for label, (command, expected) in rows.items():
            times, memory = measure(command, folder, repeats, expected)
            spread = f"{min(times):.2f} to {max(times):.2f}"
            print(f"  {label:<34} {statistics.median(times):.2f} ({spread})  {memory:.0f} MB")
            if label.startswith("suite run") and count == 1000 and min(times) > AIM:
                print(f"  ! slower than the aim of {AIM:g} s")
        print("in one process:")
        for label, seconds in stages(paths["one YAML file"], folder).items():
            print(f"  {label:<34} {seconds:.3f}")


if __name__ == "__main__":
    main()
