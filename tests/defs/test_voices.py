"""Each agent's voice as an asset, and the sensor that asks the judge where one is lost."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.defs.platform.resources import AGENTS, EvaluationSettings
from persona_pipeline.scoring.style.monitor import stored_voice
from persona_pipeline.world import World
from persona_pipeline.world.messages.store import write_messages
from persona_pipeline.world.models import Message
from tests.defs.support import JUDGED, PARTITION, RUN_KEY, Project, metadata_of, rows_of

# One worker learns the voices for all of them.
pytestmark = pytest.mark.xdist_group("voices")

NAMES = ("dwight", "jim", "michael", "pam")
LATER = datetime(2026, 6, 20, 9, tzinfo=UTC)


@pytest.fixture
def learnt(learnt_root: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The sample world, watched, with voices that are learnt, and a sensor that has time for all of them."""
    monkeypatch.setattr("persona_pipeline.defs.changes.MOST_SECONDS", 480.0)
    instance.add_dynamic_partitions(AGENTS, list(NAMES))
    return Project(learnt_root, instance)


def forget(project: Project, agent_id: str) -> dict[str, Any]:
    """Delete an agent's voice and return its row."""
    world, table = World.open(project.root), tables.voice_models
    with world.store.begin() as connection:
        row = connection.execute(sa.select(table).where(table.c.agent_id == agent_id)).one()
        connection.execute(table.delete().where(table.c.agent_id == agent_id))
    world.store.close()
    return row._asdict()


def say(project: Project, agent_id: str, count: int, start: datetime = LATER) -> None:
    world = World.open(project.root)
    said = [
        Message(
            f"{agent_id}-{start:%j%H}-{n}",
            agent_id,
            f"So I told them, number {n}!",
            start + timedelta(minutes=n),
            "sales",
        )
        for n in range(count)
    ]
    write_messages(world.store, said)
    world.store.close()


def test_the_asset_learns_follows_and_draws_and_asks_no_judge(learnt: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(EvaluationSettings, "open_judge", lambda *_: asked.append("judge"))
    forget(learnt, "michael")
    found = {}
    for agent_id in NAMES:
        result = learnt.materialize("voices", tags={PARTITION: agent_id})
        assert result.success
        found[agent_id] = metadata_of(result, "voices")
    assert {agent_id: shown["alarm"].value for agent_id, shown in found.items()} == {
        name: name == "michael" for name in NAMES
    }
    michael = found["michael"]
    assert "since message general-073" in str(michael["voice"].value) and "after 10 of its messages" in str(
        michael["voice"].value
    )
    [row] = rows_of(michael["alarms"])
    assert row["began"].startswith("general-073") and "Please let me know" in row["lines"]
    assert michael["learnt_from"].value["messages"] == 42
    assert asked == []


def test_a_voice_that_cannot_be_learnt_yet_says_how_much_is_missing(small: Project) -> None:
    result = small.materialize("voices", tags={PARTITION: "ann"})
    assert result.success
    shown = metadata_of(result, "voices")
    assert str(shown["voice"].value).endswith("of 30 messages")


def test_an_alarm_is_one_run_for_its_window_and_the_next_look_is_quiet(learnt: Project) -> None:
    [request] = learnt.requests("voice_alarms")
    assert {key.to_user_string() for key in request.asset_selection or ()} == set(JUDGED)
    assert (request.partition_key, request.run_key) == ("michael", "michael/sales-079")
    assert request.run_config["resources"]["evaluation"]["config"] == {
        "since": "2026-06-15T08:37:59.999999+00:00",
        "as_of": "2026-06-17T09:14:00+00:00",
    }
    assert request.tags["persona/reason"] == "voice alarm"
    learnt.start(request)
    assert learnt.why_idle("voice_alarms") == "4 agents, nobody has said anything new"
    say(learnt, "michael", 1)
    assert learnt.requests("voice_alarms") == [], "the same alarm is no second run"
    say(learnt, "pam", 1)
    result, _ = learnt.look("voice_alarms")
    assert isinstance(result, dg.SensorResult) and not result.run_requests


def test_the_run_of_an_alarm_evaluates_its_messages_and_no_others(learnt: Project) -> None:
    [request] = learnt.requests("voice_alarms")
    config = request.run_config["resources"]["evaluation"]["config"]
    result = learnt.run(
        "evaluate_agent", {PARTITION: "michael", RUN_KEY: request.run_key or ""}, ("messages",), **config
    )
    assert metadata_of(result, "messages")["dagster/row_count"].value == 10


def test_a_voice_that_is_not_learnt_is_learnt_and_followed_in_the_same_look(learnt: Project) -> None:
    forget(learnt, "michael")
    assert [request.run_key for request in learnt.requests("voice_alarms")] == ["michael/sales-079"]


def test_after_a_change_of_persona_the_voice_starts_over(learnt: Project) -> None:
    learnt.requests("voice_alarms")
    new = "display_name: Michael\npersona: A quiet archivist who answers with one word.\n"
    (learnt.root / "personas/michael.yaml").write_text(new, encoding="utf-8")
    say(learnt, "michael", 3)
    assert learnt.requests("voice_alarms") == []
    world = World.open(learnt.root)
    known = stored_voice(world.store, "michael")
    world.store.close()
    assert known is not None and known.model is None and known.since == LATER + timedelta(minutes=2)
    say(learnt, "michael", 30, LATER + timedelta(days=1))
    assert learnt.requests("voice_alarms") == [], "it is in its new voice"


def test_a_broken_persona_and_a_strange_cursor_stop_nobody(learnt: Project) -> None:
    learnt.cursors["voice_alarms"] = "event 12"
    (learnt.root / "personas/jim.yaml").write_text("display_name: [unclosed", encoding="utf-8")
    assert [request.partition_key for request in learnt.requests("voice_alarms")] == ["michael"]
    assert set(json.loads(learnt.cursors["voice_alarms"] or "")) == set(NAMES)


def test_many_agents_are_looked_at_in_several_looks(learnt: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("persona_pipeline.defs.changes.MOST_SECONDS", -1.0)
    assert learnt.requests("voice_alarms") == []
    assert json.loads(learnt.cursors["voice_alarms"] or "") == {}
    monkeypatch.undo()
    assert [request.partition_key for request in learnt.requests("voice_alarms")] == ["michael"]
