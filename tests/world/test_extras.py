"""What a source says of a message beyond what is evaluated: kept, bounded, and never judged or shown."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.base.database.engine import Store
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.reporting.html import render_html
from persona_pipeline.reporting.statistics import gather
from persona_pipeline.world import World
from persona_pipeline.world.messages.files import CUT, MOST_EXTRAS, bounded_extras, cut_keys, parse_message
from persona_pipeline.world.messages.revision import revisions
from persona_pipeline.world.messages.store import read_messages, write_messages
from persona_pipeline.world.models import Window
from persona_pipeline.world.runs import record_windows, touched_windows
from tests.support.evaluating import evaluate_world
from tests.support.worlds import ingest, write_jsonl

GOOD = {"id": "1", "agent_id": "ann", "channel": "general", "text": "hi", "created_at": "2026-03-01T10:00:00Z"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def test_unknown_keys_are_kept_from_file_to_store(small_root: Path, database_url: str) -> None:
    extra = {"thread": None, "tokens": 12, "cost": 1e308, "tags": ["a", {"b": -0.5}], "é": True}
    path = write_jsonl(small_root / "messages" / "more.jsonl", [{**GOOD, **extra}])
    (small_root / "messages" / "more.csv").write_text(
        "id,agent_id,channel,text,created_at,mood,\n2,ann,general,ho,2026-03-01T10:01:00Z,glad,x\n", encoding="utf-8"
    )
    world = World.open(small_root, database_url)
    assert world.sync().problems == []
    found = {message.id: message.extras for message in world.messages(agent_id="ann")}
    assert (found["1"], found["2"]) == (extra, {"mood": "glad", "": "x"})
    again = ingest(world, path).written
    assert (again.inserted, again.updated, again.unchanged) == (0, 0, 1)
    world.store.close()


def test_other_extras_are_no_other_message(store: Store) -> None:
    window = Window(datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC))
    write_messages(store, [parse_message(GOOD)])
    before = revisions(store)
    with store.begin() as connection:
        record_windows(connection, [("ann", window, None)])
    written = write_messages(store, [parse_message({**GOOD, "mood": "glad"})])
    assert (written.updated, read_messages(store)[0].extras) == (1, {"mood": "glad"})
    assert revisions(store) == before
    assert touched_windows(store, ["ann"]) == []
    write_messages(store, [parse_message({**GOOD, "text": "ho", "mood": "glad"})])
    assert touched_windows(store, ["ann"]) == [("ann", window)]


def test_extras_are_neither_judged_nor_shown(sample_world: World) -> None:
    """Every recorded answer still fits, each run keeps its id, which is made of what was judged, and no page holds them."""

    def evaluate() -> tuple[dict[str, Any], str]:
        report = evaluate_world(
            sample_world,
            judge=OpenedJudge(RecordedBackend(sample_world.root / "recordings")),
            agents=["jim"],
            dimensions=["adherence"],
        )
        report = gather(sample_world, report)
        return {name: agent.evaluation.model_dump() for name, agent in report.agents.items()}, render_html(report)

    plain, _ = evaluate()
    marked = "<script>alert(1)</script> score 9"
    for path in (sample_world.root / "messages").glob("*.jsonl"):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        write_jsonl(path, [{**row, "note": marked, marked: 1} for row in rows])
    extra, page = evaluate()
    assert extra == plain
    assert all(message.extras["note"] == marked for message in sample_world.messages(agent_id="jim"))
    assert "alert(1)" not in page


@given(st.dictionaries(st.text(max_size=300), JSON, max_size=6))
def test_any_extras_are_json_that_a_database_takes(found: dict[str, Any]) -> None:
    kept = bounded_extras(found)
    text = json.dumps(kept, ensure_ascii=False)
    text.encode("utf-8")
    assert "\\u0000" not in text.replace("\\\\", "")
    assert bounded_extras(kept) == kept


@pytest.mark.parametrize("value", ["x" * MOST_EXTRAS, [[[[]]]] * MOST_EXTRAS, json.loads("[" * 300 + "]" * 300)])
def test_what_does_not_fit_is_named(value: object) -> None:
    message = parse_message({**GOOD, "small": 1, "big": value, "last": 2})
    assert message.extras == {"small": 1, "last": 2, CUT: ["big"]}
    assert cut_keys(message.extras) == ["big"]
    many = bounded_extras({f"{n}" * 100: value for n in range(50)})
    assert len(json.dumps(many)) < 2 * MOST_EXTRAS
