"""What every request passes first: an id, a host and token check, and a limit on its body."""

import asyncio
import hmac
import json
import logging
import re
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_BODY_SECONDS = 10.0
_OPEN_PATHS = frozenset({"/health", "/openapi.json"})
_LOGGER = logging.getLogger("persona_pipeline.corrections.service")


@dataclass(frozen=True)
class Access:
    """Who may call.

    Attributes:
        token: the bearer token of every request except for health and the API description; None: no token is asked for, and
            only requests addressed to this machine by name are served, so that no web page reaches it by another name.
        max_body: bytes.
    """

    token: str | None = None
    max_body: int = 1024 * 1024


class Boundary:
    """ASGI middleware around the whole application."""

    def __init__(self, app: "ASGIApp", access: Access) -> None:
        self._app, self._access = app, access

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

        try:
            refusal = self._refusal(scope["path"], headers)
            if refusal is None:
                body = await self._body(headers, receive)
                refusal = body if isinstance(body, _Refusal) else None
                if refusal is None:
                    await self._app(scope, _replay(body, receive), send_with_id)
            if refusal is not None:
                await _respond(refusal, send_with_id)
        finally:
            milliseconds = (time.perf_counter() - started) * 1000
            path = scope["path"].encode("unicode_escape").decode("ascii")
            _LOGGER.info("%s %s %s %.1f ms %s", scope["method"], path, status, milliseconds, request_id)

    def _refusal(self, path: str, headers: dict[str, str]) -> "_Refusal | None":
        if self._access.token is None:
            if _host_name(headers.get("host", "")) not in _LOOPBACK_NAMES:
                return _Refusal(421, "this service answers requests to localhost only; set a token to open it")
            return None
        if path in _OPEN_PATHS:
            return None
        scheme, _, token = headers.get("authorization", "").partition(" ")
        matches = hmac.compare_digest(token.strip().encode("utf-8"), self._access.token.encode("utf-8"))
        if scheme.lower() == "bearer" and matches:
            return None
        return _Refusal(
            401, "send the service's token as Authorization: Bearer ...", ((b"www-authenticate", b"Bearer"),)
        )

    async def _body(self, headers: dict[str, str], receive: "Receive") -> "bytes | _Refusal":
        limit = self._access.max_body
        too_large = _Refusal(413, f"the body is larger than {limit:,} bytes")
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > limit:
            return too_large
        body = bytearray()
        try:
            async with asyncio.timeout(_BODY_SECONDS):
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
            return _Refusal(408, f"the body did not arrive within {_BODY_SECONDS:g} seconds")


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


def _host_name(host: str) -> str:
    """The host header without its port; an IPv6 address without its brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
