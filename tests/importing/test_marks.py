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
from tests.importing.samples import SAMPLES, TEXTS
from tests.support.worlds import write_jsonl

AT = "2026-03-01T09:0{}:00Z"


def sillytavern(folder: Path) -> Path:
    rows: list[dict[str, Any]] = [{"user_name": "Kim", "character_name": "ann", "create_date": AT.format(0)}]
    swipes = [["Hi!", "Ahoy!"], None, ["I am {{char}}.", "Aye, well.", ""], None, ["Bye", "Farewell."]]
    for n, text in enumerate(("Ahoy!", "How are you?", "Aye, well.", "Good.", "Farewell.")):
        row = {"name": "Kim" if n % 2 else "ann", "is_user": bool(n % 2), "mes": text, "send_date": AT.format(n)}
        rows.append(row | ({"swipe_id": 1, "swipes": swipes[n]} if swipes[n] else {}))
    return write_jsonl(folder / "chat.jsonl", rows)


def feedback(name: str, value: Any, kind: str) -> dict[str, Any]:
    return {"key": name, "score": value, "feedback_source": {"type": kind, "user_id": "u1"}}


def made_anew(nodes: dict[str, Any]) -> None:
    content = {"content_type": "text", "parts": ["No idea."]}
    nodes["x"] = {"message": {"author": {"role": "assistant"}, "content": content}, "parent": nodes["n1"]["parent"]}
    nodes[nodes["n1"]["parent"]]["children"].append("x")


THUMBS = [{"name": "thumbsdown", "users": ["U9"]}, {"name": "tada", "users": ["U9"]}]
EMOJI = [{"emoji": {"name": "-", "code": item["name"]}, "users": [{"id": "9"}]} for item in THUMBS]
SCORES = [{"name": "helpfulness", "value": 0.2, "source": "EVAL"}, {"name": "length", "value": 0.4, "source": "API"}]
SCORE = {"id": "s1", "traceId": "t0", "name": "user-feedback", "value": 0, "dataType": "BOOLEAN", "userId": "u1"}
FEEDBACK = [feedback("user_score", 0.0, "app"), feedback("correctness", 0.3, "model")]
SAID = TEXTS[1][1]
# By format: what users did with the second message, its labels, and what cannot be told.
MARKED: dict[str, tuple[Callable[[Any], Any], list[tuple[str, str, str]], dict[str, int]]] = {
    "openai": (
        lambda rows: (rows[0].update(rating=5), rows[0]["messages"][2].update(feedback={"rating": "thumbsDown", "user": "u1"})),
        [(SAID, "out", "thumbs")], {},
    ),
    "messages": (lambda rows: (rows[0].update(agent_id="kim", stars=5), rows[1].update(stars=1)), [(SAID, "out", "stars")], {}),
    "slack": (lambda rows: rows[2].update(reactions=THUMBS), [(SAID, "out", "thumbs")], {"reaction tada": 1}),
    "langfuse": (
        lambda rows: (rows[-1].update(scores=SCORES), rows.append(SCORE)), [(SAID, "out", "thumbs")], {"length 0.4": 1},
    ),
    "langsmith": (lambda found: found["runs"][1].update(feedback=FEEDBACK), [(SAID, "out", "thumbs")], {}),
    "chatgpt": (
        lambda rows: made_anew(rows[0]["mapping"]), [(SAID, "in", "regeneration"), ("No idea.", "out", "regeneration")], {},
    ),
    "discord": (
        lambda found: found["messages"][2].update(reactions=EMOJI), [(SAID, "out", "thumbs")], {"reaction tada": 1},
    ),
}  # fmt: skip


def marked_sample(name: str, folder: Path) -> Path:
    """Write the conversation of a format with what users did."""
    path = SAMPLES[name](folder, 3)
    file = path / "general" / "2026-03-01.json" if path.is_dir() else path
    lines = file.suffix == ".jsonl"
    text = file.read_text(encoding="utf-8")
    value = [json.loads(line) for line in text.splitlines()] if lines else json.loads(text)
    MARKED[name][0](value)
    file.write_text("\n".join(map(json.dumps, value)) if lines else json.dumps(value), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["sillytavern", *MARKED])
def test_marks_on_an_agents_message_are_read(name: str, small_world: World, tmp_path: Path) -> None:
    (folder := tmp_path / "in").mkdir()
    path = marked_sample(name, folder) if name in MARKED else sillytavern(folder)
    swiped = [("Aye, well.", "in", "swipe"), ("I am ann.", "out", "swipe")]
    unanswered = {"swipes of a message that nobody answered": 1}
    _, labels, unread = MARKED.get(name, (None, swiped, unanswered))
    imported = import_messages(small_world, [path], ImportOptions())
    assert imported.result.problems == []
    assert [(mark.text, mark.verdict.value, mark.source.value) for mark in imported.marks] == labels
    assert dict(imported.unread) == unread
    assert {mark.agent_id for mark in imported.marks} == {"ann" if name == "sillytavern" else "bob"}
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
    assert [item.labeller for item in found] == [item.labeller for item in marks_of(said, Counter())]
    assert all(item.labeller.startswith("user-") and "im" not in item.labeller for item in found), "no name of a user"
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
