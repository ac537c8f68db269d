"""Labelling a voice: what is asked, in the session and on the page."""

from datetime import timedelta
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from persona_pipeline.base.settings import get_settings
from persona_pipeline.cli.app import app
from persona_pipeline.guard.labels import check, voice
from persona_pipeline.guard.labels import session as sessions
from persona_pipeline.guard.labels.files import LABELS, write_label_files
from persona_pipeline.guard.labels.session import VoiceLabelling
from persona_pipeline.guard.labels.voice import VoiceLabel, load_voice_labels
from persona_pipeline.world.models import Message, Persona
from persona_pipeline.world.world import World
from tests.labels.voices import HALF, START, labels, message
from tests.viewer.serving import client_of, labelling_app

PERSONA = Persona("ann", "Ann", "A pirate.")


def session(folder: Path, count: int = 60, seed: int = 0) -> VoiceLabelling:
    talks = [
        [message(n, n % 2 == 0), Message(f"u{n}", "kim", "And then?", START, f"talk-{n // 4}")] for n in range(count)
    ]
    return VoiceLabelling(folder, PERSONA, talks, "ada", seed)


def on(asked: Message) -> bool:
    return int(asked.id[1:]) % 2 == 0


def test_half_by_lot_and_once_there_is_a_check_half_in_doubt(tmp_path: Path) -> None:
    running = session(tmp_path)
    asked = []
    while (current := running.current()) is not None:
        asked.append(current.message.id)
        running.answer(current.key, on(current.message))
    assert sorted(asked) == sorted({f"m{n}" for n in range(60)})
    chosen = {label.message: label.chosen for label in load_voice_labels(tmp_path)}
    first, rest = ([chosen[name] for name in part] for part in (asked[:32], asked[40:]))
    assert set(first) == {"random"}
    assert rest[1::2] == ["uncertain"] * 10
    assert rest[::2] == ["random"] * 10


def test_the_check_is_learnt_at_every_eighth_answer_and_the_file_read_when_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = (START + timedelta(seconds=number) for number in count())
    monkeypatch.setattr(voice, "datetime", Mock(now=lambda _: next(moments)))
    write_label_files(VoiceLabel, tmp_path, labels(HALF))
    learnt, read = Mock(wraps=check._learnt), Mock(wraps=sessions.load_label_files)
    monkeypatch.setattr(check, "_learnt", learnt)
    monkeypatch.setattr(sessions, "load_label_files", read)
    check.learn_check.cache_clear()
    running = session(tmp_path, count=80)
    for _ in range(16):
        current = running.current()
        assert current is not None
        running.answer(current.key, on(current.message))
        running.progress()
    assert learnt.call_count == 3
    assert read.call_count == 17


def test_the_same_seed_asks_the_same_and_another_does_not(tmp_path: Path) -> None:
    first, same, other = (session(tmp_path, seed=seed).current() for seed in (1, 1, 2))
    assert first == same != other


def test_skipped_comes_last_and_what_is_taken_back_next(tmp_path: Path) -> None:
    running = session(tmp_path, count=3)
    first = running.current()
    assert first is not None
    running.skip(first.key)
    second = running.current()
    assert second is not None
    assert second != first
    running.answer(second.key, True, "aye")
    assert running.last is not None and running.last.label is not None
    undone = running.undo()
    assert undone is not None and undone.item == second
    assert running.current() == second
    assert load_voice_labels(tmp_path) == []
    running.answer(second.key, False)
    third = running.current()
    assert third is not None
    running.answer(third.key, False)
    assert running.current() == first


def test_the_page_asks_on_or_off(tmp_path: Path) -> None:
    client = client_of(labelling_app(tmp_path, session(tmp_path)))
    state = client.get("/label/api/state").json()
    assert [item["value"] for item in state["answers"]] == ["on", "off"]
    assert state["item"]["claim"] == "Does the last message sound like Ann?"
    assert state["item"]["transcript"][-1]["id"] == state["item"]["key"]
    key = state["item"]["key"]
    assert client.post("/label/api/answer", json={"key": key, "answer": 7}).status_code == 422
    after = client.post("/label/api/answer", json={"key": key, "answer": "off", "note": "stiff"}).json()
    assert (after["last"]["answer"], after["progress"][0]["done"]) == ("off", 1)
    back = client.post("/label/api/undo").json()
    assert (back["item"]["key"], back["item"]["note"]) == (key, "stiff")
    assert client.post("/label/api/skip", json={"key": key}).json()["item"]["key"] != key
    assert client.post("/label/api/answer", json={"key": "m999", "answer": "on"}).status_code == 404


@pytest.fixture
def root(sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERSONA_ROOT", str(sample_root))
    get_settings.cache_clear()
    return sample_root


def test_labels_of_a_voice_are_listed_and_exported(root: Path, tmp_path: Path) -> None:
    world = World.open(root)
    world.sync()
    running = VoiceLabelling(root / LABELS, world.persona("pam"), [world.messages(agent_id="pam")], "ada", 0)
    for is_on in (True, False):
        current = running.current()
        assert current is not None
        running.answer(current.key, is_on)
    world.store.close()
    listed = CliRunner().invoke(app, ["labels", "list", "--voice"])
    assert "pam" in listed.stdout
    assert "says nothing" in listed.stderr
    path = tmp_path / "voice.csv"
    assert CliRunner().invoke(app, ["labels", "export", "--voice", "--output", str(path)]).exit_code == 0
    before = (root / LABELS / "voice.jsonl").read_bytes()
    (root / LABELS / "voice.jsonl").unlink()
    assert CliRunner().invoke(app, ["labels", "import", "--voice", str(path)]).exit_code == 0
    assert (root / LABELS / "voice.jsonl").read_bytes() == before
    assert CliRunner().invoke(app, ["validate", str(root / LABELS / "voice.jsonl")]).exit_code == 0


@pytest.mark.parametrize(
    "options", [[], ["pam", "--kind", "model"], ["pam", "--newest"], ["pam", "--dimension", "fluency"]]
)
def test_what_does_not_go_with_voice_is_said(root: Path, options: list[str]) -> None:
    done = CliRunner().invoke(app, ["label", *options, "--voice"])
    assert done.exit_code != 0
    assert "label AGENT --voice" in str(done.exception) + done.output
