"""What eval suites cost.

**grade**

What a large eval suite costs: whole processes, wall time and memory.

    python benchmarks/suites.py grade [tests] [repeats] [--python OTHER] [--stages]

Writes a suite of 1,000 tests with 5 deterministic asserts each, and grades recorded answers with the command line: the suite as one
YAML file, and its tests as JSON lines. Beside it stands importing Typer, PyYAML and pydantic, so that the machine's mood cancels
out. ``--python`` names the interpreter of another release, to compare two in one sitting.

**targets**

How close a suite comes to what its targets need at least: 200 tests, an answer takes 300 ms, 20 at once.

    python benchmarks/suites.py targets [--python OTHER]

Every target answers over a real socket of one server (a function: sleeps). Printed are the seconds of a whole `suite run` process,
less those of the same suite with a target that answers at once, against 200 / 20 * 0.3 s.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
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


def run_grade() -> None:
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
        subprocess.run([sys.executable, __file__, "grade", str(count), "--write", name], check=True)
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


TESTS, WIDTH, SECONDS = 200, 20, 0.3
KINDS = "python,cli,http,openai,responses,azure,gemini,ollama,vllm,openrouter,anthropic,bedrock,vertex"
MESSAGE = {
    "id": "m", "type": "message", "role": "assistant", "model": "claude-haiku-5-5", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "ok"}], "usage": {"input_tokens": 5, "output_tokens": 1},
}  # fmt: skip
COMPLETION = {
    "id": "c", "object": "chat.completion", "created": 1, "model": "local",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ok"}}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 1},
}  # fmt: skip
RESPONSE = {
    "id": "r", "object": "response", "model": "local", "status": "completed",
    "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}],
    "usage": {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6},
}  # fmt: skip
# What a path holds, and what is answered there: the Messages API also behind Bedrock and Vertex.
BODIES: dict[bytes, Any] = {
    b"/messages": MESSAGE, b"/invoke": MESSAGE, b":rawPredict": MESSAGE, b"/chat/": COMPLETION, b"/responses": RESPONSE,
}  # fmt: skip
FUNCTION = f"import asyncio\n\nasync def reply(prompt):\n    await asyncio.sleep({SECONDS})\n    return 'ok'\n"


async def targets_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request of a connection after 300 ms, in the words of the API it was sent to."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
            )
            await reader.readexactly(length)
            await asyncio.sleep(SECONDS)
            path = head.split(b" ")[1]
            body: Any = next((body for part, body in BODIES.items() if part in path), {"text": "ok"})
            data = json.dumps(body).encode()
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(data), data)
            )
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def served() -> str:
    """Start the server in a thread and return its address."""
    ready: list[int] = []

    async def serve() -> None:
        server = await asyncio.start_server(targets_answer, "127.0.0.1", 0)
        ready.append(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    while not ready:
        time.sleep(0.01)
    return f"http://127.0.0.1:{ready[0]}"


def seconds(folder: Path, python: str, target: str) -> float:
    command = [
        python,
        "-m",
        "persona_pipeline",
        "suite",
        "run",
        "s.eval.yaml",
        "--target",
        target,
        "--workers",
        str(WIDTH),
    ]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, "--allow-code", "--allow-targets"],
        cwd=folder,
        env={**os.environ, "AWS_REGION": "eu-central-1", "CLOUD_ML_REGION": "eu", "ANTHROPIC_VERTEX_PROJECT_ID": "p"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
    return time.perf_counter() - started


def run_targets() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter of the release to measure")
    parser.add_argument("--targets", default=KINDS)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    url, ideal = served(), TESTS / WIDTH * SECONDS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tests = [
            {"id": f"t{n}", "input": f"question {n}", "assert": [{"type": "contains", "value": "ok"}]}
            for n in range(TESTS)
        ]
        (folder / "s.eval.yaml").write_text(json.dumps({"tests": tests}), encoding="utf-8")
        (folder / "my_agent.py").write_text(FUNCTION, encoding="utf-8")
        targets = [
            {"name": "mock", "provider": "mock", "response": "ok"},
            {"name": "python", "provider": "python:my_agent:reply"},
            {"name": "http", "provider": "http", "url": url},
            {"name": "openai", "provider": "openai", "model": "local", "base_url": f"{url}/v1", "api_key": "k"},
            {"name": "anthropic", "provider": "anthropic", "base_url": url, "api_key": "k"},
            {"name": "cli", "provider": "cli", "command": ["sh", "-c", f"sleep {SECONDS}; echo ok"]},
            *(
                {"name": name, "provider": name, "model": "m", "base_url": url, "api_key": "k"}
                for name in ("bedrock", "vertex", "azure", "gemini", "ollama", "vllm", "openrouter")
            ),
            {"name": "responses", "provider": "openai", "api": "responses"}
            | {"model": "local", "base_url": f"{url}/v1", "api_key": "k"},
        ]
        (folder / "targets.yaml").write_text(json.dumps({"targets": targets}), encoding="utf-8")
        start = statistics.median(seconds(folder, options.python, "mock") for _ in range(options.repeats))
        print(f"a target that answers at once: {start:.2f} s; ideal for the others: {ideal:.2f} s beside that")
        print(f"{options.repeats} runs each, load {os.getloadavg()[0]:.1f} at the beginning")
        for target in options.targets.split(","):
            took = statistics.median(seconds(folder, options.python, target) for _ in range(options.repeats))
            print(
                f"{target:<10} {took:6.2f} s, less the start {took - start:5.2f} s = {(took - start) / ideal:.2f} x ideal",
                flush=True,
            )


COMMANDS = {"grade": run_grade, "targets": run_targets}


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"{__doc__}\nname one of {', '.join(COMMANDS)}")
    sys.exit(COMMANDS[sys.argv.pop(1)]())
