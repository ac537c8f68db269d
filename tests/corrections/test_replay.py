import asyncio
import json
import random
from datetime import UTC, datetime, timedelta
from math import comb
from pathlib import Path
from unittest import mock

import pytest
from typer.testing import CliRunner, Result

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import get_settings
from persona_pipeline.cli.corrections import app
from persona_pipeline.corrections import ActionGate, Interventions, correction_statistics
from persona_pipeline.corrections.configuration import read_config, write_config
from persona_pipeline.corrections.replay import run as replaying
from persona_pipeline.corrections.replay.run import (
    GateQuestion,
    Known,
    ReplayedCheck,
    ReplayRequest,
    check_messages,
    labelled_messages,
    read_marks,
    replay,
)
from persona_pipeline.corrections.replay.thresholds import (
    CorrectionKind,
    CorrectionReplay,
    MeasuredMessage,
    area,
    good_needed,
    is_touched,
    risk_threshold,
    thresholds,
    touched_at_most,
)
from persona_pipeline.corrections.statistics import GateStatistics
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.recordings.writing import RecordingWriter
from persona_pipeline.judging.verdict import Usage
from persona_pipeline.world import CorrectionSettings, World
from persona_pipeline.world.messages.store import write_messages
from persona_pipeline.world.models import Message
from tests.corrections.support import GATED, TextBackend
from tests.support.messages_server import MessagesServer

GATE, CONVERGENCE, REPETITION = CorrectionKind
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


def lived(world: World, backend: TextBackend) -> tuple[list[float | None], dict[CorrectionKind, list[bool]]]:
    """Live through the talk: return the scores of the gate at run time, and which of ann's turns were nudged."""
    on = GATED.model_copy(
        update={"anti_convergence_enabled": True, "repetition_suppression_enabled": True, "convergence_threshold": 0.5}
    )
    write_config(world.store, "ann", on)
    interventions = Interventions(world)
    scores: list[float | None] = []
    nudged: dict[CorrectionKind, list[bool]] = {CONVERGENCE: [], REPETITION: []}

    async def live() -> None:
        async with ActionGate(world, backend) as gate:
            for place in range(len(TALK)):
                message = message_of(place)
                if message.agent_id == "ann":
                    guidance = await interventions.before_turn("ann", channel=message.channel)
                    kinds = {nudge.kind.value for nudge in guidance.nudges}
                    nudged[CONVERGENCE].append("anti_convergence" in kinds)
                    nudged[REPETITION].append("repetition_suppression" in kinds)
                    told = await gate.check(
                        "ann", message.text, channel=message.channel, recipient=message.recipient, attempt=1
                    )
                    scores.append(told.score)
                write_messages(world.store, [message])

    asyncio.run(live())
    return scores, nudged


def by_correction(world: World, request: ReplayRequest, backend: TextBackend) -> dict[CorrectionKind, CorrectionReplay]:
    return {item.correction: item for item in replay(world, request, backend).results}


def test_a_replay_asks_and_finds_what_was_asked_and_found_at_run_time(world: World) -> None:
    before, after = TextBackend(), TextBackend()
    scores, nudged = lived(world, before)
    found = by_correction(world, ReplayRequest(["ann"], newest=len(scores)), after)
    assert [question.key for question in after.questions] == [question.key for question in before.questions]
    known = [score for score in scores if score is not None]
    assert (found[GATE].measured, found[GATE].unmeasured) == (len(known), {"not_applicable": 1})
    for touched in found[GATE].touched:
        assert touched.all == pytest.approx(sum(score < touched.threshold for score in known) / len(known))
    for correction in (CONVERGENCE, REPETITION):
        item = found[correction]
        (now,) = (touched for touched in item.touched if touched.threshold == item.threshold)
        assert round(now.all * item.measured) == sum(nudged[correction]) > 0


class Opened(TextBackend):
    """Keeps its connections open while it is entered."""

    entered = 0

    async def __aenter__(self) -> "Opened":
        self.entered += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self.asked = len(self.questions)


def test_connections_stay_open_for_a_whole_replay_and_labels_are_read_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived(world, TextBackend())
    looked = mock.Mock(wraps=labelled_messages)
    monkeypatch.setattr("persona_pipeline.corrections.replay.run.labelled_messages", looked)
    backend = Opened()
    replay(world, ReplayRequest(["ann", "bob"], [GATE]), OpenedJudge(backend))
    assert (backend.entered, backend.asked) == (2, len(backend.questions))
    assert looked.call_count == 1


def test_a_replay_says_what_the_gate_cost_as_it_ran(world: World) -> None:
    lived(world, TextBackend())
    found = replay(world, ReplayRequest(["ann"], [GATE]), TextBackend())
    (item,), (note,) = found.results, found.notes
    assert item.cost is not None and (item.cost.checks, item.cost.usd) == (7, pytest.approx(0.00002))
    assert item.cost.p50_ms is not None
    assert note == "ann: the gate sent 3 texts back in this time, which are no messages and in no share"


def test_a_check_of_a_replay_costs_what_those_that_were_asked_did() -> None:
    checks = [
        ReplayedCheck(message_of(n), usage=Usage(calls=1, usd=0.01), seconds=seconds)
        for n, seconds in enumerate((0.4, 0.1, None, 0.3, 0.2))
    ]
    cost = replaying._cost(checks, GateStatistics())
    assert cost is not None and (cost.checks, cost.usd, cost.p50_ms, cost.p95_ms) == (4, 0.01, 300, 400)
    assert replaying._cost([checks[2]], GateStatistics()) is None


def test_what_the_gate_would_not_have_asked_is_not_asked() -> None:
    backend, said = TextBackend(), message_of(0)
    (found,) = asyncio.run(check_messages(backend, [GateQuestion(said, reason="configuration")]))
    assert (found.message, found.score, found.reason, backend.questions) == (said, None, "configuration", [])


@pytest.mark.parametrize(("good", "risk"), [(50, 0.1), (100, 0.05), (250, 0.02), (300, 0.1)])
def test_the_bounds_are_those_of_order_statistics(good: int, risk: float) -> None:
    def unsafe(rank: int) -> bool:
        long_run = sum(comb(good, hits) * risk**hits * (1 - risk) ** (good - hits) for hits in range(rank))
        drawn = rank + int(risk * good + 1e-9)
        next_ones = sum(comb(good, hits) * comb(good, drawn - hits) for hits in range(rank)) / comb(2 * good, drawn)
        return max(long_run, next_ones) > 0.03

    assert touched_at_most(good, risk) + 1 == max(rank for rank in range(good) if not any(map(unsafe, [rank or -1])))


def test_too_few_good_messages_set_nothing_and_say_how_many_are_needed() -> None:
    assert [good_needed(1, risk) for risk in (0.01, 0.02, 0.05)] == [500, 250, 80]
    told = risk_threshold(GATE, [MeasuredMessage(7.0, good=True)] * 150, 0.02)
    assert (told.threshold, told.good, told.needed) == (None, 150, 250)
    assert "150" in told.why and "250" in told.why


def test_what_fires_whatever_the_threshold_can_make_a_risk_impossible() -> None:
    items = [MeasuredMessage(0.0, anyway=place < 30, good=True) for place in range(300)]
    told = risk_threshold(REPETITION, items, 0.02)
    assert told.threshold is None and "30 of 300" in told.why


def test_only_good_ones_that_have_nothing_in_common_count() -> None:
    items = [MeasuredMessage(place / 1000, good=True, apart=place % 5 == 0) for place in range(1000)]
    assert risk_threshold(REPETITION, items, 0.02).good == 200


@pytest.mark.parametrize(
    ("correction", "known", "risk"), [(GATE, 250, 0.02), (GATE, 100, 0.1), (CONVERGENCE, 100, 0.05)]
)
def test_the_risk_is_kept_in_95_of_100_splits(correction: CorrectionKind, known: int, risk: float) -> None:
    generator = random.Random(5)
    gate = correction is GATE
    pool = [
        MeasuredMessage(generator.choice(range(10)) if gate else generator.betavariate(1, 6), good=True)
        if generator.random() < 0.5
        else MeasuredMessage(generator.gauss(6, 1.2) if gate else generator.random(), good=True)
        for _ in range(2 * known)
    ]
    kept = []
    for _ in range(500):
        generator.shuffle(pool)
        threshold = risk_threshold(correction, pool[:known], risk).threshold
        assert threshold is not None
        kept.append(sum(is_touched(correction, item, threshold) for item in pool[known:]) <= risk * known)
    assert sum(kept) >= 0.95 * len(kept)


def test_rounding_a_threshold_touches_no_more() -> None:
    generator = random.Random(2)
    for correction in CorrectionKind:
        scale = 9 if correction is GATE else 1
        items = [MeasuredMessage(generator.random() * scale, good=True) for _ in range(500)]
        told = risk_threshold(correction, items, 0.05)
        assert told.threshold is not None and round(told.threshold, 2) == told.threshold
        assert told.touched <= touched_at_most(500, 0.05)


def test_the_area_is_how_often_a_bad_message_looks_worse() -> None:
    good, bad = (
        [MeasuredMessage(value, good=True) for value in (5, 7, 8)],
        [MeasuredMessage(value, good=False) for value in (3, 7)],
    )
    found = area(GATE, [*good, *bad])
    assert found is not None and found.value == pytest.approx((3 + 1.5) / 6)
    assert found.low < found.value < found.high
    apart = area(GATE, [*good, MeasuredMessage(1, good=False)])
    assert apart is not None and (apart.value, apart.high) == (1, pytest.approx(1)) and 0.3 < apart.low < 0.9
    assert area(GATE, good) is None


def test_the_thresholds_looked_at_are_those_of_the_scale_and_the_one_set() -> None:
    assert thresholds(GATE, 5.25)[:3] == [0.0, 0.5, 1.0]
    assert 5.25 in thresholds(GATE, 5.25) and max(thresholds(GATE, 5.25)) == 9
    assert max(thresholds(REPETITION, 0.3)) == 1


def test_a_file_wins_over_labels_and_these_over_time() -> None:
    moment = START + timedelta(minutes=3)
    known = Known(
        {"said-0": False}, {"said-0": True, "said-1": False}, good_until=moment, bad_from=moment + timedelta(minutes=1)
    )
    assert [known.is_good(message_of(place)) for place in (0, 1, 2, 7, 8)] == [False, False, True, True, False]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("m1,good\nm2,fine\n", "2: a row is not"),
        ("m1,good\nm1,bad\n", "2: message 'm1' is good and bad"),
        ("m1\n", "1: a row is not"),
    ],
)
def test_rows_that_are_no_marks_are_named(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "marks.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=problem):
        read_marks(tmp_path / "marks.csv")


def run(world: World, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    monkeypatch.setenv("PERSONA_ROOT", str(world.root))
    monkeypatch.setenv("PERSONA_DATABASE_URL", f"sqlite:///{world.root / 'gate.db'}")
    get_settings.cache_clear()
    return CliRunner().invoke(app, ["replay", *arguments])


def test_the_command_replays_recordings_and_sets_what_it_finds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    said = [
        Message(
            f"n{place}",
            "ann",
            f"Line {place}. {9 - place % 10 if place < 45 else 1}",
            START + timedelta(hours=place),
            "x",
        )
        for place in range(50)
    ]
    write_messages(world.store, said)
    recording = OpenedJudge(TextBackend(), (RecordingWriter(world.root / "recordings"),))
    replay(world, ReplayRequest(["ann"], [GATE], newest=50), recording)
    good_until = (START + timedelta(hours=44)).isoformat()
    arguments = ["ann", "--corrections", "action_gate", "--newest", "50", "--good-until", good_until]
    arguments += ["--bad-from", (START + timedelta(hours=45)).isoformat(), "--hold-at-most", "0.25"]
    shown = run(world, monkeypatch, *arguments, "--format", "json")
    (found,) = json.loads(shown.stdout)["results"]
    assert (found["measured"], found["good"], found["bad"]) == (50, 45, 5)
    assert found["risk"]["threshold"] is not None and found["area"]["value"] > 0.8
    assert f"action_gate_threshold: {found['risk']['threshold']}" in shown.stderr and shown.exit_code == 0
    assert read_config(world.store, "ann").settings == GATED
    page = world.root / "page.html"
    written = run(world, monkeypatch, *arguments, "--write", "--format", "html", "--output", str(page))
    assert written.exit_code == 0, written.output
    assert read_config(world.store, "ann").settings.action_gate_threshold == found["risk"]["threshold"]
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") == 2 and "area under the ROC" in text


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["ann", "--hold-at-most", "2"], "for 2 % write 0.02"),
        (["ann", "--write"], "--hold-at-most"),
        (["ann", "--corrections", "action_gates"], "did you mean 'action_gate'"),
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
    arguments = ["ann", "--corrections", "action_gate", "--judge", "anthropic", "--format", "json"]
    assert "5 calls to" in run(world, monkeypatch, "ann", "--estimate").stdout
    poor = run(world, monkeypatch, *arguments, "--max-usd", "0.000001")
    assert poor.exit_code == 4 and json.loads(poor.stdout)["results"][0]["unmeasured"] == {"budget": 5}
    rich = json.loads(run(world, monkeypatch, *arguments, "--max-usd", "1", "--record").stdout)
    (live,) = rich["results"]
    assert (live["measured"], rich["calls"], server.paid) == (5, 5, 5)
    assert live["cost"]["checks"] == 5 and live["cost"]["usd"] > 0 and live["cost"]["p50_ms"] > 0
    again = json.loads(run(world, monkeypatch, *arguments).stdout)
    replayed = json.loads(run(world, monkeypatch, *arguments[:3], "--judge", "recorded", "--format", "json").stdout)
    assert (again["calls"], replayed["calls"], server.paid) == (0, 0, 5)
    assert again["results"][0]["touched"] == replayed["results"][0]["touched"] == live["touched"]
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
