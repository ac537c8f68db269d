from pathlib import Path

from persona_pipeline.suites.explain import explain
from tests.suites.support import load


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
    assert (first.targets, first.attempts, first.strategy) == (("a", "b"), 3, "mean")
    assert [(item.type, item.origin, item.share, item.gate, item.needs) for item in first.asserts] == [
        ("contains", "test", 0.6, 0.5, ()),
        ("code_judge", "test", 0.2, None, ("code",)),
        ("composite", "test", 0.0, None, ("judge",)),
        ("agent_judge", "test", 0.0, None, ("judge", "workspace (there is none)")),
        ("latency", "suite", 0.2, None, ()),
    ]
    assert first.asserts[0].place == f"{tmp_path / 'suite.eval.yaml'}:9"
    assert first.asserts[-1].place == f"{tmp_path / 'suite.eval.yaml'}:4"
    assert second.targets == ("a",)
    assert [(item.type, item.origin, item.place) for item in second.asserts] == [("llm_judge", "fallback", None)]
