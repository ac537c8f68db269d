"""An agent behind HTTP on this machine, for tests of targets that ask servers."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest


class Agent:
    """A server that keeps what it got and answers what it is told, one reply after the other; the last again and again."""

    def __init__(self) -> None:
        self.replies: list[tuple[int, Any, dict[str, str]]] = [(200, {"text": "ok"}, {})]
        self.got: list[tuple[str, str, dict[str, str], bytes]] = []
        self.connections: set[Any] = set()
        agent = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                content = self.rfile.read(int(self.headers.get("content-length") or 0))
                agent.got.append((self.command, self.path, dict(self.headers), content))
                agent.connections.add(self.client_address)
                status, body, headers = agent.replies[0] if len(agent.replies) == 1 else agent.replies.pop(0)
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in {"content-length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = answer  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def agent() -> Iterator[Agent]:
    found = Agent()
    thread = Thread(target=found.server.serve_forever, args=(0.01,))
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()
