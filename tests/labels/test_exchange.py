"""Labels to and from other tools: everything comes back, and a wrong row is named before anything is written."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.guard.labels.exchange import export_labels, read_labels
from persona_pipeline.guard.labels.files import Label, LabellerKind, label_of
from tests.labels.judgments import judgment
from tests.support.judging import request

ITEM = judgment(1)
SUBJECTS = {ITEM.key: ITEM.request.subject}
GIVEN = {"labeller": "ada", "labeller_kind": "person", "labelled_at": "2026-11-22T08:00:00Z"}


def read(folder: Path, text: str, ending: str = "csv", given: Mapping[str, str] = GIVEN) -> list[Any]:
    path = folder / f"labels.{ending}"
    path.write_text(text, encoding="utf-8", newline="")
    return read_labels(Label, path, SUBJECTS.get, given)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@settings(max_examples=40)
@given(
    rows=st.lists(
        st.tuples(TEXT.filter(bool), st.none() | TEXT, st.none() | st.integers(0, 9), TEXT),
        unique_by=lambda row: row[:2],
    )
)
def test_what_is_exported_comes_back(
    tmp_path_factory: pytest.TempPathFactory, ending: str, rows: list[tuple[str, str | None, int | None, str]]
) -> None:
    labels = [
        label_of(request(claim, persona=persona), answer, labeller="gpt", kind=LabellerKind.MODEL, note=note)
        for claim, persona, answer, note in rows
    ]
    path = tmp_path_factory.getbasetemp() / f"labels.{ending}"
    path.write_text(export_labels(Label, labels, ending), encoding="utf-8", newline="")
    assert read_labels(Label, path, SUBJECTS.get, {}) == labels


@pytest.mark.parametrize("note", ["=1+1", "+1", "-1", "@x", "\tx", "'=1", "''-"])
def test_a_spreadsheet_takes_no_note_for_a_formula(note: str, tmp_path: Path) -> None:
    label = label_of(ITEM.request, 3, labeller="ada", note=note)
    text = export_labels(Label, [label], "csv")
    assert f"'{note}" in text
    assert read(tmp_path, text) == [label]


@pytest.mark.parametrize(
    ("cells", "score"),
    [("7", 7), (" 7 ", 7), ("n/a", None), ("N/A", None), ("not_applicable", None)],
)
def test_key_and_score_are_enough_where_the_world_knows_the_judgment(
    cells: str, score: int | None, tmp_path: Path
) -> None:
    (label,) = read(tmp_path, f"\ufeffkey, score,note\r\n{ITEM.key},{cells},\r\n\r\n")
    assert (label.score, label.unscored) == (score, None if score is not None else "not_applicable")
    assert label == label_of(ITEM.request, score, labeller="ada").model_copy(update={"labelled_at": label.labelled_at})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("key,scores\n", "1: unknown column 'scores'; did you mean 'score'?"),
        ("key,key\n", "1: a column stands twice"),
        ("score\n", "1: there is no column 'key'"),
        ("", "1: there is no column 'key'"),
        (f"key,score\n{ITEM.key},7,x\n", "2: the row has 3 cells, the header 2"),
        (f"key,score\n{ITEM.key},\n", "2: exactly one of 'score' and 'unscored'"),
        (f"key,score\n{ITEM.key},ten\n", "2: 'score': must be a whole number"),
        (f"key,score\n{ITEM.key},7.5\n", "2: 'score': must be a whole number"),
        (f"key,score\n{ITEM.key},10\n", "2: 'score': "),
        (f"key,score\n{ITEM.key},²\n", "2: 'score': must be a whole number"),
        (
            f'key,note,score\n{ITEM.key},"a\nb",1\n{"0" * 64},,1\n',
            "4: there is no judgment with the key '000000000000'",
        ),
        (f"key,score\n{ITEM.key},7\n{ITEM.key},8\n", "3: ada has labelled this judgment in line 2"),
        (f'key,score\n{ITEM.key},"7\n', "2:1: is not valid CSV: a quoted cell is not closed"),
        (f"key,score,claim\n{ITEM.key},7,another\n", "2: its key is not that of what the line says"),
        (f"key,score,labeller\n{ITEM.key},7,a b\n", "2: 'labeller': "),
    ],
)
def test_a_row_that_is_no_label_is_named_with_its_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert f"{tmp_path}/labels.csv:{said}" in str(caught.value)


def test_what_a_row_does_not_say_is_not_guessed(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="'labeller' is missing; 'labeller_kind' is missing; 'labelled_at' is missing"
    ):
        read(tmp_path, f"key,score\n{ITEM.key},7\n", given={})


def test_json_lines_are_read_the_same(tmp_path: Path) -> None:
    (label,) = read(tmp_path, f'{{"key": "{ITEM.key}", "score": 4, "note": "-"}}\n', "jsonl")
    assert (label.score, label.note) == (4, "-")
    with pytest.raises(ConfigError, match=r"labels\.jsonl:2: not JSON"):
        read(tmp_path, "\n{\n", "jsonl")


def test_other_files_are_neither_read_nor_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"labels\.xlsx: is neither \.csv nor \.jsonl"):
        read(tmp_path, "", "xlsx")
    with pytest.raises(ConfigError, match=r"none\.csv: is no file"):
        read_labels(Label, tmp_path / "none.csv", SUBJECTS.get, {})
    with pytest.raises(ConfigError, match="format 'cvs' is unknown; did you mean 'csv'"):
        export_labels(Label, [], "cvs")
