import asyncio
import subprocess
import sys
import threading

import pytest

from persona_pipeline.corrections.background import DaemonPool, QueueFullError
from tests.support.clock import LONG


def test_results_and_errors_come_back() -> None:
    pool = DaemonPool(2, "test")

    async def run() -> list[int]:
        return await asyncio.gather(*(pool.run(lambda n=n: n * n) for n in range(50)))

    assert asyncio.run(run()) == [n * n for n in range(50)]
    with pytest.raises(ZeroDivisionError):
        asyncio.run(pool.run(lambda: 1 // 0))
    assert asyncio.run(pool.run(lambda: "still here")) == "still here"


def test_what_was_given_up_before_it_started_is_skipped() -> None:
    pool, gate, ran = DaemonPool(1, "test"), threading.Event(), []
    pool.submit(gate.wait)
    given_up = pool.submit(lambda: ran.append("given up"))
    kept = pool.submit(lambda: ran.append("kept"))
    given_up.cancel()
    gate.set()
    kept.result(LONG)
    assert ran == ["kept"]


def test_too_much_work_is_refused_at_once() -> None:
    pool, begun, gate = DaemonPool(1, "test", capacity=2), threading.Event(), threading.Event()
    pool.submit(lambda: (begun.set(), gate.wait()))
    assert begun.wait(LONG)
    pool.submit(lambda: None)
    pool.submit(lambda: None)
    with pytest.raises(QueueFullError):
        pool.submit(lambda: None)
    gate.set()
    assert pool.wait_idle(LONG)


def test_waiting_for_work_that_does_not_end_ends() -> None:
    pool, gate = DaemonPool(1, "test"), threading.Event()
    pool.submit(gate.wait)
    assert not pool.wait_idle(0.05)
    gate.set()
    assert pool.wait_idle(LONG)


def test_a_stuck_call_does_not_hold_up_the_end_of_the_process() -> None:
    code = (
        "import time; from persona_pipeline.corrections.background import DaemonPool; "
        "DaemonPool(1, 'test').submit(lambda: time.sleep(3600))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=LONG).returncode == 0
