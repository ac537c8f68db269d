from typing import Any

import pytest

from persona_pipeline.errors import ConfigError
from persona_pipeline.evaluation.report import RunReport
from persona_pipeline.reporting import sections
from tests.reporting.sample import sample_report


def test_history_is_in_time_order() -> None:
    report = sample_report()
    report.statistics["history"]["jim"].reverse()
    ends = [point.window_end for point in sections.history(report)["jim"]]
    assert ends == sorted(ends) and len(ends) == 13


def test_a_run_without_statistics_has_no_sections() -> None:
    empty = RunReport()
    assert sections.history(empty) == {} and sections.voice_map(empty) is None
    assert sections.suites(empty) == [] and sections.corrections(empty) == {}


def test_one_voice_is_no_map() -> None:
    assert sections.voice_map(RunReport(statistics={"voice_map": {"agents": {"jim": {}}}})) is None


def test_a_pair_is_found_in_either_order() -> None:
    voices = sections.voice_map(sample_report())
    assert voices and voices.pair("pam", "jim") == voices.pair("jim", "pam") is not None
    assert voices.pair("jim", "nobody") is None


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("history", {"jim": [{"overall": 8}]}, "history.jim.0.window_end"),
        ("voice_map", {"pairs": [{"a": "jim"}]}, "voice_map.pairs.0.b"),
        ("suites", [{"verdict": "pass"}], "suites.0.suite"),
        ("corrections", {"jim": {"checks": "many"}}, "corrections.jim.checks"),
        ("voice_map", {"pairs": [{"a": "x", "b": "y", "characters": float("nan")}]}, "voice_map.pairs.0.characters"),
    ],
)
def test_malformed_statistics_are_an_error_that_names_the_place(key: str, value: Any, place: str) -> None:
    report = RunReport(statistics={key: value})
    with pytest.raises(ConfigError, match=f"statistics.{place}"):
        getattr(sections, key)(report)
