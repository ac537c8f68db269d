"""Messages and agents that change after they were read: what each agent is evaluated on then, and who is evaluated again."""

import json
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from persona_pipeline.world import World
from persona_pipeline.world.messages.files import parse_message
from persona_pipeline.world.messages.store import Selection, remove_messages, select_messages, write_messages
from tests.defs.support import Project, metadata_of, rows_of
from tests.support.worlds import replace_in, write_jsonl, write_yaml

ALL = "messages/all.jsonl"


def row(message_id: str, text: str, at: str, agent_id: str = "ann") -> dict[str, str]:
    return {"id": message_id, "agent_id": agent_id, "channel": "general", "text": text, "created_at": at}


def add(root: Path, name: str, *rows: dict[str, str]) -> None:
    write_jsonl(root / "messages" / name, rows)


def duplicate(root: Path) -> None:
    (root / "messages" / "copy.jsonl").write_bytes((root / ALL).read_bytes())


def drop_last_line(root: Path) -> None:
    lines = (root / ALL).read_text(encoding="utf-8").splitlines(keepends=True)
    (root / ALL).write_text("".join(lines[:-1]), encoding="utf-8")


def written_by_a_runtime(root: Path) -> None:
    world = World.open(root)
    write_messages(world.store, [parse_message(row("late", "I forgot.", "2026-03-08T09:00:00Z"))])
    world.store.close()


def appended(root: Path) -> None:
    with (root / ALL).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(row("new", "One more.", "2026-03-11T12:00:00Z")) + "\n")


def written_in_sql(root: Path) -> None:
    with sqlite3.connect(root / ".persona/store.db") as connection:
        connection.execute(
            "INSERT OR REPLACE INTO run_messages (id, agent_id, channel_id, text, created_at) "
            "VALUES ('sql', 'ann', 'general', 'By hand.', '2026-03-08 09:00:00.000000')"
        )
    connection.close()


def taken_out(root: Path) -> None:
    world = World.open(root)
    remove_messages(world.store, select_messages(world.store, Selection(ids=["m6"])))
    world.store.close()


def rename(root: Path) -> None:
    (root / "personas" / "ann.yaml").unlink()
    write_yaml(root / "personas" / "anna.yaml", {"display_name": "Ann", "persona": "Dry.", "aliases": ["ANN"]})


def alias(root: Path) -> None:
    add(root, "annie.jsonl", row("n", "Under another name.", "2026-03-10T12:00:00Z", "Annie"))
    write_yaml(root / "personas" / "ann.yaml", {"display_name": "Ann", "persona": "Dry.", "aliases": ["annie"]})


def break_one_of_fifty(root: Path) -> None:
    for n in range(50):
        add(root, f"day-{n:02}.jsonl", row(f"d{n}", f"Remark {n}.", f"2026-03-10T12:{n:02}:00Z"))
    (root / "messages" / "day-07.jsonl").write_text("{broken", encoding="utf-8")
    (root / "messages" / "day-08.jsonl").write_bytes(b"\xff\xfe")


def grow(root: Path) -> None:
    """Say more, change what was said, and lose somebody else: each of them in other messages."""
    duplicate(root)
    written_by_a_runtime(root)
    appended(root)
    written_in_sql(root)
    add(root, "f.jsonl", row("f", "Soon.", "2099-01-01T00:00:00Z"))
    replace_in(root / ALL, "You oiled", "They oiled")
    (root / "personas" / "bob.yaml").unlink()


def shrink(root: Path) -> None:
    drop_last_line(root)
    taken_out(root)


@pytest.mark.parametrize(
    ("change", "agent_id", "ids"),
    [
        (grow, "ann", "late m4 m6 m8 new sql"),
        (shrink, "ann", "m4"),
        (rename, "anna", "m4 m6 m8"),
        (alias, "ann", "m4 m6 m8 n"),
        (break_one_of_fifty, "ann", " ".join(["m4 m6 m8", *(f"d{n}" for n in range(50) if n not in (7, 8))])),
    ],
)
def test_what_changed_is_read_as_it_is_now(
    settled: Project, change: Callable[[Path], object], agent_id: str, ids: str
) -> None:
    change(settled.root)
    assert settled.agents_requested() == [agent_id]
    result = settled.evaluate(agent_id, ("personas", "messages"))
    assert result.success
    found = metadata_of(result, "messages")
    world = World.open(settled.root)
    window = (found["window_start"].value, found["window_end"].value)
    start, end = (datetime.fromisoformat(str(moment)) for moment in window)
    said = [message.id for message in world.messages(agent_id=agent_id) if start < message.created_at <= end]
    world.store.close()
    assert sorted(said) == sorted(ids.split())
    assert found["dagster/row_count"].value == len(said)
    assert end <= datetime.now(UTC)


def test_the_messages_asset_shows_a_name_that_is_nearly_an_agents(small: Project) -> None:
    write_yaml(small.root / "personas" / "michael.yaml", {"display_name": "Michael", "persona": "Michael is loud."})
    add(small.root, "more.jsonl", row("x", "My mug!", "2026-03-10T12:00:00Z", "Micheal"))
    small.observe()
    part = ("personas", "messages")
    events = small.evaluate_all(part).get_asset_materialization_events()
    told = [item.partition for item in events if item.asset_key == dg.AssetKey("messages")
            and "names_that_do_not_match" in item.step_materialization_data.materialization.metadata]  # fmt: skip
    assert told == ["michael"]
    shown = metadata_of(small.evaluate("michael", part), "messages")["names_that_do_not_match"]
    [doubtful, silent] = [row["what"] for row in rows_of(shown)]
    assert "did you mean 'michael'?" in doubtful
    assert "'michael' has a persona and no messages" in silent
    alone = metadata_of(small.evaluate("ann", part), "messages")
    assert "names_that_do_not_match" not in alone
