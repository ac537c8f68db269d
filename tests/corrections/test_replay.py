import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import get_settings
from persona_pipeline.cli.corrections import app
from persona_pipeline.corrections import ActionGate, Interventions, correction_statistics
from persona_pipeline.corrections.configuration import write_config
from persona_pipeline.corrections.replay import (
    ReplayedCheck,
    ReplayRequest,
    check_messages,
    labelled_out,
    replay,
    thresholds,
)
from persona_pipeline.guard.labels.files import LABELS
from persona_pipeline.guard.labels.messages import MarkSource, message_label, write_message_labels
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.recordings.writing import RecordingWriter
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.world import CorrectionSettings, World
from persona_pipeline.world.messages.store import write_messages
from persona_pipeline.world.models import Message
from tests.corrections.support import GATED, TextBackend
from tests.support.messages_server import MessagesServer

START = datetime(2026, 4, 1, tzinfo=UTC)
TALK = [
    ("ann", "general", "I agree. 7"),
    ("bob", "general", "Sounds good to me. 5"),
    ("ann", None, "Just to you, then. 3"),
    ("ann", "general", "Great point, I love the engine in the yard. 2"),
    ("bob", "sales", "Nothing of the kind happened here. 8"),
    ("ann", "general", "Great point, I love the engine in the yard. 6"),
    ("bob", "general", "I agree. 1"),
    ("ann", "general", "Great point, I love the engine in the barn. 9"),
    ("ann", "sales", "It does not apply here n"),
    ("ann", "general", "I agree with that. 4"),
]


def message_of(place: int) -> Message:
    speaker, channel, text = TALK[place]
    moment = START + timedelta(minutes=place // 2)
    return Message(f"said-{place}", speaker, text, moment, channel=channel, recipient=None if channel else "bob")


def lived(world: World, backend: TextBackend) -> list[float | None]:
    """Live through the talk: return the scores of the gate at run time."""
    scores: list[float | None] = []

    async def live() -> None:
        async with ActionGate(world, backend) as gate:
            for place in range(len(TALK)):
                message = message_of(place)
                if message.agent_id == "ann":
                    told = await gate.check(
                        "ann", message.text, channel=message.channel, recipient=message.recipient, attempt=1
                    )
                    scores.append(told.score)
                write_messages(world.store, [message])

    asyncio.run(live())
    return scores


def test_a_replay_asks_and_finds_what_was_asked_and_found_at_run_time(world: World) -> None:
    before, after = TextBackend(), TextBackend()
    scores = lived(world, before)
    found = replay(world, ReplayRequest(["ann"], newest=len(scores)), after)
    (item,) = found.results
    assert [question.key for question in after.questions] == [question.key for question in before.questions]
    known = [score for score in scores if score is not None]
    assert (item.measured, item.unmeasured) == (len(known), {"not_applicable": 1})
    assert [held.held for held in item.held] == [sum(score < at.threshold for score in known) for at in item.held]


def test_what_the_gate_would_not_have_asked_is_not_asked() -> None:
    backend, said = TextBackend(), message_of(0)
    (found,) = asyncio.run(check_messages(backend, [ReplayedCheck(said, reason="configuration")]))
    assert (found.message, found.score, found.reason, backend.questions) == (said, None, "configuration", [])


@pytest.mark.parametrize(
    ("verdict", "label", "expected"),
    [
        (Role.OUT, False, True),
        (Role.IN, True, False),
        (Role.UNCLEAR, True, True),
        (Role.UNCLEAR, None, None),
        (None, False, False),
        (None, None, None),
    ],
)
def test_the_verdict_decides_before_labels_of_people(
    verdict: Role | None, label: bool | None, expected: bool | None
) -> None:
    said = message_of(0)
    labels = {} if label is None else {(said.id, said.text): label}
    assert ReplayedCheck(said, verdict=verdict).is_out(labels) is expected


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([Role.IN], False),
        ([Role.OUT, Role.OUT, Role.IN], True),
        ([Role.IN, Role.OUT], None),
        ([Role.UNCLEAR], None),
    ],
)
def test_most_labels_decide_and_only_for_the_text_they_were_given_for(
    world: World, verdicts: list[Role], expected: bool | None
) -> None:
    said, folder = message_of(0), world.root / LABELS
    given = [message_label(said, verdict, f"p{n}", MarkSource.PERSON) for n, verdict in enumerate(verdicts)]
    swiped = message_label(said, Role.OUT, "q", MarkSource.SWIPE, text="Another.")
    write_message_labels(folder, [*given, swiped])
    assert labelled_out(world, "ann").get((said.id, said.text)) is expected
    assert labelled_out(world, "bob") == {}


@given(
    checks=st.lists(st.tuples(st.floats(0, 9), st.sampled_from([*Role, None])), max_size=20), present=st.floats(0, 9)
)
def test_a_higher_threshold_never_holds_less_and_what_is_out_is_held_at_each(
    checks: list[tuple[float, Role | None]], present: float
) -> None:
    found = [ReplayedCheck(message_of(0), score=score, verdict=verdict) for score, verdict in checks]
    steps = thresholds(present)
    assert present in steps and (steps[0], steps[-1]) == (0, 9)
    for item in found:
        held = [item.is_held(threshold) for threshold in steps]
        assert held == sorted(held)
        assert item.verdict is not Role.OUT or all(held)


def run(world: World, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    monkeypatch.setenv("PERSONA_ROOT", str(world.root))
    monkeypatch.setenv("PERSONA_DATABASE_URL", f"sqlite:///{world.root / 'gate.db'}")
    get_settings.cache_clear()
    return CliRunner().invoke(app, ["replay", *arguments])


def test_the_command_says_how_many_are_held_and_how_many_of_them_are_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [
        Message(f"n{place}", "ann", f"Line {place}. {7 if place < 5 else 1}", START + timedelta(hours=place), "x")
        for place in range(8)
    ]
    write_messages(world.store, said)
    recording = OpenedJudge(TextBackend(), writer=RecordingWriter(world.root / "recordings"))
    replay(world, ReplayRequest(["ann"], newest=8), recording)
    given = [
        message_label(message, Role.IN if place < 5 else Role.OUT, "eve", MarkSource.PERSON)
        for place, message in enumerate(said)
    ]
    write_message_labels(world.root / LABELS, given[:7])
    arguments = ["ann", "--newest", "8"]
    shown = run(world, monkeypatch, *arguments, "--format", "json")
    (found,) = json.loads(shown.stdout)["results"]
    assert (found["measured"], found["known"], found["out"]) == (8, 7, 2)
    (now,) = [item for item in found["held"] if item["threshold"] == 5]
    assert now == {"threshold": 5, "held": 3, "out": 2} and shown.exit_code == 0
    table = run(world, monkeypatch, *arguments).stdout
    assert "would hold 3, 2 of them out of character" in table and "of them out" in table


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["ann", "--record"], "needs a live judge"),
        (["ann", "--window", "1h", "--as-of", "2020-01-01T00:00:00Z"], "no stored message"),
        (["ann", "--format", "pdf"], "unknown"),
    ],
)
def test_mistakes_are_named(world: World, monkeypatch: pytest.MonkeyPatch, arguments: list[str], problem: str) -> None:
    result = run(world, monkeypatch, *arguments)
    assert isinstance(result.exception, ConfigError) and problem in str(result.exception)


def test_a_live_judge_is_asked_once_within_its_budget_and_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch, server: MessagesServer
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
    arguments = ["ann", "--judge", "anthropic", "--format", "json"]
    assert "5 calls to" in run(world, monkeypatch, "ann", "--estimate").stdout
    poor = run(world, monkeypatch, *arguments, "--max-usd", "0.000001")
    assert poor.exit_code == 4 and json.loads(poor.stdout)["results"][0]["unmeasured"] == {"budget": 5}
    rich = json.loads(run(world, monkeypatch, *arguments, "--max-usd", "1", "--record").stdout)
    (live,) = rich["results"]
    assert (live["measured"], rich["calls"], server.paid) == (5, 5, 5)
    again = json.loads(run(world, monkeypatch, *arguments).stdout)
    replayed = json.loads(run(world, monkeypatch, "ann", "--judge", "recorded", "--format", "json").stdout)
    assert (again["calls"], replayed["calls"], server.paid) == (0, 0, 5)
    assert again["results"][0]["held"] == replayed["results"][0]["held"] == live["held"]
    assert "nothing to judge: $0" in run(world, monkeypatch, "ann", "--estimate").stdout


def test_what_is_not_recorded_is_said_and_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(world, monkeypatch, "ann")
    assert result.exit_code == 3 and "unrecorded" in result.stdout and "--judge anthropic --record" in result.stdout


def test_a_correction_that_only_watches_changes_nothing_and_is_counted(world: World) -> None:
    watching = CorrectionSettings(
        **{**GATED.model_dump(), "anti_convergence_enabled": True, "convergence_threshold": 0.0, "shadow_mode": True}
    )
    write_config(world.store, "ann", watching)
    write_messages(world.store, [message_of(0), message_of(1)])
    seen = []

    async def live() -> None:
        async with ActionGate(world, TextBackend(), observer=lambda _, decision: seen.append(decision)) as gate:
            for text in ("Good. 8", "Bad. 2", "Worse. 0"):
                told = await gate.check("ann", text, channel="general")
                assert (told.action, told.outcome, told.feedback, told.score) == ("commit", "shadow", None, None)
        guidance = await Interventions(world).before_turn("ann", channel="general")
        assert guidance.block is None and [nudge.kind for nudge in guidance.withheld] == ["anti_convergence"]

    asyncio.run(live())
    assert sorted((item.score, item.would) for item in seen) == [(0.0, "retry"), (2.0, "retry"), (8.0, "commit")]
    ann = correction_statistics(world.store).agents["ann"]
    assert (ann.actions, ann.shadowed, ann.would_hold, ann.passed, ann.corrected, ann.abandoned) == (3, 3, 2, 0, 0, 0)
    assert ann.usd == pytest.approx(0.00006)


def test_a_judge_that_fails_while_the_gate_only_watches_is_counted_as_unchecked(world: World) -> None:
    write_config(world.store, "ann", GATED.model_copy(update={"shadow_mode": True}))

    class Broken(TextBackend):
        async def ask(self, questions: object) -> list:
            raise RuntimeError("no")

    async def live() -> None:
        async with ActionGate(world, Broken()) as gate:
            assert (await gate.check("ann", "Hi. 1", channel="general")).outcome == "shadow"

    asyncio.run(live())
    ann = correction_statistics(world.store).agents["ann"]
    assert (ann.actions, ann.shadowed, ann.fail_open_by_reason) == (1, 0, {"api_error": 1})
