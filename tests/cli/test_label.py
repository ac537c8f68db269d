"""``label``: what it refuses, and the page as the command serves it."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import get_settings
from persona_pipeline.cli.app import app


@pytest.fixture
def root(sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERSONA_ROOT", str(sample_root))
    get_settings.cache_clear()
    return sample_root


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--labeller", "a b"), "'a b' cannot name a labeller"),
        (("--kind", "robot"), "--kind 'robot' is neither 'person' nor 'model'"),
    ],
)
def test_who_labels_is_checked_first(root: Path, options: tuple[str, ...], says: str) -> None:
    done = CliRunner().invoke(app, ["label", "pam", *options])
    assert isinstance(done.exception, ConfigError) and says in str(done.exception)
    assert not (root / "labels").exists()


def test_nothing_judged_is_said(small_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONA_ROOT", str(small_root))
    get_settings.cache_clear()
    done = CliRunner().invoke(app, ["label", "--labeller", "ada"])
    assert "nothing of this is judged yet; run persona-pipeline evaluate" in str(done.exception)


@pytest.mark.enable_socket
def test_the_command_serves_the_page_on_this_machine(root: Path) -> None:
    command = [sys.executable, "-m", "persona_pipeline", "label", "--labeller", "ada"]
    environment = {**os.environ, "PERSONA_ROOT": str(root), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as running:
        try:
            assert running.stdout is not None
            found = re.fullmatch(r"Label at (http://127\.0\.0\.1:\d+/label/)\?key=(\S+)\n", running.stdout.readline())
            assert found is not None
            request = urllib.request.Request(f"{found[1]}api/state", headers={"Authorization": f"Bearer {found[2]}"})
            with urllib.request.urlopen(request, timeout=120) as response:
                state = json.load(response)
        finally:
            running.terminate()
    assert (state["labeller"], state["kind"]) == ("ada", "person")
    assert [item["judged"] for item in state["progress"]] == [90, 32, 36, 72, 54]
