"""The page of a session, served to a browser."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from socket import create_server

import uvicorn

from persona_pipeline.guard.labels.page.app import create_app
from persona_pipeline.guard.labels.session import Labelling

TOKEN = "t0ken"


@contextmanager
def served(session: Labelling) -> Iterator[str]:
    """Serve a session and give the address as the command prints it."""
    listening = create_server(("127.0.0.1", 0))
    config = uvicorn.Config(create_app(session, TOKEN), ws="none", access_log=False, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/#token={TOKEN}"
    finally:
        server.should_exit = True
        thread.join(10)
