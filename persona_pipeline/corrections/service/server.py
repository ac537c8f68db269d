"""The HTTP server around the application: who connects and says nothing holds nobody up."""

import os
import socket
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from persona_pipeline.corrections.service.boundary import ARRIVED
from persona_pipeline.errors import ConfigError

if TYPE_CHECKING:
    import asyncio

    from fastapi import FastAPI

_BACKLOG = 2048
# File descriptors for all but connections: the store, the judge, logs.
_SPARE_FILES = 256


@dataclass(frozen=True)
class Limits:
    """What the server bears.

    Attributes:
        header_seconds: in which the head of a request must be there, from the connection or its first byte on.
        connections: open at once, of all clients.
        connections_per_address: of one address; a unix socket has none.
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
    limits: Limits | None = None,
) -> None:
    """Serve until the process is told to stop.

    Args:
        unix_socket: listen there instead, for this user alone.

    Raises:
        ConfigError: the address or the path cannot be listened on.
    """
    limits = _within_files(limits or Limits())
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=guarded_protocol(limits),
        ws="none",
        access_log=False,
        backlog=_BACKLOG,
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=32 * 1024,
    )
    listening = _listen_unix(unix_socket) if unix_socket else None
    # A signal ends the process in here; the socket's file stays, and the next start takes it over.
    uvicorn.Server(config).run(sockets=None if listening is None else [listening])


def guarded_protocol(limits: Limits) -> type[H11Protocol]:
    """Return uvicorn's HTTP protocol with a time limit for heads and limits on connections, counted over all that it makes."""
    open_by_address: Counter[str] = Counter()

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
                transport.abort()
                return
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
                self._first_byte = time.monotonic()
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

        def _give_up(self) -> None:
            self._head_timer = None
            self.transport.abort()

        def _forget_timer(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

    return Guarded


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


def _within_files(limits: Limits) -> Limits:
    """Limits that leave file descriptors for the rest of the service; the process may first raise its own."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + _SPARE_FILES
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    most = max(16, soft - _SPARE_FILES)
    return Limits(limits.header_seconds, min(limits.connections, most), min(limits.connections_per_address, most))
