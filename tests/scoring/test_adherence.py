"""Adherence: what the judge is shown of an agent, on the whole window and action by action."""

from dataclasses import replace
from datetime import timedelta

import pytest

from persona_pipeline.scoring.plan import scorers
from persona_pipeline.world import Message
from persona_pipeline.world.propositions.models import Proposition
from tests.scoring.test_dimensions import MONDAY, OTHERS, OWN, case, claims, said, score


def test_adherence_shows_the_agent_or_the_channel() -> None:
    own = scorers()["adherence"](case(OWN, OTHERS), claims("adherence")).requests[0]
    assert {entry.speaker for entry in own.trajectory.entries} == {"Ann"}
    channel = scorers()["adherence"](case(OWN, OTHERS), claims("adherence", target_type="environment")).requests[0]
    assert {entry.speaker for entry in channel.trajectory.entries} == {"Ann", "Bob"}
    assert channel.claim == "Ann is dry in {{channel_name}}", "no one channel: the variable stays"


def test_actions_are_judged_one_by_one_with_what_came_before() -> None:
    items = [Proposition("p", "{{agent_name}} said {{action}} in {{channel_name}} to {{recipient_name}}")]
    own = [*OWN, *said("ann", "Psst.", channel=None, start=MONDAY + timedelta(hours=1))]
    plan = scorers()["adherence"](case(own), claims("adherence", *items, level="action", first_n=0, last_n=2))
    assert len(plan.requests) == 5
    assert plan.requests[2].claim == 'Ann said the message m2, the last one shown in "general" to {{recipient_name}}'
    assert plan.requests[4].claim == 'Ann said the message m2, the last one shown in {{channel_name}} to "Bob"'
    assert [entry.text for entry in plan.requests[2].trajectory.entries] == ["Second thing said.", "A third remark."]
    evaluation = score(plan, lambda r: 9 if "Bob" in r.claim else 4)
    assert evaluation.score == pytest.approx((4 * 4 + 9) / 5)
    assert [part["raw"] for part in evaluation.propositions["p"].parts] == [4, 4, 4, 4, 9]


def test_at_most_twenty_actions_are_drawn_always_the_same() -> None:
    own = said("ann", *[f"Remark number {n}." for n in range(50)])
    first = scorers()["adherence"](case(own), claims("adherence", level="action")).requests
    again = scorers()["adherence"](case(own), claims("adherence", level="action")).requests
    assert len(first) == 20
    assert [request.key for request in first] == [request.key for request in again]


def test_an_action_stands_last_although_others_were_said_in_the_same_second() -> None:
    own = [replace(message, created_at=MONDAY) for message in OWN]
    plan = scorers()["adherence"](case(own), claims("adherence", level="action"))
    assert [request.trajectory.entries[-1].message_id for request in plan.requests] == [m.id for m in own]
    assert [len(request.trajectory.entries) for request in plan.requests] == [1, 2, 3, 4]


def test_an_action_is_shown_even_where_the_window_is_empty() -> None:
    plan = scorers()["adherence"](case(OWN), claims("adherence", level="action", first_n=0, last_n=0))
    assert [[entry.text for entry in r.trajectory.entries] for r in plan.requests] == [[m.text] for m in OWN]


def test_the_environment_of_an_action_is_its_own_conversation() -> None:
    sold = said("ann", "Sell it.", channel="sales", start=MONDAY + timedelta(hours=1))
    psst = said("ann", "Psst.", channel=None, start=MONDAY + timedelta(hours=2))
    settings = {"level": "action", "target_type": "environment"}
    plan = scorers()["adherence"](case([*OWN[:1], *sold, *psst], OTHERS), claims("adherence", **settings))
    shown = [[entry.message_id for entry in request.trajectory.entries] for request in plan.requests]
    assert shown == [["ann-general-09-0"], ["ann-sales-09-0"], ["ann-None-09-0"]]


@pytest.mark.parametrize(
    ("own", "settings"),
    [
        pytest.param(OWN, {"first_n": 0, "last_n": 0}, id="a window of nothing"),
        pytest.param(said("ann", "Psst.", channel=None), {"target_type": "environment"}, id="no channel to look at"),
    ],
)
def test_a_judge_is_not_asked_about_nothing(own: list[Message], settings: dict[str, object]) -> None:
    plan = scorers()["adherence"](case(own), claims("adherence", **settings))
    assert plan.requests == ()
    evaluation = plan.finish([])
    assert (evaluation.score, evaluation.unscored, evaluation.n_expected) == (None, "no_evidence", 0)
    assert evaluation.propositions["p"].unscored == "no_evidence"
