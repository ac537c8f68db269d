"""What every request passes first: an id, a host and token check, and a limit on its body."""

import asyncio
import hmac
import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
ARRIVED = "persona_pipeline.arrived"
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
        config_token: the bearer token that changes settings, and reads them and statistics; None: nobody changes any over HTTP.
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
            refusal = self._refusal(scope["method"], scope["path"], headers)
            if refusal is None:
                body = await self._body(headers, receive)
                refusal = body if isinstance(body, _Refusal) else None
                if refusal is None:
                    await self._app(scope, _replay(body, receive), send_with_id)
            if refusal is not None:
                await _respond(refusal, send_with_id)
        finally:
            if scope["path"] == GATE_PATH and status in _BYPASSES:
                self._bypassed(_BYPASSES[status])
            milliseconds = (time.perf_counter() - started) * 1000
            path = scope["path"].encode("unicode_escape").decode("ascii")
            _LOGGER.info("%s %s %s %.1f ms %s", scope["method"], path, status, milliseconds, request_id)

    def _refusal(self, method: str, path: str, headers: dict[str, str]) -> "_Refusal | None":
        access = self._access
        if access.token is None and _host_name(headers.get("host", "")) not in _LOOPBACK_NAMES:
            return _Refusal(421, "this service answers requests to localhost only; set a token to open it")
        if path in _OPEN_PATHS:
            return None
        configures = method not in ("GET", "HEAD") and path.startswith(_CONFIGURED_PATHS)
        if configures and access.config_token is None:
            return _Refusal(403, "settings are not changed over HTTP here; start the service with a token for it")
        may = [access.config_token] if path.startswith(_CONFIGURING_READS) or configures else []
        may += [] if configures else [access.token]
        if (access.token is None and not configures) or _bears(headers, may):
            return None
        which = "configuring" if configures else "service's"
        return _Refusal(
            401, f"send the {which} token as Authorization: Bearer ...", ((b"www-authenticate", b"Bearer"),)
        )

    async def _body(self, headers: dict[str, str], receive: "Receive") -> "bytes | _Refusal":
        limit = self._access.max_body
        too_large = _Refusal(413, f"the body is larger than {limit:,} bytes")
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > limit:
            return too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._access.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return _Refusal(400, "the request ended before its body")
                    body += message.get("body", b"")
                    if len(body) > limit:
                        return too_large
                    if not message.get("more_body"):
                        return bytes(body)
        except TimeoutError:
            return _Refusal(408, f"the body did not arrive within {self._access.body_seconds:g} seconds")


@dataclass(frozen=True)
class _Refusal:
    status: int
    detail: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


def _replay(body: "bytes | _Refusal", receive: "Receive") -> "Receive":
    """Return a receive that gives the body that was read, then what the server says next."""
    delivered = False

    async def replayed() -> "Message":
        nonlocal delivered
        if delivered:
            return await receive()
        delivered = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


async def _respond(refusal: _Refusal, send: "Send") -> None:
    body = json.dumps({"detail": refusal.detail}).encode("ascii")
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode("ascii"))]
    await send({"type": "http.response.start", "status": refusal.status, "headers": [*headers, *refusal.headers]})
    await send({"type": "http.response.body", "body": body})


def _bears(headers: dict[str, str], tokens: Sequence[str | None]) -> bool:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    matches = [
        hmac.compare_digest(given.strip().encode("utf-8"), token.encode("utf-8"))
        for token in tokens
        if token is not None
    ]
    return scheme.lower() == "bearer" and any(matches)


def _host_name(host: str) -> str:
    """The host header without its port; an IPv6 address without its brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
