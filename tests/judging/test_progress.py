"""What is said while a live judge is asked."""

import asyncio
from dataclasses import replace

import pytest

from persona_pipeline.base.database.engine import Store
from persona_pipeline.judging.cache import JudgmentCache
from persona_pipeline.judging.model.asking import ModelBackend, live_judge
from persona_pipeline.judging.progress import Progress
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.verdict import Answer, Unscored, Usage
from tests.support.judging import requests
from tests.support.messages_server import ANSWER, MessagesServer, status


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("answered", "failed", "seconds", "line"),
    [
        (0, 0, 3.0, "judged 5 of 105, 5 known before, $0.0000"),
        (40, 0, 20.0, "judged 45 of 105, 5 known before, $0.0400, 30 s left"),
        (30, 10, 80.0, "judged 45 of 105, 10 failed, 5 known before, $0.0300, 2 min 00 s left"),
        (100, 0, 50.0, "judged 105 of 105, 5 known before, $0.1000"),
    ],
)
def test_the_line(answered: int, failed: int, seconds: float, line: str) -> None:
    clock = Clock()
    progress = Progress(lambda said: None, clock=clock, expected=5, known=5)

    async def run() -> None:
        async with progress.shown(100):
            for _ in range(answered):
                progress.heard(Answer({}, usage=Usage(calls=1, usd=0.001)))
            for _ in range(failed):
                progress.heard(Answer(unscored=Unscored.TIMEOUT, usage=Usage(calls=1, usd=None)))
            clock.now = seconds
            assert progress.line == line

    asyncio.run(run())


def test_a_run_is_seen_while_it_runs(server: MessagesServer, options: ModelOptions, store: Store) -> None:
    server.latency = 0.05
    server.handler = lambda call: status(500) if call.index == 7 else ANSWER
    said: list[str] = []
    progress = Progress(said.append, interval=0.03)
    backend = ModelBackend(replace(options, width=2), cache=JudgmentCache(store), progress=progress)
    judge = live_judge(backend)
    asyncio.run(judge.judge(requests(4)))
    verdicts = asyncio.run(judge.judge(requests(12)))
    assert sum(verdict.score is None for verdict in verdicts) == 1
    spent = backend.spent.usd
    assert said[-1] == f"judged 16 of 16, 1 failed, 4 known before, ${spent:.4f}"
    between = [line for line in said if line.endswith("left")]
    assert between, "it is also said while answers are waited for"
