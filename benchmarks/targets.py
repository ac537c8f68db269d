"""How close a suite comes to what its targets need at least: 200 tests, an answer takes 300 ms, 20 at once.

    python benchmarks/targets.py [--python OTHER]

Every target answers over a real socket of one server (a function: sleeps). Printed are the seconds of a whole `suite run` process,
less those of the same suite with a target that answers at once, against 200 / 20 * 0.3 s.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

TESTS, WIDTH, SECONDS = 200, 20, 0.3
MESSAGE = {
    "id": "m", "type": "message", "role": "assistant", "model": "claude-haiku-5-5", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "ok"}], "usage": {"input_tokens": 5, "output_tokens": 1},
}  # fmt: skip
COMPLETION = {
    "id": "c", "object": "chat.completion", "created": 1, "model": "local",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ok"}}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 1},
}  # fmt: skip
FUNCTION = f"import asyncio\n\nasync def reply(prompt):\n    await asyncio.sleep({SECONDS})\n    return 'ok'\n"


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request of a connection after 300 ms, in the words of the API it was sent to."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
            )
            await reader.readexactly(length)
            await asyncio.sleep(SECONDS)
            body: Any = MESSAGE if b"/messages" in head else COMPLETION if b"/chat/" in head else {"text": "ok"}
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
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
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
        [*command, "--allow-code", "--allow-targets"], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter of the release to measure")
    parser.add_argument("--targets", default="python,http,openai,anthropic")
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
        ]
        (folder / "targets.yaml").write_text(json.dumps({"targets": targets}), encoding="utf-8")
        start = statistics.median(seconds(folder, options.python, "mock") for _ in range(options.repeats))
        print(f"a target that answers at once: {start:.2f} s; ideal for the others: {ideal:.2f} s beside that")
        for target in options.targets.split(","):
            took = statistics.median(seconds(folder, options.python, target) for _ in range(options.repeats))
            print(
                f"{target:<10} {took:6.2f} s, less the start {took - start:5.2f} s = {(took - start) / ideal:.2f} x ideal",
                flush=True,
            )


if __name__ == "__main__":
    main()
