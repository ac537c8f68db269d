"""A mistake is placed and named as the file spells it, whatever it is called once it is read."""

from pathlib import Path

import pytest

from persona_pipeline.base.errors import ConfigError
from tests.suites.support import load

MISPLACED = """
tests:
  - id: t
    criteria: c
    input: hi
    rubrics:
      - Polite
      - 5
      - id: b
        outcome: B
        weight: -1
    assert:
      - type: latency
        threshold: -5
      - type: rubric
        rubrics:
          - id: a
            outcom: A
      - type: composite
        evaluators:
          - type: is_json
        aggregator:
          type: weighted_average
          weights:
            is_json: -2
      - type: composite
        assert: [{type: is_json}]
        aggregator: {type: median}
      - type: composite
        assert: [{type: is_json}]
        aggregator:
          type: threshold
      - type: llm_judge
        prompt:
          5
      - type: composite
        assert: [{type: is_json}]
        aggregator:
          type: weighted_average
          weights:
            is_jsno: 1
      - type: persona_drift
        agent: pam
        dimensions:
          - fluency
          - influency
    workspace:
      before_each:
        script: [sh]
        cwd: none
"""


@pytest.mark.parametrize(
    "said",
    [
        pytest.param("8:9: test 't': rubrics[rubric] (rubrics): rubrics[1]: must be a mapping", id="a test's own rubrics"),
        pytest.param("11:17: test 't': rubrics[rubric] (rubrics): rubrics[2].weight: must be a finite", id="after a bad one"),
        pytest.param("14:20: test 't': assert[0] (latency): threshold: must be >= 0, not -5", id="an older name"),
        pytest.param("18:13: test 't': assert[1] (rubric): unknown key 'rubrics[0].outcom'; did you mean 'outcome'?",
                     id="a key under an older name"),
        pytest.param("25:22: test 't': assert[2] (composite): aggregator.weights.is_json: must be >= 0", id="an aggregator"),
        pytest.param("28:28: test 't': assert[3] (composite): aggregator.type: must be one of 'weighted_average', 'threshold', "
                     "'code_judge', 'llm_judge', not 'median'", id="an unknown aggregator"),
        pytest.param("32:11: test 't': assert[4] (composite): aggregator.threshold is required", id="a missing field of one"),
        pytest.param("35:11: test 't': assert[5] (llm_judge): prompt: must be a string, not 5", id="a choice of shapes"),
        pytest.param("41:13: test 't': assert[6] (composite): aggregator.weights: there is no member 'is_jsno'; did you mean",
                     id="a weight of nobody"),
        pytest.param("46:13: test 't': assert[7] (persona_drift): dimensions[1]: there is no dimension 'influency'", id="a name"),
        pytest.param("50:14: test 't': workspace: before_each.cwd: folder 'none' does not exist", id="a folder of a hook"),
    ],
)  # fmt: skip
def test_a_mistake_is_placed_and_named_as_it_is_written(tmp_path: Path, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, MISPLACED)
    found = str(raised.value).splitlines()
    assert any(line.startswith(f"{tmp_path / 'suite.eval.yaml'}:{said}") for line in found), found
