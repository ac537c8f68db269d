"""Access control of the page: local host names, requests from the page itself, and holders of the key."""

import hmac
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode

from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BODY = 64 * 1024
# Under this the address that the command prints has the key; the browser keeps it in a cookie from then on.
KEY = "key"
_HOSTS = ("127.0.0.1", "localhost")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode("ascii")),
    (b"x-content-type-options", b"nosniff"),
    # With no-referrer, browsers send the page's own forms with the origin "null".
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_NO_KEY = "Open the address that the command printed: it has the key to this page."


class RequestGuard:
    """ASGI middleware: requests to this machine by name only, from the page itself, and with the key.

    The key comes as a bearer token, or in the address, which is then exchanged for a cookie that scripts cannot read.
    """

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
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        refusal = self._refusal(scope["method"], dict(query), headers)
        answer = self._app
        if refusal is not None:
            status, detail = refusal
            answer = PlainTextResponse(detail, status)
        elif scope["method"] == "GET" and KEY in dict(query):
            answer = PlainTextResponse("", 303, self._admitted(scope, query, headers))
        await answer(scope, receive, send_guarded)

    def _refusal(self, method: str, query: dict[str, str], headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        # Another host name that resolves to this machine is not the page's (DNS rebinding).
        if host.partition(":")[0].lower() not in _HOSTS:
            return 421, "this page answers requests to 127.0.0.1 and localhost only"
        if headers.get("origin") not in (None, f"http://{host}"):
            return 403, "another page sent this request"
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = [bearer if scheme.lower() == "bearer" else "", _cookie(headers, host)]
        given.append(query.get(KEY, "") if method == "GET" else "")
        if not any(self._is_key(text) for text in given):
            return 401, _NO_KEY
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MOST_BODY or "transfer-encoding" in headers:
            return 413, f"a request has at most {MOST_BODY:,} bytes"
        return None

    def _is_key(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "surrogateescape"), self._token.encode("utf-8"))

    def _admitted(self, scope: "Scope", query: list[tuple[str, str]], headers: dict[str, str]) -> dict[str, str]:
        """Return the way to the same page without the key in its address, and the cookie where the key was right."""
        rest = urlencode([pair for pair in query if pair[0] != KEY])
        # Never an address of another host, whatever the path begins with.
        path = "/" + quote(scope["path"].lstrip("/\\"))
        found = {"location": path + (f"?{rest}" if rest else "")}
        if self._is_key(dict(query)[KEY]):
            # Not Strict: a link in a chat or a mail opens the page, too. What changes anything is a POST from the page itself.
            name = _cookie_name(headers["host"])
            found["set-cookie"] = f"{name}={self._token}; Path=/; HttpOnly; SameSite=Lax"
        return found


def _cookie_name(host: str) -> str:
    # Cookies do not depend on the port: two pages on one machine must not share one.
    return f"persona_view_{host.partition(':')[2] or '80'}"


def _cookie(headers: dict[str, str], host: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(_cookie_name(host))
    except CookieError:
        return ""
    return found.value if found else ""
