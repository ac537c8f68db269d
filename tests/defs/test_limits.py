"""What is tried again, what is not, and how many judge at once."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml

from persona_pipeline.defs import failures
from persona_pipeline.settings import get_settings
from tests.defs.support import PARTITION, Project
from tests.support.messages_server import ANSWER, Hang, MessagesServer, message
from tests.support.waiting import wait_until
from tests.support.worlds import write_yaml

PROJECT = Path(__file__).parents[2]
WHOLE_FLUENCY = ("personas", "messages", "proposition_sets/fluency", "fluency_scores")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MessagesServer]:
    """A judge behind a socket that is given half a second to answer."""
    with MessagesServer() as running:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", running.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
        monkeypatch.setenv("PERSONA_JUDGE_DEADLINE", "0.5")
        monkeypatch.setattr(failures, "JUDGE_SECONDS", 0.05)
        get_settings.cache_clear()
        yield running


@pytest.fixture
def two_claims(small: Project) -> Project:
    claims = [{"id": name, "claim": f"Is {name}"} for name in ("calm", "brief")]
    write_yaml(small.root / "propositions/fluency/ann.yaml", {"dimension": "fluency", "propositions": claims})
    (small.root / "propositions/fluency/_default.yaml").unlink()
    return small


def test_an_overloaded_judge_is_asked_again_for_what_is_missing_only(
    two_claims: Project, server: MessagesServer
) -> None:
    server.script(ANSWER, Hang())
    result = two_claims.evaluate("ann", WHOLE_FLUENCY, judge="anthropic")
    assert result.success
    metadata = result.asset_materializations_for_node("fluency_scores")[0].metadata
    assert metadata["coverage"].value == 1
    assert (len(server.calls), server.paid) == (3, 2)


def test_a_judge_that_stays_away_is_given_up_and_its_judgments_stay_unscored(
    two_claims: Project, server: MessagesServer
) -> None:
    server.always(Hang())
    result = two_claims.evaluate("ann", WHOLE_FLUENCY, judge="anthropic")
    assert result.success, "a missing judgment is not a defect; the gate decides"
    metadata = result.asset_materializations_for_node("fluency_scores")[0].metadata
    assert metadata["coverage"].value < 1
    assert sum(event.is_step_restarted for event in result.all_events) == failures.JUDGE_RETRIES


def test_a_refusal_is_not_asked_again(two_claims: Project, server: MessagesServer) -> None:
    server.always(message(None, stop_reason="refusal"))
    result = two_claims.evaluate("ann", WHOLE_FLUENCY, judge="anthropic")
    assert not any(event.is_step_restarted for event in result.all_events)


def test_a_run_evaluated_twice_pays_once(two_claims: Project, server: MessagesServer) -> None:
    for _ in range(2):
        two_claims.evaluate("ann", WHOLE_FLUENCY, judge="anthropic")
    assert server.paid == 2


@pytest.mark.slow
def test_the_judge_pool_holds_over_runs_in_other_processes(
    small_root: Path, tmp_path: Path, server: MessagesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    content = yaml.safe_load((PROJECT / "dagster.yaml").read_text(encoding="utf-8"))
    content["concurrency"]["pools"]["default_limit"] = 1
    write_yaml(home / "dagster.yaml", content)
    for name, value in {
        "DAGSTER_HOME": str(home),
        "PERSONA_ROOT": str(small_root),
        "PERSONA_JUDGE": "anthropic",
        "PERSONA_JUDGE_DEADLINE": "60",
    }.items():
        monkeypatch.setenv(name, value)
    server.answer_only(0)
    command = [sys.executable, "-W", "ignore", "-m", "dagster", "job", "execute", "-m", "persona_pipeline.definitions"]
    command += ["-j", "evaluate_agent", "--tags"]
    output = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with dg.DagsterInstance.get() as instance:
        runs = [
            subprocess.Popen([*command, f'{{"{PARTITION}": "{who}"}}'], cwd=home, **output) for who in ("ann", "bob")
        ]
        try:
            wait_until(lambda: bool(_blocked_steps(instance)) and len(server.calls) == 1)
            server.answer_only(None)
            assert [run.wait(90) for run in runs] == [1, 1], "neither has a baseline"
        finally:
            for run in runs:
                run.kill()
    assert server.busiest == 1
    assert len(server.calls) >= 6


def _blocked_steps(instance: dg.DagsterInstance) -> list[str]:
    """Return the messages of steps that wait for the pool."""
    events = [
        record.event_log_entry
        for run in instance.get_runs()
        for record in instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT).records
    ]
    return [event.user_message for event in events if "blocked by" in event.message and "judge" in event.message]
