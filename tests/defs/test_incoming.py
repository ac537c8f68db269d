"""Messages come in by a run of their own, and a look does nothing but look."""

import sqlite3
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import exclusive
from persona_pipeline.base.settings import get_settings
from persona_pipeline.defs.platform.settings import orchestration
from persona_pipeline.judging.money import DailyLimit
from persona_pipeline.testing.worlds import write_small_world
from persona_pipeline.world import World
from persona_pipeline.world.messages.files import MessageFile
from persona_pipeline.world.messages.mirroring import LEASE
from tests.defs.support import Project
from tests.support.worlds import replace_in, write_jsonl, write_yaml

OLD = {"id": "old", "agent_id": "ann", "channel": "c", "text": "Long ago.", "created_at": "2025-03-01T09:00:00Z"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The small world and messages of a year before, everybody evaluated on the newest week; to be copied."""
    with dg.DagsterInstance.ephemeral() as instance:
        small = Project(write_small_world(tmp_path_factory.mktemp("judged") / "small"), instance)
        for name in ("old", "older", "gone"):
            write_jsonl(small.root / f"messages/{name}.jsonl", [{**OLD, "id": name}])
        small.tick()
        for agent_id in ("ann", "bob"):
            small.evaluate(agent_id)
        yield small


@pytest.fixture
def judged(finished: Project, tmp_path: Path, instance: dg.DagsterInstance) -> Project:
    """A copy of it, of which nothing is to be evaluated."""
    copied = finished.copied(tmp_path / "judged", instance)
    assert copied.agents_requested() == []
    return copied


def by_hand(root: Path, statement: str) -> None:
    """Write to the store as a runtime does, past this package."""
    with sqlite3.connect(root / ".persona/store.db") as connection:
        connection.execute(statement)
    connection.close()


def leave_alone(root: Path) -> None:
    """Change what no verdict of a week rests on: long ago, the future, what is there already."""
    replace_in(root / "messages/old.jsonl", "Long ago.", "Long, long ago.")
    by_hand(root, "UPDATE run_messages SET text = 'x' WHERE id = 'older'")
    (root / "messages/gone.jsonl").unlink()
    write_jsonl(root / "messages/late.jsonl", [{**OLD, "id": "late", "agent_id": "bob"}])
    write_jsonl(root / "messages/f.jsonl", [{**OLD, "id": "f", "created_at": "2099-01-01T00:00:00Z"}])
    (root / "messages/copy.jsonl").write_bytes((root / "messages/all.jsonl").read_bytes())


def edit_two(root: Path) -> None:
    """In the week that was judged, and in the one before it."""
    (root / "messages/copy.jsonl").unlink()
    replace_in(root / "messages/all.jsonl", "You oiled", "They oiled")
    replace_in(root / "messages/all.jsonl", "Kettles do not age", "They do")


def edit_two_by_a_runtime(root: Path) -> None:
    by_hand(root, "UPDATE run_messages SET text = 'x' WHERE id = 'm6'")
    by_hand(root, "DELETE FROM run_messages WHERE id = 'm7'")


def write_by_a_runtime(root: Path) -> None:
    by_hand(
        root,
        "INSERT INTO run_messages (id, agent_id, channel_id, text, created_at) "
        "VALUES ('sql', 'bob', 'general', 'Hello.', '2026-03-12 09:00:00.000000')",
    )


def test_only_what_changes_in_a_window_that_was_judged_or_is_newer_starts_a_run(judged: Project) -> None:
    for change, expected in (
        (leave_alone, []),
        (edit_two, ["ann", "bob"]),
        (edit_two_by_a_runtime, ["ann", "bob"]),
        (write_by_a_runtime, ["bob"]),
    ):
        change(judged.root)
        assert (change.__name__, judged.agents_requested()) == (change.__name__, expected)
    assert judged.agents_requested() == []


def test_a_look_opens_no_message_file_and_asks_for_one_run_at_a_time(
    small: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("a message file was opened")

    with monkeypatch.context() as patched:
        patched.setattr(MessageFile, "__init__", refused)
        [request] = small.requests("source_changes")
        small.start(dg.RunRequest(request.run_key, job_name="upkeep", tags=request.tags))
        assert small.requests("source_changes") == [], "a run reads them already"
    [waiting] = small.instance.get_runs()
    small.instance.report_run_failed(waiting)
    assert small.requests("source_changes") == [], "a run could not read them; it waits for a few minutes"
    monkeypatch.setattr(time, "time", lambda now=time.time(): now + 3600)
    assert len(small.requests("source_changes")) == 1
    assert small.materialize("message_files").success
    assert small.requests("source_changes") == []


def test_half_of_what_is_being_read_is_no_version(judged: Project) -> None:
    world = World.open(judged.root)
    by_hand(judged.root, "UPDATE run_messages SET text = 'x' WHERE id = 'm6'")
    write_yaml(judged.root / "personas/cleo.yaml", {"display_name": "Cleo", "persona": "Counts."})
    with exclusive(world.store, [LEASE]):
        assert judged.agents_requested() == []
        assert "2 with new messages, which are being read" in judged.why_idle()
    assert judged.agents_requested() == ["ann", "cleo"]
    world.store.close()


def test_an_agent_that_was_evaluated_just_now_waits(judged: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONA_COOLDOWN_MINUTES", "60")
    orchestration.cache_clear()
    persona = judged.root / "personas/ann.yaml"
    replace_in(persona, "dry", "wet")
    assert judged.agents_requested() == []
    replace_in(judged.root / "messages/all.jsonl", "You oiled", "They oiled")
    write_yaml(judged.root / "personas/cleo.yaml", {"display_name": "Cleo", "persona": "Counts."})
    assert judged.agents_requested() == ["cleo"], "who never was evaluated does not wait"
    assert judged.agents_requested() == []
    later = datetime.now(UTC) - timedelta(hours=2)
    world = World.open(judged.root)
    with world.store.begin() as connection:
        connection.execute(sa.update(tables.evaluation_runs).values(created_at=later))
        connection.execute(sa.update(tables.evaluations_asked).values(asked_at=later))
    assert judged.agents_requested() == ["ann"]
    assert judged.agents_requested() == []
    replace_in(persona, "wet", "damp")
    assert judged.agents_requested() == [], "what a sensor of any host asked for counts too"
    world.store.close()


def test_when_the_days_dollars_are_spent_changes_wait_for_tomorrow(
    judged: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSONA_DAILY_USD", "2")
    monkeypatch.setenv("PERSONA_JUDGE", "anthropic")
    orchestration.cache_clear()
    get_settings.cache_clear()
    world = World.open(judged.root)
    limit = DailyLimit(world.store, 2.0)
    day = limit.take(2.0)
    replace_in(judged.root / "personas/ann.yaml", "dry", "wet")
    assert judged.agents_requested() == []
    assert "today's 2 dollars are spent" in judged.why_idle()
    assert day
    limit.settle(day, 2.0, 0.5)
    assert judged.agents_requested() == ["ann"]
    world.store.close()
