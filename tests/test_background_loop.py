"""The loop that code which waits stands on."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from persona_pipeline.base.calls import BackgroundLoop


async def thread_name() -> str:
    return threading.current_thread().name


def test_every_caller_gets_the_same_loop_until_it_is_closed() -> None:
    loop = BackgroundLoop("behind")
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: loop.wait(thread_name()), range(8))) == {"behind"}
    loop.close()
    assert loop.wait(thread_name()) == "behind"
    loop.close()
    loop.close()


def test_it_can_be_waited_for_inside_a_running_loop() -> None:
    loop = BackgroundLoop("behind")

    async def notebook() -> str:
        return loop.wait(thread_name())

    assert asyncio.run(notebook()) == "behind"
    loop.close()


def test_what_takes_too_long_is_cancelled_and_what_it_raises_is_its_own() -> None:
    loop, cancelled = BackgroundLoop("behind"), threading.Event()

    async def long() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def own() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match=r"not done within 0\.01 s"):
        loop.wait(long(), 0.01)
    assert cancelled.wait(30)
    with pytest.raises(TimeoutError, match="its own"):
        loop.wait(own(), 30)
    loop.close()


def test_closing_lets_what_is_under_way_put_things_in_order() -> None:
    loop, began, ended = BackgroundLoop("behind"), threading.Event(), threading.Event()

    async def work() -> None:
        began.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            ended.set()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(loop.wait, work())
        assert began.wait(30)
        loop.close()
        assert ended.is_set()
        with pytest.raises(BaseException):  # noqa: B017
            waiting.result(30)
