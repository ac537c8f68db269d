from pathlib import Path

import pytest

from persona_pipeline.suites.running.opening import load_targets
from persona_pipeline.suites.running.plan import explain
from tests.suites.support import load, write


def test_every_assert_says_where_it_comes_from_and_what_it_needs(tmp_path: Path) -> None:
    suite = load(
        tmp_path,
        """
execution: {targets: [a, b], trials: {count: 3, strategy: mean}}
assert:
  - {type: latency, max_ms: 10}
tests:
  - id: t
    input: hi
    assert:
      - {type: contains, value: x, required: 0.5, weight: 3}
      - {type: code_judge, script: [x]}
      - type: composite
        assert: [{type: llm_judge}, {type: is_json}]
        aggregator: {type: weighted_average}
        weight: 0
      - {type: agent_judge, weight: 0}
  - {id: u, input: hi, criteria: c, skip_defaults: true, execution: {targets: [a], trials: {count: 1}}}
""",
    )
    first, second = explain(suite, suite.tests)
    assert (first["targets"], first["attempts"], first["strategy"]) == (["a", "b"], 3, "mean")
    assert [
        (item["type"], item["origin"], item["share"], item["gate"], item["needs"]) for item in first["asserts"]
    ] == [
        ("contains", "test", 0.6, 0.5, []),
        ("code_judge", "test", 0.2, None, ["code"]),
        ("composite", "test", 0.0, None, ["judge"]),
        ("agent_judge", "test", 0.0, None, ["judge", "workspace (there is none)"]),
        ("latency", "suite", 0.2, None, []),
    ]
    assert first["asserts"][0]["place"] == f"{tmp_path / 'suite.eval.yaml'}:9"
    assert first["asserts"][-1]["place"] == f"{tmp_path / 'suite.eval.yaml'}:4"
    assert (second["targets"], second["attempts"], second["strategy"]) == (["a"], 1, None)
    assert [(item["type"], item["origin"], item["place"]) for item in second["asserts"]] == [
        ("llm_judge", "fallback", None)
    ]


TARGETS = """
targets:
  - {name: said, provider: mock}
  - {name: program, provider: cli, command: "echo {PROMPT}"}
  - {name: unset, provider: replay, path: "${{ NO_SUCH_VARIABLE }}"}
  - {name: visitor, provider: cli, command: x}
"""
CONVERSATION = """
tests:
  - id: chat
    turns: [{user: hi, assert: [{type: contains, value: a, name: says a}]}, bye]
    user: {target: visitor, goal: g, turns: 3}
    assert: [{type: contains, value: b, name: says b}]
    each_turn: [{type: contains, value: c, name: says c}]
"""
HOOKED = "workspace: {before_each: {script: [sh, a.sh]}}\n"


@pytest.mark.parametrize(
    ("top", "targets", "needs"),
    [
        pytest.param("execution: {target: said}\n", TARGETS, (), id="nothing"),
        pytest.param("execution: {target: program}\n", TARGETS, ("code (target program)",), id="a program answers"),
        pytest.param("execution: {targets: [said, program]}\n", TARGETS, ("code (target program)",), id="one of two"),
        pytest.param("execution: {target: unset}\n", TARGETS, (), id="nobody is opened"),
        pytest.param("execution: {target: prog}\n", TARGETS, ("target prog (there is none)",), id="nobody"),
        pytest.param("", TARGETS, ("target default (there is none)",), id="no default"),
        pytest.param("", "targets: [{name: only, provider: cli, command: x}]", ("code (target only)",), id="the only one"),
        pytest.param("execution: {target: program}\n", None, (), id="no targets file"),
        pytest.param("execution: {target: said}\n" + CONVERSATION, TARGETS, ("code (target visitor)",), id="a user is played"),
        pytest.param("execution: {target: unset}\n" + CONVERSATION, TARGETS, (), id="a user is recorded too"),
        pytest.param(HOOKED, None, ("code (workspace hooks)",), id="hooks of a workspace"),
    ],
)  # fmt: skip
def test_a_test_says_what_its_answer_needs(
    tmp_path: Path, top: str, targets: str | None, needs: tuple[str, ...]
) -> None:
    write(tmp_path, {"targets.yaml": targets or ""})
    suite = load(tmp_path, top if "tests:" in top else top + "tests: [{id: t, input: hi, criteria: c}]\n")
    (found,) = explain(suite, suite.tests, None if targets is None else load_targets(tmp_path / "targets.yaml"))
    assert tuple(found["needs"]) == needs


def test_the_asserts_of_a_conversation_are_named_as_their_results_are(tmp_path: Path) -> None:
    suite = load(tmp_path, CONVERSATION)
    (found,) = explain(suite, suite.tests)
    assert [item["name"] for item in found["asserts"]] == ["says b", "turn 1: says a", "each turn: says c"]
