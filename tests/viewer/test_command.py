"""``persona-pipeline view`` as a process of its own: its address lets in, and shows the agents."""

import os
import re
import subprocess
import urllib.request
from pathlib import Path
from socket import create_server
from typing import Any

import pytest
from typer.testing import CliRunner

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import get_settings
from persona_pipeline.cli.app import app
from tests.support.forking import forked_python


@pytest.mark.enable_socket
def test_the_command_serves_the_page_on_this_machine(evaluated: Path) -> None:
    command = [forked_python(), "-m", "persona_pipeline", "view", "--labeller", "ada", "--port", "0"]
    environment = {**os.environ, "PERSONA_ROOT": str(evaluated), "PYTHONUNBUFFERED": "1"}
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, env=environment, **options) as running:
        try:
            assert running.stdout is not None
            found = re.fullmatch(r"Open (http://127\.0\.0\.1:\d+)/\?key=(\S+)\n", running.stdout.readline())
            assert found is not None

            def read(path: str) -> bytes:
                request = urllib.request.Request(found[1] + path, headers={"Authorization": f"Bearer {found[2]}"})
                with urllib.request.urlopen(request, timeout=120) as response:
                    return response.read()

            assert b"3 in character, 1 drifted" in read("/")
        finally:
            running.terminate()


@pytest.mark.enable_socket
def test_a_port_that_is_taken_is_said(evaluated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONA_ROOT", str(evaluated))
    get_settings.cache_clear()
    with create_server(("127.0.0.1", 0)) as taken:
        done = CliRunner().invoke(app, ["view", "--labeller", "ada", "--port", str(taken.getsockname()[1])])
    assert isinstance(done.exception, ConfigError)
    assert "add --port 0" in str(done.exception)
