"""A way for judging programs to ask a target: a server on this machine, for one program, with a token and a number of calls."""

import contextlib
import json
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from persona_pipeline.suites.format.javascript import parse_json

_MOST_BYTES = 10_000_000
_URL, _TOKEN = "TARGET_PROXY_URL", "TARGET_PROXY_TOKEN"


class ProxyError(Exception):
    """A request that is refused; ``status`` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class TargetProxy:
    """Counts calls and passes them on; ``invoke`` raises ``ProxyError`` where there is no answer. Any thread may use it."""

    def __init__(self, target: str, invoke: Callable[[str], str], max_calls: int) -> None:
        self.target, self.max_calls = target, max_calls
        self.token = secrets.token_urlsafe(24)
        self.calls = 0
        self._invoke = invoke
        self._lock = threading.Lock()

    def info(self) -> dict[str, Any]:
        return {"target": self.target, "max_calls": self.max_calls, "calls": self.calls}

    def ask(self, body: Any) -> dict[str, Any]:
        """Return the target's answer to ``{"question": ..., "system_prompt": ...}``.

        Raises:
            ProxyError: the body is no question, the calls are used up, or the target did not answer.
        """
        question = body.get("question", body.get("prompt")) if isinstance(body, dict) else None
        if not isinstance(question, str):
            raise ProxyError(400, "question must be a text")
        system = body.get("system_prompt", body.get("systemPrompt"))
        with self._lock:
            if self.calls >= self.max_calls:
                raise ProxyError(429, f"the {self.max_calls} calls of this judge are used up")
            self.calls += 1
        text = self._invoke(f"{system}\n\n{question}" if isinstance(system, str) and system else question)
        messages = [{"role": "assistant", "content": text}]
        return {"text": text, "output": messages, "rawText": text, "outputMessages": messages}


@contextmanager
def serve(proxy: TargetProxy) -> Iterator[dict[str, str]]:
    """Serve ``GET /info``, ``POST /invoke`` and ``POST /invokeBatch`` on this machine; yield the environment that says where."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(proxy))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield {
            f"{prefix}_{name}": value
            for prefix in ("AGENTV", "PERSONA")
            for name, value in ((_URL, url), (_TOKEN, proxy.token))
        }
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


def _handler(proxy: TargetProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 30

        def do_GET(self) -> None:
            self._reply("/info", lambda: proxy.info())

        def do_POST(self) -> None:
            if self.path == "/invokeBatch":
                self._reply("/invokeBatch", lambda: {"responses": [proxy.ask(item) for item in self._batch()]})
            else:
                self._reply("/invoke", lambda: proxy.ask(self._body()))

        def _batch(self) -> list[Any]:
            body = self._body()
            if not isinstance(body, dict) or not isinstance(body.get("requests"), list):
                raise ProxyError(400, "requests must be a list")
            return body["requests"]

        def _body(self) -> Any:
            length = self.headers.get("content-length", "0")
            if not length.isdigit() or int(length) > _MOST_BYTES:
                raise ProxyError(413, "the request is too large")
            try:
                return parse_json(self.rfile.read(int(length)).decode("utf-8"))
            except ValueError as error:
                raise ProxyError(400, "the request is not JSON") from error

        def _reply(self, path: str, answer: Callable[[], Any]) -> None:
            try:
                given = self.headers.get("authorization", "").removeprefix("Bearer ")
                if not secrets.compare_digest(given.encode(), proxy.token.encode()):
                    raise ProxyError(401, "the token is missing or wrong")
                if self.path != path:
                    raise ProxyError(404, "there is no such address")
                status, data = 200, answer()
            except ProxyError as problem:
                status, data = problem.status, {"error": str(problem)}
            content = json.dumps(data).encode("ascii")
            with contextlib.suppress(OSError):
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: what goes over the wire is the judge's business."""

    return Handler
