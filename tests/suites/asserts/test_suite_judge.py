"""The live judge over real sockets: asked once, recorded, replayed, within its budget."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.settings import Settings
from persona_pipeline.cli import main
from persona_pipeline.judging.open import JudgeOptions, open_judge
from persona_pipeline.suites import RunOptions, UngradedError, run_suite
from persona_pipeline.suites.grading.judge_questions import RULES
from persona_pipeline.suites.grading.suite_judge import SuiteJudge
from persona_pipeline.suites.running.opening import judge_identity
from persona_pipeline.testing.worlds import write_small_world
from tests.suites.support import Given, ScriptedBackend, ScriptedSuiteJudge, grade, judging, load, target, write
from tests.support.clock import LONG
from tests.support.messages_server import Call, Hang, MessagesServer, message, status

SUITE = """
tests:
  - {id: a, input: hi, criteria: c, assert: [{type: llm_judge}, {type: rubrics, criteria: [Polite]}]}
  - {id: b, input: hi, criteria: c, assert: [{type: llm_judge}]}
"""
ANSWERS = '{"a": "a fine answer", "b": "another answer"}'


def reply(call: Call) -> Any:
    if "criteria" in json.dumps(call.body["output_config"]) or "checks" in json.dumps(call.body["output_config"]):
        data: Any = {"checks": [{"id": "rubric-1", "reasoning": "r", "satisfied": True}], "overall_reasoning": ""}
    else:
        data = {"reasoning": "r", "hits": [], "misses": [], "score": 0.9}
    return message(json.dumps(data))


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run ``suite run`` in a small world, and return its exit code and its JSON."""
    root = write_small_world(tmp_path / "world")
    write(root, {"suites/s.eval.yaml": SUITE, "answers.json": ANSWERS})
    monkeypatch.chdir(root)
    monkeypatch.setenv("PERSONA_ROOT", str(root))

    def run(*arguments: str) -> tuple[int, Any]:
        given = ["persona-pipeline", "suite", "run", "suites/s.eval.yaml", "--responses", "answers.json", "--json"]
        monkeypatch.setattr(sys, "argv", [*given, *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), json.loads(said.out) if said.out else said.err

    return run


def live(monkeypatch: pytest.MonkeyPatch, server: MessagesServer) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test")


def test_what_a_live_judge_said_is_recorded_and_replayed(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessagesServer(handler=reply) as server:
        live(monkeypatch, server)
        code, data = command("--judge", "anthropic", "--record")
        assert (code, len(server.calls)) == (0, 3), data
        assert not server.problems
        assert data["judge"]["usage"]["calls"] == 3
        assert all("fine answer" in call.evidence or "another answer" in call.evidence for call in server.calls)
        assert command("--judge", "anthropic")[0] == 0
        assert len(server.calls) == 3, "the second run answers from the cache"
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    code, data = command()
    assert (code, data["judge"]["name"]) == (0, "recorded")
    assert [row["score"] for row in data["tests"]] == [pytest.approx(0.95), 0.9]


def test_an_empty_budget_is_exit_code_4(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessagesServer(handler=reply) as server:
        live(monkeypatch, server)
        code, data = command("--judge", "anthropic", "--max-usd", "0.0000001")
    assert code == 4
    assert {row["error"]["reason"] for row in data["tests"]} == {"budget"}
    assert server.calls == []


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (message("no JSON"), "invalid_output"),
        (message(json.dumps({"reasoning": "", "hits": [], "misses": [], "score": 7})), "invalid_output"),
        (message(None, stop_reason="refusal"), "refusal"),
        (status(400), "api_error"),
    ],
)
def test_a_broken_judge_is_an_error_live_and_in_a_replay_until_it_answers(
    command: Any, monkeypatch: pytest.MonkeyPatch, outcome: Any, reason: str
) -> None:
    with MessagesServer(handler=lambda call: outcome) as server:
        live(monkeypatch, server)
        for judged in (("--judge", "anthropic", "--record"), ()):
            code, data = command(*judged, "--test-id", "b")
            assert (code, data["tests"][0]["error"]["reason"]) == (3, reason)
    assert "recorded as failed" in data["tests"][0]["error"]["message"]


def test_a_judge_that_hangs_ends_with_the_test(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessagesServer(handler=lambda call: Hang()) as server:
        live(monkeypatch, server)
        started = time.monotonic()
        code, data = command("--judge", "anthropic", "--test-id", "b", "--timeout", "0.3")
    assert (code, data["tests"][0]["error"]["reason"]) == (3, "timeout")
    assert time.monotonic() - started < LONG


def test_a_broken_recording_is_a_configuration_error(command: Any) -> None:
    write(Path.cwd(), {"recordings/x.jsonl": "nonsense\n"})
    code, said = command()
    assert code == 2
    assert "recordings/x.jsonl" in said


def test_many_threads_share_one_judge(tmp_path: Path) -> None:
    data = {"reasoning": "r", "hits": [], "misses": [], "score": 0.9}
    judge = ScriptedSuiteJudge(ScriptedBackend(lambda question: data))
    tests = "".join(f"  - {{id: t{n}, input: hi, criteria: c, assert: [{{type: llm_judge}}]}}\n" for n in range(20))
    result = run_suite(
        load(tmp_path, f"tests:\n{tests}"),
        targets=Given.of(target(lambda request: request.test.id)),
        judge=lambda: judge,
        options=RunOptions(workers=8),
    )
    assert (result.exit_code, len(judge.backend.asked), result.usage["calls"]) == (0, 20, 20)


def test_no_judge_is_opened_when_nobody_asks(tmp_path: Path) -> None:
    def opened() -> Any:
        raise AssertionError("opened")

    suite = load(tmp_path, "tests:\n  - {id: t, input: hi, assert: [{type: is_json}]}\n")
    assert run_suite(suite, targets=Given.of(target(lambda request: "{}")), judge=opened).exit_code == 0


def test_a_test_whose_time_is_up_asks_nothing(tmp_path: Path) -> None:
    from persona_pipeline.suites import Context, Output
    from tests.suites.support import suite_of

    suite = suite_of(tmp_path, {"type": "llm_judge"})
    with judging() as (services, judge), pytest.raises(UngradedError, match="timeout"):
        late = Context(suite, suite.tests[0], services, deadline=time.monotonic() - 1)
        suite.tests[0].asserts[0].grade(Output(), late)
    assert judge.backend.asked == []


def test_another_model_for_one_assert_asks_that_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    from persona_pipeline.suites import Services

    with MessagesServer(handler=reply) as server:
        live(monkeypatch, server)
        judge = SuiteJudge(open_judge("anthropic", None, JudgeOptions(recorded=False, kept=False), settings=Settings()))
        services = Services(judge=judge)
        grade(tmp_path, {"type": "llm_judge", "model": "claude-sonnet-5-5"}, "x", services=services)
        grade(tmp_path, {"type": "llm_judge"}, "x", services=services)
        judge.close()
    assert [call.body["model"] for call in server.calls] == ["claude-sonnet-5-5", "claude-haiku-5-5"]


@pytest.mark.parametrize("name", [*RULES])
def test_a_verdict_depends_on_the_wording_of_every_question(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    before = judge_identity("anthropic", Settings())
    monkeypatch.setitem(RULES, name, "other words")
    assert judge_identity("anthropic", Settings()) != before
