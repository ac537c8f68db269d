"""The sensor asks for exactly the runs that are needed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from persona_pipeline.defs import changes
from persona_pipeline.defs.agents.specs import build_specs
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import AGENTS
from tests.defs.support import JUDGED, Project
from tests.support.worlds import replace_in, write_jsonl, write_yaml


def say(root: Path, agent_id: str, count: int, at: datetime) -> None:
    rows = [
        {
            "id": f"{agent_id}-{at:%H%M%S%f}-{n}",
            "agent_id": agent_id,
            "channel": "general",
            "text": f"Fresh message {n}.",
            "created_at": at.isoformat(),
        }
        for n in range(count)
    ]
    write_jsonl(root / "messages" / f"{agent_id}-{at:%H%M%S%f}.jsonl", rows)


def test_nothing_changed_nothing_runs(small: Project) -> None:
    small.tick()
    assert small.why_idle() == "2 agents, nothing changed"
    assert small.asked_for() == []


def test_what_was_evaluated_while_nobody_launched_is_not_asked_for_again(small: Project) -> None:
    small.observe()
    small.evaluate("ann")
    assert small.agents_requested() == ["bob"]


def test_an_edit_that_is_undone_runs_twice(settled: Project) -> None:
    persona = settled.root / "personas/bob.yaml"
    replace_in(persona, "machines", "engines")
    assert settled.agents_requested() == ["bob"]
    settled.remember()
    replace_in(persona, "engines", "machines")
    assert settled.agents_requested() == ["bob"]
    assert settled.agents_requested() == []


def test_a_burst_of_edits_makes_one_run_an_agent(settled: Project) -> None:
    replace_in(settled.root / "personas/bob.yaml", "machines", "engines")
    for dimension in ("fluency", "adherence"):
        claims = {"dimension": dimension, "propositions": [{"id": "new", "claim": "Varies sentences"}]}
        write_yaml(settled.root / f"propositions/{dimension}/bob.yaml", claims)
    write_yaml(settled.root / "baselines/bob.json", {"agentId": "bob"})
    say(settled.root, "bob", 30, datetime.now(UTC))
    assert [(item.agent_id, item.assets) for item in settled.tick()] == [("bob", JUDGED)]


def test_new_agents_of_a_look_are_requested_together(small: Project) -> None:
    small.read_messages()
    seen, _ = small.look("source_changes")
    assert isinstance(seen, dg.SensorResult)
    small.instance.add_dynamic_partitions(AGENTS, ["ann", "bob"])
    requested = []
    # The automation sensor may look between any two of these events.
    *earlier, last_of_ann, last_of_bob = seen.asset_events
    half = len(earlier) // 2
    for events in (earlier[:half], earlier[half:], [last_of_ann], [last_of_bob]):
        for event in events:
            small.instance.report_runless_asset_event(event)
        requested.append([item.agent_id for item in small.asked_for(started=False)])
    assert requested == [[], [], ["ann"], ["ann", "bob"]]


def test_a_removed_persona_loses_its_partition_and_keeps_its_verdict_when_it_comes_back(settled: Project) -> None:
    persona = settled.root / "personas/bob.yaml"
    kept = persona.read_text(encoding="utf-8")
    persona.unlink()
    assert settled.agents_requested() == []
    assert settled.instance.get_dynamic_partitions(AGENTS) == ["ann"]
    persona.write_text(kept, encoding="utf-8")
    assert settled.agents_requested() == []
    assert settled.instance.get_dynamic_partitions(AGENTS) == ["ann", "bob"]
    replace_in(persona, "machines", "engines")
    assert settled.agents_requested() == ["bob"]


def test_new_messages_evaluate_their_agent_once_they_are_settled(settled: Project) -> None:
    fresh, old = (datetime.now(UTC) - timedelta(minutes=minutes) for minutes in (1, 16))
    say(settled.root, "ann", 3, fresh)
    assert settled.why_idle() == "2 agents, nothing changed; 1 with new messages, not yet enough or quiet"
    say(settled.root, "ann", 16, old)
    assert settled.agents_requested() == [], "too few, and the newest is fresh"
    say(settled.root, "bob", 1, old)
    assert settled.agents_requested() == ["bob"], "one, and quiet"
    say(settled.root, "ann", 1, fresh + timedelta(seconds=1))
    assert settled.agents_requested() == ["ann"], "enough at once"
    assert settled.agents_requested() == []


def test_a_broken_file_asks_for_its_agent_and_nobody_else(settled: Project) -> None:
    for path, content in (
        ("personas/bob.yaml", "display_name: [unclosed"),
        ("propositions/fluency/bob.yaml", "dimension: fluency\npropositions: 7\n"),
        ("baselines/bob.json", "{"),
    ):
        target = settled.root / path
        target.parent.mkdir(exist_ok=True)
        target.write_text(content, encoding="utf-8")
        assert (path, settled.agents_requested()) == (path, ["bob"])


def test_files_that_cannot_be_used_stop_nobody(small: Project) -> None:
    write_yaml(small.root / "personas/Not An Agent.yaml", {"display_name": "X", "persona": "Y"})
    (small.root / "messages/broken.jsonl").write_bytes(b"\xff\xfe\x00{")
    assert small.agents_requested() == ["ann", "bob"]
    assert small.instance.get_dynamic_partitions(AGENTS) == ["ann", "bob"]


def test_partitions_follow_the_personas_without_a_run(small: Project) -> None:
    first, _ = small.look("source_changes")
    assert isinstance(first, dg.SensorResult) and first.dynamic_partitions_requests
    [request] = first.dynamic_partitions_requests
    assert list(request.partition_keys) == ["ann", "bob"]
    assert [run.asset_selection for run in first.run_requests or ()] == [[dg.AssetKey("message_files")]]
    assert not first.asset_events, "versions wait for the messages, which nobody has read yet"
    small.read_messages()
    small.instance.add_dynamic_partitions(AGENTS, ["ann", "bob", "gone"])
    second, _ = small.look("source_changes")
    assert isinstance(second, dg.SensorResult) and second.dynamic_partitions_requests
    [removal] = second.dynamic_partitions_requests
    assert isinstance(removal, dg.DeleteDynamicPartitionsRequest) and list(removal.partition_keys) == ["gone"]
    small.observe()
    assert small.instance.get_dynamic_partitions(AGENTS) == ["ann", "bob"]
    assert small.why_idle() == "2 agents, nothing changed"


def test_a_first_look_at_many_is_recorded_in_pieces(small: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MOST_RECORDED", 1)
    small.read_messages()
    sources = len(build_specs(Place()).sources)
    seen: list[set[str | None]] = []
    while isinstance((result := small.look("source_changes")[0]), dg.SensorResult):
        assert len(result.asset_events) == sources
        seen.append({event.partition for event in result.asset_events})
        small.requests("source_changes")
    assert seen == [{"ann"}, {"bob"}]
