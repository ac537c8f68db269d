"""The gate of CI: everybody in one process, on an instance that knows nothing."""

import dagster as dg
import pytest

from tests.defs.support import BEFORE_THE_DRIFT, Project
from tests.defs.test_several import tag_of


def config(**values: object) -> dict[str, object]:
    return {"ops": {"regression_report": {"config": values}}}


def test_a_drift_fails_the_run_and_the_report_is_kept(sample: Project) -> None:
    result = sample.run("persona_regression")
    assert not result.success and (tag_of(sample, result) or "").startswith("drifted: michael")
    [check] = result.get_asset_check_evaluations()
    assert not check.passed and check.blocking
    assert "michael: adherence 8.7 → 0.3" in (check.description or "")
    metadata = result.asset_materializations_for_node("regression_report")[0].metadata
    assert metadata["exit_code"].value == 1
    assert {path.name for path in (sample.root / ".persona/reports").iterdir()} == {
        "report.json",
        "comment.md",
        "report.html",
        "junit.xml",
    }


def test_a_broken_file_fails_with_file_and_line_before_anything_is_judged(sample: Project) -> None:
    (sample.root / "personas/jim.yaml").write_text("display_name: Jim\npersonna: x\n", encoding="utf-8")
    result = sample.run("persona_regression")
    failure = next(event for event in result.all_events if event.is_step_failure).step_failure_data
    assert "jim.yaml:2" in failure.error_display_string
    assert result.asset_materializations_for_node("regression_report") == []


def test_lines_that_were_left_out_are_in_the_log_and_the_report_is_linked_where_it_is_served(
    sample: Project, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSONA_REPORTS_URL", "https://reports.example/")
    (sample.root / "messages/more.jsonl").write_text('{"id": "x1", "agent_id": "jim"}\n', encoding="utf-8")
    result = sample.run("persona_regression", run_config=config(as_of=BEFORE_THE_DRIFT, agents=["pam"]))
    metadata = result.asset_materializations_for_node("regression_report")[0].metadata
    assert result.success and "left out: messages/more.jsonl:1: text is missing" in capfd.readouterr().err
    assert all(check.passed for check in result.get_asset_check_evaluations())
    assert metadata["report"] == dg.MetadataValue.url("https://reports.example/report.html")


def test_baselines_are_captured_for_who_is_named(sample: Project) -> None:
    for name in ("pam", "jim"):
        (sample.root / f"baselines/{name}.json").unlink()
    run_config = {"ops": {"capture_baselines": {"config": {"agents": ["pam"], "as_of": BEFORE_THE_DRIFT}}}}
    assert sample.run("capture_baseline", run_config=run_config).success
    assert (sample.root / "baselines/pam.json").is_file()
    assert not (sample.root / "baselines/jim.json").exists()
