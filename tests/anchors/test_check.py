"""The rules of the check: how many must be right, what no answer is, and when a judge has changed."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from scipy.stats import binom

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.guard.anchors import (
    MOST_BY_CHANCE,
    Anchor,
    AnchorAnswers,
    AnchoredAgent,
    answers_of,
    check_of,
    has_changed,
    load_anchors,
    save_anchors,
    wanted,
)
from persona_pipeline.guard.drawing import draw_anchors
from persona_pipeline.guard.labels.messages import MarkSource, MessageLabel, message_label
from persona_pipeline.scoring.messages.reading import Character
from persona_pipeline.scoring.messages.verdicts import MessageVerdict, MessageVerdicts, Role
from persona_pipeline.world.models import Message
from persona_pipeline.world.propositions.models import Proposition

DAY = date(2026, 6, 1)
CHARACTERS = {
    name: Character(name, name.title(), f"{name} is a character.", [Proposition("dry", "{{agent_name}} is dry")])
    for name in ("ann", "bob", "cleo")
}
SAID = {
    "ann": [f"Aye captain, the starboard rigging needs mending, number {n}, aye" for n in range(20)],
    "bob": [f"Invoice {n} was approved by procurement and will be paid on Friday" for n in range(20)],
    "cleo": ["ok", "fine"],
}


def answers(
    wrong: int = 0, *, first: int = 0, count: int = 20, day: int = 0, by_people: int = 0, one_sided: bool = False
) -> AnchorAnswers:
    right = {str(n): not first <= n < first + wrong for n in range(count)}
    when = DAY + timedelta(days=day)
    return AnchorAnswers(day=when, right=right, by_people=by_people, unanswered=20 - count, one_sided=one_sided)


def test_dice_pass_as_seldom_with_any_number_of_anchors() -> None:
    assert [wanted(asked) for asked in (20, 40, 10)] == [16, 29, 10]
    for asked in range(10, 41):
        assert binom.sf(wanted(asked) - 1, asked, 0.5) <= MOST_BY_CHANCE < binom.sf(wanted(asked) - 2, asked, 0.5)


@pytest.mark.parametrize(
    ("given", "passed", "text"),
    [
        (answers(1, by_people=12), True, "judge checked: 19 of 20 (12 labelled by people)"),
        (answers(4), True, "judge checked: 16 of 20 (none labelled by people)"),
        (answers(5), False, "judge failed its check: 15 of 20 (none labelled by people), 16 wanted"),
        (answers(0, count=9), None, "judge not checked: 9 of 20 answered"),
        (answers(5, one_sided=True), False, "judge failed its check: 15 of 20 (none labelled by people), 16 wanted"),
        (
            answers(one_sided=True),
            None,
            "judge not checked: all known messages it was asked about have the same verdict",
        ),
        (None, None, "judge not checked"),
    ],
)
def test_a_check_in_a_line(given: AnchorAnswers | None, passed: bool | None, text: str) -> None:
    found = check_of(given)
    assert (found.passed, found.text) == (passed, text)


def test_more_wrong_answers_never_make_a_check_better() -> None:
    passed = [check_of(answers(wrong)).passed for wrong in range(21)]
    assert passed == sorted(passed, key=lambda item: not item)


def test_a_failed_call_is_no_answer_and_a_verdict_that_does_not_hold_is_a_wrong_one() -> None:
    anchors = [Anchor(text=f"text {n}", verdict=Role.IN if n % 2 else Role.OUT) for n in range(4)]
    agent = AnchoredAgent.of(CHARACTERS["ann"], anchors)
    first, *_ = agent.by_key
    given = MessageVerdict(message=first, conversation="", said_at=datetime.now(UTC), verdict=Role.OUT)
    for reason, expected in (("api_error", (1, 3)), ("unsupported", (4, 0))):
        read = MessageVerdicts(agent_id="ann", verdicts=[given], unscored={reason: 3})
        found = answers_of([agent], [read], DAY)
        assert (len(found.right), found.unanswered, sum(found.right.values())) == (*expected, 1)


@pytest.mark.parametrize(
    ("now", "earlier", "changed"),
    [
        pytest.param(answers(0, day=9), [], False, id="the same answers"),
        pytest.param(answers(2, day=9), [], False, id="two others in one run may be chance"),
        pytest.param(answers(8, day=9), [], True, id="eight in one run are not"),
        pytest.param(answers(2, day=9), [answers(2, day=7), answers(2, day=8)], True, id="the same two in three runs"),
        pytest.param(
            answers(2, day=9),
            [answers(2, first=2, day=7), answers(2, first=4, day=8)],
            False,
            id="other ones each time",
        ),
        pytest.param(answers(1, day=9), [answers(1, day=7), answers(1, day=8)], False, id="one alone"),
        pytest.param(answers(2, day=9), [answers(2, day=9)] * 3, False, id="the same day asked again"),
    ],
)
def test_a_judge_has_changed(now: AnchorAnswers, earlier: list[AnchorAnswers], changed: bool) -> None:
    assert has_changed(now, answers(), earlier) is changed
    assert check_of(now, answers(), earlier).changed is changed


def test_what_was_answered_in_two_ways_when_the_baseline_was_taken_shows_no_change() -> None:
    unsteady = answers().again(answers(2))
    assert unsteady.unsteady == ["0", "1"]
    assert not has_changed(answers(2, day=9), unsteady, [answers(2, day=7), answers(2, day=8)])


def test_swapped_anchors_are_in_under_one_name_and_out_under_the_other() -> None:
    agents = draw_anchors(CHARACTERS, SAID)
    assert [item.agent_id for item in agents] == ["ann", "bob"]
    verdicts = {item.agent_id: {anchor.text: anchor.verdict for anchor in item.anchors} for item in agents}
    assert verdicts["ann"].keys() == verdicts["bob"].keys() and len(verdicts["ann"]) == 10
    for text, role in verdicts["ann"].items():
        assert role is (Role.IN if text in SAID["ann"] else Role.OUT)
        assert {role, verdicts["bob"][text]} == {Role.IN, Role.OUT}
    assert draw_anchors(CHARACTERS, SAID) == agents, "the same ones each time"
    few = {"bob": SAID["bob"][:4], "cleo": SAID["cleo"]}
    assert draw_anchors(CHARACTERS, few) == [], "nobody who said little is an anchor"


@pytest.mark.parametrize(
    "other", [[], SAID["ann"], SAID["bob"][:9]], ids=["alone", "writes alike", "said too little to compare"]
)
def test_an_agent_without_another_to_compare_with_is_swapped_with_a_stock_character(other: list[str]) -> None:
    agents = draw_anchors(CHARACTERS, {"ann": SAID["ann"], "bob": other})
    assert [item.agent_id for item in agents] == ["ann", "stock-character"]
    assert [len(item.anchors) for item in agents] == [10, 10]


def labelled(agent_id: str, text: str, verdict: Role) -> MessageLabel:
    said = Message(text[:20], agent_id, text, datetime(2026, 6, 1, tzinfo=UTC), channel="deck")
    return message_label(said, verdict, "eva", MarkSource.PERSON)


def test_labels_of_people_come_first_as_many_in_as_out() -> None:
    labels = [labelled("cleo", f"labelled in {n}", Role.IN) for n in range(9)]
    labels += [labelled("cleo", f"labelled out {n}", Role.OUT) for n in range(3)]
    agents = {item.agent_id: item.anchors for item in draw_anchors(CHARACTERS, SAID, labels)}
    assert [anchor.verdict for anchor in agents["cleo"]] == [Role.IN, Role.OUT] * 3
    assert all(anchor.by_people for anchor in agents["cleo"])
    assert sum(map(len, agents.values())) == 20


def test_anchors_are_kept_a_line_an_agent_and_a_broken_line_has_its_place(tmp_path: Path) -> None:
    path, agents = tmp_path / "baselines" / "anchors.jsonl", draw_anchors(CHARACTERS, SAID)
    assert load_anchors(path) == []
    # JSON may hold signs that other readers take for ends of lines.
    agents[0] = agents[0].model_copy(
        update={"anchors": [*agents[0].anchors, Anchor(text="a\u2028b\x85c", verdict=Role.IN)]}
    )
    save_anchors(path, agents)
    assert load_anchors(path) == agents
    path.write_text(path.read_text("utf-8") + "{}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=":3: "):
        load_anchors(path)


def test_a_question_about_anchors_has_another_order_each_day_and_the_same_messages() -> None:
    agent = draw_anchors(CHARACTERS, SAID)[0]
    first, again, other = agent.call(DAY), agent.call(DAY), agent.call(DAY + timedelta(days=1))
    assert first.question.key == again.question.key != other.question.key
    assert {message.id for message, _ in first.asked} == {message.id for message, _ in other.asked} == {*agent.by_key}
