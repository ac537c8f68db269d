"""``init`` asks three questions on a terminal, and nobody else; the world that comes of it is theirs."""

import json
import os
import pty
import select
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from persona_pipeline.cli.world.checking import check_world
from persona_pipeline.cli.world.setup import _agent_id, _own
from persona_pipeline.world import World
from persona_pipeline.world.personas import is_agent_id, is_name, load_persona
from persona_pipeline.world.world import template_world, write_new
from tests.support.command_line import in_process
from tests.support.forking import forked_python
from tests.support.waiting import PATIENCE
from tests.support.worlds import replace_in

SAID = {"id": "m1", "agent_id": "brack", "channel": "c", "text": "Hello", "created_at": "2026-01-01T00:00:00Z"}


def answered(folder: Path, *answers: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
    """Run ``init`` on a terminal, give each answer when it is asked for, and return exit code and screen."""
    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PERSONA_")}
    process = subprocess.Popen(
        [forked_python(), "-m", "persona_pipeline", "init", "w", *options],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    screen, left, end = "", list(answers), time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if not select.select([ours], [], [], 0.2)[0]:
            continue
        try:
            read = os.read(ours, 4096)
        except OSError:
            break
        if not read:
            break
        screen += read.decode("utf-8", "replace")
        if (
            left
            and screen.rstrip().endswith((":", "]:"))
            and screen.count("? (") + screen.count("Error:") > len(answers) - len(left)
        ):
            os.write(ours, f"{left.pop(0)}\n".encode())
    process.wait(timeout=PATIENCE)
    os.close(ours)
    return process.returncode, screen


def test_three_answers_make_a_world_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "chats.jsonl").write_text(json.dumps(SAID) + "\n", encoding="utf-8")
    code, screen = answered(tmp_path, "Brack", "de", "chats.jsonl")
    assert code == 0, screen
    assert "1 added" in screen and "persona-pipeline evaluate" in screen
    root = tmp_path / "w"
    assert [path.name for path in (root / "personas").iterdir()] == ["brack.yaml"]
    assert load_persona(root, "brack").display_name == "Brack"
    assert "{{agent_name}}" in (root / "propositions/adherence/_default.yaml").read_text("utf-8")
    assert (root / "propositions/adherence/_default.yaml").read_text("utf-8") == template_world("de")[
        "propositions/adherence/_default.yaml"
    ]
    world = World.open(root)
    assert [message.id for message in world.messages()] == ["m1"]
    world.store.close()


def test_enter_three_times_is_the_example(tmp_path: Path) -> None:
    code, screen = answered(tmp_path, "", "", "")
    assert code == 0, screen
    written = {str(path.relative_to(tmp_path / "w")) for path in (tmp_path / "w").rglob("*") if path.is_file()}
    assert written == {*template_world()}


def test_what_cannot_be_is_asked_again(tmp_path: Path) -> None:
    code, screen = answered(tmp_path, "Brack", "sw", "en", "no/such/file", "")
    assert code == 0, screen
    assert "language 'sw'" in screen and "no/such/file does not exist" in screen
    assert (tmp_path / "w" / "personas" / "brack.yaml").exists()


@pytest.mark.parametrize(
    "options", [("--yes",), ("--language", "de"), ("--agent", "Brack"), ("--deploy",)], ids=" ".join
)
def test_who_says_something_is_asked_nothing(tmp_path: Path, options: tuple[str, ...]) -> None:
    code, screen = answered(tmp_path, options=options)
    assert (code, "? (" in screen) == (0, False), screen


def test_messages_that_cannot_be_read_leave_the_world_and_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "chats.jsonl").write_text(json.dumps(SAID) + "\nbroken\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    run = in_process(tmp_path, monkeypatch, capsys)
    done = run("init", "w", "--agent", "Brack", "--messages", "chats.jsonl")
    assert (done.returncode, "chats.jsonl:2" in done.stderr, "1 added" in done.stdout) == (2, True, True)
    written = (tmp_path / "w" / "messages" / "imported.jsonl").read_text(encoding="utf-8")
    assert [json.loads(line) for line in written.splitlines()] == [SAID], "a clone has the messages"
    done = run("init", "v", "--agent", "Brack", "--messages", "gone.jsonl")
    assert done.returncode == 2
    assert "gone.jsonl: does not exist" in done.stderr and "persona-pipeline ingest" in done.stderr
    assert (tmp_path / "v" / "personas" / "brack.yaml").exists()


def test_messages_that_name_the_agent_instead_of_its_id_are_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "chats.jsonl").write_text(json.dumps(SAID | {"agent_id": "Brack O."}) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    run = in_process(tmp_path, monkeypatch, capsys)
    assert run("init", "w", "--agent", "Brack O.", "--messages", "chats.jsonl").returncode == 0
    replace_in(tmp_path / "w" / "personas" / "brack-o.yaml", "Say here who", "Nobody knows who")
    monkeypatch.setenv("PERSONA_ROOT", str(tmp_path / "w"))
    done = run("evaluate", "--window", "all", "--format", "json")
    assert json.loads(done.stdout)["agents"]["brack-o"]["sample_size"] == 1, done.stderr


@pytest.mark.parametrize(
    "name", ["Brack", "Otto", "O'Neill: the #2", "yes", "1e5", "ブラック", "{{agent_name}}", "Ü" * 200]
)
def test_a_world_under_any_name_is_valid(name: str, tmp_path: Path) -> None:
    agent_id = _agent_id(name)
    write_new(tmp_path, _own(template_world(), name, agent_id))
    checked = check_world(tmp_path)
    assert checked.problems == []
    assert [path.stem for path in (tmp_path / "personas").iterdir()] == [agent_id]
    persona = load_persona(tmp_path, agent_id)
    assert persona.display_name == name
    assert name in persona.persona


@given(name=st.text(min_size=1, max_size=256).filter(is_name))
@example(name="-")
def test_every_name_makes_an_id_and_files_that_say_it(name: str) -> None:
    agent_id = _agent_id(name)
    assert is_agent_id(agent_id)
    made = _own(template_world(), name, agent_id)
    assert {path for path in made if "personas/" in path or "messages/" in path} == {f"personas/{agent_id}.yaml"}


def test_a_clone_sees_messages_that_ingest_wrote_into_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world, export = tmp_path / "w", tmp_path / "chats.jsonl"
    export.write_text(json.dumps(SAID | {"agent_id": "Micheal"}) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    run = in_process(world, monkeypatch, capsys)
    assert run("init", "w", "--agent", "Michael", "--yes").returncode == 0
    monkeypatch.setenv("PERSONA_ROOT", str(world))
    command = ("ingest", "chats.jsonl", "--map", "Micheal=michael", "--output", "w/messages/week.jsonl")
    assert run(*command).returncode == 0
    assert json.loads((world / "messages" / "week.jsonl").read_text(encoding="utf-8"))["agent_id"] == "michael"
    again = run(*command)
    assert (again.returncode, "exists already" in again.stderr) == (2, True)
    changed = json.dumps(SAID | {"text": "Something else."})
    (world / "messages" / "other.jsonl").write_text(f"{changed}\n", encoding="utf-8")
    checked = run("validate")
    assert (checked.returncode, f"id '{SAID['id']}' is taken in" in checked.stderr) == (2, True)
