"""``ingest`` from the shell: standard input, several sources, formats, and keys that are mapped."""

import json
import re
import shlex
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.importing.samples import SAMPLES, TEXTS
from tests.support.command_line import Cli, in_process
from tests.support.forking import forked_python
from tests.support.worlds import write_jsonl

LINE = {"who": {"id": "ann"}, "room": "general", "body": [{"type": "text", "text": "hi"}], "at": 1772355600, "n": 1}
MAPPED = ["who.id=agent_id", "room=channel", "body=text", "at=created_at", "n=id"]


@pytest.fixture
def ingest(small_root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return partial(in_process(small_root, monkeypatch, capsys), "ingest")


def test_a_pipe_whose_keys_are_ones_own(small_root: Path) -> None:
    maps = [part for item in MAPPED for part in ("--map", item)]
    lines = json.dumps(LINE) + "\n" + json.dumps({**LINE, "n": 2, "at": None}) + "\n"
    command = [forked_python(), "-m", "persona_pipeline", "ingest", "-", *maps]
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


TABLE = "Ticket;Von;Nachricht;Wann\n1;Anna;Wo ist es?;{}\n1;Otto;Es kommt.;{}\n"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Answers that a person gives on a terminal; without any, nobody is asked."""
    given: list[str] = []
    monkeypatch.setattr("persona_pipeline.cli.world.messages.is_terminal", lambda: bool(given))
    monkeypatch.setattr("typer.prompt", lambda *_, **__: int(given.pop(0)))
    monkeypatch.setattr("typer.confirm", lambda *_, **__: given.pop(0) == "y")
    return given


def test_a_column_that_is_not_clear_is_asked_once_and_kept(
    ingest: Cli, answers: list[str], small_root: Path, tmp_path: Path
) -> None:
    desk = tmp_path / "desk.csv"
    desk.write_text(TABLE.format("03/04/2026", "04/04/2026"), encoding="utf-8")
    done = ingest(str(desk))
    assert (done.returncode, done.stdout) == (2, "")
    assert "it is unclear which column has the time; the columns are Ticket, Von, Nachricht, Wann" in done.stderr
    # The number of the column, day first, and nobody else is an agent.
    answers += ["4", "y", "y"]
    done = ingest(str(desk))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "2 added, 0 changed, 0 known, 0 left out"), (
        done.stderr
    )
    written = (small_root / "persona.yaml").read_text(encoding="utf-8")
    assert "Wann: created_at:day-first" in written and "people:" in written
    # What is kept is asked of nobody again.
    answers.clear()
    done = ingest(str(desk))
    assert (done.returncode, done.stdout) == (0, "0 added, 0 changed, 2 known, 0 left out\n"), done.stderr
    assert "without a persona" not in done.stderr


def test_errors_and_people_are_counted_and_named_with_v(ingest: Cli, tmp_path: Path) -> None:
    desk = tmp_path / "desk.csv"
    rows = [f"{n},person {n},hi,{'2026-03-01' if n < 40 else 'soon'}\n" for n in range(60)]
    desk.write_text("ticket,author,message,date\n" + "".join(rows), encoding="utf-8")
    done = ingest(str(desk))
    assert (done.returncode, done.stdout) == (2, "40 added, 0 changed, 0 known, 20 left out\n")
    assert f"{desk}:42: date 'soon' is not a time that can be read (19 more like it, up to line 61)" in done.stderr
    assert "without a persona, and so not evaluated: 40 speakers (40 messages)" in done.stderr
    assert "person 7" not in done.stderr
    done = ingest(str(desk), "-v")
    assert done.stderr.count("is not a time that can be read") == 20 and "person 7 (1 message)" in done.stderr


@pytest.mark.parametrize("packed", ["folder", "zip"])
def test_what_is_no_chat_does_not_refuse_the_rest(ingest: Cli, packed: str, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    folder.mkdir()
    SAMPLES["chatgpt"](folder, 5).rename(folder / "conversations-000.json")
    for name in ("user.json", "export_manifest.json"):
        (folder / name).write_text('{"email": "ann@example.com"}', encoding="utf-8")
    (folder / "people.csv").write_text("name,phone\nann,1\n", encoding="utf-8")
    source = folder
    if packed != "folder":
        source = Path(shutil.make_archive(str(tmp_path / "packed"), packed, folder))
    done = ingest(str(source))
    assert done.stdout == "5 added, 0 changed, 0 known, 1 left out\n", done.stderr
    assert done.returncode == 2, "a table may be one of messages"
    assert "not messages: 2 files (" in done.stderr and "user.json" in done.stderr
    (folder / "people.csv").unlink()
    (folder / "conversations-000.json").unlink()
    done = ingest(str(folder))
    assert done.returncode == 3
    assert f"there is nothing to look at: messages in {folder}; it has 2 files of no known format" in done.stderr


def test_one_json_object_says_which_of_its_lists_are_messages(ingest: Cli, tmp_path: Path) -> None:
    chat = {
        "name": "Saved", "id": 7, "type": "personal_chat", "messages": [
            {"id": 1, "type": "service", "date_unixtime": "1772355600", "action": "joined"},
            {"id": 2, "type": "message", "date": "2026-03-01T10:00:00", "date_unixtime": "1772355600", "from": "Bram",
             "from_id": "user1", "text": ["see ", {"type": "link", "text": "https://example.com"}, " now"]},
        ],
    }  # fmt: skip
    path = tmp_path / "result.json"
    path.write_text(json.dumps(chat), encoding="utf-8")
    done = ingest(str(path))
    assert done.returncode == 2 and "its lists of objects are messages (2)" in done.stderr, done.stderr
    # What is advised works.
    advised = re.search(r"to read messages as messages: (--map .*)", done.stderr)
    assert advised, done.stderr
    done = ingest(str(path), *shlex.split(advised[1]))
    assert done.stdout == "1 added, 0 changed, 0 known, 0 left out\n", done.stderr
    assert "1 turn without text" in done.stderr
