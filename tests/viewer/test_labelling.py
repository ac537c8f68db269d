"""A labeller at work: what comes next, taking back, and what others do at the same time.

Judgments come at random, dimension by dimension in turn, in the same order for all labellers.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.evaluation.calibrate import Judgment
from persona_pipeline.guard.labels.files import Label, label_of, load_labels, write_label_files
from persona_pipeline.viewer import labels as page
from persona_pipeline.viewer.labels import Labelling, labelling_order, sessions_of
from persona_pipeline.world.world import World
from tests.labels.judgments import judgment, judgments


def labelling(folder: Path, items: list[Judgment], name: str = "ada") -> Labelling:
    return Labelling(folder, items, name)


def now(session: Labelling) -> str:
    current = session.current()
    assert current is not None
    return current.key


def test_each_answer_is_in_the_file_at_once_and_the_next_session_goes_on(tmp_path: Path) -> None:
    items = judgments(5)
    session = labelling(tmp_path, items)
    first = now(session)
    session.answer(first, 4, "  half of the time \n")
    (label,) = load_labels(tmp_path)
    assert (label.key, label.score, label.note, label.labeller_kind) == (first, 4, "half of the time", "person")
    second = now(session)
    assert now(labelling(tmp_path, items)) == second != first
    session.answer(second, None)
    assert session.progress() == [{"dimension": "adherence", "done": 2, "judged": 5}]


def test_everything_is_labelled_once_and_then_it_is_done(tmp_path: Path) -> None:
    session = labelling(tmp_path, judgments(6))
    seen = []
    while (current := session.current()) is not None:
        seen.append(current.key)
        session.answer(current.key, 3)
    assert sorted(seen) == sorted(item.key for item in session.judgments)


def test_what_is_skipped_comes_last(tmp_path: Path) -> None:
    session = labelling(tmp_path, judgments(3))
    skipped = now(session)
    session.skip(skipped)
    for _ in range(2):
        assert now(session) != skipped
        session.answer(now(session), 1)
    assert now(session) == skipped


def test_undo_takes_back_one_after_the_other(tmp_path: Path) -> None:
    session = labelling(tmp_path, judgments(4))
    keys = []
    for answer in (1, None, 2):
        keys.append(now(session))
        session.skip(keys[-1]) if answer is None else session.answer(keys[-1], answer)
    for key in reversed(keys):
        undone = session.undo()
        assert undone is not None and undone.item.key == key == now(session)
    assert session.undo() is None
    assert load_labels(tmp_path) == []
    for key in keys:
        assert now(session) == key
        session.answer(key, 5)


def test_undo_brings_back_the_answer_before(tmp_path: Path) -> None:
    items = judgments(2)
    write_label_files(Label, tmp_path, [label_of(items[0].request, 2, labeller="ada", note="first")])
    session = labelling(tmp_path, items)
    session.answer(items[0].key, 8)
    session.undo()
    assert [(label.score, label.note) for label in load_labels(tmp_path)] == [(2, "first")]


def test_two_labellers_get_the_same_and_keep_their_own(tmp_path: Path) -> None:
    items = judgments(4)
    ada, bob = labelling(tmp_path, items), labelling(tmp_path, items, "bob")
    for answer in range(3):
        assert now(ada) == now(bob)
        key = now(ada)
        ada.answer(key, answer)
        bob.answer(key, 9 - answer)
    bob.undo()
    labels = load_labels(tmp_path)
    assert sorted((label.labeller, label.score) for label in labels) == [
        ("ada", 0),
        ("ada", 1),
        ("ada", 2),
        ("bob", 8),
        ("bob", 9),
    ]


def test_a_dimension_that_has_enough_waits_for_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "FEWEST_JUDGMENTS", 2)
    session = labelling(tmp_path, [*judgments(6), *judgments(3, "fluency")])
    write_label_files(Label, tmp_path, [label_of(item.request, 1, labeller="ada") for item in session.judgments[:2]])
    order = []
    while (current := session.current()) is not None:
        order.append(current.dimension)
        session.answer(current.key, 1)
    assert order[:2] == ["fluency", "fluency"]
    assert sorted(order) == ["adherence"] * 4 + ["fluency"] * 3


@pytest.mark.parametrize(("score", "note"), [(10, ""), (-1, ""), (1, "x" * 2001)])
def test_what_cannot_be_a_label_is_not_written(tmp_path: Path, score: int, note: str) -> None:
    session = labelling(tmp_path, judgments(1))
    with pytest.raises(ValueError, match=r"score|note"):
        session.answer(now(session), score, note)
    assert load_labels(tmp_path) == []
    assert session.last is None


def test_a_file_that_is_broken_meanwhile_is_said_and_left_alone(tmp_path: Path) -> None:
    session = labelling(tmp_path, judgments(2))
    key = now(session)
    (tmp_path / "adherence.jsonl").write_text("{\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"adherence\.jsonl:1"):
        session.answer(key, 1)
    assert (tmp_path / "adherence.jsonl").read_text(encoding="utf-8") == "{\n"


def test_newest_labels_the_newest_window_only(world: World) -> None:
    opened = sessions_of(world, "eva")
    every, newest = (opened("michael", "adherence", only).judgments for only in (False, True))
    assert 0 < len(newest) < len(every)
    assert {item.window.end for item in newest} == {max(item.window.end for item in every)}


def test_dimensions_take_turns_until_one_is_used_up() -> None:
    mixed = [*judgments(4, "fluency"), *judgments(2, "adherence"), *judgments(3, "convergence")]
    order = [item.dimension for item in labelling_order(mixed)]
    assert order == ["adherence", "fluency", "convergence"] * 2 + ["fluency", "convergence", "fluency"]


@given(st.permutations(range(24)))
def test_the_order_depends_on_the_judgments_alone(places: list[int]) -> None:
    items = judgments(24)
    order = [item.key for item in labelling_order(items)]
    assert [item.key for item in labelling_order([items[place] for place in places])] == order
    more = [item.key for item in labelling_order([*items, judgment(99, 9)])]
    more.remove(judgment(99, 9).key)
    assert more == order != [item.key for item in items]
