"""``ingest`` from the shell: standard input, several sources, formats, and keys that are mapped."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.importing.samples import SAMPLES, TEXTS
from tests.support.command_line import Cli, in_process
from tests.support.worlds import write_jsonl

LINE = {"who": {"id": "ann"}, "room": "general", "body": [{"type": "text", "text": "hi"}], "at": 1772355600, "n": 1}
MAPPED = ["who.id=agent_id", "room=channel", "body=text", "at=created_at", "n=id"]


@pytest.fixture
def ingest(small_root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return partial(in_process(small_root, monkeypatch, capsys), "ingest")


def test_a_pipe_whose_keys_are_ones_own(small_root: Path) -> None:
    maps = [part for item in MAPPED for part in ("--map", item)]
    lines = json.dumps(LINE) + "\n" + json.dumps({**LINE, "n": 2, "at": None}) + "\n"
    command = [sys.executable, "-m", "persona_pipeline", "ingest", "-", *maps]
    environment = {"PERSONA_ROOT": str(small_root), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, input=lines, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout == "1 added, 0 changed, 0 known, 1 left out\n", done.stderr
    assert (done.returncode, "stdin:2: created_at is missing" in done.stderr) == (2, True)


def test_several_sources_of_several_formats(ingest: Cli, tmp_path: Path) -> None:
    sources = [str(SAMPLES[name](tmp_path / name, len(TEXTS))) for name in ("slack", "openai", "sillytavern")]
    done = ingest(*sources, "--map", "bob=ann")
    assert (done.returncode, done.stdout) == (0, "15 added, 0 changed, 0 known, 0 left out\n"), done.stderr
    assert "no messages: 1 channel_join" in done.stderr
    assert "chats.jsonl: read as openai" in done.stderr
    done = ingest(*sources, "--map", "bob=ann")
    assert (done.returncode, done.stdout) == (0, "0 added, 0 changed, 15 known, 0 left out\n")


def test_what_is_not_clear_is_said_before_anything_is_written(ingest: Cli, tmp_path: Path) -> None:
    good = SAMPLES["openai"](tmp_path, 2)
    odd = write_jsonl(tmp_path / "odd.jsonl", [{"foo": 1}])
    done = ingest(str(good), str(odd))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{odd}: is of no format that is known by its look" in done.stderr
    done = ingest(str(good), "--map", "bob=anne")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no personas/anne.yaml; did you mean 'ann'?" in done.stderr
    done = ingest(str(good), "--format", "opnai")
    assert (done.returncode, "did you mean 'openai'" in done.stderr) == (2, True)
    assert ingest(str(good)).stdout == "2 added, 0 changed, 0 known, 0 left out\n"
