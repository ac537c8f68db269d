"""Messages that age out: gone from the store, kept out of it, and nothing evaluated on them changes."""

import json
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.testing import ScriptedJudge, WorldBuilder
from persona_pipeline.world import World
from persona_pipeline.world.messages import revision
from persona_pipeline.world.messages.revision import age_out, revisions
from persona_pipeline.world.messages.store import write_messages
from persona_pipeline.world.models import Message
from persona_pipeline.world.runs import touched_windows

NOON = datetime(2026, 6, 20, 12, tzinfo=UTC)


def said(number: int, *, synthetic: bool = False) -> Message:
    """A message of so many days ago."""
    return Message(f"m{number}", "ann", f"text {number}", NOON - timedelta(days=number), "c", synthetic=synthetic)


def ids(world: World) -> set[str]:
    with world.store.connect() as connection:
        return set(connection.execute(sa.select(tables.run_messages.c.id)).scalars())


@pytest.fixture
def world(tmp_path, store, monkeypatch) -> World:
    monkeypatch.setattr(revision, "_ROWS", 2)
    builder = WorldBuilder(tmp_path).persona("ann", "Ann is terse.").claim("adherence", "terse", "Ann is terse")
    return World(builder.root, store, clock=lambda: NOON)


def test_old_days_go_in_batches_and_stay_out_however_they_come_again(world: World) -> None:
    messages = [said(number) for number in range(10)]
    write_messages(world.store, [*messages, said(30, synthetic=True)])
    assert age_out(world.store, 4, now=NOON) == 5
    # The day four days ago is whole.
    kept = {"m0", "m1", "m2", "m3", "m4", "m30"}
    assert ids(world) == kept
    again = write_messages(world.store, messages)
    assert (again.inserted, again.kept_out, again.unchanged) == (0, 5, 5)
    assert ids(world) == kept
    assert age_out(world.store, 4, now=NOON) == 0
    age_out(world.store, 400, now=NOON)
    assert write_messages(world.store, messages).inserted == 5


def test_a_file_that_is_read_again_brings_nothing_back(world: World) -> None:
    path = world.root / "messages/all.jsonl"
    path.parent.mkdir(exist_ok=True)
    rows = [
        {"id": m.id, "agent_id": "ann", "channel": "c", "text": m.text, "created_at": m.created_at.isoformat()}
        for m in map(said, range(9, -1, -1))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    world.sync()
    assert age_out(world.store, 4, now=NOON) == 5
    rows[0]["text"] = "edited: all of the file is read again"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert world.sync().written.kept_out == 5
    assert ids(world) == {"m0", "m1", "m2", "m3", "m4"}


def test_what_was_evaluated_stays_and_is_neither_touched_nor_evaluated_again(world: World) -> None:
    write_messages(world.store, [said(number) for number in range(10)])
    request = EvaluationRequest(agents=["ann"], window="2d", as_of=NOON - timedelta(days=7), dimensions=["adherence"])
    judge = ScriptedJudge(lambda *_: 8)
    before = run_evaluation(world, judge, request).report.agents["ann"].evaluation
    judged = revisions(world.store)["ann"]
    age_out(world.store, 4, now=NOON)
    assert revisions(world.store)["ann"] == judged
    assert touched_windows(world.store, ["ann"]) == []
    with pytest.raises(ConfigError, match="messages before 2026-06-16 have aged out"):
        run_evaluation(world, judge, request)
    with world.store.connect() as connection:
        runs = connection.execute(sa.select(tables.evaluation_runs.c.result)).scalars().all()
    assert [run["run_id"] for run in runs] == [before.run_id]
    # What begins later is evaluated as ever.
    newer = run_evaluation(world, judge, EvaluationRequest(agents=["ann"], window="2d", as_of=NOON))
    assert newer.report.agents["ann"].evaluation.sample_size == 2
