"""Steps on Celery workers: the same jobs, a real broker, a real database, and hosts that share nothing else."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa

from persona_pipeline.definitions import defs
from persona_pipeline.propositions import ALL_DIMENSIONS
from persona_pipeline.store import open_store, tables
from persona_pipeline.testing.messages_server import MessagesServer
from tests.support.waiting import wait_until
from tests.support.workers import Hosts, redis_server, steps_by_worker, take_baselines, write_cohort_world

VALUES = "values"

ALONE, TOGETHER = "ada", ("ben", "cleo", "dan")
LIVE = "resources: {evaluation: {config: {judge: anthropic}}}\n"


def one_by_one(*agents: str) -> str:
    """Return the run config of a cohort whose every agent is a step."""
    return f"{LIVE}ops: {{cohort_shards: {{config: {{shard_size: 1, agents: [{', '.join(agents)}]}}}}}}"


@pytest.fixture
def hosts(tmp_path: Path, postgres_url: str, server: MessagesServer) -> Iterator[Hosts]:
    """A world with baselines, and what hosts need to work on it together."""
    world = write_cohort_world(tmp_path / "files", (ALONE, *TOGETHER))
    take_baselines(world)
    server.latency = 1.0
    with redis_server(tmp_path) as redis:
        environment = {
            "PERSONA_DATABASE_URL": postgres_url,
            "PERSONA_CELERY_BROKER": f"{redis}/0",
            "PERSONA_CELERY_BACKEND": f"{redis}/1",
        }
        yield Hosts(tmp_path, world, environment)


def children(process: "subprocess.Popen[bytes] | None") -> list[int]:
    assert process is not None
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("utf-8").split()]


def test_no_step_reads_a_file_another_left() -> None:
    """What steps give each other goes through the store or the event log: by default it would be a pickle on the writer's disk."""
    read = {
        (node.name, output.output_def.io_manager_key)
        for job in defs.resolve_all_job_defs()
        for node in job.nodes
        for item, outputs in job.dependency_structure.input_to_upstream_outputs_for_node(node.name).items()
        if not item.input_def.dagster_type.is_nothing
        for output in outputs
    }
    assert {name for name, _ in read} >= {"evaluate_shard", "cohort_report"}
    assert {key for _, key in read} == {VALUES}


@pytest.mark.slow
@pytest.mark.xdist_group("postgres")
def test_two_runs_are_shared_by_two_workers(hosts: Hosts, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = hosts.host("desk")
    with hosts.workers("one", "two") as workers:
        running = [
            desk.start("evaluate_cohort", config=one_by_one(*TOGETHER)),
            desk.start("evaluate_agent", config=LIVE, tags=f'{{"dagster/partition": "{ALONE}"}}'),
        ]
        for job in running:
            job.wait()

    for name, value in {**hosts.environment, "DAGSTER_HOME": str(desk.home)}.items():
        monkeypatch.setenv(name, value)
    with dg.DagsterInstance.get() as instance:
        runs = {run.job_name: run for run in instance.get_runs()}
        for dimension in ALL_DIMENSIONS:
            scored = instance.event_log_storage.get_materialized_partitions(dg.AssetKey(f"{dimension}_scores"))
            assert scored == {ALONE, *TOGETHER}
        shards = steps_by_worker(instance, runs["evaluate_cohort"].run_id)
        steps = steps_by_worker(instance, runs["evaluate_agent"].run_id)
    assert set(shards) == set(steps) == {"one", "two"}
    assert {step for found in shards.values() for step in found if step.startswith("evaluate_shard")} == {
        f"evaluate_shard[from_{n + 1}]" for n in range(len(TOGETHER))
    }

    store = open_store(postgres_url)
    scores, evaluations = tables.evaluation_scores, tables.evaluation_runs
    query = sa.select(evaluations.c.agent_id, sa.func.count(scores.c.dimension.distinct())).join(
        scores, scores.c.evaluation_run_id == evaluations.c.id
    )
    query = query.where(scores.c.score.is_not(None), evaluations.c.status == "completed")
    with store.connect() as connection:
        found = dict(connection.execute(query.group_by(evaluations.c.agent_id)).tuples().all())
    store.close()
    assert found == dict.fromkeys((ALONE, *TOGETHER), len(ALL_DIMENSIONS))

    for host in (desk, *workers):
        assert not list(host.world.glob("**/*.db")), "a store of its own"
        assert not list((host.home / ".dagster").glob("storage/**/*")), "a value only this host can read"


@pytest.mark.slow
@pytest.mark.xdist_group("postgres")
def test_a_step_whose_process_dies_is_done_again(hosts: Hosts, server: MessagesServer) -> None:
    desk, asked = hosts.host("desk"), len(server.calls)
    server.latency = 0.0
    server.answer_only(server.paid)
    with hosts.workers("one") as (worker,):
        running = desk.start("evaluate_cohort", config=one_by_one(ALONE))
        # It waits for an answer that does not come before it dies.
        wait_until(lambda: len(server.calls) > asked, pause=0.05)
        for child in children(worker.process):
            os.kill(child, signal.SIGKILL)
        server.drop_unanswered()
        server.answer_only(None)
        running.wait()
    assert "WorkerLostError" in worker.log.read_text("utf-8")
