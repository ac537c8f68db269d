"""Asynchronous work from code that waits: by itself, or in an event loop of a thread of its own whose clients stay open."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_async(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end, also where an event loop already runs in this thread (a notebook, an async caller)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    loop = BackgroundLoop("evaluation")
    try:
        return loop.wait(work)
    finally:
        loop.close()


class BackgroundLoop:
    """Runs coroutines one caller at a time or many, from any thread. Begins with the first and ends with ``close``, or never."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begin a coroutine, in the caller's context, and return what will hold its result."""
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=loop.run_forever, name=self.name, daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    # The machine has no thread left; the next caller may find one.
                    loop.close()
                    work.close()
                    raise
                self._loop, self._thread = loop, thread
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(self, work: Coroutine[Any, Any, Result], timeout: float | None = None) -> Result:
        """Return what a coroutine returns.

        Args:
            timeout: seconds to wait; None: as long as it takes.

        Raises:
            TimeoutError: it took longer, and was cancelled.
        """
        future = self.start(work)
        try:
            return future.result(timeout)
        except TimeoutError:
            if future.done():
                # The work's own.
                raise
            future.cancel()
            raise TimeoutError(f"not done within {timeout:g} s") from None

    def close(self) -> None:
        """Cancel what is under way and end the loop; another ``wait`` begins a new one."""
        with self._lock:
            if self._loop and self._thread:
                asyncio.run_coroutine_threadsafe(_cancelled(), self._loop).result()
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._loop.close()
            self._loop = self._thread = None


async def _cancelled() -> None:
    """Cancel what is still under way, and wait until it has let go of what it holds."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
