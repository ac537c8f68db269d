"""Messages from files: good lines kept, bad ones named."""

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.text import clean, storable
from persona_pipeline.world import World
from persona_pipeline.world.messages.files import parse_message, parse_messages
from persona_pipeline.world.messages.store import read_messages, write_messages
from tests.support.worlds import ingest, write_jsonl

GOOD = {"id": "1", "agent_id": "ann", "channel": "general", "text": "hi", "created_at": "2026-03-01T10:00:00Z"}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "is not JSON"),
        ("[1]", "is not an object"),
        ('"text"', "is not an object"),
        ("[" * 100_000, "nested too deeply"),
        (
            json.dumps({("agnet_id" if k == "agent_id" else k): v for k, v in GOOD.items()}),
            "agent_id is missing; did you mean 'agnet_id'?",
        ),
        (
            json.dumps({("chanel" if k == "channel" else k): v for k, v in GOOD.items()}),
            "either a channel or a recipient (a direct message); did you mean 'chanel'?",
        ),
        (json.dumps({k: v for k, v in GOOD.items() if k != "text"}), "text is missing"),
        (json.dumps({**GOOD, "text": None}), "text is missing"),
        (json.dumps({**GOOD, "text": 5}), "text must be a string, not 5"),
        (json.dumps({**GOOD, "id": ""}), "id '' must be 1 to 256"),
        (json.dumps({**GOOD, "agent_id": "a\nb"}), "printable"),
        (json.dumps({**GOOD, "recipient": "bob"}), "either a channel or a recipient"),
        (json.dumps({k: v for k, v in GOOD.items() if k != "channel"}), "either a channel or a recipient"),
        (json.dumps({**GOOD, "created_at": "2026-03-01T10:00:00"}), "has no offset"),
        (json.dumps({**GOOD, "created_at": "yesterday"}), "is not an RFC 3339 time"),
        (json.dumps({**GOOD, "created_at": "2026-03-01"}), "is not an RFC 3339 time"),
        (json.dumps({**GOOD, "created_at": "2026-02-30T10:00:00Z"}), "is not an RFC 3339 time"),
        (json.dumps({**GOOD, "created_at": "0001-01-01T00:00:00+14:00"}), "out of range"),
        (json.dumps({**GOOD, "run_id": "7"}), "is not a UUID"),
        (json.dumps({**GOOD, "text": "other words"}), "id '1' is taken by line 1"),
    ],
)
def test_a_bad_line_is_named_and_the_others_kept(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "messages.jsonl"
    path.write_text(f"{json.dumps(GOOD)}\n\n{line}\n{json.dumps({**GOOD, 'id': '2'})}\n", encoding="utf-8")
    parsed = parse_messages(path)
    assert [message.id for message in parsed.messages] == ["1", "2"]
    assert len(parsed.problems) == 1
    assert str(parsed.problems[0]).startswith(f"{path}:3: ")
    assert says in str(parsed.problems[0])


@pytest.mark.parametrize(
    "text",
    ["2026-03-01T10:00:00Z", "2026-03-01t10:00:00z", "2026-03-01 12:00:00+02:00", "2026-03-01T10:00:00.000-00:00"],
)
def test_every_spelling_of_rfc_3339_is_one_moment(text: str) -> None:
    assert parse_message({**GOOD, "created_at": text}) == parse_message(GOOD)


def test_an_exact_repeat_is_no_problem(tmp_path: Path) -> None:
    parsed = parse_messages(write_jsonl(tmp_path / "m.jsonl", [GOOD, GOOD]))
    assert (len(parsed.messages), parsed.problems) == (1, [])


def test_csv_means_the_same_as_jsonl(tmp_path: Path) -> None:
    rows = [GOOD, {**GOOD, "id": "2", "text": 'two\nlines, a comma and "quotes"', "channel": "", "recipient": "bob"}]
    path = tmp_path / "m.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, ["id", "agent_id", "channel", "recipient", "text", "created_at"])
        writer.writeheader()
        writer.writerows(rows)
    parsed = parse_messages(path)
    assert parsed.problems == []
    again = parse_messages(write_jsonl(tmp_path / "m.jsonl", [{k: v for k, v in row.items() if v} for row in rows]))
    assert parsed.messages == again.messages


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "has no header"),
        ("id,wer\n", "column 'agent_id' is missing"),
        ("id,agent_id,channel,text,created_at,id\n", "column 'id' stands twice"),
        ("1,ann,c,hi,2026-03-01T10:00:00Z\n", "has no header"),
        ("id,agent_id,channel,text,created_at\n1,ann,c,hi,2026-03-01T10:00:00Z,extra\n", ":2: has more cells"),
        ("id,agent_id,channel,text,created_at\n1,ann,c,hi\n", ":2: created_at is missing"),
        ('id,agent_id,channel,text,created_at\n1,ann,c,"hi"x,2026-03-01T10:00:00Z\n', ":2: is not CSV"),
    ],
)
def test_bad_csv_is_named(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "m.csv"
    path.write_text(content + ("2,ann,c,hi,2026-03-01T10:00:00Z\n" if says.startswith(":2") else ""), encoding="utf-8")
    try:
        parsed = parse_messages(path)
    except ConfigError as error:
        (problem,) = error.problems
    else:
        (problem,) = parsed.problems
        assert [message.id for message in parsed.messages] == ["2"], "a bad line does not lose the next one"
    assert says in str(problem)


@pytest.mark.parametrize("name", ["m.txt", "missing.jsonl", "latin.jsonl"])
def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "latin.jsonl").write_bytes(b'{"id": "\xe9"}')
    with pytest.raises(ConfigError, match=name):
        parse_messages(tmp_path / name)


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text(json.dumps({**GOOD, "text": "a\u2028b\x85c"}, ensure_ascii=False) + "\n", encoding="utf-8")
    assert [message.text for message in parse_messages(path).messages] == ["a\u2028b\x85c"]


HOSTILE = [
    *("nul \x00 byte", "lone \ud800 surrogate", "emoji \U0001f468‍\U0001f469", "rtl ‮ \u202e", "", " "),
    *("' OR 1=1 --", "%s {x}", "\\"),
]


def test_any_text_is_stored_and_read_back(store: Store) -> None:
    messages = [parse_message({**GOOD, "id": str(number), "text": text}) for number, text in enumerate(HOSTILE)]
    write_messages(store, messages)
    assert read_messages(store) == messages


@given(st.text(st.characters()))
def test_storable_text_can_be_encoded_and_changes_only_what_must(text: str) -> None:
    kept = storable(text)
    kept.encode("utf-8")
    assert "\x00" not in kept
    if "\x00" not in text and not any("\ud800" <= c <= "\udfff" for c in text):
        assert kept == text
    assert clean(text) == clean(clean(text)) == clean(kept)


def test_letters_are_composed_in_texts_and_not_in_ids() -> None:
    decomposed = "cafe\u0301"
    message = parse_message({**GOOD, "id": decomposed, "text": decomposed, "swipes": [decomposed]})
    assert (message.id, message.text, message.extras["swipes"]) == (decomposed, "caf\u00e9", ["caf\u00e9"])


def test_ingesting_again_adds_nothing_and_an_edit_changes_one(small_world: World, tmp_path: Path) -> None:
    rows = [{**GOOD, "id": f"new-{n}", "text": f"text {n}"} for n in range(5)]
    path = write_jsonl(tmp_path / "more.jsonl", rows)
    assert ingest(small_world, path).written.inserted == 5
    again = ingest(small_world, path).written
    assert (again.inserted, again.updated, again.unchanged) == (0, 0, 5)
    rows[2]["text"] = "edited"
    write_jsonl(path, rows)
    edited = ingest(small_world, path).written
    assert (edited.inserted, edited.updated, edited.unchanged) == (0, 1, 4)
    texts = [m.text for m in small_world.messages(agent_id="ann") if m.id.startswith("new")]
    assert texts == ["text 0", "text 1", "edited", "text 3", "text 4"]
