"""Steps on Celery workers: the same jobs, a real broker, a real database, and hosts that share nothing else."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa

from persona_pipeline.propositions import ALL_DIMENSIONS
from persona_pipeline.settings import get_settings
from persona_pipeline.store import open_store
from tests.support.messages_server import MessagesServer
from tests.support.workers import Hosts, redis_server, take_baselines, write_cohort_world

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("postgres")]

AGENTS = ("ada", "ben", "cleo", "dan")
LIVE = "resources: {evaluation: {config: {judge: anthropic}}}"
ONE_BY_ONE = f"{LIVE}\nops: {{cohort_shards: {{config: {{shard_size: 1}}}}}}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MessagesServer]:
    with MessagesServer() as running:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", running.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
        get_settings.cache_clear()
        yield running


@pytest.fixture
def hosts(tmp_path: Path, postgres_url: str, server: MessagesServer) -> Iterator[Hosts]:
    """A world with baselines, and what hosts need to work on it together."""
    world = write_cohort_world(tmp_path / "files", AGENTS)
    take_baselines(world)
    server.latency = 1.0
    with redis_server(tmp_path) as redis:
        environment = {
            "PERSONA_DATABASE_URL": postgres_url,
            "PERSONA_CELERY_BROKER": f"{redis}/0",
            "PERSONA_CELERY_BACKEND": f"{redis}/1",
        }
        yield Hosts(tmp_path, world, environment)


def steps_by_worker(instance: dg.DagsterInstance, run_id: str) -> dict[str, set[str]]:
    """Return which steps each worker says it executed, by the name the worker was started with."""
    found: dict[str, set[str]] = defaultdict(set)
    for record in instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT).records:
        event = record.event_log_entry.get_dagster_event()
        worker = event.engine_event_data.metadata.get("Celery worker")
        if worker:
            found[str(worker.value).partition("@")[0]].add(event.step_key or "")
    return found


def test_a_run_is_shared_by_two_workers(
    hosts: Hosts, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = hosts.host("desk")
    with hosts.workers("one", "two") as workers:
        desk.start("evaluate_cohort", config=ONE_BY_ONE).wait()
        desk.start("evaluate_agent", config=LIVE, tags='{"dagster/partition": "ada"}').wait()

    for name, value in {**hosts.environment, "DAGSTER_HOME": str(desk.home)}.items():
        monkeypatch.setenv(name, value)
    with dg.DagsterInstance.get() as instance:
        one_agent, cohort = instance.get_runs()
        assert {run.status for run in (one_agent, cohort)} == {dg.DagsterRunStatus.SUCCESS}
        for dimension in ALL_DIMENSIONS:
            scored = instance.event_log_storage.get_materialized_partitions(dg.AssetKey(f"{dimension}_scores"))
            assert scored == set(AGENTS)
        for run in (cohort, one_agent):
            assert set(steps_by_worker(instance, run.run_id)) == {"one", "two"}
        shards = [len(steps) for steps in steps_by_worker(instance, cohort.run_id).values()]
        assert sum(shards) == 1 + len(AGENTS) + 1

    store = open_store(postgres_url)
    with store.connect() as connection:
        query = "SELECT agent_id, count(DISTINCT dimension), min(score) FROM persona.evaluation_scores s JOIN persona.evaluation_runs r ON"
        rows = connection.execute(sa.text(f"{query} r.id = s.evaluation_run_id GROUP BY agent_id")).all()  # noqa: S608
    store.close()
    assert {row[0]: row[1] for row in rows} == {agent_id: len(ALL_DIMENSIONS) for agent_id in AGENTS}

    for host in (desk, *workers):
        assert not list(host.world.glob("**/*.db")), "a store of its own"
        assert not list((host.home / ".dagster").glob("storage/**/*")), "a value only this host can read"
