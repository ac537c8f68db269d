"""Evaluation with the real SDK against a local Messages API server: cached, budgeted, recorded, synthetic."""

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.against import fresh_world
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.judging.model.asking import ModelBackend
from persona_pipeline.judging.open import JudgeOptions, OpenedJudge, open_judge
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.testing.judges import ScriptedJudge
from persona_pipeline.testing.worlds import write_small_world
from persona_pipeline.world import World
from tests.support.messages_server import ANSWER, Call, MessagesServer, Reply, message, status, verdicts
from tests.support.pull_requests import git
from tests.support.worlds import replace_in

DAYS = (2, 9, 16)


def live(world: World, options: EvaluationRequest | None = None, **judge_options):
    judge = open_judge("anthropic", world, JudgeOptions(**judge_options))
    return run_evaluation(world, judge, options or EvaluationRequest())


def test_unchanged_inputs_cost_nothing_and_one_edited_claim_one_proposition(
    small_world: World, server: MessagesServer
) -> None:
    first = live(small_world)
    paid = server.paid
    assert paid > 0
    assert first.report.usage.calls == paid
    again = live(small_world)
    assert (server.paid, again.report.usage.calls) == (paid, 0)
    scores = lambda run: {a: r.evaluation.dimensions["adherence"].score for a, r in run.report.agents.items()}  # noqa: E731
    assert scores(again) == scores(first)
    replace_in(small_world.root / "propositions" / "fluency" / "_default.yaml", "interesting", "surprising")
    live(small_world)
    assert server.paid - paid == 2, "one claim, two agents"


def test_a_live_run_pays_for_what_is_not_recorded_and_rewrites_no_recording(
    small_world: World, server: MessagesServer, tmp_path: Path
) -> None:
    live(small_world, record=True)
    paid = server.paid
    recorded = {path: path.read_bytes() for path in (small_world.root / "recordings").rglob("*.jsonl")}
    assert paid > 0 and recorded
    fresh_clone = World.open(small_world.root, f"sqlite:///{tmp_path}/new.db")
    run = live(fresh_clone, record=True)
    assert (server.paid, run.report.usage.calls) == (paid, 0)
    (note,) = run.report.provenance["judge_notes"]
    assert note == f"taken from recordings: {paid} by claude-haiku-5-5; --fresh asks anthropic:claude-haiku-5-5 again"
    replace_in(fresh_clone.root / "propositions" / "fluency" / "_default.yaml", "interesting", "surprising")
    live(fresh_clone, record=True)
    assert server.paid - paid == 2, "one claim, two agents"
    now = {path: path.read_bytes() for path in recorded}
    assert all(set(recorded[path].splitlines()) <= set(now[path].splitlines()) for path in recorded)
    live(fresh_clone, fresh=True)
    assert server.paid - paid == 2 + paid
    fresh_clone.store.close()


def test_all_that_was_spent_is_in_the_report_by_what_it_was_spent_on(tmp_path: Path, server: MessagesServer) -> None:
    """Judging, judging again what fell, earlier windows, generated conversations, and calls that brought nothing."""
    said = [
        ("ann", "general", f"2026-03-{day:02}T09:{n:02}:00Z", f"Kettle {day}/{n}.") for day in DAYS for n in range(12)
    ]
    world = World.open(
        write_small_world(tmp_path / "world", [*said, ("bob", "general", "2026-03-16T10:00:00Z", "Oil!")])
    )
    server.handler = lambda call: message(json.dumps(verdicts(call.body, lambda claim: 8)))
    first_week = datetime(2026, 3, 2, 23, tzinfo=UTC)
    live(world, EvaluationRequest(samples=2, update_baseline=True, agents=["ann"], as_of=first_week))

    def answer(call: Call) -> Reply:
        if "play a persona" in str(call.body["system"]):
            return message('{"message": "I oil kettles."}')
        return message("babble") if call.index % 7 == 3 else message(json.dumps(verdicts(call.body, lambda claim: 0)))

    server.handler = answer
    judge = open_judge("anthropic", world, JudgeOptions())
    report = run_evaluation(world, judge, EvaluationRequest(samples=2, synthetic=True, history=1)).report
    world.store.close()
    assert isinstance(judge.backend, ModelBackend)
    assert vars(report.usage) == pytest.approx(vars(judge.backend.spent))
    assert {expense.mechanism for expense in report.expenses} == {"evaluation", "confirmation", "history", "synthetic"}
    assert report.agents["bob"].evaluation.synthetic


def test_a_sample_that_was_not_paid_for_is_code_4_although_others_are_scored(
    small_world: World, server: MessagesServer
) -> None:
    live(small_world, EvaluationRequest(update_baseline=True))
    run = live(small_world, EvaluationRequest(samples=2), max_usd=0.000001)
    adherence = run.report.agents["ann"].evaluation.dimensions["adherence"]
    assert (adherence.n_scored, adherence.n_expected, adherence.failed) == (1, 2, {"budget": 1})
    assert adherence.score is not None
    assert run.report.exit_code == 4
    assert {"budget", "coverage"} <= {finding.kind for finding in run.report.all_findings()}


def test_a_replay_finds_what_the_live_run_found_when_it_judged_again(
    small_world: World, server: MessagesServer
) -> None:
    """The first judgment of adherence is far too low, the five that confirm it are not."""
    ann = {"agents": ["ann"], "dimensions": ["adherence"]}
    replace_in(small_world.root / "propositions" / "adherence" / "_default.yaml", "interesting", "dry")
    server.handler = lambda call: message(json.dumps(verdicts(call.body, lambda claim: 7 + call.index % 2)))
    first_week = datetime(2026, 3, 4, tzinfo=UTC)
    live(small_world, EvaluationRequest(**ann, samples=4, update_baseline=True, as_of=first_week), record=True)
    unlucky = len(server.calls)
    server.handler = lambda call: message(
        json.dumps(verdicts(call.body, lambda claim: 1 if call.index == unlucky else 7 + call.index % 2))
    )
    confirmed = live(small_world, EvaluationRequest(**ann), record=True).report
    assert len(server.calls) == unlucky + 6
    judge = OpenedJudge(RecordedBackend(small_world.root / "recordings"))
    replayed = run_evaluation(small_world, judge, EvaluationRequest(**ann)).report
    assert (replayed.exit_code, confirmed.exit_code) == (0, 0)
    scores = [report.agents["ann"].evaluation.dimensions["adherence"].score for report in (confirmed, replayed)]
    assert scores[0] == scores[1]
    hasty = run_evaluation(small_world, judge, EvaluationRequest(**ann, confirm=False)).report
    assert hasty.exit_code == 1, "without further judgments, one judgment six points lower is a regression"


def test_quiet_agents_talk_in_marked_conversations_and_make_no_baseline(
    small_world: World, server: MessagesServer
) -> None:
    def answer(call):
        return message('{"message": "I oil kettles."}') if "play a persona" in str(call.body["system"]) else ANSWER

    server.handler = answer
    run = live(small_world, EvaluationRequest(synthetic=True, agents=["bob"], update_baseline=True))
    evaluation = run.report.agents["bob"].evaluation
    assert evaluation.synthetic
    assert evaluation.sample_size == 10
    assert evaluation.dimensions["adherence"].score is not None
    assert evaluation.dimensions["consistency"].unscored == "no_evidence"
    assert run.baselines == []
    assert not (small_world.root / "baselines").exists()
    assert "I oil kettles." not in {m.text for m in small_world.messages()}, "real messages stay as they were"
    said = tables.run_messages
    query = sa.select(said.c.text).where(said.c.synthetic, said.c.agent_id == "bob")
    with small_world.store.connect() as connection:
        kept = set(connection.execute(query).scalars())
    assert kept == {"I oil kettles."}, "and what was made up is there to be read"


def test_synthetic_needs_somebody_who_can_talk(small_world: World) -> None:
    with pytest.raises(ConfigError, match="--synthetic needs a live judge"):
        run_evaluation(small_world, OpenedJudge(RecordedBackend(Path("none"))), EvaluationRequest(synthetic=True))


def test_synthetic_conversations_are_never_recorded(small_world: World, server: MessagesServer) -> None:
    with pytest.raises(ConfigError, match="no --record"):
        live(small_world, EvaluationRequest(synthetic=True), record=True)
    assert server.paid == 0


def test_a_server_without_structured_output_is_said_so(small_world: World, server: MessagesServer) -> None:
    def answer(call):
        if "output_config" in call.body:
            return status(400, "output_config.format: not supported by this server")
        return ANSWER

    server.handler = answer
    run = live(small_world)
    assert run.report.agents["ann"].evaluation.dimensions["adherence"].score is not None
    assert any("JSON" in note for note in run.report.provenance["judge_notes"])


def test_a_live_judge_is_asked_once_however_often_a_pull_request_is_judged(small_root: Path) -> None:
    """By the base's files, and by the change's."""
    git(small_root, "init", "--quiet")
    with fresh_world(small_root) as world:
        healthy = ScriptedJudge(lambda request: 8, live=True)
        run_evaluation(world, healthy, EvaluationRequest(update_baseline=True))
    git(small_root, "add", "-A")
    git(small_root, "commit", "--quiet", "-m", "the base")
    for path in (small_root / "baselines").glob("*.json"):
        path.unlink()
    fallen = ScriptedJudge(lambda request: 2, live=True)
    with fresh_world(small_root) as world:
        run_evaluation(world, fallen, EvaluationRequest(update_baseline=True, accept="lowered on purpose"))
    paid = len(fallen.asked)
    git(small_root, "add", "-A")
    git(small_root, "commit", "--quiet", "-m", "lowered")
    with fresh_world(small_root) as world:
        report = run_evaluation(world, fallen, EvaluationRequest(against="HEAD^1")).report
    asked = Counter((request.proposition_id, request.key) for request in fallen.asked[paid:])
    assert asked and set(asked.values()) == {1}
    assert report.exit_code == 3 and report.findings[0].kind == "base"
    assert "only because of baselines/" in report.findings[0].message
