"""Each provider on its own."""

import json
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from persona_pipeline.suites import RunOptions, run_suite
from persona_pipeline.suites.answering.base import TargetFields
from persona_pipeline.suites.format.files import ReasonedError
from persona_pipeline.suites.running.opening import load_targets
from persona_pipeline.suites.targets import Request
from persona_pipeline.testing.worlds import write_small_world
from tests.suites.support import suite_of, three, write
from tests.support.clock import LONG
from tests.support.messages_server import MessagesServer, message


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


class TestGiven:
    def test_a_mock_says_what_it_is_told(self, tmp_path: Path) -> None:
        found = target(tmp_path, provider="mock", response="x", responses={"t": {"text": "y", "cost_usd": 1}})
        output = found.respond(request(tmp_path))
        assert (output.text, output.cost_usd) == ("y", 1)
        assert target(tmp_path, provider="mock", response="x").respond(request(tmp_path)).text == "x"
        assert json.loads(target(tmp_path, provider="mock").respond(request(tmp_path)).text)

    def test_a_recording_answers_only_the_question_it_was_made_of(self, tmp_path: Path) -> None:
        write(tmp_path, {"r.jsonl": '{"id": "t", "text": "ok", "request_key": "old"}\n', "none.json": "{}"})
        found = target(tmp_path, provider="replay", path="r.jsonl")
        assert found.respond(request(tmp_path, request_key="old")).text == "ok"
        assert failure(found, request(tmp_path, request_key="new")).reason == "stale"
        assert failure(target(tmp_path, provider="replay", path="none.json"), request(tmp_path)).reason == "no_response"


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
