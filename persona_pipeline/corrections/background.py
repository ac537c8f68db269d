"""Blocking work on threads that nobody ever has to wait for."""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")


class QueueFullError(Exception):
    """The pool has more work waiting than it may."""


class DaemonPool:
    """A few daemon threads that run blocking calls.

    Unlike an executor's, the threads never hold up the end of the process, and a call that was given up
    before it started is skipped, so that a database which hangs and comes back does not work off a backlog
    nobody waits for.
    """

    def __init__(self, threads: int, name: str, *, capacity: int = 1000) -> None:
        self._calls: queue.Queue[tuple[Future[Any], Callable[[], Any]]] = queue.Queue(capacity)
        self._threads, self._name = threads, name
        self._started = 0
        self._lock = threading.Lock()

    def submit(self, call: Callable[[], Result]) -> Future[Result]:
        """Queue a call.

        Raises:
            QueueFullError: as many calls as the pool's capacity wait already.
        """
        future: Future[Result] = Future()
        try:
            self._calls.put_nowait((future, call))
        except queue.Full:
            raise QueueFullError(f"{self._name}: too much work is waiting") from None
        with self._lock:
            if self._started < self._threads:
                self._started += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._started}", daemon=True).start()
        return future

    async def run(self, call: Callable[[], Result]) -> Result:
        """Run a call and return its result; cancelling this leaves a call that already runs to itself."""
        return await asyncio.wrap_future(self.submit(call))

    def wait_idle(self, seconds: float) -> bool:
        """Wait until nothing is queued or running; return whether that was so in time."""
        deadline = time.monotonic() + seconds
        while self._calls.unfinished_tasks:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    def _work(self) -> None:
        while True:
            future, call = self._calls.get()
            try:
                if future.set_running_or_notify_cancel():
                    try:
                        result = call()
                    except BaseException as error:
                        future.set_exception(error)
                    else:
                        future.set_result(result)
            finally:
                self._calls.task_done()
