"""A local server that speaks the Messages API over real sockets: messages, token counts, batches and models.

It runs in a thread of its own, checks every request, simulates prompt caching and answers with what a handler says.

    with MessagesServer() as server:                          # deterministic verdicts, derived from each request
        options = ModelOptions(base_url=server.url, api_key=SecretStr("test"))
        ...
        assert server.paid == 3 and not server.problems

    MessagesServer(latency=0.3)                               # every answer takes 300 ms
    MessagesServer(handler=lambda call: message("no JSON"))   # your own answer; `call.body` is the request
    server.script(status(529), Reset(), Hang(), ANSWER)       # what happens to the next requests, in order
    server.always(status(500))                                # what happens to all of them from now on

A handler or script returns a ``Reply`` (``message()``, ``status()``, or one of your own), one of the faults ``Reset``,
``Hang``, ``Trickle``, ``Cut``, or ``ANSWER`` for the server's own verdicts on proposition questions. Other questions need
a handler.
"""

import asyncio
import contextlib
import json
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self

from tests.support.dialects import DIALECTS
from tests.support.messages_api import Batches, Meter, model_info, prompt_tokens
from tests.support.messages_replies import (
    ANSWER,
    Call,
    Cut,
    Handler,
    Hang,
    Outcome,
    Reply,
    Reset,
    Trickle,
    message,
    send,
    status,
    verdicts,
)
from tests.support.protocols import PROTOCOLS, Protocol
from tests.support.rate_limits import RateLimits
from tests.support.waiting import wait_until

__all__ = [
    "ANSWER",
    "Call",
    "Cut",
    "Handler",
    "Hang",
    "MessagesServer",
    "Outcome",
    "Reply",
    "Reset",
    "Trickle",
    "message",
    "status",
    "verdicts",
]


class MessagesServer:
    """See the module.

    Args:
        protocol: whose it speaks, see ``protocols`` and ``dialects``; its URL, calls and handlers are the same for all.

    Attributes:
        calls: every request to ``/v1/messages``, in the order of arrival.
        paid: answers to ``/v1/messages`` that were sent in full with status 200.
        problems: what was wrong with requests; such a request gets 400.
        seen: headers and body of every request, those that were refused among them.
        connections: how many were opened.
        busiest: the most requests that were under way at once.
        batches: the message batches, see ``messages_api.Batches``.
        models: what is said when a model is asked about: changed fields, or a whole reply.
        usage: what the answers charged, summed.
        throttle_above: with more requests than this under way, further ones get 529; None: never.
        counts_tokens: whether the input of a request is counted for nothing.
        limits: requests and tokens a minute beyond which they get 429; None: no limits.
    """

    def __init__(
        self,
        handler: Handler | None = None,
        *,
        latency: float = 0.0,
        structured_output: bool = True,
        protocol: str = "anthropic",
    ) -> None:
        self.protocol: Protocol = (PROTOCOLS | DIALECTS)[protocol]
        self.handler: Handler = handler or (lambda call: ANSWER)
        self.latency = latency
        self.structured_output = structured_output
        self.calls: list[Call] = []
        self.requests: list[tuple[str, str]] = []
        self.seen: list[str] = []
        self.problems: list[str] = []
        self.paid: int = 0
        self.busiest: int = 0
        self.connections: int = 0
        self._meter = Meter()
        self.usage: dict[str, int] = self._meter.total
        self.batches: Batches = Batches()
        self.models: Reply | dict[str, Any] = {}
        self._script: deque[Outcome] = deque()
        self._always: Outcome | None = None
        self._answers_left: int | None = None
        self._changed = asyncio.Event()
        self._answering: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._loop = asyncio.new_event_loop()
        self.throttle_above: int | None = None
        self.limits: RateLimits | None = None
        self.counts_tokens = True
        self._thread = threading.Thread(target=self._run, name="messages-server", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}{self.protocol.base_path}"

    @property
    def under_way(self) -> int:
        """Requests that have come and have no answer yet."""
        return len(self._answering)

    def script(self, *outcomes: Outcome) -> None:
        """Set what happens to the next requests for messages; afterwards the handler is asked again."""
        self._script.extend(outcomes)

    def always(self, outcome: Outcome | None) -> None:
        """Set what happens to every request for messages that is not scripted; None asks the handler."""
        self._always = outcome

    def answer_only(self, total: int | None) -> None:
        """Answer until so many are paid in all; later requests wait. None: no limit."""

        def change() -> None:
            self._answers_left = None if total is None else total - self.paid
            self._wake()

        self._on_loop(change)

    def drop_unanswered(self) -> None:
        """Close every connection opened so far, also of those that nobody has seen yet: what was asked there gets no answer."""
        with socket.create_connection(("127.0.0.1", self._port)) as last:
            # Connections are taken in the order in which they came, so once this one is seen all before it are.
            wait_until(lambda: last.getsockname() in self._serving, pause=0.001)

            def change() -> None:
                for task in list(self._serving.values()):
                    task.cancel()

            self._on_loop(change)

    def __enter__(self) -> Self:
        ready = threading.Event()
        self._ready = ready
        self._thread.start()
        ready.wait(120)
        return self

    def __exit__(self, *_: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)

    def _on_loop(self, action: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            action()
            done.set()

        self._loop.call_soon_threadsafe(run)
        done.wait(120)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**20, backlog=1024)
        )
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        for writer in list(self._writers):
            writer.transport.abort()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        peer, serving = writer.get_extra_info("peername"), asyncio.current_task()
        assert serving is not None
        self._serving[peer] = serving
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                method, path, headers = _parse_head(head)
                raw = await reader.readexactly(int(headers.get("content-length", 0)))
                answering = asyncio.ensure_future(self._respond(writer, method, path, headers, raw))
                self._answering.add(answering)
                self.busiest = max(self.busiest, len(self._answering))
                try:
                    await answering
                finally:
                    self._answering.discard(answering)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            self._serving.pop(peer, None)
            with contextlib.suppress(Exception):
                writer.close()

    async def _respond(
        self, writer: asyncio.StreamWriter, method: str, path: str, headers: dict[str, str], raw: bytes
    ) -> None:
        self.requests.append((method, path))
        self.seen.append(f"{headers} {raw!r}")
        try:
            body = json.loads(raw) if raw else None
        except ValueError as error:
            self.problems.append(f"{path}: the body is not JSON: {error}")
            await send(writer, status(400, "invalid_request_error"))
            return
        asked = self.protocol.request(method, path, headers, body, raw)
        problems = [f"{path}: {problem}" for problem in asked.problems]
        path, body = asked.path, asked.body
        self.problems.extend(problems)
        if problems:
            await self._send(writer, status(400, "invalid_request_error"))
            return
        if (method, path) != ("POST", "/v1/messages"):
            await self._send(writer, self._other(method, path, body))
            return
        call = Call(method, path, headers, raw, body, len(self.calls))
        self.calls.append(call)
        if not self.structured_output and "output_config" in call.body:
            await self._send(writer, status(400, "invalid_request_error"))
            return
        if self.throttle_above is not None and len(self._answering) > self.throttle_above:
            await self._send(writer, status(529, "overloaded_error"))
            return
        limits: dict[str, str] = {}
        if self.limits is not None:
            prefix, rest = prompt_tokens(call.body)
            admitted, limits = self.limits.admit({"requests": 1, "input-tokens": rest + (prefix[1] if prefix else 0)})
            if not admitted:
                await self._send(writer, replace(status(429, "rate_limit_error"), headers=limits))
                return
        outcome = self._outcome(call)
        if limits and isinstance(outcome, Reply):
            outcome = replace(outcome, headers={**limits, **outcome.headers})
        await asyncio.sleep(self.latency)
        await self._wait_for_leave()
        await self._send(writer, outcome)
        if isinstance(outcome, Reply) and outcome.status == 200:
            self.paid += 1

    async def _send(self, writer: asyncio.StreamWriter, outcome: Outcome) -> None:
        await send(writer, self.protocol.reply(outcome))

    async def _wait_for_leave(self) -> None:
        while self._answers_left is not None and self._answers_left <= 0:
            await self._changed.wait()
        if self._answers_left is not None:
            self._answers_left -= 1

    def _outcome(self, call: Call) -> Outcome:
        outcome = self._script.popleft() if self._script else self._always or self.handler(call)
        inner = outcome.reply if isinstance(outcome, (Trickle, Cut)) else outcome
        if not isinstance(inner, Reply) or inner.status != 200:
            return outcome
        if inner is ANSWER:
            inner = message(json.dumps(verdicts(call.body)), model=call.body["model"])
        if isinstance(inner.body, dict) and inner.body.get("usage") == "measured":
            inner = replace(inner, body=inner.body | {"usage": self._meter.measure(call.body, inner.body)})
        return replace(outcome, reply=inner) if isinstance(outcome, (Trickle, Cut)) else inner

    def _other(self, method: str, path: str, body: Any) -> Outcome:
        if path.startswith("/v1/models/"):
            if isinstance(self.models, Reply):
                return self.models
            return Reply(model_info(path.removeprefix("/v1/models/")) | self.models)
        if path == "/v1/messages/count_tokens" and self.counts_tokens:
            prefix, rest = prompt_tokens(body)
            return Reply({"input_tokens": rest + (prefix[1] if prefix else 0)})
        if path.startswith("/v1/messages/batches"):
            found = self.batches.handle(method, path, body, lambda params: self._batched(params), self.url)
            if found is not None:
                reply = found if isinstance(found, (Reply, Reset, Hang)) else Reply(found)
                broken = self.batches.break_results
                return broken(reply) if broken and path.endswith("/results") else reply
        return status(404, "not_found_error")

    def _batched(self, params: Mapping[str, Any]) -> dict[str, Any]:
        call = Call("POST", "/v1/messages", {}, b"", params, len(self.calls))
        outcome = self._outcome(call)
        return outcome.body if isinstance(outcome, Reply) else {}


def _parse_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    method, target, _ = first.split(" ")
    path, _, query = target.partition("?")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return method, path, {**headers, ":query": query}
