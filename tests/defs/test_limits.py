"""What is tried again, what is not, and how many judge at once."""

import threading
from pathlib import Path

import dagster as dg
import pytest

from persona_pipeline.base.settings import get_settings
from persona_pipeline.definitions import defs
from persona_pipeline.defs.platform import resources
from tests.defs.support import Project, metadata_of
from tests.support.messages_server import ANSWER, Hang, MessagesServer, message
from tests.support.protocols import BEARER
from tests.support.waiting import wait_until
from tests.support.worlds import write_yaml

WHOLE_FLUENCY = ("personas", "messages", "proposition_sets/fluency", "fluency_scores")


@pytest.fixture
def server(server: MessagesServer, monkeypatch: pytest.MonkeyPatch) -> MessagesServer:
    """A judge behind a socket that is given half a second to answer."""
    monkeypatch.setenv("PERSONA_JUDGE_DEADLINE", "0.5")
    monkeypatch.setattr(resources, "JUDGE_SECONDS", 0.05)
    get_settings.cache_clear()
    return server


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
    metadata = metadata_of(result, "fluency_scores")
    assert metadata["coverage"].value == 1
    assert (len(server.calls), server.paid) == (3, 2)


def test_a_judge_that_stays_away_is_given_up_and_its_judgments_stay_unscored(
    two_claims: Project, server: MessagesServer
) -> None:
    server.always(Hang())
    result = two_claims.evaluate("ann", WHOLE_FLUENCY, judge="anthropic")
    assert result.success, "a missing judgment is not a defect; the gate decides"
    metadata = metadata_of(result, "fluency_scores")
    assert metadata["coverage"].value < 1
    assert sum(event.is_step_restarted for event in result.all_events) == resources.JUDGE_RETRIES


def test_a_refusal_is_not_asked_again(two_claims: Project, server: MessagesServer) -> None:
    server.always(message(None, stop_reason="refusal"))
    result = two_claims.evaluate("ann", WHOLE_FLUENCY, judge="anthropic")
    assert not any(event.is_step_restarted for event in result.all_events)


def test_a_run_evaluated_twice_pays_once(two_claims: Project, server: MessagesServer) -> None:
    for _ in range(2):
        two_claims.evaluate("ann", WHOLE_FLUENCY, judge="anthropic")
    assert server.paid == 2


def test_the_judge_pool_holds_over_runs(small_root: Path, instance_on_disk: dg.DagsterInstance) -> None:
    """Another run, wherever it is, has the pool's only slot; this one waits until it gives it back."""
    storage = instance_on_disk.event_log_storage
    storage.set_concurrency_slots("judge", 1)
    other = instance_on_disk.create_run_for_job(defs.resolve_job_def("capture_baseline"))
    assert storage.claim_concurrency_slot("judge", other.run_id, "capture_baselines").is_claimed
    scored_before_it_was_free: list[bool] = []

    def give_back() -> None:
        wait_until(lambda: bool(_blocked_steps(instance_on_disk)))
        scored_before_it_was_free.append(bool(storage.get_materialized_partitions(dg.AssetKey("fluency_scores"))))
        storage.free_concurrency_slots_for_run(other.run_id)

    giving = threading.Thread(target=give_back)
    giving.start()
    result = Project(small_root, instance_on_disk).evaluate("ann", WHOLE_FLUENCY)
    giving.join()
    assert result.success
    assert scored_before_it_was_free == [False]
    assert storage.get_concurrency_info("judge").active_slot_count == 0


def test_with_a_limit_of_zero_nothing_judges_whatever_started_it() -> None:
    """Dagster lets no step of a pool without slots begin, so every step that can open a judge must be in the pool."""
    jobs = defs.get_repository_def().get_all_jobs()
    steps = {node.definition.name: node.definition for job in jobs for node in job.graph.nodes}
    # One learns from messages alone, the other submits for later.
    judge_nothing = {"follow_voice", "submitted_batches"}
    pools = {
        name: step.pool
        for name, step in steps.items()
        if isinstance(step, dg.OpDefinition)
        and ("evaluation" in step.required_resource_keys or name in ("regression_report", "capture_baselines"))
        and name not in judge_nothing
    }
    assert {"evaluate", "regression_report", "capture_baselines", "choose_suites", "suites__order_desk"} <= pools.keys()
    assert set(pools.values()) == {"judge"}


def _blocked_steps(instance: dg.DagsterInstance) -> list[str]:
    """Return what steps say that wait for the pool."""
    events = [
        record.event_log_entry
        for run in instance.get_runs()
        for record in instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT).records
    ]
    return [event.message for event in events if "blocked by" in event.message and "judge" in event.message]


def test_a_run_may_ask_another_provider_and_group_its_claims(
    two_claims: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessagesServer(protocol="openai") as server:
        for name, value in {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": BEARER}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PERSONA_JUDGE_MODEL", "gpt-5-mini")
        get_settings.cache_clear()
        result = two_claims.evaluate("ann", WHOLE_FLUENCY, judge="openai", grouping=2)
    assert result.success
    assert metadata_of(result, "fluency_scores")["coverage"].value == 1
    assert (server.paid, server.problems) == (1, [])
