"""HTTP servers of this project: who may connect, for how long and how much, and what every request passes first."""

import asyncio
import hmac
import logging
import os
import re
import socket
import struct
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from starlette.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from persona_pipeline.base.errors import ConfigError

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_THIS_MACHINE = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::\d*)?", re.IGNORECASE)
ARRIVED = "persona_pipeline.arrived"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
GATE_PATH = "/v1/gate"
# A refused request is a text that its agent sends all the same.
_BYPASSES = {
    400: "invalid_request",
    401: "unauthorized",
    408: "slow_request",
    413: "too_large",
    421: "unauthorized",
    422: "invalid_request",
    500: "internal_error",
}
_CONFIGURED_PATHS = ("/v1/agents/",)
_CONFIGURING_READS = ("/v1/agents/", "/v1/statistics", "/metrics")
_OPEN_PATHS = frozenset({"/health", "/openapi.json"})
_LOGGER = logging.getLogger("persona_pipeline.corrections.service")


@dataclass(frozen=True)
class Access:
    """Who may call.

    Attributes:
        token: the bearer token of every request except for health and the API description; None: no token is asked for, and
            only requests addressed to this machine by name are served, so that no web page reaches it by another name.
        max_body: bytes.
        config_token: the bearer token to change settings, and to read them and statistics; None: HTTP changes no settings.
        body_seconds: in which a body must be there.
    """

    token: str | None = None
    max_body: int = 1024 * 1024
    config_token: str | None = None
    body_seconds: float = 4.0


class Boundary:
    """ASGI middleware around the whole application."""

    def __init__(self, app: "ASGIApp", access: Access, bypassed: Callable[[str], None] = lambda reason: None) -> None:
        self._app, self._access, self._bypassed = app, access, bypassed

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        status = 500

        async def send_with_id(message: "Message") -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode("ascii"))]
            await send(message)

        # The server may know better when the request began to arrive.
        scope.setdefault(ARRIVED, time.monotonic())
        try:
            body = self.refusal(scope["method"], scope["path"], headers) or await self._body(headers, receive)
            if isinstance(body, JSONResponse):
                await body(scope, receive, send_with_id)
            else:
                await self._app(scope, _replay(body, receive), send_with_id)
        finally:
            if scope["path"] == GATE_PATH and status in _BYPASSES:
                self._bypassed(_BYPASSES[status])
            milliseconds = (time.perf_counter() - started) * 1000
            path = scope["path"].encode("unicode_escape").decode("ascii")
            _LOGGER.info("%s %s %s %.1f ms %s", scope["method"], path, status, milliseconds, request_id)

    def refusal(self, method: str, path: str, headers: dict[str, str]) -> JSONResponse | None:
        access, host = self._access, headers.get("host", "")
        if {"content-length", "transfer-encoding"} <= headers.keys():
            # A proxy that reads the other header takes the rest of the body for a request.
            detail = "a request has a Content-Length or a Transfer-Encoding, not both"
            return _refused(400, detail, {"connection": "close"})
        if access.token is None and not _THIS_MACHINE.fullmatch(host):
            return _refused(421, "this service answers requests to localhost only; set a token to open it")
        if access.token is None and headers.get("origin") not in (None, f"http://{host}"):
            return _refused(403, "another page sent this request")
        if path in _OPEN_PATHS:
            return None
        configures = method not in ("GET", "HEAD") and path.startswith(_CONFIGURED_PATHS)
        if configures and access.config_token is None:
            return _refused(403, "settings are not changed over HTTP here; start the service with a token for it")
        may = [access.config_token] if path.startswith(_CONFIGURING_READS) or configures else []
        may += [] if configures else [access.token]
        if (access.token is None and not configures) or _bears(headers, may):
            return None
        which = "configuring" if configures else "service's"
        return _refused(401, f"send the {which} token as Authorization: Bearer ...", {"www-authenticate": "Bearer"})

    async def _body(self, headers: dict[str, str], receive: "Receive") -> bytes | JSONResponse:
        limit = self._access.max_body
        too_large = _refused(413, f"the body is larger than {limit:,} bytes")
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > limit:
            return too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._access.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return _refused(400, "the request ended before its body")
                    body += message.get("body", b"")
                    if len(body) > limit:
                        return too_large
                    if not message.get("more_body"):
                        return bytes(body)
        except TimeoutError:
            return _refused(408, f"the body did not arrive within {self._access.body_seconds:g} seconds")


def _refused(status: int, detail: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"detail": detail}, status, headers)


def _replay(body: bytes, receive: "Receive") -> "Receive":
    """Return a receive that gives the body that was read, then what the server says next."""
    delivered = False

    async def replayed() -> "Message":
        nonlocal delivered
        if delivered:
            return await receive()
        delivered = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


def _bears(headers: dict[str, str], tokens: Sequence[str | None]) -> bool:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    own = given.strip().encode("utf-8")
    matches = [hmac.compare_digest(own, token.encode("utf-8")) for token in tokens if token is not None]
    return scheme.lower() == "bearer" and any(matches)


_BACKLOG = 2048
# For requests under way when the process is asked to stop.
_LAST_SECONDS = 30
# File descriptors for all but connections: the store, the judge, logs.
_SPARE_FILES = 256


@dataclass(frozen=True)
class ServerLimits:
    """What the server bears.

    Attributes:
        header_seconds: in which the head of a request must be there, from the connection or its first byte on.
        connections: open at once, of all clients.
        connections_per_address: open at once for an address; a unix socket has no such limit.
    """

    header_seconds: float = 5.0
    connections: int = 2000
    connections_per_address: int = 1000


def serve(
    app: "FastAPI",
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    unix_socket: Path | None = None,
    limits: ServerLimits | None = None,
    turned_away: Callable[[str], None] = lambda reason: None,
) -> None:
    """Serve until the process is asked to stop; ``ConfigError``: the address or the path cannot be listened on.

    Args:
        unix_socket: listen there instead, for this user alone.
        turned_away: called for each connection that is closed before its request, with ``connections`` or ``slow_head``.
    """
    limits = _within_files(limits or ServerLimits())
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=guarded_protocol(limits, turned_away),
        ws="none",
        access_log=False,
        backlog=_BACKLOG,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_LAST_SECONDS,
        h11_max_incomplete_event_size=32 * 1024,
    )
    listening = _listen_unix(unix_socket) if unix_socket else None
    # A signal ends the process in here; the socket's file stays, and the next start takes it over.
    uvicorn.Server(config).run(sockets=None if listening is None else [listening])


def guarded_protocol(
    limits: ServerLimits, turned_away: Callable[[str], None] = lambda reason: None
) -> type[H11Protocol]:
    """Return uvicorn's HTTP protocol with a time limit for heads and limits on connections, counted over all that it makes.

    A connection beyond a limit replaces the oldest one that has not sent a head yet: one of the same address where that exceeds
    its share. Without such a connection the new one is closed.
    """
    open_by_address: Counter[str] = Counter()
    headless: dict[Any, None] = {}

    class Guarded(H11Protocol):
        _address: str | None = None
        _head_timer: "asyncio.TimerHandle | None" = None
        _first_byte: float | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            address = self.client[0] if self.client else ""
            open_by_address[address] += 1
            self._address = address
            too_many = address and open_by_address[address] > limits.connections_per_address
            if too_many or open_by_address.total() > limits.connections:
                turned_away("connections")
                oldest = next((one for one in headless if not too_many or one._address == address), None)
                if oldest is None:
                    transport.abort()
                    return
                oldest._forget_timer()
                oldest.transport.abort()
            self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget_timer()
            if self._address is not None:
                open_by_address[self._address] -= 1
                if not open_by_address[self._address]:
                    del open_by_address[self._address]
                self._address = None
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._first_byte is None:
                self._first_byte = time.monotonic() - _waited(self.transport)
            known = self.scope
            super().data_received(data)
            if self.scope is not known:
                # The task that answers has not run yet.
                self.scope[ARRIVED] = self._first_byte  # pyright: ignore[reportGeneralTypeIssues]
                self._first_byte = None
            if self.transport.is_closing() or self.conn.their_state is not h11.IDLE:
                self._forget_timer()
            elif self._head_timer is None:
                self._await_head()

        def _await_head(self) -> None:
            self._head_timer = self.loop.call_later(limits.header_seconds, self._give_up)
            headless[self] = None

        def _give_up(self) -> None:
            self._forget_timer()
            turned_away("slow_head")
            self.transport.abort()

        def _forget_timer(self) -> None:
            headless.pop(self, None)
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

    return Guarded


# Of Linux's tcp_info, after eight bytes: milliseconds since data came.
_LAST_DATA_RECEIVED = struct.Struct("=8x44xI")


def _waited(transport: Any) -> float:
    """Return the seconds since the system received the latest data; 0 where it does not say."""
    connection = transport.get_extra_info("socket")
    try:
        told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA_RECEIVED.size)
        (milliseconds,) = _LAST_DATA_RECEIVED.unpack(told)
    except (AttributeError, OSError, struct.error):
        return 0.0
    return milliseconds / 1000


def _listen_unix(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket():
            # Of a service that was killed; one that runs would answer.
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                if probe.connect_ex(str(path)) == 0:
                    raise ConfigError(f"{path} is in use; stop the service there or name another path")
            path.unlink()
        before = os.umask(0o177)
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"{path} cannot be listened on ({error.strerror}); check the folder and its permissions"
        ) from error
    except ConfigError:
        listening.close()
        raise
    listening.listen(_BACKLOG)
    return listening


def _within_files(limits: ServerLimits) -> ServerLimits:
    """Limits that leave file descriptors for the rest of the service; the process may first raise its own."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + _SPARE_FILES
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    most = max(16, soft - _SPARE_FILES)
    return ServerLimits(limits.header_seconds, min(limits.connections, most), min(limits.connections_per_address, most))
