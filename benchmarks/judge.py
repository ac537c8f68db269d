"""How fast and how cheap the live judge is, against a local server that answers after 300 ms.

Run: python benchmarks/judge.py [--runs 3]

    fan-out        200 judgments, 20 at once: seconds, and the ratio to the ideal, which is the number of rounds times 300 ms.
                   Claims on 20 transcripts have no first call to wait for but their own; claims on one transcript wait for one.
    width          the same against a server that answers 529 above 8 calls at once.
    limits         claims against a server that takes 50, 500 and 5,000 requests a minute and says so: requests sent a judgment,
                   failures, and the ratio to the ideal, which sends what the limit allows, 20 at once.
    long tail      700 judgments where latencies vary log-normally (sigma 1, median 300 ms): the ratio to what all latencies
                   together take 20 at once, and to what they take when each place takes the next call as it falls free.
    tokens         a full evaluation of the sample world: input tokens that had to be processed, as a ratio to one uncached call
                   per claim; the same for tokens read from the cache at a tenth of the price, in dollars; and grouped by 4.
    again          calls for the same world a second time, and after one claim was edited.
"""

import argparse
import asyncio
import heapq
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from persona_pipeline.judging.open import JudgeOptions, open_judge

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from persona_pipeline.evaluation import EvaluationRequest
from persona_pipeline.evaluation.run import planned_requests
from persona_pipeline.judging.layers import OpenedJudge
from persona_pipeline.judging.verdict import JudgeRequest, Usage
from persona_pipeline.settings import Settings
from persona_pipeline.store import Store, open_store
from persona_pipeline.world import World
from tests.support.judging import requests, trajectory

ROOT = Path(__file__).resolve().parents[1]
LATENCY = 0.3
CALLS, WIDTH = 200, 20
PORT = 18731


@contextmanager
def server(*arguments: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run the server as a process; yields its URL and a mapping that holds its counts when the block has ended."""
    counts: dict[str, Any] = {}
    command = [sys.executable, "-m", "tests.support.messages_server", *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        assert process.stdin
        assert process.stdout
        yield process.stdout.readline().strip(), counts
        process.stdin.close()
        counts.update(json.loads(process.stdout.read()))


def opened(url: str, *, cache: Store | None = None, grouping: int = 1) -> OpenedJudge:
    """Return the judge of the settings, as the command line opens it."""
    os.environ["ANTHROPIC_BASE_URL"] = url
    world = World(ROOT, cache) if cache else None
    options = JudgeOptions(grouping=grouping, recorded=False, kept=cache is not None)
    return open_judge("anthropic", world, options, settings=Settings(judge_width=WIDTH))


def timed(url: str, asked: Sequence[JudgeRequest]) -> float:
    """Return the seconds of one judging, the connections made beforehand."""

    async def run() -> float:
        judge = opened(url)
        async with judge.backend:
            await judge.judge(requests(WIDTH, trajectory=trajectory("warm")))
            started = time.perf_counter()
            told = await judge.judge(asked)
            seconds = time.perf_counter() - started
            assert all(verdict.score is not None for verdict in told)
            return seconds

    return asyncio.run(run())


def fan_out(runs: int) -> None:
    rounds = math.ceil(CALLS / WIDTH)
    per_transcript = [
        item for n in range(WIDTH) for item in requests(CALLS // WIDTH, trajectory=trajectory(length=60 + n))
    ]
    cases = {
        f"{CALLS} claims on {WIDTH} transcripts": (per_transcript, rounds),
        f"{CALLS} claims on one transcript": (
            requests(CALLS, trajectory=trajectory(length=60)),
            1 + math.ceil((CALLS - 1) / WIDTH),
        ),
    }
    with server("--latency", str(LATENCY)) as (url, _):
        for name, (asked, needed) in cases.items():
            seconds = [timed(url, asked) for _ in range(runs)]
            ideal = needed * LATENCY
            shown = ", ".join(f"{value:.3f}" for value in seconds)
            print(f"fan-out  {name}: {shown} s; ideal {ideal:.1f} s; best {min(seconds) / ideal:.3f} x ideal")


def throttled() -> None:
    with server("--latency", str(LATENCY), "--throttle-above", "8") as (url, counts):
        seconds = timed(url, requests(CALLS, trajectory=trajectory(length=60)))
    ideal = math.ceil(CALLS / 8) * LATENCY
    print(
        f"width    {CALLS} claims where more than 8 calls at once get 529: {seconds:.1f} s; ideal at 8: {ideal:.1f} s; "
        f"{counts['calls'] - counts['paid']} calls throttled"
    )


def limits() -> None:
    for per_minute, count in ((50, 100), (500, 700), (5000, 700)):
        with server("--latency", str(LATENCY), "--requests-per-minute", str(per_minute)) as (url, counts):
            seconds, failed = judged(url, count)
        ideal = max(math.ceil(count / WIDTH) * LATENCY, (count - per_minute) * 60 / per_minute + LATENCY)
        print(
            f"limits   {count} claims at {per_minute} requests a minute: {counts['calls'] / count:.3f} requests a judgment, "
            f"{failed} failures, {seconds:.1f} s; ideal {ideal:.1f} s; {seconds / ideal:.3f} x ideal"
        )


def long_tail() -> None:
    for transcripts in (1, 20):
        with server("--latency", str(LATENCY), "--long-tail") as (url, counts):
            seconds, failed = judged(url, 700, transcripts)
        ideal = max(sum(counts["waited"]) / WIDTH, max(counts["waited"]))
        places = [0.0] * WIDTH
        for latency in counts["waited"]:
            heapq.heapreplace(places, places[0] + latency)
        print(
            f"long tail 700 claims on {transcripts} transcripts: {failed} failures, {seconds:.2f} s; all together {ideal:.2f} s, "
            f"{seconds / ideal:.3f} x; place by place {max(places):.2f} s, {seconds / max(places):.3f} x"
        )


def judged(url: str, count: int, transcripts: int = 20) -> tuple[float, int]:
    """Return the seconds that judging so many claims takes, and how many failed."""
    asked = [
        item
        for n in range(transcripts)
        for item in requests(count // transcripts, trajectory=trajectory(length=60 + n))
    ]

    async def run() -> tuple[float, int]:
        judge = opened(url)
        async with judge.backend:
            started = time.perf_counter()
            told = await judge.judge(asked)
            return time.perf_counter() - started, sum(verdict.score is None for verdict in told)

    return asyncio.run(run())


def tokens() -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(ROOT, open_store(f"sqlite:///{folder}/world.db"))
        asked = planned_requests(world, EvaluationRequest())
        alone = spent([[item] for item in asked])
        shared, grouped = spent([asked]), spent([asked], grouping=4)
        processed = [usage.input_tokens + usage.cache_creation_tokens for usage in (alone, shared, grouped)]
        print(
            f"tokens   sample world: {len(asked)} judgments; one uncached call per claim: {processed[0]:,} input tokens"
        )
        for name, usage, count in (("shared prefix", shared, processed[1]), ("grouped by 4", grouped, processed[2])):
            print(
                f"tokens   {name}: {usage.calls} calls, {count:,} processed ({count / processed[0]:.3f}) and "
                f"{usage.cache_read_tokens:,} read from the cache; ${usage.usd:.4f} ({(usage.usd or 0) / (alone.usd or 1):.3f})"
            )
        again(world, asked)
        world.store.close()


def again(world: World, asked: Sequence[JudgeRequest]) -> None:
    edited = [replace(asked[0], claim=f"{asked[0].claim} Always."), *asked[1:]]
    for name, some in (("first run", asked), ("unchanged", asked), ("one claim edited", edited)):
        print(f"again    {name}: {spent([some], store=world.store).calls} calls")


def spent(parts: Sequence[Sequence[JudgeRequest]], *, grouping: int = 1, store: Store | None = None) -> Usage:
    """Return the usage of judging these parts one after another."""

    async def run(url: str) -> Usage:
        judge = opened(url, cache=store, grouping=grouping)
        async with judge.backend:
            for part in parts:
                await judge.judge(part)
        return judge.backend.ledger.total

    # A fixed port: the endpoint is part of a cached judgment's key.
    with server("--port", str(PORT)) as (url, _):
        return asyncio.run(run(url))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    for part in (lambda: fan_out(arguments.runs), throttled, limits, long_tail, tokens):
        part()
