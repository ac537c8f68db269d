"""The check that labels train: it refuses what it cannot know, states its error, and raters' choice widens it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from persona_pipeline.guard.labels.voice import MarkSource, VoiceLabel

from persona_pipeline.guard.labels.check import NoCheck, VoiceCheck, check_findings, checked_voices, learn_check
from persona_pipeline.guard.labels.files import LABELS, write_label_files
from persona_pipeline.world import World
from persona_pipeline.world.messages.store import write_messages
from persona_pipeline.world.models import Window
from tests.labels.voices import HALF, START, labels, message


def learnt(given: Sequence[VoiceLabel]) -> VoiceCheck:
    found = learn_check(tuple(given))
    assert isinstance(found, VoiceCheck), found
    return found


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (labels(HALF[:12]), "12 labels (6 on, 6 off); it needs 30 with 8 of each"),
        (labels([True] * 40 + [False] * 7), "47 labels (40 on, 7 off); it needs 30 with 8 of each"),
        (labels(HALF, source=MarkSource.SWIPE), "count as 6 and 6, for a star or thumb counts half and a swipe a quarter"),
        (labels(HALF, together=24), "its labels are of 2 conversations; it needs 5"),
        (labels([False] * 10 + [True] * 38, together=10), "its off labels are of 1 conversations; it needs 2"),
    ],
)  # fmt: skip
def test_it_refuses_what_it_cannot_know(given: tuple[VoiceLabel, ...], reason: str) -> None:
    found = learn_check(given)
    assert isinstance(found, NoCheck)
    assert reason in str(found)
    assert str(found).startswith("says nothing: ")


def test_labels_that_tell_nothing_give_no_check() -> None:
    given = labels([n % 7 < 4 for n in range(64)])
    by_chance = [label.model_copy(update={"on": n % 2 == 0}) for n, label in enumerate(given)]
    found = learn_check(tuple(by_chance))
    assert isinstance(found, NoCheck)
    assert "no better than chance" in found.reason


def test_it_tells_new_texts_and_says_how_sure_it_is() -> None:
    check = learnt(labels(HALF))
    assert check.auc > 0.95
    new = [(check.score(message(n, on).text), on) for n in range(100, 140) for on in (True, False)]
    assert sum((score >= 0.5) == on for score, on in new) >= 76
    error = check.error([score for score, _ in new])
    assert error.beyond == 80
    for low, high in (error.false_off, error.false_on):
        assert 0 <= low < high < 0.5
    assert "48 labels (48 person) by 1 person in 12 conversations, AUC 1.00" in str(check)
    assert "80 messages nobody labelled count in it" in str(error)


def test_the_same_labels_give_the_same_check() -> None:
    first = learnt(labels(HALF))
    learn_check.cache_clear()
    again = learnt(labels(HALF))
    text = message(200, True).text
    assert first.score(text) == again.score(text)
    assert (first.error().false_off, first.error().share_off(3, 20)) == (
        again.error().false_off,
        again.error().share_off(3, 20),
    )


def test_whoever_felt_like_rating_widens_the_error() -> None:
    lot, chosen, thumbs = (
        learnt(labels(kinds, **fields)).error()
        for kinds, fields in (
            (HALF, {}),
            (HALF, {"chosen": "given"}),
            (HALF * 2, {"chosen": "given", "source": MarkSource.THUMBS}),
        )
    )
    assert lot.false_off[1] < chosen.false_off[1]
    assert lot.false_on[1] < thumbs.false_on[1]


def test_no_text_is_judged_by_a_model_that_saw_it() -> None:
    given = labels(HALF)
    check = learnt(given)
    assert {label.text for label in given} == set(check.known)
    assert check.unseen(given[0].text) == check.known[given[0].text] != check.score(given[0].text)


def test_people_who_differ_are_outvoted_and_a_tie_is_left_out() -> None:
    given = labels(HALF)
    others = [label.model_copy(update={"labeller": "bob", "on": not label.on}) for label in given[:2]]
    third = given[0].model_copy(update={"labeller": "cid"})
    check = learnt([*given, *others, third])
    assert (check.people, check.labels) == (3, 51)
    assert given[0].text in check.known
    assert given[1].text not in check.known


@pytest.mark.parametrize(("called", "low", "high"), [(0, 0.0, 0.3), (10, 0.2, 0.9), (20, 0.6, 1.0)])
def test_the_share_is_corrected_for_the_error(called: int, low: float, high: float) -> None:
    share = learnt(labels(HALF)).error().share_off(called, 20)
    assert low <= share[0] < share[1] <= high


@pytest.fixture
def talking(small_world: World) -> World:
    small_world.bring_in(["ann"], [], named=False)
    said = [message(n, n < 60) for n in range(80)]
    write_messages(small_world.store, said)
    write_label_files(VoiceLabel, small_world.root / LABELS, labels(HALF))
    return small_world


def week(number: int) -> Window:
    return Window.ending(START + timedelta(days=number // 4, hours=12), timedelta(days=5))


@pytest.mark.parametrize(("last", "found"), [(59, False), (79, True)])
def test_a_window_that_turned_off_is_a_warning_with_its_worst_lines(talking: World, last: int, found: bool) -> None:
    checked = checked_voices(talking, [("ann", week(last)), ("bob", week(last))])
    assert list(checked) == ["ann"]
    findings = list(check_findings(checked["ann"]))
    assert bool(findings) is found, checked["ann"].text
    if found:
        (finding,) = findings
        assert (finding.kind, finding.exit_code) == ("voice_check", 0)
        assert "by 48 labels of its voice" in finding.message
        assert finding.message.count("(m") == 3
        assert finding.command == "persona-pipeline view"


def test_too_few_labels_are_said_and_are_no_finding(small_world: World) -> None:
    write_label_files(VoiceLabel, small_world.root / LABELS, labels(HALF[:3]))
    (checked,) = checked_voices(small_world, [("ann", week(79))]).values()
    assert not list(check_findings(checked))
    assert "says nothing: 3 labels" in checked.text


def test_labels_of_the_base_decide(talking: World, tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    by_base = replace(talking, decided_by=base)
    assert checked_voices(by_base, [("ann", week(79))]) == {}
