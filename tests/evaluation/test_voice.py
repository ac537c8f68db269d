"""An agent's voice in an evaluation: a warning where it began."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.evaluation.voice import alarm_window, messages_to_follow, voice_state
from persona_pipeline.guard.report import EXIT_OK, EXIT_REGRESSION, RunReport
from persona_pipeline.judging.open import open_judge
from persona_pipeline.reporting.render import render
from persona_pipeline.reporting.statistics import gather
from persona_pipeline.scoring.style.monitor import stored_voice
from persona_pipeline.world import World
from persona_pipeline.world.messages.store import write_messages
from persona_pipeline.world.models import Message, Window

# One worker learns the voices for all of them.
pytestmark = pytest.mark.xdist_group("voices")

END = datetime(2026, 6, 19, 17, 12, tzinfo=UTC)
WEEK = Window.ending(END, timedelta(days=7))


def evaluate(world: World, *fail_on: str) -> RunReport:
    judge = open_judge("recorded", world)
    return run_evaluation(world, judge, EvaluationRequest(only_fail_on=list(fail_on) if fail_on else None)).report


def say(world: World, agent_id: str, count: int, start: datetime) -> None:
    said = [
        Message(
            f"{agent_id}-{start:%j}-{number}",
            agent_id,
            f"Well, number {number} it is, ha!",
            start + timedelta(minutes=number),
            "sales",
        )
        for number in range(count)
    ]
    write_messages(world.store, said)


def test_an_evaluation_warns_of_the_lost_voice_and_fails_only_when_asked_to(learnt_world: World) -> None:
    report = evaluate(learnt_world, "coverage")
    found = [finding for finding in report.all_findings() if finding.kind == "voice_alarm"]
    assert [(finding.agent_id, finding.exit_code) for finding in found] == [("michael", EXIT_OK)]
    assert "since message general-073" in found[0].message
    state = voice_state(learnt_world, "michael", WEEK)
    assert "general-073" in state.text and "; learnt from 42 of its messages in " in state.text
    assert "' (general-" in found[0].message, "messages are quoted"
    assert "--since 2026-06-15T08:37:59.999999Z --as-of 2026-06-17T09:14:00Z" in found[0].remedy
    assert report.exit_code == EXIT_OK
    assert evaluate(learnt_world, "voice_alarm").exit_code == EXIT_REGRESSION
    assert report.usage.calls == 0


def test_reports_say_where_a_voice_changed(learnt_world: World) -> None:
    report = gather(learnt_world, evaluate(learnt_world))
    page, markdown = render(report, "html"), render(report, "markdown")
    assert "has not sounded like itself since message" in page
    assert "has not sounded like itself since message" in markdown


def test_without_a_voice_nothing_is_said_and_nothing_is_learnt(sample_world: World) -> None:
    report = gather(sample_world, evaluate(sample_world))
    assert [finding for finding in report.all_findings() if finding.kind == "voice_alarm"] == []
    assert stored_voice(sample_world.store, "michael") is None


def test_an_unlearnt_voice_says_how_much_is_missing(sample_world: World) -> None:
    sample_world.sync()
    start = datetime(2026, 6, 6, tzinfo=UTC)
    state = voice_state(sample_world, "jim", Window(END, start), learn=True)
    assert (state.text, state.learnable) == ("not learnt yet: 21 of 30 messages", False)
    assert voice_state(sample_world, "jim", Window(END), learn=True).text == "not learnt yet: 0 of 30 messages"
    enough = voice_state(sample_world, "jim", WEEK)
    assert enough.learnable and "of 30 messages" not in enough.text and "are enough" in enough.text


def test_another_persona_is_another_voice_from_its_next_message_on(learnt_root: Path, learnt_world: World) -> None:
    new = "display_name: Michael\npersona: A quiet archivist who answers with one word.\n"
    (learnt_root / "personas/michael.yaml").write_text(new, encoding="utf-8")
    learnt_world.sync_persona("michael")
    state = voice_state(learnt_world, "michael", WEEK, learn=True)
    assert state.text.startswith("not learnt yet: 0 of 30 messages; its persona changed")
    newest = learnt_world.messages(agent_id="michael")[-1]
    assert state.learnt.since == newest.created_at, "everything said before belongs to the old one"
    say(learnt_world, "michael", 31, END + timedelta(days=1))
    anew = voice_state(learnt_world, "michael", WEEK, learn=True)
    assert anew.learnt.model is not None and anew.learnt.model.provenance.messages == 31
    assert not anew.learnt.model.tells
    assert anew.text.startswith("cannot tell: too little history (1 of about 20 conversations, 31 of 100 messages)")
    assert "; its persona changed" in anew.text


def test_the_window_of_an_alarm_holds_its_messages_and_no_others(learnt_world: World) -> None:
    (found,) = voice_state(learnt_world, "michael", WEEK).alarms
    said = learnt_world.messages(alarm_window(found), agent_id="michael")
    assert (said[0], said[-1], len(said)) == (found.began_at, found.raised_at, found.messages)
    only = EvaluationRequest(
        agents=["michael"], since=alarm_window(found).start, as_of=alarm_window(found).end, dimensions=["fluency"]
    )
    report = run_evaluation(learnt_world, open_judge("recorded", learnt_world), only).report
    assert report.agents["michael"].evaluation.sample_size == 10


@pytest.mark.parametrize(("said", "read"), [(3, 25), (477, 499), (478, 500), (1477, 999), (1478, 500)])
def test_of_many_messages_the_newest_are_read_from_a_place_that_stays(
    learnt_world: World, said: int, read: int
) -> None:
    say(learnt_world, "jim", said, END + timedelta(minutes=1))
    learnt = stored_voice(learnt_world.store, "jim")
    assert learnt is not None
    found = messages_to_follow(learnt_world, learnt, END + timedelta(days=2))
    assert len(found) == read
    assert found[-1].id == f"jim-170-{said - 1}"
