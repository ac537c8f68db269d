"""The live judge: how fast and cheap it is, whether an estimate holds and a replay is the run again.

**live**

How fast and how cheap the live judge is, against a local server that answers after 300 ms.

Run: python benchmarks/judge.py live [--runs 3] [--only processes]

    fan-out        200 judgments, 20 at once: seconds, and the ratio to the ideal, which is the number of rounds times 300 ms.
                   Claims on 20 transcripts have no first call to wait for but their own; claims on one transcript wait for one.
    width          the same against a server that answers 529 above 8 calls at once.
    limits         claims against a server that takes 50, 500 and 5,000 requests a minute and says so: requests sent a judgment,
                   failures, and the ratio to the ideal, which sends what the limit allows, 20 at once.
    processes      four processes with one key and one store against a server that takes 500 requests a minute, told in its
                   headers and not told: requests sent a judgment, failures, seconds.
    long tail      700 judgments where latencies vary log-normally (sigma 1, median 300 ms): the ratio to what all latencies
                   together take 20 at once, and to what they take when each place takes the next call as it falls free.
    tokens         a full evaluation of the sample world: input tokens that had to be processed, as a ratio to one uncached call
                   per claim; the same for tokens read from the cache at a tenth of the price, in dollars; and grouped by 4.
    again          calls for the same world a second time, and after one claim was edited.

**estimates**

Whether an estimate holds: what is said before a run against what the run then takes, in twelve situations.

Run: python benchmarks/judge.py estimates

Each situation is a copy of the sample world (without recordings unless it says so), judged by the real SDK through a local
server that counts tokens (four characters each), caches prefixes and answers at the length the situation says. Printed: the
range, what was paid, and whether it lies inside; and whether "at most" held.

**replays**

Is a replay of a live run's recordings that run again? Same scores, comparison, findings, verdicts and exit code.

    python benchmarks/judge.py replays [--runs 300] [--failing 0.005] [--failing-again SHARE]

Three agents of five dimensions in two channels, with live baselines of three weeks judged three times; now judged once or three
times by a judge with noise (sd 0.5, 1.0, 1.5), of whose judgments a share fails. In the newest week nothing happens to one agent,
or a claim collapses, or a dimension drops by 2, or all drop by 1.5, so that falls are judged again. Every run records what it is
told and is replayed with a new store, through the stages of the product. Ends with 1 where a replay differs.
"""

import argparse
import asyncio
import hashlib
import heapq
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.base.database.engine import Store, open_store
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.base.settings import Settings, get_settings
from persona_pipeline.evaluation.estimate import estimate_run
from persona_pipeline.evaluation.run import (
    run_evaluation,
)
from persona_pipeline.judging.batches import collect_batches, submit_batch
from persona_pipeline.judging.claims import questions_of
from persona_pipeline.judging.estimate import Range, estimate
from persona_pipeline.judging.open import (
    JudgeOptions,
    OpenedJudge,
    open_judge,
)
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.verdict import JudgeRequest, Usage
from persona_pipeline.world import World
from tests.support.evaluating import planned_requests
from tests.support.judging import requests, trajectory
from tests.support.messages_server import Call, MessagesServer, Outcome, message, verdicts
from tests.support.replaying import Case, cases, live_and_replayed, told, write_world
from tests.support.worlds import replace_in

LATENCY = 0.3
CALLS, WIDTH = 200, 20
PORT = 18731


@contextmanager
def server(*arguments: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run the server as a process; yields its URL and a mapping that holds its counts when the block has ended."""
    counts: dict[str, Any] = {}
    command = [sys.executable, "-m", "tests.support.messages_server", *arguments]
    with subprocess.Popen(
        command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        assert process.stdin
        assert process.stdout
        yield process.stdout.readline().strip(), counts
        process.stdin.close()
        counts.update(json.loads(process.stdout.read()))


def opened(url: str, *, cache: Store | None = None, grouping: int = 1) -> OpenedJudge:
    """Return the judge of the settings, as the command line opens it."""
    os.environ["ANTHROPIC_BASE_URL"] = url
    world = World(PROJECT, cache) if cache else None
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


def processes() -> None:
    per_minute, each, count = 500, 250, 4
    for untold in ([], ["--untold"]):
        with (
            tempfile.TemporaryDirectory() as folder,
            server("--latency", str(LATENCY), "--requests-per-minute", str(per_minute), *untold) as (url, counts),
            ProcessPoolExecutor(count) as pool,
        ):
            open_store(f"sqlite:///{folder}/world.db").close()
            places = [(url, each, f"sqlite:///{folder}/world.db", number) for number in range(count)]
            started = time.perf_counter()
            failed = sum(pool.map(judged_beside_others, places))
            seconds = time.perf_counter() - started
        ideal = (each * count - per_minute) * 60 / per_minute
        print(
            f"processes {count} with {each} claims each at {per_minute} requests a minute{' that nobody tells' if untold else ''}: "
            f"{counts['calls'] / (each * count):.3f} requests a judgment, {failed} failures, {seconds:.1f} s; ideal {ideal:.1f} s",
            flush=True,
        )


def judged_beside_others(place: tuple[str, int, str, int]) -> int:
    """Judge what no other process asks, and return how many judgments failed."""
    url, count, database, number = place
    store = open_store(database)

    async def run() -> int:
        judge = opened(url, cache=store)
        asked = [item for n in range(5) for item in requests(count // 5, trajectory=trajectory(f"{number} {n}"))]
        async with judge.backend:
            return sum(verdict.score is None for verdict in await judge.judge(asked))

    failed = asyncio.run(run())
    store.close()
    return failed


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
        world = World(PROJECT, open_store(f"sqlite:///{folder}/world.db"))
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
        return judge.backend.spent

    # A fixed port: the endpoint is part of a cached judgment's key.
    with server("--port", str(PORT)) as (url, _):
        return asyncio.run(run(url))


def run_live() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", help="one part")
    arguments = parser.parse_args()
    parts = {
        "fan-out": lambda: fan_out(arguments.runs),
        "width": throttled,
        "limits": limits,
        "processes": processes,
        "long-tail": long_tail,
        "tokens": tokens,
    }
    for part in [parts[arguments.only]] if arguments.only else parts.values():
        part()


PARTS = ("personas", "propositions", "messages", "baselines")
BASELINE = EvaluationRequest(as_of=datetime(2026, 6, 14, 23, 59, 59, tzinfo=UTC), update_baseline=True, confirm=False)
TWO_DIMENSIONS = EvaluationRequest(agents=["dwight", "jim"], dimensions=["adherence", "fluency"], confirm=False)


@dataclass
class Stage:
    """A world, the server that judges it, and how it answers: scores at 8, a reason of so many words."""

    world: World
    server: MessagesServer
    score: Callable[[str], int] = lambda claim: 8
    words: int = 40

    def answer(self, call: Call) -> Outcome:
        if "play a persona" in str(call.body["system"]):
            return message(json.dumps({"message": "It is what it is, and it is on my desk. " * 4}))
        told = verdicts(call.body, self.score)
        for number, item in enumerate(told["verdicts"]):
            spread = hashlib.sha256(f"{item['proposition_id']}{number}{len(call.raw)}".encode()).digest()[0] / 255
            item["reasoning"] = "because " * int(self.words * (0.5 + spread))
        return message(json.dumps(told))

    def run(self, request: EvaluationRequest, **options: Any) -> float:
        """Return the dollars a run takes."""
        judge = open_judge("anthropic", self.world, JudgeOptions(**options))
        return run_evaluation(self.world, judge, request).report.usage.usd or 0.0

    def judged(self, request: EvaluationRequest, **options: Any) -> tuple[Range, float, float]:
        """Return the estimate's range, its most, and what the run then took."""
        said = estimate_run(self.world, request, asking=JudgeOptions(**options))
        assert said.usd
        assert said.worst_usd is not None
        return said.usd, said.worst_usd, self.run(request, **options)


Situation = Callable[[Stage], tuple[Range, float, float]]


def fresh(stage: Stage) -> tuple[Range, float, float]:
    return stage.judged(EvaluationRequest(confirm=False))


def uncounted(stage: Stage) -> tuple[Range, float, float]:
    stage.server.counts_tokens = False
    return stage.judged(EvaluationRequest(confirm=False))


def confirmed(stage: Stage) -> tuple[Range, float, float]:
    stage.run(BASELINE)
    stage.score = lambda claim: 2
    return stage.judged(EvaluationRequest())


def partly_confirmed(stage: Stage) -> tuple[Range, float, float]:
    stage.run(BASELINE)
    stage.score = lambda claim: 1 if "farm" in claim or "beet" in claim else 8
    return stage.judged(EvaluationRequest())


def history(stage: Stage) -> tuple[Range, float, float]:
    return stage.judged(EvaluationRequest(history=2, confirm=False))


def half_recorded(stage: Stage) -> tuple[Range, float, float]:
    stage.run(TWO_DIMENSIONS, record=True)
    stage.world.store.close()
    stage.world = World.open(stage.world.root, f"sqlite:///{stage.world.root}/new.db")
    return stage.judged(EvaluationRequest(agents=["dwight", "jim"], confirm=False))


def half_in_the_store(stage: Stage) -> tuple[Range, float, float]:
    stage.run(TWO_DIMENSIONS)
    return stage.judged(EvaluationRequest(confirm=False))


def one_claim_edited(stage: Stage) -> tuple[Range, float, float]:
    stage.run(EvaluationRequest(confirm=False))
    replace_in(stage.world.root / "propositions" / "adherence" / "_default.yaml", "claim: ", "claim: Always, ")
    return stage.judged(EvaluationRequest(confirm=False))


def three_samples(stage: Stage) -> tuple[Range, float, float]:
    return stage.judged(EvaluationRequest(agents=["pam"], samples=3, confirm=False))


def long_answers_learnt(stage: Stage) -> tuple[Range, float, float]:
    stage.words = 300
    stage.run(TWO_DIMENSIONS)
    return stage.judged(EvaluationRequest(agents=["michael", "pam"], confirm=False))


def generated(stage: Stage) -> tuple[Range, float, float]:
    (stage.world.root / "personas" / "creed.yaml").write_text(
        "display_name: Creed\npersona: Creed is strange and brief.\n"
    )
    return stage.judged(EvaluationRequest(agents=["creed"], synthetic=True, confirm=False))


def in_batches(stage: Stage) -> tuple[Range, float, float]:
    options = ModelOptions.from_settings(get_settings())
    asked = [item for item in planned_requests(stage.world, EvaluationRequest()) if item.trajectory.entries]
    questions = [question for _, question in questions_of(asked, max_tokens=options.max_tokens)]
    said = estimate([], options=options, store=stage.world.store, also=questions)
    assert said.batch_usd
    assert said.worst_usd is not None
    submit_batch(stage.world.store, options, questions)
    summaries = collect_batches(stage.world.store, options)
    return said.batch_usd, said.worst_usd, sum(item.usd or 0.0 for item in summaries)


SITUATIONS: dict[str, Situation] = {
    "everything, input counted": fresh,
    "everything, input guessed": uncounted,
    "all falls and is confirmed": confirmed,
    "some falls and is confirmed": partly_confirmed,
    "with two weeks before": history,
    "half is recorded": half_recorded,
    "half is in the store": half_in_the_store,
    "one claim edited": one_claim_edited,
    "three samples": three_samples,
    "long answers, learnt": long_answers_learnt,
    "conversations generated": generated,
    "message batches": in_batches,
}


def run_estimates() -> None:
    inside = held = 0
    for name, situation in SITUATIONS.items():
        with tempfile.TemporaryDirectory() as folder, MessagesServer() as server:
            root = Path(folder) / "world"
            for part in PARTS:
                shutil.copytree(PROJECT / part, root / part)
            os.environ["ANTHROPIC_BASE_URL"] = server.url
            stage = Stage(World.open(root, f"sqlite:///{folder}/world.db"), server)
            server.handler = lambda call, stage=stage: stage.answer(call)
            usd, most, paid = situation(stage)
            stage.world.store.close()
            assert not server.problems, server.problems[:2]
        is_inside = usd.low <= paid <= usd.high
        inside, held = inside + is_inside, held + (paid <= most)
        print(
            f"{name:30} said ${usd.expected:.4f} (${usd.low:.4f} to ${usd.high:.4f}), at most ${most:.4f}; paid ${paid:.4f}"
            f"{'' if is_inside else '  OUTSIDE'}",
            flush=True,
        )
    print(f"inside the range {inside} of {len(SITUATIONS)}; at most held {held} of {len(SITUATIONS)}")


def replayed(case: Case, world: Path) -> tuple[int, int, int, bool, bool]:
    """Return a run's exit code, judgments, failures, whether something was judged again, and whether its replay is the same."""
    with TemporaryDirectory() as folder:
        live, again, failed = live_and_replayed(case, world, Path(folder))
    items = [item for agent in live.agents.values() for item in agent.evaluation.dimensions.values()]
    confirmed = any(item.samples > case.samples for item in items)
    return live.exit_code, sum(item.n_expected for item in items), failed, confirmed, told(live) == told(again)


def replays_main(runs: int, failing: float, failing_again: float | None, processes: int) -> int:
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


def run_replays() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--failing", type=float, default=0.005, help="Share of judgments that fail.")
    parser.add_argument("--failing-again", type=float, help="Share of those that confirm a fall; default: the same.")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    sys.exit(replays_main(options.runs, options.failing, options.failing_again, options.processes))


COMMANDS = {"live": run_live, "estimates": run_estimates, "replays": run_replays}


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"{__doc__}\nname one of {', '.join(COMMANDS)}")
    sys.exit(COMMANDS[sys.argv.pop(1)]())
