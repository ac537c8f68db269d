"""A server of the project in a thread of this process, over a real socket."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from tests.support.waiting import wait_until


@contextmanager
def serving(app: Any, http: Any = "auto") -> Iterator[str]:
    """Serve an application on a free port and return its address; at the end it stops as it does when it is told to."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, ws="none", access_log=False, log_level="error", http=http))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started or not thread.is_alive(), pause=0.01)
    assert server.started, "the server did not start"
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
