"""Each provider on its own."""

import json
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest

from persona_pipeline.suites import RunOptions, SuiteResult, run_suite
from persona_pipeline.suites.answering.base import TargetFields
from persona_pipeline.suites.format.files import ReasonedError
from persona_pipeline.suites.running.opening import load_targets
from persona_pipeline.suites.targets import Request
from persona_pipeline.testing.worlds import write_small_world
from tests.suites.support import load, suite_of, three, write
from tests.support.clock import LONG
from tests.support.messages_server import Hang, MessagesServer, Reply, message, status


def target(folder: Path, **fields: Any) -> TargetFields:
    write(folder, {"targets.yaml": json.dumps({"targets": [{"name": "a", **fields}]})})
    return load_targets(folder / "targets.yaml").open("a")


def request(folder: Path, text: str = "hi", **fields: Any) -> Request:
    test = suite_of(folder, {"type": "is_json"}).tests[0]
    return Request(test, [{"role": "user", "content": text}], text, **{"timeout": LONG, **fields})


def failure(found: TargetFields, asked: Request) -> ReasonedError:
    with pytest.raises(ReasonedError) as raised:
        found.respond(asked)
    return raised.value


class TestMock:
    def test_it_says_what_it_is_told(self, tmp_path: Path) -> None:
        assert target(tmp_path, provider="mock", response="hello").respond(request(tmp_path)).text == "hello"

    def test_it_may_say_something_else_to_a_test(self, tmp_path: Path) -> None:
        found = target(tmp_path, provider="mock", response="x", responses={"t": {"text": "y", "cost_usd": 1}})
        assert found.respond(request(tmp_path)).cost_usd == 1

    def test_it_says_something_without_being_told(self, tmp_path: Path) -> None:
        assert json.loads(target(tmp_path, provider="mock").respond(request(tmp_path)).text)


def command(code: str) -> list[str]:
    return [sys.executable, "-c", code]


class TestCli:
    def test_arguments_hold_the_prompt_and_no_shell_sees_it(self, tmp_path: Path) -> None:
        code = "import sys; print(sys.argv[1:])"
        argv = [*command(code), "{EVAL_ID}-{ATTEMPT}", "{PROMPT}", "--files={FILES}"]
        text = "$(touch owned); {EVAL_ID} 'quoted'"
        found = target(tmp_path, provider="cli", command=argv, files_format="@{path}")
        answer = found.respond(request(tmp_path, text, files=["/x/y.txt", "/z"]))
        assert answer.text.strip() == str(["t-0", text, "--files=@/x/y.txt @/z"])
        assert not (tmp_path / "owned").exists()
        assert answer.duration_ms is not None
        assert answer.duration_ms > 0

    @pytest.mark.parametrize(
        ("written", "text", "cost"),
        [
            ({"output_messages": [{"role": "assistant", "content": "m"}], "cost_usd": 0.5}, "m", 0.5),
            ({"text": "t", "duration_ms": 7}, "t", None),
            ({"other": 1}, '{"other": 1}', None),
            ("plain\n", "plain\n", None),
        ],
        ids=["messages", "text with metrics", "JSON of another shape", "text"],
    )
    def test_the_output_file(self, tmp_path: Path, written: Any, text: str, cost: float | None) -> None:
        content = written if isinstance(written, str) else json.dumps(written)
        code = f"import sys; open(sys.argv[1], 'w').write({content!r}); print('noise')"
        found = target(tmp_path, provider="cli", command_template=[*command(code), "{OUTPUT_FILE}"])
        answer = found.respond(request(tmp_path))
        assert (answer.text, answer.cost_usd) == (text, cost)

    def test_it_runs_beside_the_targets_file_or_in_the_workspace(self, tmp_path: Path) -> None:
        (tmp_path / "w").mkdir()
        found = target(tmp_path, provider="cli", command=command("import os; print(os.getcwd())"))
        assert found.respond(request(tmp_path)).text.strip() == str(tmp_path)
        assert found.respond(request(tmp_path, workspace=str(tmp_path / "w"))).text.strip() == str(tmp_path / "w")

    @pytest.mark.parametrize(
        ("code", "fields", "reason", "transient"),
        [
            ("import sys; sys.stderr.write('boom'); sys.exit(3)", {}, "target_failed", False),
            ("import time; time.sleep(600)", {"timeout_seconds": 0.2}, "timeout", True),
        ],
    )
    def test_failures(self, tmp_path: Path, code: str, fields: Any, reason: str, transient: bool) -> None:
        error = failure(target(tmp_path, provider="cli", command=command(code), **fields), request(tmp_path))
        assert (error.reason, error.transient) == (reason, transient)
        assert reason != "target_failed" or "boom (exit code 3)" in error.message

    def run(self, folder: Path, allow: bool, **fields: Any) -> SuiteResult:
        target(folder, provider="cli", **fields)
        suite = load(folder, "tests:\n  - {id: t, input: hi, assert: [{type: contains, value: ok}]}\n")
        return run_suite(suite, targets=load_targets(folder / "targets.yaml"), options=RunOptions(allow_code=allow))

    def test_it_needs_leave(self, tmp_path: Path) -> None:
        (test,) = self.run(tmp_path, False, command=command("open('ran', 'w')")).tests
        assert test.error is not None
        assert test.error.reason == "code_not_allowed"
        assert not (tmp_path / "ran").exists()

    BATCH = """
import json, sys
open("calls.log", "a").write("x")
rows = [json.loads(line) for line in sys.stdin if line.strip()]
if not rows: print("alone"); sys.exit()
for row in rows:
    if row["id"] != "other": print(json.dumps({"id": row["id"], "text": "ok " + row["prompt"], "cost_usd": 0.1}))
"""

    ALONE: ClassVar = dict.fromkeys(("sum-1", "sum-2", "other"), "alone\n")

    @pytest.mark.parametrize(
        ("first", "answers", "calls"),
        [
            ("pass", {"sum-1": "ok one", "sum-2": "ok two", "other": "alone\n"}, 2),
            ("sys.exit(3)", ALONE, 4),
            ("print('no JSON')", ALONE, 4),
        ],
        ids=["one run for all, and one for what it left out", "a batch that fails", "a batch that is no JSON"],
    )
    def test_a_program_may_answer_all_tests_at_once(
        self, tmp_path: Path, first: str, answers: dict[str, str], calls: int
    ) -> None:
        code = self.BATCH.replace("for row in rows:", f"{first}\nfor row in rows:")
        target(tmp_path, provider="cli", command=command(code), provider_batching=True)
        targets = load_targets(tmp_path / "targets.yaml")
        result = run_suite(three(tmp_path), targets=targets, options=RunOptions(allow_code=True))
        found = {test.id: test.best.output.text for test in result.tests if test.best.output}
        assert found == answers
        assert len((tmp_path / "calls.log").read_text(encoding="utf-8")) == calls


class TestReplay:
    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("r.json", '{"t": "ok"}'),
            ("r.jsonl", '{"id": "t", "text": "ok"}\n'),
        ],
    )
    def test_answers_come_from_the_file(self, tmp_path: Path, name: str, content: str) -> None:
        write(tmp_path, {name: content})
        assert target(tmp_path, provider="replay", path=name).respond(request(tmp_path)).text == "ok"

    def test_a_test_that_is_not_recorded_is_an_error(self, tmp_path: Path) -> None:
        write(tmp_path, {"r.json": "{}"})
        assert failure(target(tmp_path, provider="replay", path="r.json"), request(tmp_path)).reason == "no_response"

    def test_a_changed_question_makes_the_recording_stale(self, tmp_path: Path) -> None:
        write(tmp_path, {"r.jsonl": '{"id": "t", "text": "ok", "request_key": "old"}\n'})
        found = target(tmp_path, provider="replay", path="r.jsonl")
        assert failure(found, request(tmp_path, request_key="new")).reason == "stale"
        assert found.respond(request(tmp_path, request_key="old")).text == "ok"


class TestAnthropic:
    def ask(self, folder: Path, server: MessagesServer, **fields: Any) -> TargetFields:
        return target(folder, provider="anthropic", base_url=server.url, api_key="test", max_retries=0, **fields)

    def test_the_conversation_goes_out_and_the_answer_comes_back(self, tmp_path: Path) -> None:
        with MessagesServer(handler=lambda call: message("Four.")) as server:
            found = self.ask(tmp_path, server, system="Be brief.")
            messages = [
                {"role": "system", "content": "You count."},
                {"role": "user", "content": "one"},
                {"role": "user", "content": "two"},
                {"role": "assistant", "content": "yes"},
                {"role": "tool", "content": "result"},
            ]
            answer = found.respond(Request(request(tmp_path).test, messages, "", timeout=LONG))
            body = server.calls[0].body
        assert body["system"] == "Be brief.\n\nYou count."
        assert [(turn["role"], [block["text"] for block in turn["content"]]) for turn in body["messages"]] == [
            ("user", ["one", "two"]),
            ("assistant", ["yes"]),
            ("user", ["result"]),
        ]
        assert answer.text == "Four."
        assert answer.token_usage is not None
        assert answer.cost_usd is not None
        assert answer.duration_ms is not None

    @pytest.mark.parametrize(
        ("outcome", "reason"),
        [
            (status(400), "api_error"),
            (status(529), "api_error"),
            (message(None, stop_reason="refusal"), "refusal"),
            (message(None, stop_reason="max_tokens"), "truncated"),
            (message(None), "empty"),
            (Reply(b"<html>", headers={"content-type": "text/html"}), "api_error"),
            (Reply(["no message"]), "invalid_response"),
        ],
        ids=["bad request", "overloaded", "refusal", "cut off", "nothing said", "not JSON", "another JSON"],
    )
    def test_no_answer_is_an_error(self, tmp_path: Path, outcome: Any, reason: str) -> None:
        with MessagesServer(handler=lambda call: outcome) as server:
            assert failure(self.ask(tmp_path, server), request(tmp_path)).reason == reason

    def test_a_server_that_hangs_ends_at_the_deadline(self, tmp_path: Path) -> None:
        with MessagesServer(handler=lambda call: Hang()) as server:
            started = time.monotonic()
            error = failure(self.ask(tmp_path, server), request(tmp_path, timeout=0.3))
        assert (error.reason, error.transient) == ("timeout", True)
        assert time.monotonic() - started < LONG

    def test_without_a_key_it_says_so(self, tmp_path: Path) -> None:
        error = failure(target(tmp_path, provider="anthropic"), request(tmp_path))
        assert (error.reason, error.transient) == ("no_credentials", False)

    def test_only_what_is_asked_is_sent(self, tmp_path: Path) -> None:
        with MessagesServer() as server:
            error = failure(self.ask(tmp_path, server), Request(request(tmp_path).test, [], "", timeout=LONG))
            assert (error.reason, server.calls) == ("invalid_request", [])


class TestPersona:
    def test_an_agent_of_the_world_answers_in_character(self, tmp_path: Path) -> None:
        root = write_small_world(tmp_path / "world")
        agent = next(root.glob("personas/*.yaml")).stem
        with MessagesServer(handler=lambda call: message("hello")) as server:
            found = target(
                tmp_path,
                provider="persona",
                agent=agent,
                root="world",
                base_url=server.url,
                api_key="k",
                system="Today: sales.",
            )
            assert found.respond(request(tmp_path)).text == "hello"
            system = server.calls[0].body["system"]
        assert system.startswith("You are ")
        assert system.endswith("Today: sales.")
        assert "{name}" not in system
        assert "system_prompt" in found.fingerprint()
