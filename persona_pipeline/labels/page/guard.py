"""Who may use the page: a browser on this machine that was given its address, and no other page in it."""

import hmac
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

API = "/api/"
MOST_BODY = 64 * 1024
_HOSTS = ("127.0.0.1", "localhost")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode("ascii")),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class Guard:
    """ASGI middleware: requests to this machine by name only, and to the API only with the token and from the page itself."""

    def __init__(self, app: "ASGIApp", token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: "Message") -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(scope["path"], headers)
        if refusal is None:
            await self._app(scope, receive, send_guarded)
            return
        status, detail = refusal
        body = json.dumps({"detail": detail}).encode("ascii")
        start = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode("ascii"))]
        await send_guarded({"type": "http.response.start", "status": status, "headers": start})
        await send_guarded({"type": "http.response.body", "body": body})

    def _refusal(self, path: str, headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        # A name that somebody made lead here is not the page's.
        if host.partition(":")[0].lower() not in _HOSTS:
            return 421, "this page answers requests to 127.0.0.1 and localhost only"
        if headers.get("origin") not in (None, f"http://{host}"):
            return 403, "another page sent this request"
        if not path.startswith(API):
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.encode("utf-8"), self._token.encode("utf-8")):
            return 401, "open the address that the command printed: it has the key to this page"
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MOST_BODY or "transfer-encoding" in headers:
            return 413, f"a request has at most {MOST_BODY:,} bytes"
        return None
