"""Windows do not move: history stays history, late messages are seen, and the future waits."""

import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.judging.open import JudgeOptions, open_judge
from persona_pipeline.judging.verdict import JudgeRequest
from persona_pipeline.reporting.render import render
from persona_pipeline.testing.judges import ScriptedJudge
from persona_pipeline.world import World
from persona_pipeline.world.messages.store import write_messages
from persona_pipeline.world.models import Message
from persona_pipeline.world.runs import newest_windows, touched_windows
from tests.support.evaluating import evaluate_world, latest_runs, newest_run, stored_history, stored_report
from tests.support.messages_server import Call, MessagesServer, Reply, message, verdicts
from tests.support.worlds import replace_in, write_jsonl

FIRST_WEEK = datetime(2026, 3, 4, tzinfo=UTC)
NEWEST = datetime(2026, 3, 11, 12, tzinfo=UTC)


def constant(score: int = 7) -> ScriptedJudge:
    return ScriptedJudge(lambda request: score)


def late(text: str, at: datetime, message_id: str = "late") -> Message:
    return Message(id=message_id, agent_id="ann", text=text, created_at=at, channel="general")


def test_an_evaluation_of_the_past_is_history(small_world: World) -> None:
    evaluate_world(small_world, judge=constant(7))
    report = evaluate_world(small_world, judge=constant(3), as_of=FIRST_WEEK)
    assert {agent_id: item.past for agent_id, item in report.agents.items()} == {"ann": True, "bob": True}
    window = newest_windows(small_world.store, ["ann"], now=small_world.horizon).get("ann")
    assert window is not None
    assert window.end == NEWEST
    newest = newest_run(small_world.store, "ann")
    assert newest is not None
    assert newest.evaluation.window_end == NEWEST
    points = stored_history(small_world.store, ["ann"])["ann"]
    assert [point["window_end"][:10] for point in points] == ["2026-03-04", "2026-03-11"]


def test_a_part_evaluated_after_a_look_at_the_past_is_of_the_newest_window(small_world: World) -> None:
    evaluate_world(small_world, judge=constant(7))
    evaluate_world(small_world, judge=constant(7), as_of=FIRST_WEEK)
    replace_in(small_world.root / "propositions" / "fluency" / "_default.yaml", "interesting", "surprising")
    judge = constant(2)
    done = run_evaluation(
        small_world, judge, EvaluationRequest(agents=["ann"], dimensions=["fluency"], newest_window=True), strict=False
    )
    assert {request.dimension for request in judge.asked} == {"fluency"}
    evaluation = done.reports["ann"].evaluation
    assert (evaluation.window_end, len(evaluation.dimensions)) == (NEWEST, 5)
    assert not done.reports["ann"].past


@pytest.mark.parametrize("change", ["a persona", "messages"])
def test_a_part_becomes_a_whole_where_the_newest_window_has_no_run_on_these_inputs(
    small_world: World, change: str
) -> None:
    evaluate_world(small_world, judge=constant(7))
    if change == "a persona":
        replace_in(small_world.root / "personas" / "ann.yaml", "dry", "wet")
    else:
        write_messages(small_world.store, [late("Oh, and the kettle leaks.", NEWEST - timedelta(hours=1))])
    judge = constant(7)
    done = run_evaluation(
        small_world, judge, EvaluationRequest(agents=["ann"], dimensions=["fluency"], newest_window=True), strict=False
    )
    assert {request.dimension for request in judge.asked} > {"fluency", "adherence"}
    assert done.runs["ann"].whole
    assert len(done.reports["ann"].evaluation.dimensions) == 5


def test_a_part_that_was_asked_for_does_not_stand_for_the_whole_in_the_timeline(small_world: World) -> None:
    whole = evaluate_world(small_world, judge=constant(7)).agents["ann"].evaluation
    evaluate_world(small_world, judge=constant(1), dimensions=["adherence"], agents=["ann"], samples=2)
    (point,) = stored_history(small_world.store, ["ann"])["ann"]
    assert point["overall"] == whole.overall
    assert stored_report(small_world, ["ann"]).agents["ann"].evaluation.overall == whole.overall


def test_a_late_message_marks_the_window_it_falls_in_and_touched_judges_it_again(small_world: World) -> None:
    evaluate_world(small_world, judge=constant(7), as_of=FIRST_WEEK)
    evaluate_world(small_world, judge=constant(7))
    write_messages(small_world.store, [late("New again.", NEWEST + timedelta(days=20), "new")])
    assert touched_windows(small_world.store, ["ann", "bob"]) == []
    write_messages(small_world.store, [late("I forgot: kettles are moody.", FIRST_WEEK - timedelta(hours=1))])
    ends = {window.end for _, window in touched_windows(small_world.store, ["ann", "bob"])}
    assert ends == {FIRST_WEEK, NEWEST}, "the later window compares with the earlier one"
    judge = constant(5)
    evaluate_world(small_world, judge=judge, touched=True)
    shown = {entry.text for request in judge.asked for entry in request.trajectory.entries}
    assert "I forgot: kettles are moody." in shown
    assert touched_windows(small_world.store, ["ann", "bob"]) == []
    scores = {run.evaluation.window_end: run.evaluation.overall for run in latest_runs(small_world.store, "ann")}
    assert scores[FIRST_WEEK] < 7


def test_an_edit_and_a_removal_mark_windows_too(small_world: World) -> None:
    evaluate_world(small_world, judge=constant(7))
    path = small_world.root / "messages" / "all.jsonl"
    replace_in(path, "It purrs now.", "It sings now.")
    small_world.sync_messages()
    assert [agent_id for agent_id, _ in touched_windows(small_world.store, ["ann", "bob"])] == ["ann", "bob"]
    evaluate_world(small_world, judge=constant(7))
    assert touched_windows(small_world.store, ["ann", "bob"]) == []
    path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:-1]), encoding="utf-8")
    small_world.sync_messages()
    assert len(touched_windows(small_world.store, ["ann", "bob"])) == 2


def test_a_message_of_the_future_is_named_and_not_judged_and_moves_no_window(small_root: Path) -> None:
    now = datetime(2026, 3, 12, tzinfo=UTC)
    world = World(small_root, World.open(small_root).store, clock=lambda: now)
    extra = [
        {"id": f"f{n}", "agent_id": "ann", "channel": "general", "text": text, "created_at": moment.isoformat()}
        for n, (text, moment) in enumerate(
            [("A little ahead.", now + timedelta(minutes=4)), ("From tomorrow.", now + timedelta(days=1))], start=1
        )
    ]
    write_jsonl(small_root / "messages" / "future.jsonl", extra)
    judge = constant()
    run = run_evaluation(world, judge, EvaluationRequest())
    shown = {entry.text for request in judge.asked for entry in request.trajectory.entries}
    assert "A little ahead." in shown
    assert "From tomorrow." not in shown
    assert run.report.agents["ann"].evaluation.window_end == now + timedelta(minutes=4)
    (problem,) = run.problems
    assert (problem.path, problem.line) == ("messages/future.jsonl", 2)
    assert "'f2'" in problem.message
    assert "in the future" in problem.message
    tomorrow = World(small_root, world.store, clock=lambda: now + timedelta(days=2))
    assert run_evaluation(tomorrow, constant(), EvaluationRequest()).problems == []
    world.store.close()


def test_what_table_timeline_report_and_json_say_stays_the_same_however_often_it_is_asked(
    small_world: World, server: MessagesServer
) -> None:
    """With a judge that varies: what fell is judged again into the same run, and the fourth time nothing moves."""

    def noisy(call: Call) -> Reply:
        return message(json.dumps(verdicts(call.body, lambda claim: (5, 9, 2, 8)[call.index % 4])))

    server.handler = lambda call: message(json.dumps(verdicts(call.body, lambda claim: 9)))
    ask = lambda **asked: run_evaluation(  # noqa: E731
        small_world, open_judge("anthropic", small_world, JudgeOptions()), EvaluationRequest(samples=3, **asked)
    )
    ask(update_baseline=True, as_of=FIRST_WEEK)
    server.handler = noisy
    seen = []
    for _ in range(4):
        report = ask().report
        last = stored_history(small_world.store, ["ann"])["ann"][-1]
        stored = stored_report(small_world, ["ann"]).agents["ann"]
        shown = json.loads(render(report, "json"))["agents"]["ann"]
        assert last["overall"] == stored.evaluation.overall == shown["overall"]
        scores = {name: item["score"] for name, item in shown["dimensions"].items()}
        assert scores == last["dimensions"] == {n: i.score for n, i in stored.evaluation.dimensions.items()}
        assert stored.findings == report.agents["ann"].findings
        seen.append((scores, shown["overall"], report.exit_code))
    assert seen == seen[:1] * 4
    assert report.usage.calls == 0
    assert any(item.samples == 8 for item in report.agents["ann"].evaluation.dimensions.values()), "something fell"


def test_two_runs_at_once_pay_once(small_world: World, server: MessagesServer) -> None:
    server.latency = 0.05
    reports = []

    def work() -> None:
        world = World.open(small_world.root)
        judge = open_judge("anthropic", world, JudgeOptions())
        reports.append(run_evaluation(world, judge, EvaluationRequest()).report)
        world.store.close()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(report.usage.calls for report in reports) == [0, server.paid]
    numbers = [{a: r.evaluation.overall for a, r in report.agents.items()} for report in reports]
    assert numbers[0] == numbers[1]


def test_a_baseline_whose_persona_is_gone_fails(sample_world: World) -> None:
    (sample_world.root / "personas" / "michael.yaml").unlink()
    judge = open_judge("recorded", sample_world)
    report = run_evaluation(sample_world, judge, EvaluationRequest()).report
    gone = [finding for finding in report.all_findings() if finding.kind == "missing_agent"]
    assert [finding.agent_id for finding in gone] == ["michael"]
    assert report.exit_code == 3
    named = run_evaluation(sample_world, judge, EvaluationRequest(agents=["jim"])).report
    assert "missing_agent" not in {finding.kind for finding in named.all_findings()}


@pytest.mark.parametrize(
    ("before", "windows", "left_out"),
    [
        pytest.param(7, 2, "", id="all that were asked for"),
        pytest.param(7, 12, "2 of 12 windows; left out: 10 without a message", id="silence"),
        pytest.param(2, 2, "1 of 2 windows; left out: 1 in which something had dropped", id="something had dropped"),
    ],
)
def test_a_baseline_of_fewer_windows_than_asked_for_says_why(
    small_world: World, before: int, windows: int, left_out: str
) -> None:
    def judged(request: JudgeRequest) -> int:
        return before if any("long ago" in entry.text for entry in request.trajectory.entries) else 7

    early = [
        Message(id=f"e{place}", agent_id=who, text=f"long ago {place}", created_at=FIRST_WEEK, channel="general")
        for place, who in enumerate(["ann", "bob"] * 3)
    ]
    write_messages(small_world.store, early)
    asked = EvaluationRequest(agents=["ann"], update_baseline=True)
    run_evaluation(small_world, ScriptedJudge(judged), asked)
    run = run_evaluation(small_world, ScriptedJudge(judged), asked.model_copy(update={"baseline_windows": windows}))
    said = [note for note in run.notes if "the baseline is of" in note]
    # How sure such a baseline is stands between the number of windows and what was left out.
    assert [note.replace(", so it tells a usual week from a drop less well", "") for note in said] == (
        [f"ann: the baseline is of {left_out}"] if left_out else []
    )


def test_a_baseline_of_all_time_has_one_window_and_no_note(small_world: World) -> None:
    asked = EvaluationRequest(agents=["ann"], update_baseline=True, baseline_windows=4, window="all")
    run = run_evaluation(small_world, ScriptedJudge(lambda _: 7), asked)
    assert [path.name for path in run.baselines] == ["ann.json"]
    assert not [note for note in run.notes if "the baseline is of" in note]
