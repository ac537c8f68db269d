"""Threads for blocking work that callers need not wait for."""

import asyncio
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")


class QueueFullError(Exception):
    """The pool has more work waiting than it may."""


class DaemonPool:
    """A few daemon threads that run blocking calls.

    The threads never delay the end of the process. A call that is cancelled before it starts is skipped, so a database that comes
    back after a hang gets no backlog. A forked process starts its own threads.
    """

    def __init__(self, threads: int, name: str, *, capacity: int = 1000) -> None:
        self._threads, self._name, self._capacity = threads, name, capacity
        self._forget()
        _POOLS.add(self)

    def _forget(self) -> None:
        self._calls: queue.Queue[tuple[Future[Any], Callable[[], Any]]] = queue.Queue(self._capacity)
        self._started = 0
        self._lock = threading.Lock()

    def submit(self, call: Callable[[], Result]) -> Future[Result]:
        """Queue a call; QueueFullError: too many wait already; RuntimeError: the system gives the pool not even one thread."""
        self._start_thread()
        future: Future[Result] = Future()
        try:
            self._calls.put_nowait((future, call))
        except queue.Full:
            raise QueueFullError(f"{self._name}: too much work is waiting") from None
        return future

    def _start_thread(self) -> None:
        with self._lock:
            if self._started == self._threads:
                return
            try:
                threading.Thread(target=self._work, name=f"{self._name}-{self._started + 1}", daemon=True).start()
            except RuntimeError:
                if not self._started:
                    raise
            else:
                self._started += 1

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


_POOLS: weakref.WeakSet[DaemonPool] = weakref.WeakSet()


def _forget_threads() -> None:
    for pool in list(_POOLS):
        pool._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
