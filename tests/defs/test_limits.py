"""What is tried again, what is not, and how many judge at once."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from persona_pipeline.defs import assets, failures
from persona_pipeline.evaluation import steps
from persona_pipeline.settings import get_settings
from tests.defs.support import Project
from tests.support.messages_server import ANSWER, Hang, MessagesServer, message
from tests.support.worlds import write_yaml

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


@pytest.mark.parametrize("limit", [1, 2])
def test_the_judge_pool_holds_over_all_runs(
    small_root: Path, tmp_path: Path, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    score, lock = steps.score_dimension, threading.Lock()
    judging: list[str] = []
    busiest = 0

    def slow(world: object, agent_id: str, dimension: str, **options: object) -> object:
        nonlocal busiest
        with lock:
            judging.append(agent_id)
            busiest = max(busiest, len(judging))
        time.sleep(0.3)
        with lock:
            judging.remove(agent_id)
        return score(world, agent_id, dimension, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(assets.steps, "score_dimension", slow)
    overrides = {"concurrency": {"pools": {"granularity": "op", "default_limit": limit}}}
    with dg.instance_for_test(overrides=overrides, temp_dir=str(tmp_path)) as instance:
        project = Project(small_root, instance)
        results: list[dg.ExecuteInProcessResult] = []
        runs = [
            threading.Thread(target=lambda who=who: results.append(project.evaluate(who, WHOLE_FLUENCY)))
            for who in ("ann", "bob")
        ]
        for run in runs:
            run.start()
        for run in runs:
            run.join()
    assert [result.success for result in results] == [True, True]
    assert busiest == limit
