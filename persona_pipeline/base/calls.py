"""Calls that leave this process: an event loop in the background, and breakers that stop calls after repeated failures."""

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_async(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end, also where an event loop already runs in this thread, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    loop = BackgroundLoop("evaluation")
    try:
        return loop.wait(work)
    finally:
        loop.close()


def positional_arguments(call: Callable[..., Any], named: Mapping[str, Any]) -> list[Any]:
    """Return the values of a function's positional parameters by their names. The first parameter may have any name.

    Raises ``ValueError``: a further parameter has neither a known name nor a default.
    """
    first = next(iter(named.values()))
    try:
        parameters = list(inspect.signature(call).parameters.values())
    except (TypeError, ValueError):
        return [first]
    given: list[Any] = []
    for item in parameters:
        if item.kind not in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD):
            continue
        if item.name in named or not given:
            given.append(named.get(item.name, first))
        elif item.default is item.empty:
            raise ValueError(f"parameter {item.name!r} is none of {', '.join(named)}")
        else:
            break
    return given


@dataclass
class Timing:
    """Moments of a call on the monotonic clock: begun, last sent, and answered."""

    asked: float = field(default_factory=time.monotonic)
    sent: float | None = None
    ended: float | None = None

    async def follow(self, event: str, _: Any) -> None:
        """Note events of the HTTP client (its ``trace``). A request counts from when it goes out over an open connection."""
        if event.endswith("send_request_headers.started"):
            self.sent = time.monotonic()


class BackgroundLoop:
    """Runs coroutines of any thread. It starts with the first coroutine and ends with ``close``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begin a coroutine in the caller's context and return its future."""
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
        """Return a coroutine's result; TimeoutError: it took longer than ``timeout`` seconds and was cancelled."""
        future = self.start(work)
        try:
            return future.result(timeout)
        except TimeoutError:
            if future.done():
                # Raised by the work itself.
                raise
            future.cancel()
            raise TimeoutError(f"not done within {timeout:g} s") from None

    def close(self) -> None:
        """Cancel running coroutines and end the loop; another ``wait`` begins a new loop."""
        with self._lock:
            if self._loop and self._thread:
                asyncio.run_coroutine_threadsafe(_cancelled(), self._loop).result()
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._loop.close()
            self._loop = self._thread = None


async def _cancelled() -> None:
    """Cancel running tasks and wait until they have released their resources."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


# Agents whose requests fail at the same time; beyond that the oldest is forgotten.
_MOST_AGENTS = 1000


@dataclass(kw_only=True)
class Breaker:
    """Refuses calls while open, after ``threshold`` identical failures in a row, for ``cooldown`` seconds.

    After the cool-down one call may try; its success closes the breaker.
    """

    threshold: int = 10
    cooldown: float = 30.0
    clock: Callable[[], float] = time.monotonic
    _signature: str = field(default="", init=False)
    _count: int = field(default=0, init=False)
    _open_until: float | None = field(default=None, init=False)
    _succeeded_at: float = field(default=float("-inf"), init=False)
    _why: str = field(default="", init=False)

    def refusal(self) -> str | None:
        """Return why no call may go now, or None. After the cool-down the first caller is the trial."""
        if self._open_until is None:
            return None
        if self.clock() < self._open_until:
            return self._why
        self._open_until = self.clock() + self.cooldown
        return None

    def succeeded(self) -> None:
        self._signature, self._count, self._open_until = "", 0, None
        self._succeeded_at = self.clock()

    def abandoned(self) -> None:
        """Note a call that this side gave up. If it was the trial, the next call may be one."""
        if self._open_until is not None:
            self._open_until = self.clock()

    def failed(self, signature: str, detail: str, *, fatal: bool = False, started: float | None = None) -> None:
        """Count a failure of the server or the network, with a ``signature`` that is equal for identical ones.

        ``fatal``: every further call would fail too, such as for a wrong key. ``started`` is when the call began, by the breaker's
        clock: a server that has answered others since then is not down, and the failure does not count.
        """
        if started is not None and started < self._succeeded_at:
            return
        self._count = self._count + 1 if signature == self._signature else 1
        self._signature = signature
        if fatal:
            self._why = f"not asked, because the judge cannot be used: {detail}"
        elif self._count >= self.threshold:
            self._why = f"not asked after {self._count} identical failures in a row: {detail}"
        else:
            return
        self._open_until = self.clock() + self.cooldown


class AgentBreakers:
    """A ``Breaker`` for each agent, so that one agent's failing requests do not stop the others."""

    def __init__(self, *, threshold: int = 10, cooldown: float = 30.0) -> None:
        self._threshold, self._cooldown = threshold, cooldown
        self._of: dict[str, Breaker] = {}

    def refusal(self, agent_id: str) -> str | None:
        """Return why no request of this agent may go now, or None."""
        breaker = self._of.get(agent_id)
        return breaker.refusal() if breaker else None

    def succeeded(self, agent_id: str) -> None:
        self._of.pop(agent_id, None)

    def failed(self, agent_id: str, detail: str) -> None:
        """Count a request of this agent that the endpoint rejected."""
        breaker = self._of.pop(agent_id, None) or Breaker(threshold=self._threshold, cooldown=self._cooldown)
        breaker.failed("request", detail)
        self._of[agent_id] = breaker
        if len(self._of) > _MOST_AGENTS:
            del self._of[next(iter(self._of))]
