"""Targets of every kind hold a conversation: each turn with what was said before, over real sockets and processes."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from persona_pipeline.suites import RunOptions, TestResult, run_suite
from persona_pipeline.suites.running.opening import load_targets
from tests.suites.support import load, write
from tests.suites.targets.conftest import Agent

TURNS = ["Where is it?", "And when?"]
SUITE = {"tests": [{"id": "chat", "turns": TURNS, "assert": [{"type": "contains", "value": "second"}]}]}
SAID = [("user", "Where is it?"), ("assistant", "first"), ("user", "And when?")]


def held(folder: Path, **fields: Any) -> TestResult:
    suite = load(folder, yaml.safe_dump(SUITE))
    write(folder, {"targets.yaml": json.dumps({"targets": [{"name": "default", **fields}]})})
    (test,) = run_suite(
        suite, targets=load_targets(folder / "targets.yaml"), options=RunOptions(allow_code=True, max_retries=0)
    ).tests
    assert test.error is None
    assert test.best.output is not None
    assert [turn.text.strip() for turn in test.best.output.turns] == ["first", "second"]
    return test


def bodies(agent: Agent) -> list[Any]:
    return [json.loads(body) for _, _, _, body in agent.got]


def texts(messages: list[Any]) -> list[tuple[str, str]]:
    """Messages of either protocol as roles and texts."""
    return [
        (item["role"], item["content"] if isinstance(item["content"], str) else item["content"][0]["text"])
        for item in messages
    ]


def test_an_agent_behind_a_url_that_remembers_gets_what_is_new(tmp_path: Path, agent: Agent) -> None:
    agent.replies = [(200, {"text": "first"}, {}), (200, {"text": "second"}, {})]
    body = {
        "session": "{{ conversation }}",
        "turn": "{{ turn }}",
        "text": "{{ last_message }}",
        "all": "{{ messages }}",
    }
    held(tmp_path, provider="http", url=f"{agent.url}/{{{{ turn }}}}", body=body)
    first, second = bodies(agent)
    assert (second["turn"], second["text"]) == (2, "And when?")
    assert texts(second["all"]) == SAID
    assert first["session"] == second["session"] != ""
    assert [path for _, path, _, _ in agent.got] == ["/1", "/2"]


def test_a_program(tmp_path: Path) -> None:
    code = "import sys; print(['first', 'second'][int(sys.argv[1]) - 1] if sys.argv[3] else '')"
    held(tmp_path, provider="cli", command=[sys.executable, "-c", code, "{TURN}", "{LAST_MESSAGE}", "{CONVERSATION}"])


def test_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "def reply(messages, last_message, turn, conversation):\n    return 'first' if len(messages) == 1 else 'second'\n"
    write(tmp_path, {"talking_agent.py": code})
    monkeypatch.syspath_prepend(tmp_path)
    held(tmp_path, provider="python:talking_agent:reply")


def test_answers_that_are_given(tmp_path: Path) -> None:
    held(tmp_path, provider="mock", responses={"chat": ["first", "second"]})
