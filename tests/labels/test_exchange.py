"""Labels of messages to and from other tools: everything comes back, and a wrong row is named before anything is written."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.guard.labels.messages import (
    MarkSource,
    MessageLabel,
    export_labels,
    message_key,
    message_label,
    read_labels,
)
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.world.models import Message

GIVEN = {
    **{"labeller": "ada", "source": "person", "labelled_at": "2026-11-22T08:00:00Z"},
    **{"conversation": "deck", "said_at": "2026-11-21T08:00:00Z"},
}
KEY = message_key("ann", "m1", "Arr.")


def label(text: str = "Arr.", note: str = "", verdict: Role = Role.IN, number: int = 1) -> MessageLabel:
    message = Message(f"m{number}", "ann", text, datetime(2026, 11, 21, 8, tzinfo=UTC), "deck")
    return message_label(message, verdict, "ada", MarkSource.PERSON, note=note)


def read(folder: Path, text: str, ending: str = "csv", given: Mapping[str, str] = GIVEN) -> list[MessageLabel]:
    path = folder / f"labels.{ending}"
    path.write_text(text, encoding="utf-8", newline="")
    return read_labels(path, given)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@settings(max_examples=15)
@given(rows=st.lists(st.tuples(TEXT.filter(bool), TEXT, st.sampled_from([*Role]))))
def test_what_is_exported_comes_back(
    tmp_path_factory: pytest.TempPathFactory, ending: str, rows: list[tuple[str, str, Role]]
) -> None:
    labels = [label(text, note, verdict, number) for number, (text, note, verdict) in enumerate(rows)]
    path = tmp_path_factory.getbasetemp() / f"labels.{ending}"
    path.write_text(export_labels(labels, ending), encoding="utf-8", newline="")
    assert read_labels(path, {}) == labels


@pytest.mark.parametrize("note", ["=1+1", "+1", "-1", "@x", "\tx", "'=1", "''-"])
def test_a_spreadsheet_takes_no_note_for_a_formula(note: str, tmp_path: Path) -> None:
    given = label(note=note)
    text = export_labels([given], "csv")
    assert f"'{note}" in text
    assert read(tmp_path, text) == [given]


HEADER = "agent_id,message,text,verdict\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("key,verdicts\n", "1: unknown column 'verdicts'; did you mean 'verdict'?"),
        ("key,score\n", "1: unknown column 'score'"),
        ("key,key\n", "1: a column stands twice"),
        (f"{HEADER}ann,m1,Arr.,in,x\n", "2: the row has 5 cells, the header 4"),
        (f"{HEADER}ann,m1,Arr.,\n", "2: verdict is required"),
        (f"{HEADER}ann,m1,Arr.,maybe\n", "2: verdict: "),
        (f"{HEADER}ann,m1,,in\n", "2: key is required; text is required"),
        (f'{HEADER}ann,m1,"a\nb",in\nann,m2,Arr.,7\n', "4: verdict: "),
        (f"{HEADER}ann,m1,Arr.,in\nann,m1,Arr.,out\n", "3: ada has labelled this message in line 2"),
        (f'{HEADER}ann,m1,"Arr.,in\n', "2:1: is not valid CSV: a quoted cell is not closed"),
        (f"key,{HEADER}{KEY},ann,m1,Aye.,in\n", "2: its key is not that of agent, message and text"),
        (f"labeller,{HEADER}a b,ann,m1,Arr.,in\n", "2: labeller: "),
    ],
)
def test_a_row_that_is_no_label_is_named_with_its_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert f"{tmp_path}/labels.csv:{said}" in str(caught.value)


def test_what_a_row_does_not_say_is_not_guessed(tmp_path: Path) -> None:
    given = {name: value for name, value in GIVEN.items() if name not in ("labeller", "labelled_at")}
    with pytest.raises(ConfigError, match="labeller is required; labelled_at is required"):
        read(tmp_path, f"{HEADER}ann,m1,Arr.,in\n", given=given)


def test_json_lines_are_read_the_same(tmp_path: Path) -> None:
    line = f'{{"key": "{KEY}", "agent_id": "ann", "message": "m1", "text": "Arr.", "verdict": "out", "note": "-"}}\n'
    (found,) = read(tmp_path, line, "jsonl")
    assert (found.verdict, found.note) == (Role.OUT, "-")
    with pytest.raises(ConfigError, match=r"labels\.jsonl:2: not JSON"):
        read(tmp_path, "\n{\n", "jsonl")


def test_other_files_are_neither_read_nor_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"labels\.xlsx: is neither \.csv nor \.jsonl"):
        read(tmp_path, "", "xlsx")
    with pytest.raises(ConfigError, match=r"none\.csv: is not a file"):
        read_labels(tmp_path / "none.csv", {})
    with pytest.raises(ConfigError, match="format 'cvs' is unknown; did you mean 'csv'"):
        export_labels([], "cvs")
