"""Functions that answer: every shape a function may have, and every way it may fail."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.suites import RunOptions, run_suite
from persona_pipeline.suites.running.plan import Targets
from tests.suites.support import three, write
from tests.suites.targets.test_providers import failure, request, target

MODULE = """
class Agent:
    def reply(self, prompt):
        return prompt.upper()

agent = Agent()

def plain(text): return f"ok {text}"
async def waiting(prompt): return f"ok {prompt}"
def crash(prompt): raise RuntimeError("boom")
"""
CALLS = {
    "output_messages": [{"role": "assistant", "content": "done", "tool_calls": [{"tool": "look", "input": {"a": 1}}]}],
    "token_usage": {"input": 5, "output": 2},
    "cost_usd": 0.5,
}


def answer(call: Any, folder: Path, **fields: Any) -> Any:
    return Targets.of(call).open("default").respond(request(folder, **fields))


@pytest.mark.parametrize(
    ("function", "text"),
    [("agent_of_mine:plain", "ok hi"), ("agent_of_mine:waiting", "ok hi"), ("agent_of_mine:agent.reply", "HI")],
)
@pytest.mark.parametrize("in_one_line", [True, False])
def test_a_function_of_a_module_beside_the_targets_file(
    tmp_path: Path, function: str, text: str, in_one_line: bool
) -> None:
    write(tmp_path, {"agent_of_mine.py": MODULE})
    fields = {"provider": f"python:{function}"} if in_one_line else {"provider": "python", "function": function}
    found = target(tmp_path, **fields)
    assert found.respond(request(tmp_path)).text == text
    assert found.fingerprint()["function"] == function


def stream(prompt: str) -> Iterator[str]:
    yield from ("o", "k ", prompt)


async def async_stream(prompt: str) -> AsyncIterator[str]:
    for part in ("o", "k ", prompt):
        await asyncio.sleep(0)
        yield part


def turns(messages: list[Any]) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": None, "tool_calls": [{"tool": "look"}]}
    yield {"role": "assistant", "content": f"ok {messages[0]['content']}"}


async def async_turns(prompt: str) -> AsyncIterator[dict[str, Any]]:
    yield {"role": "assistant", "content": f"ok {prompt}"}


class Replying:
    async def __call__(self, prompt: str) -> str:
        return f"ok {prompt}"


@pytest.mark.parametrize(
    "call",
    [
        lambda prompt: f"ok {prompt}",
        lambda text, attempt, messages=(), unknown=1: f"ok {messages[0]['content']}",
        lambda request: f"ok {request.prompt}",
        lambda: "ok hi",
        lambda prompt: {"text": f"ok {prompt}"},
        lambda prompt: async_stream(prompt),
        stream,
        async_stream,
        turns,
        async_turns,
        Replying(),
    ],
)
def test_every_shape_of_function(tmp_path: Path, call: Any) -> None:
    assert answer(call, tmp_path).text == "ok hi"


def test_tool_calls_and_usage_are_passed_through(tmp_path: Path) -> None:
    found = answer(lambda prompt: CALLS, tmp_path)
    assert [call["tool"] for call in found.tool_calls] == ["look"]
    assert (found.token_usage.total, found.cost_usd) == (7, 0.5)
    assert len(answer(turns, tmp_path).tool_calls) == 1


def test_a_coroutine_keeps_its_loop_over_a_run(tmp_path: Path) -> None:
    loops: list[Any] = []

    async def reply(prompt: str) -> str:
        loops.append(asyncio.get_running_loop())
        return "ok"

    assert run_suite(three(tmp_path), targets=reply).exit_code == 0
    assert len(loops) == 3 and len(set(map(id, loops))) == 1


@pytest.mark.parametrize(
    ("call", "reason", "said"),
    [
        (lambda prompt: 1 / 0, "crashed", "ZeroDivisionError"),
        (lambda prompt: 5, "invalid_response", "must be a string"),
        (lambda prompt: {"other": 1}, "invalid_response", "output_messages or text"),
        (lambda prompt, key: "x", "no_function", "parameter 'key' is none of prompt, messages"),
        (lambda prompt: [{"content": "x"}, {"content": "y"}], "invalid_response", "not a mapping with a role"),
    ],
    ids=["crash", "a number", "another mapping", "a parameter nobody knows", "no messages"],
)
def test_what_is_no_answer(tmp_path: Path, call: Any, reason: str, said: str) -> None:
    error = failure(Targets.of(call).open("default"), request(tmp_path))
    assert (error.reason, said in error.message) == (reason, True)


def test_a_function_that_does_not_end(tmp_path: Path) -> None:
    never = threading.Event()
    for call in (lambda prompt: never.wait(), lambda prompt: asyncio.sleep(3600)):
        error = failure(Targets.of(call).open("default"), request(tmp_path, timeout=0.1))
        assert error.reason == "timeout"
    never.set()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("none_such:f", "No module named 'none_such'"),
        ("agent_of_mine_too:none", "has no attribute 'none'"),
        ("agent_of_mine_too:agent", "is no function"),
    ],
)
def test_a_function_there_is_not(tmp_path: Path, function: str, said: str) -> None:
    write(tmp_path, {"agent_of_mine_too.py": MODULE})
    error = failure(target(tmp_path, provider="python", function=function), request(tmp_path))
    assert (error.reason, said in error.message) == ("no_function", True)


def test_a_program_hands_over_its_functions(tmp_path: Path) -> None:
    suite = three(tmp_path, "execution: {targets: [good, bad]}\n")
    result = run_suite(
        suite, targets={"good": lambda prompt: "ok", "bad": lambda prompt: "no"}, options=RunOptions(workers=4)
    )
    assert {test.id: test.verdict.value for test in result.tests if test.test_id != "other"} == {
        "sum-1@good": "pass", "sum-1@bad": "fail", "sum-2@good": "pass", "sum-2@bad": "fail",
    }  # fmt: skip


def test_a_suite_runs_inside_a_running_loop(tmp_path: Path) -> None:
    async def notebook() -> int:
        async def reply(prompt: str) -> str:
            return "ok"

        return run_suite(three(tmp_path), targets=reply).exit_code

    assert asyncio.run(notebook()) == 0
