"""Label files: what is written loads the same, what is wrong is named with its place, and nobody's label is lost."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from persona_pipeline.base.documents.json import json_object
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.guard.labels.files import (
    MOST_NOTE,
    Label,
    LabellerKind,
    check_labeller,
    checked_label,
    is_filled,
    load_labels,
)
from persona_pipeline.judging.verdict import JudgeRequest
from tests.support.judging import request, trajectory
from tests.support.labels import label_of

LABEL = label_of(request(persona="A boss."), 7, labeller="ada", labelled_at=datetime(2026, 11, 22, 8, tzinfo=UTC))
LINE = json.loads(LABEL.to_line())
FIELDS = "key agent_id dimension proposition_id claim persona trajectory labeller labeller_kind score unscored note labelled_at"


def line(**changes: object) -> str:
    return json.dumps({**LINE, **changes})


def without(name: str) -> str:
    return json.dumps({key: value for key, value in LINE.items() if key != name})


def test_a_line_shows_all_its_key_is_made_of_in_a_fixed_order() -> None:
    assert list(LINE) == FIELDS.split()
    assert LINE["key"] == request(persona="A boss.").key
    assert (LINE["score"], LINE["unscored"], LINE["labelled_at"]) == (7, None, "2026-11-22T08:00:00Z")


CHANGED = {
    "key": "0" * 64,
    "claim": "Merry",
    "persona": None,
    "agent_id": "bob",
    "proposition_id": "x",
    "trajectory": "b" * 64,
}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"key": 1, "key": 2}', "stands twice"),
        ("[" * 100_000, "nested too deeply"),
        (line(scores=7), "unknown key 'scores'; did you mean 'score'?"),
        (line(key="abc"), "key: "),
        *((line(**{name: other}), "a field or the key was changed by hand") for name, other in CHANGED.items()),
        (line(dimension="adherance"), "no dimension; did you mean 'adherence'?"),
        (line(dimension="../../x"), "no dimension; the dimensions are"),
        (line(score=10), "score: "),
        (line(score=-1), "score: "),
        (line(score=True), "score: must be a whole number"),
        (line(score=None), "exactly one of 'score' and 'unscored'"),
        (line(unscored="not_applicable"), "exactly one of 'score' and 'unscored'"),
        (line(score=None, unscored="no_evidence"), "unscored: Input should be 'not_applicable'"),
        (line(labeller=""), "labeller: "),
        (line(labeller_kind="robot"), "labeller_kind: "),
        (line(note=None), "note: must be a string"),
        (line(note="x" * (MOST_NOTE + 1)), "note: "),
        (line(labelled_at="yesterday"), "labelled_at: time 'yesterday' is not an RFC 3339 time"),
        (line(labelled_at="2026-11-22T08:00:00"), "has no offset"),
        (without("trajectory"), "trajectory is required"),
    ],
)
def test_a_line_that_is_no_label_is_named_with_its_place(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "adherence.jsonl"
    path.write_text(f"\n{text}\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_labels(tmp_path)
    assert f"{path}:2: " in str(caught.value)
    assert said in str(caught.value)
    assert "; correct the line, or delete it and label again" in str(caught.value)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "adherence.jsonl").write_text(f"x\n{LABEL.to_line()}{line(score=8)}\n", encoding="utf-8")
    (tmp_path / "fluency.jsonl").write_text(LABEL.to_line(), encoding="utf-8")
    (tmp_path / "convergence.jsonl").write_bytes(b"\xff\n")
    assert load_labels(tmp_path / "none") == []
    with pytest.raises(ConfigError) as caught:
        load_labels(tmp_path)
    said = [str(problem) for problem in caught.value.problems]
    places = [text.removeprefix(f"{tmp_path}/").split(": ")[0] for text in said]
    assert places == ["adherence.jsonl:1", "convergence.jsonl", "fluency.jsonl:1", "adherence.jsonl:3"]
    assert "a label of adherence is in fluency.jsonl" in said[2]
    assert f"ada has labelled this judgment otherwise at {tmp_path}/adherence.jsonl:2; delete one" in said[3]


def test_names_of_labellers() -> None:
    for name in ("ada", "ada.l@example.org", "A-b_9"):
        assert check_labeller(name) == name
    for name in ("", "a b", "a\n", "é", "a" * 65, "<b>"):
        with pytest.raises(ValueError, match="cannot name a labeller"):
            check_labeller(name)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@given(TEXT.filter(bool), st.none() | TEXT, TEXT, st.none() | st.integers(0, 9), st.sampled_from(LabellerKind), TEXT)
@example("c", None, "s", 4, LabellerKind.PERSON, "\x00 and \ud800")
def test_every_label_comes_back_as_it_was_written(
    claim: str, persona: str | None, said: str, answer: int | None, kind: LabellerKind, note: str
) -> None:
    asked = JudgeRequest("fluency", "x", claim, trajectory(said), persona, agent_id="ann")
    label = label_of(asked, answer, labeller="ada", kind=kind, note=note)
    text = label.to_line()
    assert text.count("\n") == 1
    assert checked_label(Label, json_object(text)) == label
    assert label.key == asked.key


def test_a_label_is_of_a_claim_whatever_its_variables_were() -> None:
    assert is_filled("{{agent_name}} is {{mood}} in {{place}}", "Ann is dry in a way in #general")
    assert is_filled("It is dry", "It is dry") and is_filled("{{agent_name}}", "Ann")
    assert not any(is_filled("{{agent_name}} is dry", text) for text in ("Ann is dry.", " is dry"))
