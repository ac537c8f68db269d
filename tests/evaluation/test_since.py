"""Agents before and after a date: shares of messages in character on both sides, scores, and one exit code."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.base.errors import ConfigError, NothingError
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.base.shares import Counts, share_drop, share_of_counts
from persona_pipeline.base.status import Result
from persona_pipeline.lab.since import AgentSince, SinceReport, compare_since
from persona_pipeline.reporting.pages.experiments import since_page
from persona_pipeline.reporting.render import render_page
from persona_pipeline.testing.judges import ScriptedJudge
from persona_pipeline.testing.worlds import WorldBuilder
from persona_pipeline.world.world import World
from tests.evaluation.test_messages import STOCK, reply
from tests.support.command_line import Cli

FIRST = datetime(2026, 3, 2, 9, tzinfo=UTC)
EVENT = FIRST + timedelta(days=14, hours=-1)


@pytest.fixture(autouse=True)
def _asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONA_MESSAGE_VERDICTS", "400")


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Build a world of two agents that speak once a conversation; ``drift``: conversations in which ann says stock phrases."""
    opened: list[World] = []

    def build(drift: Callable[[int], bool]) -> World:
        builder = WorldBuilder(tmp_path / "world").persona("ann", "Ann is dry.").persona("bob", "Bob is loud.")
        builder.claim("adherence", "dry", "{{agent_name}} is dry")
        for number in range(56):
            at = FIRST + timedelta(hours=12 * number)
            builder.say("guest", f"A question {number}?", at=at)
            for agent_id, minute in (("ann", 2), ("bob", 3)):
                text = STOCK if agent_id == "ann" and drift(number) else f"{agent_id} says a thing."
                builder.say(agent_id, f"{text} ({number})", at=at + timedelta(minutes=minute))
        opened.append(builder.open())
        return opened[-1]

    yield build
    for world in opened:
        world.store.close()


def found(world: World, date: datetime = EVENT, reading: Any = reply, **asked: Any) -> SinceReport:
    request = EvaluationRequest(**{"window": "14d", **asked})
    return compare_since(world, ScriptedJudge(lambda _: 8, reply=reading), date, request)


@pytest.mark.parametrize(
    ("drift", "result", "exit_code"),
    [
        pytest.param(lambda number: number >= 28, Result.FELL, 1, id="from the event on"),
        pytest.param(lambda number: number >= 40, Result.FELL, 1, id="later than the event"),
        pytest.param(lambda number: number % 2 == 0, Result.HELD, 0, id="half of all messages on both sides"),
        pytest.param(lambda number: number < 28, Result.HELD, 0, id="better since"),
        pytest.param(lambda number: False, Result.HELD, 0, id="never"),
    ],
)
def test_an_agent_fell_where_fewer_messages_are_in_character(
    make: Callable[..., World], drift: Callable[[int], bool], result: Result, exit_code: int
) -> None:
    report = found(make(drift))
    by_id = {agent.agent_id: agent.result for agent in report.agents}
    assert (by_id, report.exit_code) == ({"ann": result, "bob": Result.HELD}, exit_code)
    assert result is not Result.FELL or report.agents[0].agent_id == "ann"


def test_the_report_has_the_date_that_the_messages_show_and_both_sides(make: Callable[..., World]) -> None:
    [ann] = found(make(lambda number: number >= 40), agents=["ann"]).agents
    assert f"since {FIRST + timedelta(days=20, minutes=2):%Y-%m-%d %H:%M} UTC" in ann.text
    assert (ann.before.n_in, ann.before.n_out, ann.after.n_out) == (28, 0, 16)
    assert ann.scores == {"adherence": (8.0, 8.0)}
    assert [item.verdict.quote for item in ann.worst] == [STOCK] * 5
    assert all(item.answered and item.example for item in ann.worst)


def test_one_more_message_out_of_character_never_makes_the_result_better(make: Callable[..., World]) -> None:
    world, order = make(lambda number: number >= 28), [Result.HELD, Result.CANNOT_TELL, Result.FELL]
    results: list[int] = []
    for number in range(0, 29, 2):

        def reading(question: Any, number: int = number) -> Any:
            answer: Any = reply(question)
            if isinstance(answer, dict):
                answer["why"] = answer["why"][:number]
                kept = {item["id"] for item in answer["why"]}
                for item in answer["verdicts"]:
                    item["verdict"] = "out" if item["id"] in kept else "in"
            return answer

        results.append(order.index(found(world, reading=reading, agents=["ann"]).agents[0].result))
    assert results == sorted(results)
    assert {*results} >= {0, 2}


COUNTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 2)), min_size=1, max_size=8)
SIDES = st.tuples(st.integers(0, 9), st.integers(0, 9))


def both(before: list[Counts], after: list[Counts], scores: dict[str, tuple[float | None, float | None]]) -> Result:
    shares = {"before": share_of_counts(before), "after": share_of_counts(after)}
    found = AgentSince(agent_id="ann", name="Ann", text="", drop=share_drop(before, after), scores=scores, **shares)
    return found.result


@given(COUNTS, COUNTS, SIDES, st.data())
def test_worse_messages_and_scores_after_the_date_never_make_the_result_better(
    before: list[Counts], after: list[Counts], scores: tuple[int, int], data: st.DataObject
) -> None:
    order = [Result.FELL, Result.CANNOT_TELL, Result.HELD]
    worse: list[Counts] = []
    for n_in, n_out, n_unclear in after:
        turned = data.draw(st.integers(0, n_in))
        worse.append((n_in - turned, n_out + turned, n_unclear))
    lower = data.draw(st.integers(0, scores[1]))
    first = both(before, after, {"adherence": scores})
    assert order.index(both(before, worse, {"adherence": (scores[0], lower)})) <= order.index(first)


@pytest.mark.parametrize(
    ("after", "scores", "result"),
    [
        pytest.param([(4, 0, 0)] * 9, (8.0, 7.0), Result.HELD, id="a point lower"),
        pytest.param(
            [(4, 0, 0)] * 9, (8.0, 6.9), Result.CANNOT_TELL, id="more than a point lower, and nothing shows it"
        ),
        pytest.param([(4, 0, 0)] * 9, (8.0, None), Result.HELD, id="no score"),
        pytest.param([(2, 1, 0)], (8.0, 8.0), Result.CANNOT_TELL, id="22 points lower in three messages"),
        pytest.param([(2, 2, 0)] * 9, (8.0, 8.0), Result.FELL, id="50 points lower"),
        pytest.param([(0, 0, 3)], (8.0, 8.0), Result.CANNOT_TELL, id="all unclear"),
    ],
)
def test_a_drop_that_is_not_sure_cannot_be_told(
    after: list[Counts], scores: tuple[float | None, float | None], result: Result
) -> None:
    assert both([(8, 1, 0)] * 9, after, {"adherence": scores}) is result


def test_who_was_out_of_character_before_too_is_not_called_in_character(make: Callable[..., World]) -> None:
    shown = render_page(since_page(found(make(lambda number: number % 2 == 0), agents=["ann"])), "table")
    assert "no drop: ann: 14 of 28 messages in character" in shown.lower() and "\nin character: " not in shown
    assert "breaks: dry" in shown


def test_without_verdicts_on_messages_it_cannot_be_told(
    make: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSONA_MESSAGE_VERDICTS", "0")
    report = found(make(lambda number: False))
    assert {agent.result for agent in report.agents} == {Result.CANNOT_TELL}
    assert report.exit_code == 3


def test_a_date_after_all_messages_is_an_error_and_one_before_them_cannot_be_told(make: Callable[..., World]) -> None:
    world = make(lambda number: False)
    with pytest.raises((ConfigError, NothingError), match="2026-04-20"):
        found(world, datetime(2026, 4, 20, tzinfo=UTC))
    assert found(world, datetime(2026, 2, 1, tzinfo=UTC)).exit_code == 3


@pytest.mark.parametrize(
    ("date", "agent", "code", "words"),
    [
        ("2026-06-14T23:59:59Z", "michael", 1, "out of character since 2026-06-15 08:38 UTC"),
        ("2026-06-14T23:59:59Z", "pam", 0, "Pam Beesly: 21 of 21 messages in character"),
        ("2026-06-11", "michael", 3, "cannot be told"),
        ("the day before", "michael", 2, ""),
    ],
)
def test_the_command_replays_recorded_verdicts(cli: Cli, date: str, agent: str, code: int, words: str) -> None:
    done = cli("since", date, agent, "--window", "7d")
    assert (done.returncode, words in done.stdout) == (code, True)
