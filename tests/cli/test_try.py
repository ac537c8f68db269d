"""``try`` from the shell: every format, its exit codes, and the world that it leaves."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from persona_pipeline.base.documents.json import rfc3339
from persona_pipeline.world.models import Message
from tests.first.worlds import drifted, lines_of, support, together
from tests.importing.samples import SAMPLES, TEXTS
from tests.support.command_line import Done, in_process
from tests.support.forking import forked_python
from tests.support.waiting import PATIENCE
from tests.support.worlds import write_jsonl

KEYS = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
NO_STORE = "postgresql://127.0.0.1:9/none"
Persona = Callable[..., Done]


@pytest.fixture
def persona(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Persona:
    """Run a command as a stranger does: in a folder of his own, with a key that must not be used."""

    def run(folder: Path, *arguments: str, stdin: str = "") -> Done:
        command = in_process(folder, monkeypatch, capsys)
        with monkeypatch.context() as patched:
            patched.delenv("PERSONA_ROOT")
            patched.chdir(folder)
            for name, value in KEYS.items():
                patched.setenv(name, value)
            if arguments[0] == "try":
                patched.setenv("PERSONA_DATABASE_URL", NO_STORE)
            patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
            return command(*arguments)

    return run


def in_a_process(folder: Path, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``try`` as ``persona`` does, in a process of its own."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), **KEYS}
    environment["PERSONA_DATABASE_URL"] = NO_STORE
    command = [forked_python(), "-m", "persona_pipeline", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, input=stdin, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


def as_chats(path: Path, messages: Sequence[Message], *, timed: bool = True) -> Path:
    talks: dict[str, list[Message]] = {}
    for item in messages:
        talks.setdefault(item.conversation, []).append(item)

    def turn(item: Message) -> dict[str, str]:
        time = {"created_at": rfc3339(item.created_at)} if timed else {}
        return {"role": "assistant", "name": item.agent_id, "content": item.text, **time}

    return write_jsonl(path, [{"id": place, "messages": list(map(turn, said))} for place, said in talks.items()])


@pytest.mark.parametrize("name", SAMPLES)
def test_every_format_is_recognised_and_leaves_a_world(persona: Persona, name: str, tmp_path: Path) -> None:
    (given := tmp_path / "given").mkdir()
    source = SAMPLES[name](given, len(TEXTS))
    done = persona(tmp_path, "try", str(source), "--output", "world", "--json")
    assert done.returncode == 3, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["result"], facts["messages"], [*facts["formats"].values()]) == ("cannot_tell", 5, [name])
    # Slack says of no message of the sample that it is a bot's, the project's own format never does.
    both = name in ("messages", "slack")
    # Claude's export names nobody.
    person, agent = ("user", "assistant") if name == "claude" else ("ann", "bob")
    assert [item["name"] for item in facts["agents"]] == (["ann", "bob"] if both else [agent])
    assert facts["people"] == ({} if both else {person: 3})
    assert (tmp_path / "world" / "personas" / f"{agent}.yaml").is_file()
    checked = persona(tmp_path / "world", "validate")
    assert checked.returncode == 0, checked.stderr


def test_a_drift_is_told_in_ten_seconds_and_its_world_goes_on(persona: Persona, tmp_path: Path) -> None:
    names = {"de": "Jürgen", "ar": "سارة", "ja": "美咲"}
    export = as_chats(tmp_path / "chats.jsonl", together(*(drifted(code, name) for code, name in names.items())))
    done = in_a_process(tmp_path, "try", export.name)
    assert (done.returncode, done.stderr) == (1, "")
    shown = done.stdout.splitlines()
    findings = [number for number, line in enumerate(shown) if "sounds like a support desk's courtesies: " in line]
    assert findings == [0, 5, 10]
    assert all(any(name in shown[at] for at in findings) for name in names.values())
    assert all(
        line.startswith(("Since 13 June 2026 ", "Since 12 June 2026 ")) for line in (shown[at] for at in findings)
    )
    assert [line[:10] for line in shown[1:5]] == ["  before  ", "  now     "] * 2
    assert "Voices: Closest" in done.stdout
    assert re.search(
        r"^  persona-pipeline since 2026-06-1\dT\S+ --window all --judge anthropic --record$", done.stdout, re.M
    )
    assert (again := persona(tmp_path, "try", export.name)).returncode == 2
    assert "chats-world: is there already" in again.stderr
    world = tmp_path / "chats-world"
    assert persona(world, "validate").returncode == 0
    evaluated = persona(world, "evaluate", "--format", "json")
    assert evaluated.returncode == 3, evaluated.stderr
    assert len(json.loads(evaluated.stdout)["agents"]) == 3


def test_thinking_in_front_of_messages_changes_nothing(persona: Persona, tmp_path: Path) -> None:
    said = drifted("en", "Bram")
    thoughts = ("<think>\nBe helpful.\n</think>\n\n", "I must apologise.</think>", "<reasoning>So.</reasoning> ")
    looked = []
    for name, thinking in (("plain", ("",)), ("thinking", thoughts)):
        rows = [
            {"id": item.id, "agent_id": item.agent_id, "channel": item.channel, "created_at": rfc3339(item.created_at)}
            | {"text": thinking[place % len(thinking)] + item.text}
            for place, item in enumerate(said)
        ]
        write_jsonl(tmp_path / name / "messages.jsonl", rows)
        done = persona(tmp_path / name, "try", "messages.jsonl", "--json")
        looked.append((done.returncode, done.stdout.replace(name, "")))
    assert looked[0] == looked[1]
    assert looked[0][0] == 1


def test_nothing_found_is_zero_and_a_half_that_cannot_be_read_is_not(persona: Persona, tmp_path: Path) -> None:
    export = as_chats(tmp_path / "chats.jsonl", support("de", lines_of("de")), timed=False)
    done = persona(tmp_path, "try", export.name, "--output", "whole")
    assert (done.returncode, done.stdout.startswith("Nothing found: "), done.stderr) == (0, True, "")
    assert "has no times" in done.stdout
    with export.open("a", encoding="utf-8") as stream:
        stream.write('{"messages": \n' * 20)
    done = persona(tmp_path, "try", export.name, "--output", "half")
    assert (done.returncode, done.stdout.startswith("Cannot be told: ")) == (3, True)
    assert "chats.jsonl:41: is not JSON" in done.stderr
    assert "Not read: 20 lines of 180" in done.stdout
    assert done.stderr.splitlines()[0].endswith("(19 more like it, up to line 60)")


FORMATS = "(messages, openai, chatgpt, claude, discord, slack, langfuse, langsmith, sillytavern, otlp, table)"
UNREADABLE = [
    (b"", "read as messages; say what it is with --format"),
    (bytes(range(256)) * 20, "bad.jsonl: "),
    (b'{"foo": 1}\n', FORMATS),
    ("grüße".encode("latin-1") * 9, "bad.jsonl: is not UTF-8"),
]


def test_what_cannot_be_read_is_said_and_leaves_nothing(persona: Persona, tmp_path: Path) -> None:
    for data, said in UNREADABLE:
        (tmp_path / "bad.jsonl").write_bytes(data)
        done = persona(tmp_path, "try", "bad.jsonl")
        # An empty file is nothing to look at; the others are bad input.
        assert (done.returncode, done.stdout) == (2 if data else 3, ""), done.stderr
        assert said in done.stderr and "Traceback" not in done.stderr, done.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["bad.jsonl"]


def test_a_pipe_one_message_and_a_name_that_is_chosen(persona: Persona, tmp_path: Path) -> None:
    line = json.dumps({"who": "Ann", "room": "a", "body": "hi", "at": 1772355600, "n": 1})
    maps = [
        part
        for item in ("who=agent_id", "room=channel", "body=text", "at=created_at", "n=id", "Ann=Bo")
        for part in ("--map", item)
    ]
    done = in_a_process(tmp_path, "try", "-", *maps, "--agent", "bo", "-v", stdin=line)
    assert (done.returncode, "  Bo (" in done.stdout) == (3, True), done.stdout + done.stderr
    assert (tmp_path / "stdin-world" / "personas" / "bo.yaml").is_file()
    assert persona(tmp_path, "try", "-", *maps, "--agent", "bob", "--output", "x", stdin=line).returncode == 2


def test_a_folder_with_things_in_it_is_not_touched(persona: Persona, tmp_path: Path) -> None:
    export = as_chats(tmp_path / "chats.jsonl", support("de", lines_of("de")[:3]))
    (tmp_path / "mine").mkdir()
    assert persona(tmp_path, "try", export.name, "--output", "mine").returncode == 3
    kept = tmp_path / "mine" / "personas" / "de.yaml"
    kept.write_text("mine", encoding="utf-8")
    done = persona(tmp_path, "try", export.name, "--output", "mine")
    assert (done.returncode, kept.read_text(encoding="utf-8")) == (2, "mine")
    assert "name another folder with --output" in done.stderr


def test_a_helpdesks_table_goes_straight_to_results_and_its_world_remembers(persona: Persona, tmp_path: Path) -> None:
    rows = [
        f"{n};{who};{n + 1}.03.2026 09:00;{text}" for n in range(5) for who, text in (("Zoë", "Wo?"), ("Otto", "Da."))
    ]
    text = "\n".join(["Ticketnummer;Wer;Erstellt am;Nachricht", *rows])
    (tmp_path / "desk.csv").write_bytes(text.encode("utf-16"))
    done = persona(tmp_path, "try", "desk.csv", "--map", "Wer=agent_id", "--agent", "Otto")
    assert done.returncode == 3, done.stderr
    assert "People: 1, with 5 messages" in done.stdout and "Zoë" not in done.stdout
    world = tmp_path / "desk-world"
    written = (world / "persona.yaml").read_text(encoding="utf-8")
    assert "Wer: agent_id" in written and "people:\n- Zoë" in written
    assert persona(world, "validate").returncode == 0
    # The next export needs no option, and nobody is new.
    done = persona(world, "ingest", "../desk.csv")
    assert (done.returncode, "without a persona" in done.stderr) == (0, False), done.stderr
