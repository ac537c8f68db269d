"""The page, served to a browser or asked in the process."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from socket import create_server
from typing import TYPE_CHECKING

import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from persona_pipeline.viewer.app import create_app
from persona_pipeline.world.world import World

if TYPE_CHECKING:
    from playwright.sync_api import Dialog, Page

TOKEN = "t0ken"
BASE = "http://127.0.0.1:8000"
KEY = {"authorization": f"Bearer {TOKEN}"}


def viewing_app(world: World, labeller: str = "ada") -> FastAPI:
    """Return the page of a world."""
    return create_app(world, labeller, TOKEN)


def client_of(app: FastAPI) -> TestClient:
    """Return who may see everything, and follows no address by itself."""
    return TestClient(app, base_url=BASE, headers=KEY, follow_redirects=False)


def listen(page: "Page", base: str, odd: list[str]) -> None:
    """Note whatever a page complains of, and whatever it asks for elsewhere."""

    def dismiss(dialog: "Dialog") -> None:
        odd.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    page.on("console", lambda message: odd.append(message.text))
    page.on("pageerror", lambda error: odd.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(base) else odd.append(request.url))


def is_odd(text: str) -> bool:
    """Whether a test has to fail for it: the icon is no request, and a refusal is what a test wanted."""
    return not text.startswith(("data:,", "Failed to load resource"))


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """Serve the page and give its address up to the path; the key is ``TOKEN``."""
    listening = create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, ws="none", access_log=False, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
