"""Labels of voices: files, exchange with other tools, and what users' marks say."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.documents.json import json_object
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.guard.labels.exchange import export_labels, read_labels
from persona_pipeline.guard.labels.files import (
    LABELS,
    Label,
    checked_label,
    label_of,
    load_labels,
    write_label_files,
)
from persona_pipeline.guard.labels.voice import VoiceLabel, load_voice_labels, marks_of
from persona_pipeline.world.messages.files import bounded_extras
from persona_pipeline.world.models import Message
from tests.labels.voices import START, labels
from tests.support.judging import request

GIVEN = labels((True, False), note='=a, "b"')


def test_both_kinds_live_beside_each_other(tmp_path: Path) -> None:
    judged = label_of(request(), 7, labeller="ada")
    write_label_files(Label, tmp_path, [judged])
    assert write_label_files(VoiceLabel, tmp_path, GIVEN) == [tmp_path / "voice.jsonl"]
    assert load_labels(tmp_path) == [judged]
    assert load_voice_labels(tmp_path) == sorted(GIVEN, key=lambda label: label.order)
    assert write_label_files(VoiceLabel, tmp_path, GIVEN) == []
    write_label_files(VoiceLabel, tmp_path, [], remove=[label.identity for label in GIVEN])
    assert not (tmp_path / "voice.jsonl").exists()
    assert load_labels(tmp_path) == [judged]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"text": "Another text."}, "its key is not that of agent, message and text"),
        ({"agent_id": "bob"}, "its key is not that of agent, message and text"),
        ({"on": "yes"}, "'on': "),
        ({"source": "guess"}, "'source': "),
        ({"labeller": "a b"}, "'labeller': "),
        ({"labelled_at": "soon"}, "'labelled_at': "),
        ({"stars": 4}, "unknown field 'stars'"),
    ],
)
def test_a_line_that_is_no_label_is_named(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    data = {**json_object(GIVEN[0].to_line()), **changes}
    with pytest.raises(ValueError, match=said):
        checked_label(VoiceLabel, data)


def test_one_person_says_one_thing_of_a_text(tmp_path: Path) -> None:
    folder = tmp_path / LABELS
    folder.mkdir()
    other = GIVEN[0].model_copy(update={"on": not GIVEN[0].on})
    (folder / "voice.jsonl").write_text(GIVEN[0].to_line() + other.to_line(), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"voice.jsonl:2: ada has labelled this message otherwise at .*:1"):
        load_voice_labels(folder)
    (folder / "voice.jsonl").write_text(GIVEN[0].to_line() * 2, encoding="utf-8")
    assert load_voice_labels(folder) == [GIVEN[0]]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_what_is_exported_is_imported_the_same(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"labels.{ending}"
    path.write_text(export_labels(VoiceLabel, GIVEN, ending), encoding="utf-8", newline="")
    assert read_labels(VoiceLabel, path, lambda _: None, {}) == list(GIVEN)


def test_a_spreadsheet_needs_no_key(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    names = [
        "agent_id",
        "message",
        "conversation",
        "said_at",
        "text",
        "on",
        "source",
        "rating",
        "labeller",
        "labelled_at",
    ]
    cells = ["ann", "m1", "c", "2026-01-01T00:00:00Z", "Arr.", "Off", "stars", "2", "ada", "2026-01-02T00:00:00Z"]
    path.write_text(",".join(names) + "\n" + ",".join(cells) + "\n", encoding="utf-8")
    (label,) = read_labels(VoiceLabel, path, lambda _: None, {})
    assert (label.on, label.rating, label.worth) == (False, 2.0, 0.5)


def marked(text: str = "kept", **extras: Any) -> tuple[list[tuple[str, str, bool, float | None]], dict[str, int]]:
    unread = Counter[str]()
    said = Message("m1", "ann", text, START, "c", extras=bounded_extras(extras))
    found = list(marks_of(said, unread))
    return [(item.source.value, item.text, item.on, item.rating) for item in found], dict(unread)


@pytest.mark.parametrize(
    ("extras", "found"),
    [
        ({"stars": 5}, [("stars", "kept", True, 5.0)]),
        ({"rating": 2}, [("stars", "kept", False, 2.0)]),
        ({"rating": {"stars": 1}}, [("stars", "kept", False, 1.0)]),
        ({"thumbs": True}, [("thumbs", "kept", True, None)]),
        ({"feedback": {"rating": "thumbsDown"}}, [("thumbs", "kept", False, None)]),
        ({"annotation": {"rating": -1}}, [("thumbs", "kept", False, -1.0)]),
        ({"annotation": {"rating": 1}}, [("thumbs", "kept", True, 1.0)]),
        ({"marks": [{"name": "user-feedback", "value": 0}]}, [("thumbs", "kept", False, 0.0)]),
        ({"marks": [{"name": "Like", "value": "up"}]}, [("thumbs", "kept", True, None)]),
        (
            {"swipes": ["first", "kept", " ", "first", "third"], "swipe_id": 1, "swiped_by": "Kim"},
            [("swipe", "kept", True, None), ("swipe", "first", False, None), ("swipe", "third", False, None)],
        ),
        ({"swipes": ["kept"], "swipe_id": 0, "swiped_by": "Kim"}, []),
        ({"swipes": ["first", "kept"], "swipe_id": 1}, []),
        ({"regenerations": ["first"]}, [("regeneration", "kept", True, None), ("regeneration", "first", False, None)]),
        (
            {"reactions": [{"name": "+1::skin-tone-2", "users": ["U1", "U2"]}, {"name": "-1", "users": ["U3"]}]},
            [("thumbs", "kept", True, None), ("thumbs", "kept", True, None), ("thumbs", "kept", False, None)],
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
