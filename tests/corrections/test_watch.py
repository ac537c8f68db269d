import json
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from persona_pipeline.corrections.watch import FileMessages, SaidAgainWatch, StoredMessages
from persona_pipeline.evaluation.voice import VoiceWatches
from persona_pipeline.world import World
from persona_pipeline.world.messages.store import write_messages
from persona_pipeline.world.models import Message
from persona_pipeline.world.names import Aliases
from tests.support.command_line import in_process

# One worker learns the voices for all of them.
pytestmark = pytest.mark.xdist_group("voices")

PROJECT = Path(__file__).resolve().parents[2]
DRIFT = datetime(2026, 6, 14, 23, 59, 59, tzinfo=UTC)
AGENTS = ("dwight", "jim", "michael", "pam")


@pytest.fixture
def world(learnt_world: World) -> World:
    return learnt_world


def test_the_store_is_followed_and_only_the_one_who_drifts_raises_an_alarm(world: World) -> None:
    watches = VoiceWatches(world, AGENTS, DRIFT)
    assert watches.notes == []
    source = StoredMessages(world, DRIFT)
    alarms = watches.read(source.new())
    assert [(alarm.agent_id, alarm.began_at.id) for alarm in alarms] == [("michael", "general-073")]
    assert source.new() == []
    assert alarms[0].facts["quotes"][0]["id"] in {message.id for message in alarms[0].quotes}


def test_a_late_message_is_not_missed_and_none_is_read_twice(world: World) -> None:
    moment = datetime(2026, 6, 20, 12, tzinfo=UTC)
    source = StoredMessages(world, moment)
    # The last is so much later that none of those before can come after it.
    for number, minutes in enumerate((10, 8, 12, 30)):
        write_messages(
            world.store, [Message(f"late-{number}", "jim", "hm.", moment + timedelta(minutes=minutes), "general")]
        )
        assert [message.id for message in source.new()] == [f"late-{number}"]
    assert source.new() == []


def test_a_growing_file_is_followed_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    row = {"id": "1", "agent_id": "jim", "channel": "general", "text": "hm.", "created_at": "2026-07-01T10:00:00Z"}
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    source = FileMessages(path, Aliases(frozenset({"jim"}), {"jimmy": "jim"}))
    assert [message.id for message in source.new()] == ["1"]
    assert source.new() == []
    with path.open("a", encoding="utf-8") as stream:
        stream.write("nonsense\n" + json.dumps(row | {"id": "2", "agent_id": "Jimmy"}) + "\n")
    assert [(message.id, message.agent_id) for message in source.new()] == [("2", "jim")]
    assert [":2:" in problem for problem in source.problems] == [True]
    assert (source.new(), source.problems) == ([], []), "a problem is named once"
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(row | {"id": "3"}) + "\n")
    assert ([message.id for message in source.new()], source.problems) == (["3"], []), "each is named once"


def test_what_is_said_again_is_known_from_one_look_to_the_next(world: World) -> None:
    line, moment = "The harbour ferry to the lighthouse stops running in November.", DRIFT + timedelta(days=20)
    watch = SaidAgainWatch(world, ["jim"], moment)
    for number, again in enumerate((False, True)):
        said = Message(f"new-{number}", "jim", line, moment + timedelta(minutes=number), "ferries")
        assert [facts["earlier_id"] for _, facts in watch.read([said])] == ["new-0"] * again


def test_watch_reads_a_file_once_and_says_by_its_exit_code_whether_there_was_an_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        json.loads(line)
        for path in sorted((PROJECT / "messages").glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    root = tmp_path / "world"
    (root / "messages").mkdir(parents=True)
    for folder in ("personas",):
        (root / folder).symlink_to(PROJECT / folder)
    before = [line for line in lines if line["created_at"] < "2026-06-15"]
    (root / "messages" / "all.jsonl").write_text("\n".join(map(json.dumps, before)), encoding="utf-8")
    week = tmp_path / "week.jsonl"
    week.write_text(
        "\n".join(json.dumps(line) for line in lines if line["created_at"] >= "2026-06-15"), encoding="utf-8"
    )

    monkeypatch.chdir(root)
    watch = partial(in_process(root, monkeypatch, capsys), "watch", str(week), "--once")

    done = watch("--json", "--agents", "michael,jim")
    assert done.returncode == 1, done.stderr
    facts = [json.loads(line) for line in done.stdout.splitlines()]
    alarms = [(item["agent_id"], item["began_at"]["id"]) for item in facts if "began_at" in item]
    assert alarms == [("michael", "general-073")]
    again = [(item["agent_id"], item["said_again"]["earlier_id"]) for item in facts if "said_again" in item]
    assert len(alarms) + len(again) == len(facts) and ("jim", "sales-057") in again
    quiet = watch("--agents", "jim")
    assert quiet.returncode == 0 and "jim: followed since" in quiet.stdout
    assert quiet.stdout.splitlines()[-2:] == [
        "jim says again 'three products, no asterisks, one staple.' (sales-065) after 'three products, no asterisks.' (sales-057)",
        "22 messages followed, no alarm, 1 line said again",
    ]
