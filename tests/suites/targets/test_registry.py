"""What holds for every kind of target, and kinds that other packages bring."""

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.suites import run_suite
from persona_pipeline.suites.answering.base import Grants
from persona_pipeline.suites.running.opening import load_targets
from persona_pipeline.suites.targets import registry
from persona_pipeline.suites.targets.given import MockTarget
from persona_pipeline.testing.worlds import write_small_world
from tests.suites.support import suite_of, write
from tests.suites.targets.test_providers import failure, request, target

_MODEL = {"model": "m", "base_url": "http://127.0.0.1:9", "api_key": "k"}
# What a kind needs to be asked; those of one protocol need the same.
FIELDS: dict[str, dict[str, Any]] = {
    "mock": {},
    "cli": {"command": ["touch", "ran"]},
    "python": {"function": "ran:ran"},
    "http": {"url": "http://127.0.0.1:9"},
    "persona": {"agent": "ann", "root": "world", "base_url": "http://127.0.0.1:9", "api_key": "k"},
    "claude-agent-sdk": {},
    "replay": {"path": "answers.json"},
}


def kinds(trait: str) -> list[str]:
    """Return the kinds whose class has a trait."""
    return [name for name in registry.TARGETS.built_in if getattr(registry.find_provider(name), trait)]


@pytest.mark.parametrize("provider", kinds("asks_network"))
def test_a_server_that_the_suite_names_needs_leave(tmp_path: Path, provider: str) -> None:
    write_small_world(tmp_path / "world")
    found = target(tmp_path, provider=provider, **FIELDS.get(provider, _MODEL))
    found._grants = Grants()
    assert failure(found, request(tmp_path)).reason == "target_not_allowed"


@pytest.mark.parametrize("provider", kinds("runs_code"))
def test_a_program_of_the_suite_needs_leave(tmp_path: Path, provider: str) -> None:
    write(tmp_path, {"ran.py": "open('ran', 'w')\ndef ran(prompt): return ''\n"})
    target(tmp_path, provider=provider, **FIELDS[provider])
    suite = suite_of(tmp_path, {"type": "is_json"}, execution={"target": "a"})
    (test,) = run_suite(suite, targets=load_targets(tmp_path / "targets.yaml")).tests
    assert (test.verdict, test.error and test.error.reason) == ("error", "code_not_allowed")
    assert not (tmp_path / "ran").exists() and not Path("ran").exists()


class Parrot(MockTarget):
    """Says what it was asked."""


def test_an_entry_point_is_a_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"parrot": EntryPoint("parrot", f"{__name__}:Parrot", registry.TARGETS.group)}
    monkeypatch.setattr("persona_pipeline.base.options.offered", {registry.TARGETS.group: points}.get)
    monkeypatch.setattr(registry.TARGETS, "loaded", {})
    assert target(tmp_path, provider="parrot", response="ok").respond(request(tmp_path)).text == "ok"
    assert registry.TARGETS.names()[-1] == "parrot"
