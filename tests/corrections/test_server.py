"""The server as it is run: half-open connections, limits of connections, a unix socket."""

import json
import os
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from persona_pipeline.world import World
from tests.support.clock import LONG
from tests.support.forking import forked_python
from tests.support.waiting import wait_until

BODY = json.dumps({"agent_id": "ann", "text": "hi", "channel": "general"}).encode()
GATE = b"POST /v1/gate HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"


@contextmanager
def service(world: World, *options: str) -> Iterator[int]:
    """Run ``corrections serve`` on a free port, which is given."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    environment = os.environ | {"PERSONA_ROOT": str(world.root), "PERSONA_DATABASE_URL": str(world.store.engine.url)}
    environment["MY_TOKEN"] = "abc"
    code = "from persona_pipeline.cli import main; main()"
    arguments = ["corrections", "serve", "--judge", "recorded", "--port", str(port), *options]
    process = subprocess.Popen([forked_python(), "-c", code, *arguments], env=environment, stderr=subprocess.DEVNULL)
    try:
        path = options[options.index("--unix-socket") + 1] if "--unix-socket" in options else None
        wait_until(lambda: _answers(port, path), pause=0.05)
        yield port
    finally:
        process.terminate()
        process.wait(LONG)


def _answers(port: int, path: str | None) -> bool:
    try:
        (unix(path) if path else socket.create_connection(("127.0.0.1", port), 1)).close()
    except OSError:
        return False
    return True


def unix(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def answer(connection: socket.socket, request: bytes) -> bytes:
    connection.settimeout(LONG)
    connection.sendall(request)
    received = b""
    while part := connection.recv(65536):
        received += part
    return received


def health(port: int) -> float:
    """Return how many seconds /health took."""
    started = time.monotonic()
    assert b" 200 " in _get(port, "/health").split(b"\r\n")[0]
    return time.monotonic() - started


def is_served(port: int) -> bool:
    try:
        return b" 200 " in _get(port, "/health").split(b"\r\n")[0]
    except OSError:
        return False


def _get(port: int, path: str) -> bytes:
    with socket.create_connection(("127.0.0.1", port), LONG) as connection:
        return answer(connection, f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())


def closed(connection: socket.socket, seconds: float) -> bool:
    """Return whether the other side ends the connection; as it is now (0), or within some seconds."""
    connection.settimeout(seconds)
    try:
        return connection.recv(1) == b""
    except (TimeoutError, BlockingIOError):
        return False
    except OSError:
        return True


def half_heads(port: int, stack: ExitStack, count: int) -> list[socket.socket]:
    """Open connections and send each a beginning of a head."""
    half = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(count)]
    for number, connection in enumerate(half):
        connection.sendall((b"", b"G", b"GET /health HTTP/1.1\r\nhost: loc")[number % 3])
    return half


def test_four_hundred_half_sent_heads_hold_nobody_up(world: World) -> None:
    with service(world, "--header-timeout", "3600") as port, ExitStack() as stack:
        half = half_heads(port, stack, 400)
        for _ in range(5):
            health(port)
        assert not any(closed(connection, 0.0) for connection in half), "they are all still there"


def test_heads_that_do_not_come_are_closed_and_one_that_trickles_after_an_answer_too(world: World) -> None:
    with (
        service(world, "--header-timeout", "1") as port,
        ExitStack() as stack,
        socket.create_connection(("127.0.0.1", port)) as connection,
    ):
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        connection.settimeout(LONG)
        assert b"200" in connection.recv(65536)
        half = half_heads(port, stack, 9)
        for letter in b"GET /health HTTP/1.1\r\nx: " + b"and it never ends " * 60:
            try:
                connection.sendall(bytes([letter]))
            except OSError:
                break
            if closed(connection, 0.1):
                break
        else:
            pytest.fail("a head that trickles is waited for")
        assert all(closed(connection, LONG) for connection in half)
        health(port)


def test_one_address_has_no_more_than_its_connections(world: World) -> None:
    with service(world, "--connections-per-address", "5") as port, ExitStack() as stack:
        several = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(8)]
        # The oldest that have asked for nothing yet make room.
        assert all(closed(connection, LONG) for connection in several[:3])
        assert not any(closed(connection, 0.1) for connection in several[3:])
        for connection in several:
            connection.close()
        wait_until(lambda: is_served(port), pause=0.05)


def test_on_a_unix_socket_this_user_alone_is_served_with_the_token_of_the_environment(
    world: World, tmp_path: Path
) -> None:
    path = tmp_path / "gate.sock"
    with service(world, "--unix-socket", str(path)):
        pass
    with service(world, "--unix-socket", str(path), "--token-env", "MY_TOKEN"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for head, status in ((b"", b" 401 "), (b"authorization: Bearer abc\r\n", b" 200 ")):
            with unix(str(path)) as connection:
                said = answer(connection, GATE + head + f"content-length: {len(BODY)}\r\n\r\n".encode() + BODY)
            assert status in said.split(b"\r\n")[0]
        assert json.loads(said.partition(b"\r\n\r\n")[2])["text"] == "hi"


def test_a_body_that_does_not_come_is_a_bypass(world: World) -> None:
    with service(world) as port, ExitStack() as stack:
        assert json.loads(_get(port, "/health").partition(b"\r\n\r\n")[2])["judge"] == "recorded"
        waiting = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(2)]
        for connection, sent in zip(waiting, (b"", BODY[:10]), strict=True):
            connection.sendall(GATE + f"content-length: {len(BODY)}\r\n\r\n".encode() + sent)
        for connection in waiting:
            assert b" 408 " in answer(connection, b"").split(b"\r\n")[0]
        assert b'gate_unchecked_total{reason="slow_request"} 2.0' in _get(port, "/metrics")
