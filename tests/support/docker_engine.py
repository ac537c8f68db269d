"""The calls of Docker's API that ``DockerRunLauncher`` makes. A container is a process of this machine."""

import json
import os
import re
import signal
import subprocess
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_OF_CONTAINER = re.compile(r"/v[\d.]+/containers/(\w+)/(\w+)")


@dataclass
class Container:
    """What a client asked for, and the process once it was started."""

    asked: Mapping[str, Any]
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None


@dataclass
class DockerEngine:
    """Starts what clients at ``url`` ask for in ``home``, with the variables of the ``image`` below those that are asked for."""

    home: Path
    image: Mapping[str, str]
    containers: dict[str, Container] = field(default_factory=dict)

    def __post_init__(self) -> None:
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or "null")
                status, answer = engine.answered(self.path.partition("?")[0], body)
                payload = json.dumps(answer).encode() if answer is not None else b""
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answered(self, path: str, body: Any) -> tuple[int, Any]:
        """Return the status and the body of an answer."""
        if path == "/version":
            return 200, {"ApiVersion": "1.44", "MinAPIVersion": "1.24"}
        if path.endswith("/containers/create"):
            number = uuid.uuid4().hex
            self.containers[number] = Container(body)
            return 201, {"Id": number, "Warnings": []}
        found = _OF_CONTAINER.fullmatch(path)
        container = self.containers.get(found[1]) if found else None
        # One that ended is removed, as is asked for.
        if found is None or container is None or (container.process and not container.is_running):
            return 404, {"message": "no such container"}
        if found[2] == "json":
            status = "running" if container.is_running else "created"
            return 200, {"Id": found[1], "State": {"Status": status}, "Config": {}}
        if found[2] == "start":
            self._start(container)
        else:
            assert container.process is not None
            container.process.terminate()
        return 204, None

    def _start(self, container: Container) -> None:
        given = dict(item.split("=", 1) for item in container.asked["Env"])
        with (self.home / "runs.log").open("ab") as log:
            container.process = subprocess.Popen(
                container.asked["Cmd"],
                cwd=self.home,
                env={**self.image, **given},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self, container: Container) -> None:
        """Kill a container with all that is in it."""
        assert container.process is not None
        os.killpg(container.process.pid, signal.SIGKILL)
        container.process.wait()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        for container in self.containers.values():
            if container.is_running:
                self.kill(container)
