"""What is said when a run failed."""

import json
from pathlib import Path

import dagster as dg
import pytest
from pytest_httpserver import HTTPServer

from persona_pipeline.base.settings import get_settings
from persona_pipeline.definitions import defs
from persona_pipeline.defs.platform.settings import OrchestrationSettings, orchestration
from persona_pipeline.defs.upkeep import alert_notice
from tests.defs.support import Project

Ran = tuple[Project, dg.ExecuteInProcessResult]
SETTINGS = OrchestrationSettings.model_validate({"dagster_url": "http://dagster.example/"})


def alert_about(project: Project, result: dg.ExecuteInProcessResult) -> dg.SkipReason | None:
    context = dg.build_run_status_sensor_context(
        sensor_name="run_failure_alert",
        dagster_instance=project.instance,
        dagster_run=result.dagster_run,
        dagster_event=result.get_run_failure_event(),
    ).for_run_failure()
    return defs.resolve_sensor_def("run_failure_alert")(context)  # type: ignore[return-value]


@pytest.fixture
def webhook(httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> HTTPServer:
    httpserver.expect_request("/secret", method="POST").respond_with_data("ok")
    monkeypatch.setenv("PERSONA_ALERT_WEBHOOK", httpserver.url_for("/secret"))
    orchestration.cache_clear()
    return httpserver


def test_a_regression_is_posted_with_agent_and_reasons(drifted: Ran, webhook: HTTPServer) -> None:
    alert_about(*drifted)
    [(request, _)] = webhook.log
    text = json.loads(request.data)["text"]
    assert text.startswith("*evaluate_agent for michael failed*\n• no_regression: ")
    assert "adherence 8.7 → 0.3" in text


def test_a_broken_file_is_posted_with_file_and_line(small: Project, webhook: HTTPServer) -> None:
    (small.root / "personas/bob.yaml").write_text("display_name: Bob\npersonna: x\n", encoding="utf-8")
    alert_about(small, small.evaluate("bob"))
    [(request, _)] = webhook.log
    assert "bob.yaml:2" in json.loads(request.data)["text"]


def test_the_world_names_whom_and_the_environment_says_where(
    drifted: Ran, small_root: Path, webhook: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSONA_ROOT", str(small_root))
    get_settings.cache_clear()
    (small_root / "persona.yaml").write_text("alerts: [voice-team, nobody]\n", encoding="utf-8")
    webhook.expect_request("/team", method="POST").respond_with_data("ok")
    monkeypatch.setenv("PERSONA_ALERT_WEBHOOK_VOICE_TEAM", webhook.url_for("/team"))
    alert_about(*drifted)
    assert [request.path for request, _ in webhook.log] == ["/team"]


def test_without_a_webhook_nothing_is_posted(small: Project) -> None:
    skipped = alert_about(small, small.evaluate("nobody"))
    assert isinstance(skipped, dg.SkipReason)
    assert "PERSONA_ALERT_WEBHOOK" in (skipped.skip_message or "")


def test_where_to_look_is_said() -> None:
    run = dg.DagsterRun(job_name="evaluate_agent", run_id="r1", tags={"persona/agent": "ann"})
    assert alert_notice(run, [], SETTINGS).link == "http://dagster.example/runs/r1"


def test_an_alert_that_is_not_delivered_fails_the_look_without_showing_the_address(
    drifted: Ran, webhook: HTTPServer
) -> None:
    webhook.clear()
    with pytest.raises(RuntimeError, match="PERSONA_ALERT_WEBHOOK did not take it") as caught:
        alert_about(*drifted)
    assert "secret" not in str(caught.value)
