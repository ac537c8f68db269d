"""The server as it is run: half-open connections, limits of connections, a unix socket."""

import json
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from persona_pipeline.world import World

BODY = json.dumps({"agent_id": "ann", "text": "hi", "channel": "general"}).encode()
GATE = b"POST /v1/gate HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"


@contextmanager
def service(world: World, *options: str) -> Iterator[int]:
    """Run ``corrections serve`` on a free port, which is given."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    environment = os.environ | {"PERSONA_ROOT": str(world.root), "PERSONA_DATABASE_URL": str(world.store.engine.url)}
    code = "from persona_pipeline.cli import main; main()"
    arguments = ["corrections", "serve", "--judge", "recorded", "--port", str(port), *options]
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], env=environment, stderr=subprocess.DEVNULL)
    try:
        _wait(lambda: socket.create_connection(("127.0.0.1", port), 1).close(), options)
        yield port
    finally:
        process.terminate()
        process.wait(10)


def _wait(connect, options: tuple[str, ...]) -> None:
    path = options[options.index("--unix-socket") + 1] if "--unix-socket" in options else None
    for _ in range(300):
        try:
            if path is None:
                connect()
            else:
                unix(path).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the service does not start")


def unix(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def answer(connection: socket.socket, request: bytes) -> bytes:
    connection.settimeout(10)
    connection.sendall(request)
    received = b""
    while part := connection.recv(65536):
        received += part
    return received


def health(port: int) -> float:
    """Return how many seconds /health took."""
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        said = answer(connection, b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    assert b" 200 " in said.split(b"\r\n")[0], said
    return time.monotonic() - started


def closed(connection: socket.socket, seconds: float) -> bool:
    connection.settimeout(seconds)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_four_hundred_half_sent_heads_hold_nobody_up_and_are_closed(world: World) -> None:
    with service(world, "--header-timeout", "1") as port, ExitStack() as stack:
        half = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(400)]
        for number, connection in enumerate(half):
            connection.sendall((b"", b"G", b"GET /health HTTP/1.1\r\nhost: loc")[number % 3])
        assert max(health(port) for _ in range(5)) < 1.0
        assert all(closed(connection, 4.0) for connection in half)
        assert health(port) < 1.0


def test_a_head_that_trickles_after_an_answer_is_closed_too(world: World) -> None:
    with service(world, "--header-timeout", "1") as port, socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        connection.settimeout(5)
        assert b"200" in connection.recv(65536)
        started = time.monotonic()
        for letter in b"GET /health HTTP/1.1 and it never ends":
            try:
                connection.sendall(bytes([letter]))
            except OSError:
                break
            if closed(connection, 0.1):
                break
        assert time.monotonic() - started < 3


def test_one_address_has_no_more_than_its_connections(world: World) -> None:
    with service(world, "--connections-per-address", "5") as port, ExitStack() as stack:
        several = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(8)]
        time.sleep(0.3)
        assert [closed(connection, 0.2) for connection in several] == [False] * 5 + [True] * 3
        for connection in several:
            connection.close()
        time.sleep(0.3)
        assert health(port) < 1.0


def test_on_a_unix_socket_this_user_alone_is_served(world: World, tmp_path: Path) -> None:
    path = tmp_path / "gate.sock"
    with service(world, "--unix-socket", str(path)):
        pass
    with service(world, "--unix-socket", str(path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with unix(str(path)) as connection:
            said = answer(connection, GATE + f"content-length: {len(BODY)}\r\n\r\n".encode() + BODY)
        assert json.loads(said.partition(b"\r\n\r\n")[2])["text"] == "hi"


@pytest.mark.parametrize("sent", [b"", BODY[:10]], ids=["no body", "half of it"])
def test_a_body_that_does_not_come_is_a_bypass_within_the_deadline(world: World, sent: bytes) -> None:
    with service(world) as port, socket.create_connection(("127.0.0.1", port)) as connection:
        started = time.monotonic()
        said = answer(connection, GATE + f"content-length: {len(BODY)}\r\n\r\n".encode() + sent)
        assert b" 408 " in said.split(b"\r\n")[0]
        assert time.monotonic() - started < 5
        assert b'gate_unchecked_total{reason="slow_request"} 1.0' in metrics(port)


def metrics(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        return answer(connection, b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
