"""The services of ``deploy/compose.yaml`` as processes of this machine: commands, environments and checks as they stand there."""

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.cohort import PROJECT, free_port
from tests.support.docker_engine import DockerEngine
from tests.support.waiting import PATIENCE, wait_until

DEPLOY = PROJECT / "deploy"
# What the image is made with.
FOLDERS = {"/srv/world": "world", "/srv/state": "state"}
# Nothing has a minute to wait for the next look.
_QUICK = {"poll_interval_seconds: 30": "poll_interval_seconds: 1"}
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


@dataclass
class Deployment:
    """A deployment below ``folder``, whose containers share what volumes share. Runs are containers of ``docker``.

    Attributes:
        variables: what ``deploy/.env`` sets.
        overrides: variables of every process whose value names a host of the compose file.
        programs: the folder of Python and of the commands.
    """

    folder: Path
    world: Path
    variables: Mapping[str, str]
    programs: Path
    overrides: Mapping[str, str] = field(default_factory=dict)
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.services = interpolated(load("compose.yaml")["services"], {**example_environment(), **self.variables})
        self.ports = {port: str(free_port()) for port in ("3000", "3001", "4000")}
        self.home = self.folder / "home"
        self.home.mkdir(parents=True)
        for name, replaced in (("dagster.yaml", _QUICK), ("workspace.yaml", {"host: code": "host: 127.0.0.1"})):
            text = (DEPLOY / name).read_text(encoding="utf-8")
            for old, new in replaced.items():
                text = text.replace(old, new)
            (self.home / name).write_text(self._real(text), encoding="utf-8")
        shutil.copytree(self.world, self.folder / "world")
        outside = {key: value for key, value in os.environ.items() if not key.startswith(("PERSONA_", "DAGSTER_"))}
        self.image = {
            **outside,
            **self.overrides,
            "DAGSTER_HOME": str(self.home),
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
        }
        self.docker = DockerEngine(self.home, self.image)

    def environment(self, service: str) -> dict[str, str]:
        """Return the environment of a service's process."""
        given = {name: str(value) for name, value in self.services[service]["environment"].items()}
        for inside, name in FOLDERS.items():
            given = {key: value.replace(inside, str(self.folder / name)) for key, value in given.items()}
        return {**given, **self.image, "DOCKER_HOST": self.docker.url}

    def start(self, service: str) -> None:
        """Start a service's container."""
        command = [self._real(word) for word in self.services[service]["command"]]
        with self.log(service).open("ab") as log:
            self.running[service] = subprocess.Popen(
                command,
                cwd=self.home,
                env=self.environment(service),
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
        self.docker.close()
        for container in [*self.running]:
            with suppress(ProcessLookupError):
                self.kill(container)

    def check(self, service: str) -> bool:
        """Run a service's health check and return whether it passes."""
        command = [self._real(word) for word in self.services[service]["healthcheck"]["test"][1:]]
        done = subprocess.run(
            command,
            cwd=self.home,
            env=self.environment(service),
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
