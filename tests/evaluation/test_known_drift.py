"""A baseline never spans a drift that is known, and is never lower than the file that is there, unless a person accepts it."""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import persona_pipeline as pp
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.base.settings import get_settings
from persona_pipeline.base.status import Result
from persona_pipeline.evaluation.run import Run, run_evaluation
from persona_pipeline.guard.baselines.golden import find_baseline, load_baseline
from persona_pipeline.guard.known_drift import KnownDrift, drift_path
from persona_pipeline.judging.verdict import JudgeRequest, Question
from persona_pipeline.testing.judges import ScriptedJudge
from persona_pipeline.testing.worlds import WorldBuilder
from persona_pipeline.world.world import World
from tests.first.worlds import drifted, lines_of, support
from tests.support.command_line import Cli, Done, in_process
from tests.support.messages_server import MessagesServer, message, verdicts
from tests.support.worlds import write_jsonl

FIRST, WEEKS = datetime(2026, 3, 2, 9, tzinfo=UTC), 5
WORD = "in character"
TEMPLATES = Path(pp.__file__).parent / "world"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Two agents with two claims of adherence and one of fluency, eight messages each a week, for five weeks."""
    builder = WorldBuilder(tmp_path / "world").persona("ann", "Ann is dry.").persona("bob", "Bob is loud.")
    for dimension, name in (("adherence", "dry"), ("adherence", "brief"), ("fluency", "varied")):
        builder.claim(dimension, name, f"{{{{agent_name}}}} is {name}")
    for day in range(WEEKS * 7):
        for agent_id in ("ann", "bob"):
            at = FIRST + timedelta(days=day, minutes=agent_id == "bob")
            builder.say(agent_id, f"{agent_id} says a thing of day {day}.", at=at)
            builder.say(agent_id, f"{agent_id} says more of day {day}.", at=at + timedelta(hours=1))
    opened = builder.open()
    yield opened
    opened.store.close()


def week_end(week: int) -> datetime:
    return FIRST + timedelta(days=7 * week, hours=-1)


Scores = Callable[[JudgeRequest], int]


def taken(world: World, score: int | Scores, week: int = WEEKS, **asked: Any) -> Run:
    """Take baselines of a week from a judge that gives every claim of everybody one score."""
    judge = ScriptedJudge(score if callable(score) else lambda _: score)
    request = {"update_baseline": True, "as_of": week_end(week), **asked}
    return run_evaluation(world, judge, EvaluationRequest(**request))


def texts(run: Run, kind: str = "known_drift") -> list[str]:
    return [finding.text for finding in run.report.all_findings() if finding.kind == kind]


def verdict(run: Run, agent_id: str = "ann") -> Result | None:
    return run.report.agents[agent_id].conclusion.verdict


def remember(world: World, **fields: Any) -> KnownDrift:
    """Write down a drift of ann's as `try` does."""
    known = KnownDrift(agent_id="ann", found="`try` found: Ann sounds like a stock assistant", **fields)
    path = drift_path(world.root / "baselines", "ann")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(known.model_dump_json(), encoding="utf-8")
    return known


def test_a_window_after_a_remembered_drift_is_refused_and_others_are_written(world: World) -> None:
    remember(world, since=week_end(4) + timedelta(hours=1))
    run = taken(world, 8)
    assert [path.name for path in run.baselines] == ["bob.json"]
    assert (run.report.exit_code, verdict(run), verdict(run, "bob")) == (3, Result.CANNOT_TELL, Result.HELD)
    [text] = texts(run)
    assert "`try` found: Ann sounds like a stock assistant" in text
    assert "`persona-pipeline baseline --agents ann --as-of 2026-03-30T08:59:59Z --windows 4`" in text
    assert text in run.notes and '--accept "reason"`' in text
    again = taken(world, 8, week=4, baseline_windows=4, agents=["ann"])
    assert [path.name for path in again.baselines] == ["ann.json"] and not texts(again)


def test_a_drift_that_is_over_takes_its_own_windows_only(world: World) -> None:
    remember(world, since=week_end(2) + timedelta(hours=1), until=week_end(3))
    assert [len(taken(world, 8, week=week).baselines) for week in (2, 3, 4)] == [2, 1, 2]
    run = taken(world, 8, baseline_windows=4)
    assert len(run.baselines) == 2
    assert any("ann: the baseline is of 3 of 4 windows" in note and "known drift" in note for note in run.notes)


@pytest.mark.parametrize(("score", "refused"), [(6, False), (5, True), (0, True)])
def test_a_window_whose_own_adherence_is_low_is_refused(world: World, score: int, refused: bool) -> None:
    run = taken(world, score)
    assert [bool(run.baselines), *({verdict(run)} - {Result.HELD})] == (
        [False, Result.CANNOT_TELL] if refused else [True]
    )
    assert all(f"adherence is {score}.0, below 6" in text for text in texts(run)) and len(texts(run)) == 2 * refused
    if refused:
        assert all(f"--as-of {week_end(4):%Y-%m-%dT%H:%M:%SZ} --windows 4" in text for text in texts(run))


@pytest.mark.parametrize(("out", "refused"), [(2, False), (3, True)])
def test_a_window_with_less_than_four_fifths_in_character_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, out: int, refused: bool
) -> None:
    monkeypatch.setenv("PERSONA_MESSAGE_VERDICTS", "400")
    get_settings.cache_clear()

    def reply(question: Question) -> dict[str, Any]:
        own = [entry for talk in json.loads(question.evidence) for entry in talk["entries"] if "id" in entry]
        # Spread over the week, so that there is no date.
        bad = own[:: len(own) // out][:out]
        return {
            "verdicts": [{"id": item["id"], "verdict": "out" if item in bad else "in"} for item in own],
            "why": [{"id": i["id"], "claims": [], "quote": i["text"], "reason": "flat"} for i in bad],
        }

    judge = ScriptedJudge(lambda _: 9, reply=reply)
    opened = World.open(world.root)
    request = EvaluationRequest(update_baseline=True, as_of=week_end(WEEKS), agents=["ann"])
    run = run_evaluation(opened, judge, request)
    opened.store.close()
    assert bool(run.baselines) is not refused
    assert [f"{14 - out} of 14 messages in character" in text for text in texts(run)] == [True] * refused


DROPS: dict[str, tuple[Scores, str]] = {
    "a dimension": (lambda _: 7, "adherence 9.0 → 7.0"),
    "a claim": (lambda request: 5 if request.proposition_id == "varied" else 9, "claim varied 9.0 → 5.0"),
}


@pytest.mark.parametrize(("scores", "said"), DROPS.values(), ids=DROPS)
def test_a_lower_baseline_is_refused_whatever_the_rules_allow_and_kept_with_its_reason(
    world: World, scores: Scores, said: str
) -> None:
    taken(world, 9, week=4)
    before = (world.root / "baselines" / "ann.json").read_bytes()
    run = taken(world, scores, regression_delta=9.0, proposition_delta=9.0)
    assert run.report.exit_code != 0 and not run.baselines and verdict(run) is not Result.HELD
    assert said in texts(run)[0] and (world.root / "baselines" / "ann.json").read_bytes() == before
    run = taken(world, scores, accept="the new model")
    accepted = load_baseline(world.root / "baselines" / "ann.json").accepted
    assert accepted is not None and (accepted.reason, said in accepted.by) == ("the new model", True)
    assert (run.report.exit_code, verdict(run)) == (0, Result.HELD)
    assert "the new model" in run.report.agents["ann"].conclusion.reason
    assert any("the new model" in text for text in texts(run, "accepted"))


def test_a_better_baseline_is_written_over_and_says_from_what_to_what(world: World) -> None:
    taken(world, 7, week=4)
    run = taken(world, 9)
    assert len(run.baselines) == 2 and run.report.exit_code == 0
    assert any("ann: baseline written over: adherence 7.0 → 9.0" in note for note in run.notes)


def test_what_was_accepted_holds_for_the_same_drift_and_not_for_a_lower_score(world: World) -> None:
    remember(world, since=week_end(3))
    assert not taken(world, 8, agents=["ann"]).baselines
    run = taken(world, 5, agents=["ann"], accept="it is meant so")
    assert run.report.exit_code == 0 and run.baselines
    known = find_baseline(world.root / "baselines", "ann")
    assert known is not None and known.accepted is not None and known.accepted.since == week_end(3)
    again = taken(world, 5, agents=["ann"])
    assert again.report.exit_code == 0 and find_baseline(world.root / "baselines", "ann") == known
    lower = taken(world, lambda request: 4 if request.proposition_id == "dry" else 5, agents=["ann"])
    assert not lower.baselines and verdict(lower) is Result.CANNOT_TELL


SPANNING: dict[str, Callable[[World, dict[str, Any]], object]] = {
    "a drift that try found": lambda world, _: remember(world, since=week_end(4) + timedelta(hours=1)),
    "low adherence": lambda _, golden: golden["dimensions"].update(adherence=4.6),
}


@pytest.mark.parametrize("spanning", SPANNING.values(), ids=SPANNING)
@pytest.mark.parametrize("provenance", [True, False], ids=["with provenance", "of four keys"])
def test_an_old_baseline_over_a_drift_is_never_in_character(
    world: World, spanning: Callable[[World, dict[str, Any]], object], provenance: bool
) -> None:
    taken(world, 8)
    path = world.root / "baselines" / "ann.json"
    golden = json.loads(path.read_text(encoding="utf-8"))
    assert "accepted" not in golden
    spanning(world, golden)
    path.write_text(json.dumps(golden if provenance else {**golden, "provenance": None}), encoding="utf-8")
    run = taken(world, 8, update_baseline=False)
    assert (run.report.exit_code, verdict(run), verdict(run, "bob")) == (3, Result.CANNOT_TELL, Result.HELD)
    assert "its baseline was taken over a drift" in texts(run)[0]


def test_a_window_without_a_baseline_advises_the_windows_before_its_drift(world: World) -> None:
    remember(world, since=week_end(4) + timedelta(hours=1))
    run = taken(world, 8, update_baseline=False)
    advised = {
        finding.agent_id: finding.command
        for finding in run.report.all_findings()
        if finding.kind in ("no_baseline", "known_drift")
    }
    assert advised["ann"] == "persona-pipeline baseline --agents ann --as-of 2026-03-30T08:59:59Z --windows 4"
    assert advised["bob"] == "persona-pipeline baseline --agents bob"


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "empty": ({"accept": " "}, "accept is a reason in one line of text, not ' '"),
    "two lines": ({"accept": "a\nb"}, "accept is a reason in one line"),
    "without taking": ({"accept": "meant", "update_baseline": False}, "accept is about a baseline that is taken"),
    "the future": ({"as_of": datetime(2999, 1, 1, tzinfo=UTC)}, "as-of 2999-01-01T00:00:00+00:00 is in the future"),
}


@pytest.mark.parametrize(("asked", "said"), BAD.values(), ids=BAD)
def test_bad_input_is_named_and_nothing_is_written(world: World, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        taken(world, 8, **asked)
    assert not (world.root / "baselines").exists()


@pytest.mark.parametrize("text", ["{", "{}", '{"agent_id": "bob", "since": "2026-03-01T00:00:00Z", "found": "x"}'])
def test_a_broken_drift_file_is_named(world: World, text: str) -> None:
    path = drift_path(world.root / "baselines", "ann")
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"drifts/ann\.json"):
        taken(world, 8)


# The second window ends in the middle of the change, before the message that raised the alarm.
@pytest.mark.parametrize("end", [datetime(2026, 6, 19, 17, 12, tzinfo=UTC), datetime(2026, 6, 15, 13, 12, tzinfo=UTC)])
@pytest.mark.xdist_group("voices")
def test_a_voice_alarm_refuses_every_window_of_its_time(learnt_world: World, end: datetime) -> None:
    run = taken(learnt_world, 8, agents=["michael"], dimensions=["adherence"], as_of=end)
    assert not run.baselines
    assert "the voice alarm: michael has not sounded like itself since message general-073" in texts(run)[0]
    assert "baseline --agents michael --as-of 2026-06-15T08:37:59Z --windows 4`" in texts(run)[0]


def test_healthy_weeks_of_the_sample_world_are_not_refused(sample_world: World, sample_root: Path) -> None:
    sample_world.sync()
    newest = sample_world.newest_message_time()
    assert newest is not None
    for path in (sample_root / "baselines").glob("*.json"):
        path.unlink()
    refused = {}
    for weeks in (0, 1, 2):
        found = pp.take_baselines(sample_world, as_of=newest - timedelta(days=7 * weeks))
        refused[weeks] = {item.agent_id for item in found.report.all_findings() if item.kind == "known_drift"}
        for path in (sample_root / "baselines").glob("*.json"):
            path.unlink()
    assert refused == {0: {"michael"}, 1: set(), 2: set()}


@cache
def bad_habits() -> list[str]:
    return [
        item["claim"].rpartition("}}")[2].strip()
        for file in TEMPLATES.rglob("propositions/*/_default.yaml")
        for item in yaml.safe_load(file.read_text(encoding="utf-8"))["propositions"]
        if item.get("inverted")
    ]


def steady(call: Any) -> Any:
    """Answer as a judge that finds every agent as good, claims of bad habits turned."""
    return message(json.dumps(verdicts(call.body, lambda c: 1 if any(part in c for part in bad_habits()) else 8)))


def as_chats(path: Path, messages: Any) -> Path:
    talks: dict[str, list[Any]] = {}
    for item in messages:
        talks.setdefault(item.conversation, []).append(item)
    return write_jsonl(
        path,
        [
            {
                "id": place,
                "messages": [
                    {"role": "assistant", "name": m.agent_id, "content": m.text, "created_at": m.created_at.isoformat()}
                    for m in said
                ],
            }
            for place, said in talks.items()
        ],
    )


@pytest.fixture
def walk(tmp_path: Path, server: MessagesServer, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Callable[..., Done]:
    """Run commands as a new user does: `try` in a folder of their own, all others in the world that it leaves."""
    cli: Cli = in_process(tmp_path, monkeypatch, capsys)

    def run(*arguments: str) -> Done:
        with monkeypatch.context() as patched:
            patched.delenv("PERSONA_ROOT")
            patched.chdir(tmp_path if arguments[0] == "try" else tmp_path / "chats-world")
            return cli(*arguments)

    return run


def test_the_walk_of_a_new_user_with_a_drifted_export_is_nowhere_in_character(
    walk: Callable[..., Done], server: MessagesServer, tmp_path: Path
) -> None:
    # The judge sees nothing of the drift that `try` found.
    server.handler = steady
    export = as_chats(tmp_path / "chats.jsonl", drifted("de", "Jürgen"))
    judge = ("--judge", "anthropic", "--record")
    done = walk("try", export.name)
    assert done.returncode == 1, done.stderr
    describe(tmp_path / "chats-world")
    advised = re.search(r"persona-pipeline (baseline --agents \S+ --as-of \S+ --windows 4.*)", done.stdout)
    assert advised, done.stdout
    agent = shlex.split(advised[1])[2]
    steps = [("evaluate", *judge), ("baseline", *judge), ("evaluate", *judge)]
    for step in steps:
        done = walk(*step, "--agents", agent)
        assert done.returncode == 3 and WORD not in done.stdout + done.stderr, done.stderr
        assert f"baseline --agents {agent} --as-of " in done.stderr, done.stderr
    assert not [*(tmp_path / "chats-world" / "baselines").glob("*.json")]
    # The command that every step names takes the baseline from before.
    done = walk(*shlex.split(advised[1]))
    assert done.returncode == 0 and f"{agent}.json" in done.stdout, done.stderr
    done = walk("evaluate", *judge, "--agents", agent)
    assert done.returncode == 0, done.stderr
    done = walk("baseline", *judge, "--agents", agent, "--accept", "meant so")
    accepted = find_baseline(tmp_path / "chats-world" / "baselines", agent)
    assert accepted and accepted.accepted and accepted.accepted.reason == "meant so", done.stderr
    done = walk("evaluate", *judge, "--agents", agent, "--format", "json")
    assert done.returncode == 0 and "meant so" in done.stdout, done.stderr
    assert walk("validate").returncode == 0


def describe(world: Path) -> None:
    """Describe the agents, as `try` asks: a live judge is not paid for a persona that is not described."""
    for path in (world / "personas").iterdir():
        path.write_text(path.read_text(encoding="utf-8").replace("Describe how", "This is how"), encoding="utf-8")


def test_a_healthy_export_is_not_refused(walk: Callable[..., Done], server: MessagesServer, tmp_path: Path) -> None:
    server.handler = steady
    export = as_chats(tmp_path / "chats.jsonl", support("de", lines_of("de")[:160], "Ella"))
    assert walk("try", export.name).returncode in (0, 3)
    describe(tmp_path / "chats-world")
    done = walk("baseline", "--judge", "anthropic", "--record", "--windows", "2")
    assert done.returncode == 0 and "ella.json" in done.stdout, done.stderr


def test_no_dimension_of_a_known_drift_is_in_character(world: World) -> None:
    told = taken(world, 5).report.agents["ann"].conclusions
    assert {item.verdict for item in told.values()} == {Result.CANNOT_TELL}
