"""``ingest`` from the shell: standard input, several sources, formats, and keys that are mapped."""

import json
import subprocess
import sys
from pathlib import Path

from tests.importing.samples import SAMPLES, TEXTS
from tests.support.worlds import write_jsonl

LINE = {"who": {"id": "ann"}, "room": "general", "body": [{"type": "text", "text": "hi"}], "at": 1772355600, "n": 1}
MAPPED = ["who.id=agent_id", "room=channel", "body=text", "at=created_at", "n=id"]


def ingest(root: Path, *arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "persona_pipeline", "ingest", *arguments]
    environment = {"PERSONA_ROOT": str(root), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, input=said, capture_output=True, text=True, env=environment, check=False)


def test_a_pipe_several_sources_and_keys_of_ones_own(small_root: Path, tmp_path: Path) -> None:
    maps = [part for item in MAPPED for part in ("--map", item)]
    done = ingest(
        small_root, "-", *maps, said=json.dumps(LINE) + "\n" + json.dumps({**LINE, "n": 2, "at": None}) + "\n"
    )
    assert done.stdout == "1 added, 0 changed, 0 known, 1 left out\n", done.stderr
    assert (done.returncode, "stdin:2: created_at is missing" in done.stderr) == (2, True)
    sources = [str(SAMPLES[name](tmp_path / name, len(TEXTS))) for name in ("slack", "openai", "sillytavern")]
    done = ingest(small_root, *sources, "--map", "bob=ann")
    assert (done.returncode, done.stdout) == (0, "15 added, 0 changed, 0 known, 0 left out\n"), done.stderr
    assert "no messages: 1 channel_join" in done.stderr
    assert "chats.jsonl: read as openai" in done.stderr
    done = ingest(small_root, *sources, "--map", "bob=ann")
    assert (done.returncode, done.stdout) == (0, "0 added, 0 changed, 15 known, 0 left out\n")


def test_what_is_not_clear_is_said_before_anything_is_written(small_root: Path, tmp_path: Path) -> None:
    good = SAMPLES["openai"](tmp_path, 2)
    odd = write_jsonl(tmp_path / "odd.jsonl", [{"foo": 1}])
    done = ingest(small_root, str(good), str(odd))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{odd}: is of no format that is known by its look" in done.stderr
    done = ingest(small_root, str(good), "--map", "bob=anne")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no personas/anne.yaml; did you mean 'ann'?" in done.stderr
    done = ingest(small_root, str(good), "--format", "opnai")
    assert (done.returncode, "did you mean 'openai'" in done.stderr) == (2, True)
    assert ingest(small_root, str(good)).stdout == "2 added, 0 changed, 0 known, 0 left out\n"
