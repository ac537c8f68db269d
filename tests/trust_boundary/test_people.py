"""A person who asks to be forgotten: every place is listed, the store is cleaned, files and git are named."""

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from persona_pipeline.base.database import tables
from persona_pipeline.cli.app import app
from persona_pipeline.testing.worlds import write_small_world
from persona_pipeline.world import World

WORDS = "My cousin Lena moved to the house by the canal last spring"
NOW = datetime(2026, 10, 1, tzinfo=UTC)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = write_small_world(tmp_path / "world")
    monkeypatch.setenv("PERSONA_ROOT", str(root))
    (root / ".gitignore").write_text(".persona\n", "utf-8")
    rows = [
        {"id": "p1", "agent_id": "U0123", "channel": "c", "text": WORDS, "created_at": "2026-10-01T09:00:00Z"},
        {"id": "p2", "agent_id": "ann", "channel": "c", "text": "Oh.", "created_at": "2026-10-01T09:01:00Z"}
        | {"in_reply_to_user": "U0123"},
    ]
    (root / "messages" / "more.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (root / "recordings" / "ann").mkdir(parents=True, exist_ok=True)
    (root / "recordings" / "ann" / "notes.txt").write_text(f'{{"quote": "{WORDS}"}}\n', "utf-8")
    for command in (("init", "-q"), ("add", "."), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")):
        subprocess.run(["git", "-C", str(root), *command], check=True, capture_output=True)
    world = World.open(root)
    world.sync()
    world.sync_messages()
    quoting = {
        "evidence": [{"message_id": "p1", "quote": "My cousin"}],
        "reasoning": f'She answers "{WORDS[:30]}" coldly.',
    }
    with world.store.begin() as connection:
        connection.execute(
            sa.insert(tables.suite_runs).values(
                suite="s", suite_hash="h", verdict="pass", result={"said": quoting, "by": "u0123"}
            )
        )
        connection.execute(
            sa.insert(tables.trace_pieces).values(
                trace_id="t", span_id="s", key="span", piece={"user": "U0123"}, received_at=NOW
            )
        )
    world.store.close()
    return root


def forget(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["forget", "--person", "U0123", *arguments])
    assert done.exit_code == 0, done.exception
    return done.output


def test_30_every_place_is_listed_and_the_store_is_cleaned(root: Path) -> None:
    listed = forget()
    for place in (
        "store: messages they wrote: 1",
        "store: run_messages.extras: 1",
        "store: suite_runs.result: 1",
        "store: trace_pieces.piece: 1",
        "messages/more.jsonl: 2 (",
        "recordings/ann/notes.txt: 1 (",
        "git: U0123: 1 (",
    ):
        assert place in listed, listed
    assert "nothing is removed yet" in listed
    stored = root / ".persona" / "store.db"
    assert forget() == listed
    forget("--yes")
    assert WORDS.encode() not in stored.read_bytes() and b'in_reply_to_user": "U0123' not in stored.read_bytes()
    world = World.open(root)
    with world.store.connect() as connection:
        (result,) = connection.execute(sa.select(tables.suite_runs.c.result)).scalars()
        assert connection.execute(sa.select(sa.func.count()).select_from(tables.trace_pieces)).scalar() == 0
    removed = {"evidence": [{"message_id": "p1", "quote": "[removed]"}], "reasoning": "[removed]"}
    assert result == {"said": removed, "by": "[removed]"}
    # Its file is read again and does not bring the message back.
    world.sync_messages()
    assert "p1" not in {message.id for message in world.messages()}
    world.store.close()
    again = forget()
    assert "messages they wrote" not in again and "suite_runs" not in again and "messages/more.jsonl" in again


def test_30_a_name_of_one_letter_is_refused(root: Path) -> None:
    done = CliRunner().invoke(app, ["forget", "--person", "U"])
    assert "stands everywhere" in str(done.exception)
