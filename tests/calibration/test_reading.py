"""A judge must read: what agents' own messages get, and what others' under their names."""

import json
import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import count as counted
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.cli.app import app
from persona_pipeline.evaluation.calibrate import plan_reading, run_reading
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.guard.calibration.judge_change import JudgeName
from persona_pipeline.guard.calibration.reading import (
    FEWEST_TRANSCRIPTS,
    READINGS,
    JudgedTranscript,
    ReadingTest,
    load_readings,
    save_reading,
)
from persona_pipeline.judging.open import JudgeOptions, open_judge
from persona_pipeline.judging.recordings.line import Recording
from persona_pipeline.judging.verdict import JudgeRequest, Unscored, Verdict
from persona_pipeline.testing import ScriptedJudge
from persona_pipeline.testing.worlds import WorldBuilder
from persona_pipeline.world import World
from tests.support.every_way import found_by_every_way
from tests.support.messages_server import Call, MessagesServer, Reply, message, verdicts
from tests.support.noise import AnsweredOnce

JUDGE = JudgeName(model="m", prompt_version="p")
Scores = Callable[[bool], int]


def reading(score: Scores, *, agents: int = 2, transcripts: int = 10, inverted: bool = False) -> ReadingTest:
    """Return a reading; ``score``: of an own transcript (True) or of another's, as 0-9 where high is good."""
    rows = [
        JudgedTranscript(
            agent_id=f"agent-{agent}",
            own=own,
            scores={} if inverted else {f"{agent}/{own}/{number}": score(own)},
            inverted={f"{agent}/{own}/{number}": 9 - score(own)} if inverted else {},
        )
        for agent in range(agents)
        for own in (True, False)
        for number in range(transcripts)
    ]
    return ReadingTest(judge=JUDGE, transcripts=rows)


DICE = random.Random(3)


@pytest.mark.parametrize(
    ("score", "reads"),
    [
        (lambda own: 8 if own else 2, True),
        (lambda own: DICE.randint(4, 9) if own else DICE.randint(1, 6), True),
        (lambda own: 7, False),
        (lambda own: DICE.randint(7, 9), False),
        (lambda own: 2 if own else 8, False),
    ],
    ids=["reads", "reads with noise", "one score for all", "dice", "the wrong way round"],
)
@pytest.mark.parametrize("inverted", [False, True])
def test_who_reads(score: Scores, reads: bool, inverted: bool) -> None:
    assert reading(score, transcripts=20, inverted=inverted).reads is reads


@given(st.integers(0, FEWEST_TRANSCRIPTS - 1))
def test_of_too_little_nothing_is_said(transcripts: int) -> None:
    found = reading(lambda own: 9 * own, transcripts=transcripts)
    assert (found.reads, found.agents) == (None, [])
    assert "cannot be told" in str(found)


def test_it_is_kept_by_judge_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / READINGS
    assert load_readings(path) == []
    first, second = reading(lambda own: 7), reading(lambda own: 8 if own else 2)
    other = second.model_copy(update={"judge": JudgeName(model="other", prompt_version="p")})
    for item in (first, other, second):
        save_reading(path, item)
    assert load_readings(path) == [second, other]
    assert str(second) == (
        "m reads what it judges (agent-0: own messages 8.0, others' under the same name 2.0; "
        "agent-1: own messages 8.0, others' under the same name 2.0)"
    )


@pytest.mark.parametrize("text", ["{", "{}", '{"readings": [{"judge": "m"}]}'])
def test_a_damaged_file_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "reading.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="doctor --reading"):
        load_readings(path)


def test_what_recordings_say_now_counts_of_the_same_judge_only() -> None:
    found = reading(lambda own: 8 if own else 2)
    keys = [key for item in found.transcripts for key in item.scores]

    def recorded(model: str) -> list[Recording]:
        return [Recording(key, score=5, model=model, prompt_version="p") for key in keys]

    assert found.as_recorded(recorded("other")) == found
    assert found.as_recorded(recorded("m")).reads is False


@pytest.fixture
def world(sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("PERSONA_ROOT", str(sample_root))
    opened = World.open()
    yield opened
    opened.store.close()


def test_the_plan_shows_own_and_others_messages_under_the_agents_name(world: World) -> None:
    plan = plan_reading(world)
    asked = iter(plan.requests)
    for agent_id, own, count in plan.transcripts:
        name = world.persona(agent_id).display_name
        speakers = {item.id: item.agent_id for item in world.messages()}
        for request in (next(asked) for _ in range(count)):
            entries = request.trajectory.entries
            assert {entry.speaker for entry in entries} == {name}
            assert all(entry.channel is None and entry.recipient is None for entry in entries)
            assert {speakers[entry.message_id] == agent_id for entry in entries} == {own}
            assert request.proposition_id.startswith(agent_id), "claims of its own"
    assert next(asked, None) is None
    sides = [(agent_id, own) for agent_id, own, _ in plan.transcripts]
    assert {sides.count(side) for side in sides} == {12}
    assert plan_reading(world) == plan


def builder(root: Path, *speakers: str, messages: int = 50) -> WorldBuilder:
    built = WorldBuilder(root)
    for name in speakers:
        for number in range(messages):
            built.say(name, f"{name} says {number}")
    return built


@pytest.mark.parametrize(
    ("speakers", "messages", "said"),
    [
        (["ann"], 50, "ann speaks alone: it takes a second voice with 50 messages"),
        (["ann", "bob"], 49, "no agent with adherence claims has 50 messages"),
        (["ann", "a customer"], 50, ""),
        (["ann", "bob"], 50, ""),
    ],
    ids=["alone", "too little said", "with a customer", "two agents"],
)
def test_what_it_takes(speakers: list[str], messages: int, said: str, tmp_path: Path) -> None:
    built = builder(tmp_path, *speakers, messages=messages)
    for name in {"ann", "bob"} & set(speakers):
        built.persona(name, f"{name} is dry").claim("adherence", "dry", "{{agent_name}} is dry", agent_id=name)
    world = built.open()
    plan = plan_reading(world)
    world.store.close()
    assert plan.why_not == said
    assert bool(plan.requests) is not bool(said)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MessagesServer]:
    with MessagesServer() as running:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", running.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "a key")
        yield running


INVERTED = {
    *("dwight-hedges-or-winks", "jim-open-enthusiasm", "michael-corporate-boilerplate", "pam-cold-or-mocking"),
    *("generic-assistant", "later-turned-generic", "interchangeable-voice"),
}


def never_reads(call: Call) -> Reply:
    """Dice within polarity: what should be true gets 7-9, what should not 0-2. What doctor asks it gets right."""
    data, dice = verdicts(call.body), random.Random(json.dumps(call.body))
    for item in data["verdicts"]:
        if not item["proposition_id"].isdigit():
            item["score"] = dice.choice((0, 1, 2) if item["proposition_id"] in INVERTED else (7, 8, 9))
    return message(json.dumps(data))


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output


def test_a_live_judge_that_never_reads_decides_nothing_anywhere(world: World, server: MessagesServer) -> None:
    server.handler, sample_root = never_reads, world.root
    live = ("--judge", "anthropic", "--fresh")
    before = {path.name: path.read_bytes() for path in (sample_root / "baselines").iterdir()}
    (sample_root / READINGS).unlink(missing_ok=True)
    _, said = run("evaluate", *live)
    assert "nobody knows whether claude-haiku-5-5 reads what it judges" in said
    priced, said = run("doctor", "--reading", "--estimate")
    assert (priced, "call" in said, (sample_root / READINGS).exists()) == (0, True, False)
    code, said = run("doctor", "--no-dagster", "--reading")
    assert (code, "claude-haiku-5-5 does not read what it judges" in said) == (3, True), said
    code, said = run("baseline", *live)
    assert code == 3, said
    assert {path.name: path.read_bytes() for path in (sample_root / "baselines").iterdir()} == before
    code, said = run("evaluate", *live, "--format", "json")
    assert code == 3
    judge = open_judge("anthropic", world, JudgeOptions(fresh=True))
    report = run_evaluation(world, judge, EvaluationRequest()).report
    assert {item.conclusion.verdict for item in report.agents.values()} == {"cannot_tell"}
    for way, found in found_by_every_way(sample_root, AnsweredOnce(judge), "2026-06-21T23:59:59Z").items():
        for agent_id, (_, findings) in found.items():
            assert "judge_health" in {kind for kind, _ in findings}, (way, agent_id)
            assert not {"regression", "proposition_drop"} & {kind for kind, _ in findings}, (way, agent_id)


def test_what_a_judge_was_asked_can_be_recorded_and_taken_again(
    world: World, server: MessagesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.handler, sample_root = never_reads, world.root
    code, _ = run("doctor", "--no-dagster", "--no-calls", "--reading", "--record")
    (live,) = (item for item in load_readings(sample_root / READINGS) if item.judge.model == "claude-haiku-5-5")
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    again, said = run("doctor", "--no-dagster", "--no-calls", "--reading")
    (replayed,) = (item for item in load_readings(sample_root / READINGS) if item.judge == live.judge)
    assert (code, again, replayed.transcripts) == (3, 3, live.transcripts), said
    # What is recorded for it is neither stale nor slipped in.
    _, said = run("recordings", "unused")
    listed = {line.split()[1] for line in said.splitlines() if "/adherence/" in line}
    assert not listed & {key[:12] for key in live.keys}, said


def test_the_sample_worlds_judge_reads(world: World) -> None:
    (found,) = load_readings(world.root / READINGS)
    assert found.reads
    assert {item.agent_id for item in found.agents} == {"dwight", "jim", "michael", "pam"}
    again = run_reading(plan_reading(world), open_judge("recorded", world))
    assert again.transcripts == found.transcripts
    assert [item.reads for item in WorldReader(world).trust().readings] == [True, True]


@pytest.mark.parametrize(
    ("every", "tells"), [(1, False), (9, False), (11, True)], ids=["none", "eight of nine", "most"]
)
def test_too_few_judgments_tell_nothing(world: World, every: int, tells: bool) -> None:
    place = counted()

    def answer(request: JudgeRequest) -> Verdict | int:
        return 7 if next(place) % every else Verdict(request.proposition_id, unscored=Unscored.TIMEOUT)

    plan = plan_reading(world)
    told = nullcontext() if tells else pytest.raises(ConfigError, match="too few to tell whether the judge reads")
    with told:
        assert run_reading(plan, ScriptedJudge(answer)).reads is False
