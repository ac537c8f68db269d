"""Verdicts on messages in an evaluation: stored, dated over windows, decisive for verdict and baseline, and replayed."""

import asyncio
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest
import sqlalchemy as sa

from persona_pipeline.api.frames import report_frame
from persona_pipeline.api.results import Evaluation
from persona_pipeline.base.database import tables
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.base.status import Result
from persona_pipeline.cli.evaluate import _table
from persona_pipeline.defs.agents.outcomes import verdict_outcome
from persona_pipeline.defs.agents.specs import build_specs
from persona_pipeline.defs.agents.verdicts import GATE, agent_line, all_in_character
from persona_pipeline.defs.agents.verdicts import verdict as verdict_label
from persona_pipeline.defs.metadata import messages_metadata
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.evaluation.estimate import estimate_run
from persona_pipeline.evaluation.history import report_of, verdicts_of
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.evaluation.run import Run, replayed, run_evaluation
from persona_pipeline.evaluation.snapshot import load_replay, save_replay
from persona_pipeline.guard.gate import GateRules
from persona_pipeline.guard.labels.files import LABELS
from persona_pipeline.guard.labels.messages import MarkSource, MessageLabel, message_label, write_message_labels
from persona_pipeline.judging.open import RECORDINGS, open_judge
from persona_pipeline.judging.recordings.writing import RecordingWriter
from persona_pipeline.judging.verdict import Question, Unscored
from persona_pipeline.pytest_plugin.failures import fallen_text
from persona_pipeline.reporting.notify import _payload, report_notice
from persona_pipeline.reporting.pages.evaluation import short_page
from persona_pipeline.reporting.render import render, render_page
from persona_pipeline.reporting.view import ReportView
from persona_pipeline.scoring.messages.reading import KIND
from persona_pipeline.scoring.messages.verdicts import MessageAgreement, Role
from persona_pipeline.testing.judges import ScriptedJudge
from persona_pipeline.testing.worlds import WorldBuilder
from persona_pipeline.world.models import Message
from persona_pipeline.world.runs import forget_reasons, message_verdict_rows
from persona_pipeline.world.world import World
from tests.support.command_line import Cli
from tests.viewer.serving import client_of, viewing_app

FIRST, WEEKS = datetime(2026, 3, 2, 9, tzinfo=UTC), 5
# From here on ann's messages are stock phrases.
DRIFT = FIRST + timedelta(days=31)
STOCK = "I would be happy to help you with that"


@pytest.fixture(autouse=True)
def _asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONA_MESSAGE_VERDICTS", "400")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    yield from opened_world(tmp_path)


def opened_world(tmp_path: Path, database_url: str | None = None) -> Iterator[World]:
    """Ann drifts in the fifth week, bob does not; two conversations a day, two messages each."""
    builder = WorldBuilder(tmp_path / "world").persona("ann", "Ann is dry.").persona("bob", "Bob is loud.")
    builder.claim("adherence", "dry", "{{agent_name}} is dry").claim("fluency", "varied", "It is varied")
    for half in range(WEEKS * 14):
        at = FIRST + timedelta(hours=12 * half)
        builder.say("guest", f"A question of half day {half}?", at=at)
        for agent_id in ("ann", "bob"):
            for minute in (2, 4):
                text = STOCK if agent_id == "ann" and at >= DRIFT else f"{agent_id} says a thing."
                builder.say(
                    agent_id, f"{text} ({half}/{minute})", at=at + timedelta(minutes=minute + (agent_id == "bob"))
                )
    opened = builder.open(database_url) if database_url else builder.open()
    yield opened
    opened.store.close()


@pytest.fixture
def stored_world(tmp_path: Path, database_url: str) -> Iterator[World]:
    """The world in a store of each kind of database."""
    yield from opened_world(tmp_path, database_url)


def reply(question: Question) -> Mapping[str, Any] | Unscored:
    """Answer as a reader does that takes stock phrases for out of character."""
    if question.kind != KIND:
        return Unscored.UNRECORDED
    own = [entry for talk in json.loads(question.evidence) for entry in talk["entries"] if "id" in entry]
    out = [entry for entry in own if STOCK in entry["text"]]
    return {
        "verdicts": [{"id": entry["id"], "verdict": "out" if entry in out else "in"} for entry in own],
        "why": [{"id": entry["id"], "claims": ["c1"], "quote": STOCK, "reason": "stock phrase"} for entry in out],
    }


def judge(reading: Any = reply) -> ScriptedJudge:
    return ScriptedJudge(lambda _: 8, reply=reading)


def run(world: World, reading: Any = reply, **asked: Any) -> Run:
    return run_evaluation(world, judge(reading), EvaluationRequest(**asked))


def verdict(done: Run, agent_id: str) -> Result | None:
    return done.report.agents[agent_id].conclusion.verdict


def week_end(week: int) -> datetime:
    return FIRST + timedelta(days=7 * week, hours=-1)


def test_a_drift_is_dated_and_is_a_regression_although_no_score_dropped(world: World) -> None:
    run(world, update_baseline=True, as_of=week_end(3), baseline_windows=2)
    done = run(world, history=1)
    assert (verdict(done, "ann"), verdict(done, "bob"), done.report.exit_code) == (Result.FELL, Result.HELD, 1)
    assert [row.in_character for row in ReportView(done.report).rows] == [("56/56", "12/28"), ("56/56", "28/28")]
    [found] = [item for item in done.report.all_findings() if item.kind == "out_of_character"]
    # The first stock phrase is two minutes after the half day's question.
    assert f"out of character since {DRIFT + timedelta(minutes=2):%Y-%m-%d %H:%M} UTC" in found.message
    read = done.report.agents["ann"].evaluation.messages
    assert read is not None and read.drift is not None
    assert {item.quote for item in read.verdicts if item.verdict == "out"} == {STOCK}
    assert {item.claims for item in read.verdicts if item.verdict == "out"} == {("dry",)}


def test_a_drift_in_the_first_window_needs_no_earlier_run(world: World) -> None:
    assert verdict(run(world, agents=["ann"], as_of=week_end(5)), "ann") is Result.FELL


def test_verdicts_are_stored_and_an_earlier_run_gives_the_date(stored_world: World) -> None:
    run(stored_world, as_of=week_end(4))
    done = run(stored_world)
    stored = verdicts_of(message_verdict_rows(stored_world.store, ["ann", "bob"], until=week_end(9), most=2000))
    assert {agent: len(own) for agent, own in stored.items()} == {"ann": 56, "bob": 56}
    assert {item.verdict.message for item in stored["ann"] if item.verdict.verdict == "out"} == {
        item.message for item in read_of(done, "ann").verdicts if item.verdict == "out"
    }
    change = read_of(done, "ann").change
    assert change is not None and change.before[1] > 28, "the verdicts of the week before are part of the series"
    assert forget_reasons(stored_world.store, 1, now=week_end(9)) == 2
    forgotten = verdicts_of(message_verdict_rows(stored_world.store, ["ann"], until=week_end(4), most=2000))["ann"]
    assert {(item.verdict.verdict, item.verdict.quote) for item in forgotten} == {("in", "")}


def read_of(done: Run, agent_id: str) -> Any:
    read = done.report.agents[agent_id].evaluation.messages
    assert read is not None
    return read


def test_no_baseline_is_taken_over_a_drift_until_it_is_accepted(world: World) -> None:
    done = run(world, update_baseline=True)
    assert [path.name for path in done.baselines] == ["bob.json"] and verdict(done, "ann") is not Result.HELD
    [text] = [item.text for item in done.report.all_findings() if item.kind == "known_drift"]
    last = DRIFT + timedelta(minutes=2, seconds=-1)
    assert f"--as-of {last:%Y-%m-%dT%H:%M:%SZ} --windows 4" in text and "--accept" in text
    accepted = run(world, update_baseline=True, accept="the new model", agents=["ann"])
    assert [path.name for path in accepted.baselines] == ["ann.json"]
    assert verdict(run(world, agents=["ann"]), "ann") is Result.HELD


def test_a_share_below_that_of_an_accepted_baseline_is_a_regression(world: World) -> None:
    run(world, update_baseline=True, accept="the new model", agents=["ann"])
    worse = run(world, lambda question: reply(question) if question.kind != KIND else all_out(question), agents=["ann"])
    [found] = [item for item in worse.report.all_findings() if item.kind == "out_of_character"]
    assert (verdict(worse, "ann"), worse.report.exit_code) == (Result.FELL, 1)
    assert re.search(r"; \d+ points below its baseline \(43 %\), at least \d+$", found.message), found.message


def all_out(question: Question) -> Mapping[str, Any]:
    own = [entry for talk in json.loads(question.evidence) for entry in talk["entries"] if "id" in entry]
    why = [{"id": item["id"], "claims": ["c1"], "quote": item["text"][:20], "reason": "another voice"} for item in own]
    return {"verdicts": [{"id": item["id"], "verdict": "out"} for item in own], "why": why}


def test_a_reader_of_part_of_the_messages_says_how_many_it_did_not_read(world: World) -> None:
    def half(question: Question) -> Mapping[str, Any] | Unscored:
        return Unscored.API_ERROR if "half day 65" in question.evidence else reply(question)

    done = run(world, half, agents=["bob"])
    read = read_of(done, "bob")
    assert sum(read.unscored.values()) + len(read.verdicts) == 28 and read.unscored["api_error"] > 0
    assert "not judged" in read.text("Bob")


def without_quotes(question: Question) -> Mapping[str, Any] | Unscored:
    answer = reply(question)
    return answer if isinstance(answer, Unscored) else {**answer, "why": []}


@pytest.mark.parametrize(
    "reading",
    [
        lambda _: Unscored.API_ERROR,
        lambda _: {"verdicts": [], "why": []},
        without_quotes,
        lambda _: Unscored.UNRECORDED,
    ],
    ids=["the judge is down", "nothing is answered", "no quotes", "nothing is recorded"],
)
def test_lost_verdicts_turn_no_drift_green(world: World, reading: Any) -> None:
    run(world, update_baseline=True, as_of=week_end(3), baseline_windows=2)
    done = run(world, reading, agents=["ann"])
    assert (verdict(done, "ann"), done.report.exit_code) == (Result.CANNOT_TELL, 3)
    [found] = [item for item in done.report.all_findings() if item.kind == "coverage"]
    assert "of 28 messages have a verdict" in found.message and found.command


@pytest.mark.parametrize(("every", "expected"), [(1, Result.CANNOT_TELL), (2, Result.HELD)])
def test_messages_that_are_mostly_unclear_show_nothing(world: World, every: int, expected: Result) -> None:
    def unsure(question: Question) -> Mapping[str, Any] | Unscored:
        answer = reply(question)
        if isinstance(answer, Unscored):
            return answer
        for item in answer["verdicts"][::every]:
            item["verdict"] = "unclear"
            answer["why"].append({"id": item["id"], "claims": [], "quote": "says a thing", "reason": "too short"})
        return answer

    run(world, update_baseline=True, as_of=week_end(3), baseline_windows=2)
    assert verdict(run(world, unsure, agents=["bob"]), "bob") is expected


def test_one_message_without_a_verdict_decides_nothing(world: World) -> None:
    def all_but_one(question: Question) -> Mapping[str, Any] | Unscored:
        answer = reply(question)
        return answer if isinstance(answer, Unscored) else {**answer, "verdicts": answer["verdicts"][1:]}

    run(world, update_baseline=True, as_of=week_end(3), baseline_windows=2)
    done = run(world, all_but_one, agents=["bob"])
    assert sum(read_of(done, "bob").unscored.values()) == 1 and verdict(done, "bob") is Result.HELD


@pytest.mark.parametrize("reading", [None, lambda _: Unscored.UNRECORDED])
def test_without_answers_nothing_is_said_of_messages(world: World, reading: Any) -> None:
    done = run(world, reading)
    assert all(item.evaluation.messages is None for item in done.report.agents.values())
    assert not [item for item in done.report.all_findings() if item.kind == "out_of_character"]


def test_a_claim_about_the_window_is_scored_and_shown_to_no_reader_of_messages(world: World) -> None:
    habit = "Ann tells one story a day"
    path = world.root / "propositions" / "adherence" / "ann.yaml"
    claim = f"{{id: stories, claim: {habit}, applies_to: window}}"
    path.write_text(f"{{dimension: adherence, propositions: [{claim}]}}\n", encoding="utf-8")
    seen: list[Question] = []
    done = run(world, lambda question: seen.append(question) or reply(question), agents=["ann"])
    assert done.report.agents["ann"].evaluation.dimensions["adherence"].propositions["stories"].score == 8
    asked = [question.context[-1] for question in seen if question.kind == KIND]
    assert asked and not any(habit in context for context in asked)


def test_dimensions_without_adherence_ask_nothing_about_messages(world: World) -> None:
    asked = judge()
    run_evaluation(world, asked, EvaluationRequest(dimensions=["fluency"]))
    assert not asked.questions


def test_a_saved_run_says_the_same_again(world: World, tmp_path: Path) -> None:
    done = run(world, history=1)
    assert done.replay is not None
    save_replay(tmp_path / "run.json", done.replay())
    again = replayed(load_replay(tmp_path / "run.json"))
    assert again.report.agents["ann"].evaluation.messages == done.report.agents["ann"].evaluation.messages
    assert again.report.exit_code == done.report.exit_code


def test_answers_are_recorded_and_replayed_and_cost_nothing_then(world: World) -> None:
    before = estimate_run(world, EvaluationRequest(agents=["ann"]), count=False).judging.usage.calls
    questions = list[Question]()

    def kept(question: Question) -> Mapping[str, Any] | Unscored:
        questions.append(question)
        return reply(question)

    live = run(world, kept, agents=["ann"])
    writer, asked = RecordingWriter(world.root / RECORDINGS), judge()
    writer.record_answers(questions, asyncio.run(asked.ask(questions)))
    assert estimate_run(world, EvaluationRequest(agents=["ann"]), count=False).judging.usage.calls == before - len(
        questions
    )
    again = run_evaluation(world, open_judge("recorded", world), EvaluationRequest(agents=["ann"]))
    assert read_of(again, "ann").verdicts == read_of(live, "ann").verdicts


def test_verdicts_are_a_table_in_frames_csv_and_parquet(stored_world: World) -> None:
    def formula(question: Question) -> Mapping[str, Any] | Unscored:
        answer = reply(question)
        return (
            answer
            if isinstance(answer, Unscored)
            else {**answer, "why": [{**why, "reason": "=1+1"} for why in answer["why"]]}
        )

    done = run(stored_world, formula)
    report = report_of(WorldReader(stored_world).reports(["ann", "bob"]), GateRules())
    frame = report_frame(report, "message")
    read = read_of(done, "ann")
    assert list(frame[frame["agent"] == "ann"]["message_id"]) == [item.message for item in read.verdicts]
    assert set(zip(frame["run_id"], frame["judge_model"], frame["prompt_version"], strict=True)) == {
        (item.evaluation.run_id, read.model, read.prompt_version) for item in done.report.agents.values()
    }
    out = frame[frame["verdict"] == "out"][["agent", "claims", "quote", "reason"]].drop_duplicates()
    assert out.to_numpy().tolist() == [["ann", "dry", STOCK, "=1+1"]]
    kept = frame[frame["verdict"] == "in"]
    assert kept["quote"].isna().all() and set(kept["conversation"]) <= {item.conversation for item in read.verdicts}
    csv = pd.read_csv(io.StringIO(str(_table(report, "message", "csv"))))
    parquet = pd.read_parquet(io.BytesIO(bytes(_table(report, "message", "parquet"))))
    assert set(csv["reason"].dropna()) == {"'=1+1"} and set(parquet["reason"].dropna()) == {"=1+1"}
    assert list(csv["message_id"]) == list(parquet["message_id"]) == list(frame["message_id"])


def test_labels_of_messages_show_how_often_people_agree(world: World) -> None:
    judged = read_of(run(world), "ann").verdicts
    texts = {message.id: message for message in world.messages(agent_id="ann")}
    last = [texts[item.message] for item in judged[-6:]]
    assert {item.verdict for item in judged[-6:]} == {Role.OUT}, "the judge calls all of these out"

    def label(
        message: Message, verdict: Role, who: str = "anna", source: MarkSource = MarkSource.PERSON
    ) -> MessageLabel:
        return message_label(message, verdict, who, source)

    labels = [
        label(last[0], Role.OUT),
        label(last[1], Role.IN),
        label(last[2], Role.UNCLEAR),
        label(replace(last[3], text="It said something else."), Role.OUT),
        label(last[4], Role.OUT, source=MarkSource.SWIPE),
        *(label(last[5], verdict, who) for who, verdict in (("anna", Role.OUT), ("ben", Role.OUT), ("cleo", Role.IN))),
    ]
    write_message_labels(world.root / LABELS, labels)
    done = run(world)
    assert read_of(done, "ann").agreement == MessageAgreement(2, 3)
    assert read_of(done, "bob").agreement is None
    said = "people agree on 2 of 3"
    assert messages_metadata(done.report.agents["ann"].evaluation)["agreement"] == said
    assert "agreement" not in messages_metadata(done.report.agents["bob"].evaluation)
    rendered = {name: render(done.report, name) for name in ("markdown", "html", "json")}
    rendered["terminal"] = render_page(short_page(done.report), "table")
    assert '"agreed": 2' in rendered.pop("json")
    rendered["view"] = client_of(viewing_app(world)).get("/messages?agent=ann").text
    assert [name for name, text in rendered.items() if said not in text] == []


def test_every_place_says_the_same_sentence_of_a_drift(world: World) -> None:
    done = run(world)
    report = done.report
    agent, evaluation = report.agents["ann"], Evaluation.of(done, world)
    sentence = read_of(done, "ann").text(agent.evaluation.display_name).removesuffix(".")
    assert "has been out of character since" in sentence
    notice, line = report_notice(report), agent_line(agent)
    assert notice is not None
    place = Place()
    specs = build_specs(place)
    with dg.DagsterInstance.ephemeral() as instance:
        everybody = all_in_character(specs, instance, world, None).description
    gate = {item.name: item.result(specs, agent, line).description for item in GATE}
    places = {
        "terminal": render_page(short_page(report), "table"),
        "HTML": render(report, "html"),
        # Markdown escapes punctuation.
        "comment": render(report, "markdown").replace("\\", ""),
        "JUnit": render(report, "junit"),
        "JSON": render(report, "json"),
        "notebook": evaluation._repr_html_(),
        "pytest": fallen_text(evaluation, "ann", [item for item in agent.findings if item.exit_code == 1]),
        "view": client_of(viewing_app(world)).get("/agent?id=ann").text,
        "Slack": _payload("hooks.slack.com", notice)["text"],
        "Dagster's metadata": str(verdict_outcome(agent).metadata["in_character"]),
        "Dagster's check of an agent": gate["no_regression"],
        "Dagster's check of all": everybody,
        "Dagster's run tag": verdict_label([line], report),
    }
    said = {name: " ".join(unescape(str(text)).split()) for name, text in places.items()}
    assert [name for name, text in said.items() if sentence not in text] == []
    assert {name: said[name].count(sentence) for name in ("terminal", "HTML", "comment")} == {
        "terminal": 1, "HTML": 1, "comment": 1,
    }  # fmt: skip
    assert not re.search("Ann:? Ann has been", said["terminal"])


@pytest.mark.parametrize("history", [0, 2])
def test_the_sample_world_shows_who_drifted_and_since_when(cli: Cli, history: int) -> None:
    """Without a history the date is that of the baseline's window, which reaches into the window that is judged."""
    done = cli("evaluate", "--history", str(history), "--format", "json")
    agents = json.loads(done.stdout)["agents"]
    shares = {name: item["dimensions"]["adherence"]["messages"]["share"] for name, item in agents.items()}
    assert {name: (share["n_in"], share["n_out"]) for name, share in shares.items()} == {
        "dwight": (21, 0), "jim": (22, 0), "michael": (0, 22), "pam": (21, 0),
    }  # fmt: skip
    assert "out of character since 2026-06-15 08:38 UTC" in done.stdout


@pytest.mark.parametrize("is_fresh", [False, True])
@pytest.mark.parametrize("is_read", [False, True])
def test_a_drift_is_dated_that_began_between_the_baseline_and_the_window(
    world: World, is_read: bool, is_fresh: bool
) -> None:
    """The store of CI is fresh: it has no verdicts of the baseline's windows either."""

    def reading(question: Question) -> Mapping[str, Any] | Unscored:
        return reply(question) if is_read or "half day 60?" not in question.evidence else Unscored.UNRECORDED

    asked = {"window": "3d", "agents": ["ann"]}
    run(world, update_baseline=True, as_of=DRIFT - timedelta(days=3), baseline_windows=2, **asked)
    if is_fresh:
        with world.store.begin() as connection:
            connection.execute(sa.delete(tables.message_verdicts))
    change = read_of(run(world, reading, **asked), "ann").drift
    assert change is not None and change.before[0] == change.before[1]
    if is_read:
        assert (change.since, change.give_or_take) == (DRIFT + timedelta(minutes=2), 0)
    else:
        assert change.since > DRIFT + timedelta(hours=23) and change.give_or_take >= 16


def test_a_fresh_store_dates_the_same_drift_in_a_window_mostly_in_character(world: World) -> None:
    """CI reads the baseline's windows, whatever the share of the newest one is: a verdict does not depend on the store."""

    def reading(question: Question) -> Mapping[str, Any] | Unscored:
        # The last five of 28 messages are stock phrases.
        for place in [f"({half}/" for half in range(67)] + ["(67/2)"]:
            question = replace(question, evidence=question.evidence.replace(f"{STOCK} {place}", f"Dry. {place}"))
        return reply(question)

    run(world, reading, update_baseline=True, as_of=week_end(4), baseline_windows=4, agents=["ann"])
    known = run(world, reading, agents=["ann"])
    with world.store.begin() as connection:
        connection.execute(sa.delete(tables.message_verdicts))
    fresh = run(world, reading, agents=["ann"])
    assert read_of(known, "ann").change == read_of(fresh, "ann").change
    assert verdict(known, "ann") is verdict(fresh, "ann")
    assert read_of(fresh, "ann").drift is not None
