import json
import math

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.guard.report import RunReport
from persona_pipeline.reporting.render import from_json, json_text, read_json, to_json
from tests.reporting.sample import sample_report


def test_golden(report: RunReport, golden) -> None:
    report.agents = {"michael": report.agents["michael"]}
    report.statistics = {}
    golden("report.json", json_text(report))


def test_a_report_survives_being_written_and_read(report: RunReport) -> None:
    again = read_json(json_text(report))
    assert again == report and again.agents["michael"].comparison.regressed


def test_order_does_not_depend_on_how_the_run_was_put_together(report: RunReport) -> None:
    for agent in report.agents.values():
        for dimension in agent.evaluation.dimensions.values():
            dimension.statistics = {"a": 2, "b": 1}
    shuffled = sample_report()
    shuffled.agents = dict(reversed(shuffled.agents.items()))
    for agent in shuffled.agents.values():
        agent.evaluation.dimensions = dict(reversed(agent.evaluation.dimensions.items()))
        for dimension in agent.evaluation.dimensions.values():
            dimension.propositions = dict(reversed(dimension.propositions.items()))
            dimension.statistics = {"b": 1, "a": 2}
    assert json_text(shuffled) == json_text(report)


def test_numbers_that_are_not_finite_become_null(report: RunReport) -> None:
    report.statistics["odd"] = {"values": [math.nan, math.inf, 1.0]}
    report.agents["jim"].evaluation.overall = math.nan
    data = json.loads(json_text(report), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert data["statistics"]["odd"]["values"] == [None, None, 1.0]
    assert data["agents"]["jim"]["overall"] is None


def test_text_is_ascii_whatever_was_said(report: RunReport) -> None:
    report.agents["jim"].evaluation.display_name = "Jím 🎉\ud800"
    assert json_text(report).isascii()
    assert json.loads(json_text(report))["agents"]["jim"]["display_name"] == "Jím 🎉\ud800"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "not JSON", id="empty"),
        pytest.param("[" * 100_000, "not JSON", id="nested beyond reason"),
        pytest.param("[]", "no object 'agents'", id="not an object"),
        pytest.param('{"agents": {"a": 1}}', "an agent is not an object", id="agent not an object"),
        pytest.param('{"agents": {"a": {"overall": "9"}}}', "evaluation.run_id", id="fields missing"),
        pytest.param('{"agents": {}, "exit_code": "zero"}', "exit_code", id="exit code not a number"),
    ],
)
def test_anything_else_is_refused_with_a_reason(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_json(text)


def test_keys_of_a_later_version_are_ignored(report: RunReport) -> None:
    data = to_json(report) | {"later": 1}
    data["agents"]["jim"]["later"] = {"x": 1}
    assert from_json(data) == report
