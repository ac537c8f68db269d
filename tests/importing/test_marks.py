"""What users did with messages, in every format that keeps it: counted always, labels only when asked for."""

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from persona_pipeline.base.settings import get_settings
from persona_pipeline.cli.app import app
from persona_pipeline.guard.labels.files import LABELS
from persona_pipeline.guard.labels.messages import load_message_labels
from persona_pipeline.importing.marks import marks_of
from persona_pipeline.importing.run import ImportOptions, import_messages
from persona_pipeline.world import World
from persona_pipeline.world.messages.files import bounded_extras
from persona_pipeline.world.models import Message
from tests.support.worlds import write_jsonl

AT = "2026-03-01T09:0{}:00Z"
TEXTS = ("Ahoy!", "How are you?", "Aye, well.", "Good.")


def sillytavern(folder: Path) -> Path:
    rows: list[dict[str, Any]] = [{"user_name": "Kim", "character_name": "ann", "create_date": AT.format(0)}]
    swipes = [["Hi!", "Ahoy!"], None, ["I am {{char}}.", "Aye, well.", ""], None, ["Bye", "Farewell."]]
    for n, text in enumerate((*TEXTS, "Farewell.")):
        row = {"name": "Kim" if n % 2 else "ann", "is_user": bool(n % 2), "mes": text, "send_date": AT.format(n)}
        rows.append(row | ({"swipe_id": 1, "swipes": swipes[n]} if swipes[n] else {}))
    return write_jsonl(folder / "chat.jsonl", rows)


def openai(folder: Path) -> Path:
    turns: list[dict[str, Any]] = [
        {
            "role": ("assistant", "user")[n % 2],
            "name": ("ann", "kim")[n % 2],
            "content": text,
            "timestamp": AT.format(n),
        }
        for n, text in enumerate(TEXTS)
    ]
    turns[2]["feedback"] = {"rating": "thumbsDown", "user": "u1"}
    return write_jsonl(folder / "chats.jsonl", [{"conversation_id": "c", "rating": 5, "messages": turns}])


def own(folder: Path) -> Path:
    rows = [
        {"id": f"m{n}", "agent_id": "kim" if n % 2 else "ann", "channel": "c", "text": text, "created_at": AT.format(n)}
        for n, text in enumerate(TEXTS)
    ]
    return write_jsonl(folder / "own.jsonl", [rows[0], rows[1] | {"stars": 5}, rows[2] | {"stars": 1}])


def slack(folder: Path) -> Path:
    day = folder / "export" / "c" / "2026-03-01.json"
    day.parent.mkdir(parents=True)
    items = [
        {"type": "message", "user": "U1", "text": text, "ts": f"177235200{n}.000000"}
        for n, text in enumerate(TEXTS[:3])
    ]
    items[2] |= {"reactions": [{"name": "thumbsdown", "users": ["U9"], "count": 1}, {"name": "tada", "users": ["U9"]}]}
    day.write_text(json.dumps(items), encoding="utf-8")
    (folder / "export" / "users.json").write_text(json.dumps([{"id": "U1", "name": "ann"}]), encoding="utf-8")
    return folder / "export"


def _trace(**more: Any) -> dict[str, Any]:
    asked = [
        {"role": "assistant", "name": "ann", "content": TEXTS[0]},
        {"role": "user", "name": "kim", "content": TEXTS[1]},
    ]
    return {"input": {"messages": asked}, "output": {"role": "assistant", "name": "ann", "content": TEXTS[2]}, **more}


def langfuse(folder: Path) -> Path:
    scores = [
        {"id": "s2", "traceId": "t1", "name": "helpfulness", "value": 0.2, "source": "EVAL"},
        {"id": "s3", "traceId": "t1", "name": "length", "value": 0.4, "source": "API"},
    ]
    rows = [
        _trace(id="t1", timestamp=AT.format(0), sessionId="c", scores=scores),
        {"id": "s1", "traceId": "t1", "name": "user-feedback", "value": 0, "dataType": "BOOLEAN", "userId": "u1"},
    ]
    return write_jsonl(folder / "traces.jsonl", rows)


def langsmith(folder: Path) -> Path:
    whole = _trace()
    run = {
        "id": "r1", "trace_id": "r1", "run_type": "chain", "start_time": AT.format(0), "end_time": AT.format(2),
        "inputs": whole["input"], "outputs": whole["output"], "extra": {"metadata": {"session_id": "c"}},
        "feedback": [
            {"key": "user_score", "score": 0.0, "feedback_source": {"type": "app", "user_id": "u1"}},
            {"key": "correctness", "score": 0.3, "feedback_source": {"type": "model"}},
        ],
    }  # fmt: skip
    return write_jsonl(folder / "runs.jsonl", [run])


def chatgpt(folder: Path) -> Path:
    """The third message was made anew; the one that was not kept stands beside it."""
    nodes: dict[str, Any] = {"root": {"id": "root", "message": None, "parent": None, "children": ["0"]}}
    for n, text in enumerate(TEXTS):
        content = {"content_type": "text", "parts": [text]}
        author = {"role": "user" if n % 2 else "assistant", "name": None if n % 2 else "ann"}
        message = {"id": str(n), "author": author, "create_time": 1772352000.0 + n, "content": content}
        above = str(n - 1) if n else "root"
        nodes[str(n)] = {"id": str(n), "message": message, "parent": above, "children": [str(n + 1)]}
    other = {"author": {"role": "assistant"}, "content": {"content_type": "text", "parts": ["No idea."]}}
    nodes["x"] = {"id": "x", "message": other, "parent": "1", "children": []}
    nodes["1"]["children"] = ["x", "2"]
    path = folder / "conversations.json"
    path.write_text(json.dumps([{"id": "c", "title": "", "mapping": nodes, "current_node": "3"}]), encoding="utf-8")
    return path


def discord(folder: Path) -> Path:
    said: list[dict[str, Any]] = [
        {"id": str(n), "type": "Default", "timestamp": AT.format(n), "content": text, "author": {"name": "ann"}}
        for n, text in enumerate(TEXTS[:3])
    ]
    said[2]["reactions"] = [
        {"emoji": {"name": "\U0001f44e", "code": "thumbsdown"}, "count": 1, "users": [{"id": "9"}]},
        {"emoji": {"name": "\U0001f389", "code": "tada"}, "count": 1, "users": [{"id": "9"}]},
    ]
    whole = {"guild": {}, "channel": {"name": "c"}, "exportedAt": AT.format(9), "messages": said}
    path = folder / "discord.json"
    path.write_text(json.dumps(whole), encoding="utf-8")
    return path


# Of the third message: what is labelled, and what cannot be told.
FORMATS: dict[Callable[[Path], Path], tuple[list[tuple[str, str, str]], dict[str, int]]] = {
    sillytavern: (
        [("Aye, well.", "in", "swipe"), ("I am ann.", "out", "swipe")],
        {"swipes of a message that nobody answered": 1},
    ),
    openai: ([("Aye, well.", "out", "thumbs")], {}),
    own: ([("Aye, well.", "out", "stars")], {}),
    slack: ([("Aye, well.", "out", "thumbs")], {"reaction tada": 1}),
    langfuse: ([("Aye, well.", "out", "thumbs")], {"length 0.4": 1}),
    langsmith: ([("Aye, well.", "out", "thumbs")], {}),
    chatgpt: ([("Aye, well.", "in", "regeneration"), ("No idea.", "out", "regeneration")], {}),
    discord: ([("Aye, well.", "out", "thumbs")], {"reaction tada": 1}),
}


@pytest.mark.parametrize("make", FORMATS, ids=lambda make: make.__name__)
def test_marks_on_an_agents_message_are_read(make: Any, small_world: World, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    imported = import_messages(small_world, [make(folder)], ImportOptions())
    assert imported.result.problems == []
    found, unread = FORMATS[make]
    assert [(mark.text, mark.verdict.value, mark.source.value) for mark in imported.marks] == found
    assert dict(imported.unread) == unread
    assert {mark.agent_id for mark in imported.marks} == {"ann"}
    assert not (small_world.root / LABELS / "messages.jsonl").exists()


def test_labels_are_written_only_when_asked_for_and_once(
    small_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSONA_ROOT", str(small_root))
    get_settings.cache_clear()
    path = str(sillytavern(tmp_path))
    counted = CliRunner().invoke(app, ["ingest", path])
    assert counted.exit_code == 0, counted.output
    assert "users' marks on agents' messages (2 swipe): no labels yet: --marks keeps them" in counted.stderr
    assert load_message_labels(small_root / LABELS) == []
    kept = CliRunner().invoke(app, ["ingest", path, "--marks"])
    assert "kept in labels/messages.jsonl" in kept.stderr
    before = (small_root / LABELS / "messages.jsonl").read_bytes()
    assert len(load_message_labels(small_root / LABELS)) == 2
    CliRunner().invoke(app, ["ingest", path, "--marks"])
    assert (small_root / LABELS / "messages.jsonl").read_bytes() == before


START = datetime(2026, 1, 5, 9, tzinfo=UTC)


def marked(text: str = "kept", **extras: Any) -> tuple[list[tuple[str, str, str, float | None]], dict[str, int]]:
    unread = Counter[str]()
    said = Message("m1", "ann", text, START, "c", extras=bounded_extras(extras))
    found = list(marks_of(said, unread))
    return [(item.source.value, item.text, item.verdict.value, item.rating) for item in found], dict(unread)


@pytest.mark.parametrize(
    ("extras", "found"),
    [
        ({"stars": 5}, [("stars", "kept", "in", 5.0)]),
        ({"rating": 2}, [("stars", "kept", "out", 2.0)]),
        ({"rating": {"stars": 1}}, [("stars", "kept", "out", 1.0)]),
        ({"thumbs": True}, [("thumbs", "kept", "in", None)]),
        ({"feedback": {"rating": "thumbsDown"}}, [("thumbs", "kept", "out", None)]),
        ({"annotation": {"rating": -1}}, [("thumbs", "kept", "out", -1.0)]),
        ({"annotation": {"rating": 1}}, [("thumbs", "kept", "in", 1.0)]),
        ({"marks": [{"name": "user-feedback", "value": 0}]}, [("thumbs", "kept", "out", 0.0)]),
        ({"marks": [{"name": "Like", "value": "up"}]}, [("thumbs", "kept", "in", None)]),
        (
            {"swipes": ["first", "kept", " ", "first", "third"], "swipe_id": 1, "swiped_by": "Kim"},
            [("swipe", "kept", "in", None), ("swipe", "first", "out", None), ("swipe", "third", "out", None)],
        ),
        ({"swipes": ["kept"], "swipe_id": 0, "swiped_by": "Kim"}, []),
        ({"swipes": ["first", "kept"], "swipe_id": 1}, []),
        ({"regenerations": ["first"]}, [("regeneration", "kept", "in", None), ("regeneration", "first", "out", None)]),
        (
            {"reactions": [{"name": "+1::skin-tone-2", "users": ["U1", "U2"]}, {"name": "-1", "users": ["U3"]}]},
            [("thumbs", "kept", "in", None), ("thumbs", "kept", "in", None), ("thumbs", "kept", "out", None)],
        ),
    ],
)
def test_what_users_marks_say(extras: dict[str, Any], found: list[Any]) -> None:
    assert marked(**extras) == (found, {})


@pytest.mark.parametrize(
    ("extras", "unread"),
    [
        ({"stars": 3}, "stars 3"),
        ({"rating": 1}, "rating 1"),
        ({"rating": 87}, "rating 87"),
        ({"feedback": "so-so"}, "feedback so-so"),
        ({"feedback": {"text": "ok"}}, "feedback"),
        ({"marks": [{"name": "toxicity", "value": 0.1}]}, "toxicity 0.1"),
        ({"reactions": [{"name": "eyes", "users": ["U1"]}]}, "reaction eyes"),
        ({"swipes": ["x" * 20_000, "kept"], "swipe_id": 1, "swiped_by": "Kim"}, "swipes too long to keep"),
    ],
)
def test_what_says_nothing_is_counted_and_not_guessed(extras: dict[str, Any], unread: str) -> None:
    assert marked(**extras) == ([], {unread: 1})


def test_who_marked_is_the_same_and_has_no_name() -> None:
    said = Message("m1", "ann", "kept", START, "c", extras={"swipes": ["a"], "swiped_by": "Kim Lee", "swipe_id": 0})
    first, again = ({label.labeller for label in marks_of(said, Counter())} for _ in range(2))
    assert first == again
    (name,) = first
    assert name.startswith("user-")
    assert "im" not in name
