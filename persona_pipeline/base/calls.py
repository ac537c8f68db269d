"""Calls that leave this process: made by code that waits, and not made any more where they keep failing."""

import asyncio
import inspect
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
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


def positional_arguments(call: Callable[..., Any], named: Mapping[str, Any]) -> list[Any]:
    """Return what a function's positional parameters stand for, by name; a first one of another name gets the first of ``named``.

    Raises ``ValueError``: a further one without a default has no such name.
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
    """When what happened to a call, on the monotonic clock: begun, sent for the last time, first heard of, and answered."""

    asked: float = field(default_factory=time.monotonic)
    sent: float | None = None
    first: float | None = None
    ended: float | None = None

    async def follow(self, event: str, _: Any) -> None:
        """Hear what the HTTP client does (its ``trace``): a request counts from when it goes out over an open connection."""
        if event.endswith("send_request_headers.started"):
            self.sent = time.monotonic()

    def heard_piece(self) -> None:
        self.first = time.monotonic() if self.first is None else self.first


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
        """Return what a coroutine returns; TimeoutError: it took longer than ``timeout`` seconds (None: any), and was cancelled."""
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


# Agents whose requests fail at the same time; beyond that the oldest is forgotten.
_MOST_AGENTS = 1000


class Breaker:
    """Refuses calls while open, after ``threshold`` identical failures in a row, for ``cooldown`` seconds.

    After the cool-down one call may try; its success closes the breaker.
    """

    def __init__(
        self, *, threshold: int = 10, cooldown: float = 30.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.threshold = threshold
        self.cooldown = cooldown
        self._clock = clock
        self._signature = ""
        self._count = 0
        self._open_until: float | None = None
        self._succeeded_at = float("-inf")
        self._why = ""

    def refusal(self) -> str | None:
        """Return why no call may go now, or None. Past the cool-down the first to ask is the trial."""
        if self._open_until is None:
            return None
        if self._clock() < self._open_until:
            return self._why
        self._open_until = self._clock() + self.cooldown
        return None

    def succeeded(self) -> None:
        self._signature, self._count, self._open_until = "", 0, None
        self._succeeded_at = self._clock()

    def abandoned(self) -> None:
        """The call under way was given up for a reason of our own: if it was the trial, the next one may be."""
        if self._open_until is not None:
            self._open_until = self._clock()

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
        self._open_until = self._clock() + self.cooldown


class AgentBreakers:
    """A ``Breaker`` for each agent: what is wrong with one agent's requests stops no other's."""

    def __init__(self, *, threshold: int = 10, cooldown: float = 30.0) -> None:
        self._threshold, self._cooldown = threshold, cooldown
        self._of: OrderedDict[str, Breaker] = OrderedDict()

    def refusal(self, agent_id: str) -> str | None:
        """Return why no request of this agent may go now, or None."""
        breaker = self._of.get(agent_id)
        return breaker.refusal() if breaker else None

    def succeeded(self, agent_id: str) -> None:
        self._of.pop(agent_id, None)

    def failed(self, agent_id: str, detail: str) -> None:
        """Count a request of this agent that the endpoint will not have."""
        breaker = self._of.get(agent_id) or Breaker(threshold=self._threshold, cooldown=self._cooldown)
        breaker.failed("request", detail)
        self._of[agent_id] = breaker
        self._of.move_to_end(agent_id)
        while len(self._of) > _MOST_AGENTS:
            self._of.popitem(last=False)
