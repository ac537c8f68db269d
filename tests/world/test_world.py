"""A world's files in its store."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.world import Message, Window, World
from persona_pipeline.world.messages.store import read_messages, write_messages
from persona_pipeline.world.personas import load_persona
from tests.support.worlds import ingest, replace_in, write_jsonl, write_yaml


def test_sync_mirrors_the_message_files(small_world: World) -> None:
    small_world.sync()
    week = Window(end=datetime(2026, 3, 11, 12, tzinfo=UTC), start=datetime(2026, 3, 4, 12, tzinfo=UTC))
    assert [m.id for m in small_world.messages(week)] == ["m4", "m5", "m6", "m7", "m8"]
    assert [m.id for m in small_world.messages(week, agent_id="ann")] == ["m4", "m6", "m8"]
    assert small_world.newest_message_time() == datetime(2026, 3, 11, 12, tzinfo=UTC)
    assert len(small_world.messages()) == 8
    path = small_world.root / "messages" / "all.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines[1:], "{broken"]), encoding="utf-8")
    result = small_world.sync()
    assert [str(problem) for problem in result.problems] == [
        "messages/all.jsonl:8: is not JSON (Expecting property name enclosed in double quotes); write one object a line"
    ]
    assert "m1" not in {message.id for message in small_world.messages()}
    assert small_world.sync().problems == result.problems, "an unchanged file still has its problems"
    path.unlink()
    small_world.sync()
    assert small_world.messages() == []


def test_ingested_messages_stay_when_files_change(small_world: World, tmp_path: Path) -> None:
    small_world.sync()
    row = {"id": "x", "agent_id": "visitor", "channel": "c", "text": "hello", "created_at": "2026-03-11T09:00:00Z"}
    ingest(small_world, write_jsonl(tmp_path / "extra.jsonl", [row]))
    (small_world.root / "messages" / "all.jsonl").unlink()
    small_world.sync()
    assert [message.id for message in small_world.messages()] == ["x"]
    assert small_world.display_names()["visitor"] == "visitor"


def test_what_was_said_in_one_second_is_in_one_order_on_every_database(store: Store) -> None:
    noon = datetime(2026, 3, 11, 12, tzinfo=UTC)
    ids = ["a-2", "B", "a", "é", "a-10", "_", "A"]
    write_messages(store, [Message(name, "ann", "hi", noon, "general") for name in ids])
    assert [message.id for message in read_messages(store)] == ["A", "B", "_", "a", "a-10", "a-2", "é"]
    assert [message.id for message in read_messages(store, limit=2)] == ["a-2", "é"]


def test_a_folder_without_personas_is_no_world(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it has no personas folder"):
        World.open(tmp_path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("display_name: Ann", "ann.yaml:1:1: persona is required"),
        ("display_name: ''\npersona: x", "ann.yaml:1:15: display_name: must not be empty"),
        ("display_name: Ann\npersona: 5", "ann.yaml:2:10: persona: must be a string"),
        ("display_name: Ann\npersona: x\nagent_id: bob", "ann.yaml:3:11: agent_id 'bob' is not the file's name"),
        ("display_name: Ann\npersona: x\npersonna: y", "ann.yaml:3:1: unknown key 'personna'; did you mean 'persona'?"),
        (
            "display_name: Ann\npersona: x\ncorrections: {action_gate_treshold: 4}",
            "ann.yaml:3:15: unknown key 'action_gate_treshold'; did you mean 'action_gate_threshold'?",
        ),
        ("display_name: Ann\npersona: x\ncorrections: {action_gate_enabled: 'yes'}", "must be true or false"),
        ("display_name: Ann\npersona: x\ncorrections: {action_gate_threshold: .nan}", "ann.yaml:3:38"),
        ("- a", "ann.yaml:1:1: the file: must be a mapping"),
    ],
)
def test_a_broken_persona_is_placed(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "personas").mkdir()
    (tmp_path / "personas" / "ann.yaml").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        load_persona(tmp_path, "ann")
    assert says in str(error.value)


def test_an_id_that_could_leave_the_folder_is_refused_and_an_unknown_one_told_the_nearest(small_root: Path) -> None:
    for agent_id in ("../../etc/passwd", "CON.x", "a/b", "", "A", "a" * 65, "a\x00", "-a"):
        with pytest.raises(ConfigError, match="is not allowed"):
            load_persona(small_root, agent_id)
    with pytest.raises(ConfigError, match="did you mean 'ann'"):
        load_persona(small_root, "anne")


def test_correction_settings_follow_the_file_until_they_are_set_elsewhere(small_world: World) -> None:
    config = tables.agent_evaluation_config
    path = small_world.root / "personas" / "ann.yaml"
    write_yaml(path, {"display_name": "Ann", "persona": "x", "corrections": {"action_gate_enabled": True}})
    small_world.sync()

    def enabled() -> bool:
        with small_world.store.connect() as connection:
            query = sa.select(config.c.action_gate_enabled).where(config.c.agent_id == "ann")
            return connection.execute(query).scalar_one()

    assert enabled()
    replace_in(path, "true", "false")
    small_world.sync()
    assert not enabled()
    with small_world.store.begin() as connection:
        connection.execute(sa.update(config).values(action_gate_enabled=True, source="api"))
    small_world.sync()
    assert enabled(), "what was set by a person is not taken back by a file"


def test_two_spellings_of_one_file_are_an_error(small_world: World) -> None:
    text = (small_world.root / "personas" / "ann.yaml").read_text(encoding="utf-8")
    (small_world.root / "personas" / "ann.yml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="keep one of the two"):
        small_world.sync()
