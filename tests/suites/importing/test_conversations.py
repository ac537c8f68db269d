"""Providers of single tests, promptfoo's simulated user among them, and AgentV's targets by other names."""

from pathlib import Path
from typing import Any

from persona_pipeline.suites import load_suite
from persona_pipeline.suites.importing.config import ImportedSuite, import_file, write_import
from persona_pipeline.suites.importing.findings import AGENTV, PROMPTFOO
from tests.suites.support import write

# The example of promptfoo's page on the simulated user.
SIMULATED = """\
prompts:
  - You are a helpful customer service agent.
providers:
  - openai:gpt-5-mini
defaultTest:
  provider:
    id: 'promptfoo:simulated-user'
    config:
      maxTurns: 5
tests:
  - vars:
      instructions: You are a frustrated customer. You want a refund.
    assert:
      - {type: llm-rubric, value: Did the customer get a refund?}
"""


def imported(folder: Path, text: str, origin: str = PROMPTFOO, **files: str) -> ImportedSuite:
    write(folder, {"config.yaml": text, **{name.replace("_dot_", "."): one for name, one in files.items()}})
    made = import_file(folder / "config.yaml", folder, origin)
    suite = load_suite(write_import(made, folder / "config.yaml", folder)[0])
    assert len(suite.tests) == len(made.suite["tests"])
    return made


def test_a_test_with_promptfoos_simulated_user_is_named_and_left_out(tmp_path: Path) -> None:
    plain = "  - {provider: openai:gpt-5-mini, vars: {a: b}, assert: [{type: contains, value: a}]}\n"
    made = imported(tmp_path, SIMULATED + plain)
    assert [test["id"] for test in made.suite["tests"]] == ["test-2"]
    said = "promptfoo's simulated user has no counterpart; write the test as a conversation with user"
    assert [(one.line, one.message) for one in made.findings] == [(7, said)]


def test_a_provider_of_a_single_test_is_a_target_of_its_own(tmp_path: Path) -> None:
    text = """\
prompts: [p]
providers: [{id: openai:m, label: desk}]
tests:
  - assert: &check [{type: contains, value: a}]
  - {provider: {id: anthropic:claude-x, config: {max_tokens: 9}}, assert: *check}
  - {provider: desk, assert: *check}
  - {provider: slack, assert: *check}
"""
    made = imported(tmp_path, text)
    assert [test.get("execution") for test in made.suite["tests"]] == [
        None,
        {"targets": ["anthropic-claude-x"]},
        None,
        None,
    ]
    assert made.suite["execution"] == {"target": "desk"}
    targets: list[dict[str, Any]] = (made.targets or {})["targets"]
    assert [(one["name"], one.get("max_tokens")) for one in targets] == [("desk", None), ("anthropic-claude-x", 9)]
    assert [(one.line, one.message.partition(";")[0]) for one in made.findings] == [
        (7, "provider slack has no counterpart")
    ]


TARGETS = """\
targets:
  - {name: desk, use_target: real}
  - {name: real, provider: openai, model: m, temperature: 0}
  - {name: round, use_target: back}
  - {name: back, use_target: round}
  - {name: free, use_target: '${{ WHICH }}'}
"""


def test_targets_of_agentv_have_other_names(tmp_path: Path) -> None:
    text = """\
execution: {targets: [desk, {name: mine, use_target: real}, round, free]}
tests: [{id: t, input: i, criteria: c, execution: {targets: [mine]}}]
"""
    made = imported(tmp_path, text, AGENTV, **{".agentv/targets_dot_yaml": TARGETS})
    model = {"provider": "openai", "model": "m", "parameters": {"temperature": 0}}
    assert made.targets == {"targets": [{"name": "desk", **model}, {"name": "mine", **model}]}
    assert made.suite["execution"] == {"targets": ["desk", "mine", "free"]}
    assert made.suite["tests"][0]["execution"] == {"targets": ["mine"]}
    named = " ".join(one.message for one in made.findings)
    assert "a provider that refers to itself" in named
    assert "target ${{ WHICH }} is not described here" in named


def test_merge_keys_are_resolved(tmp_path: Path) -> None:
    text = """\
prompts: ["{{ a }} {{ b }}"]
tests:
  - &base
    vars: {a: 1, b: 2}
    assert: [{type: contains, value: a}]
  - <<: *base
    vars: {a: 3, b: 4}
  - <<: [{threshold: 0.9}, *base]
    wrong: 1
"""
    made = imported(tmp_path, text)
    assert [test["input"] for test in made.suite["tests"]] == ["1 2", "3 4", "1 2"]
    assert made.suite["tests"][2]["assert"][0]["required"] == 0.9
    assert [(one.line, one.message) for one in made.findings] == [(9, "test key wrong has no counterpart")]
