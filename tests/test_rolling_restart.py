"""A deployment under way: everything of the compose file as processes, restarted and killed in the middle of an evaluation.

One test, because what it costs is starting processes. What it replaces stood in three: sensors and daemon, workers that share no
disk, and the commands of the compose file.
"""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import dagster as dg
import pytest
import redis
import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import open_store
from persona_pipeline.base.documents.json import write_atomically
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS
from tests.support.deployment import Deployment
from tests.support.messages_server import MessagesServer
from tests.support.waiting import PATIENCE, wait_until
from tests.support.workers import steps_by_worker, take_baselines, write_cohort_world

AGENTS = ("ada", "ben", "cleo", "dan")
CLAIMS = len(ALL_DIMENSIONS)
# Of these the judge is shown the persona, so that an edited one is judged again.
OF_THE_PERSONA = 2
BEN = {"dagster/partition": "ben"}
# What Compose gives its variables for otherwise.
FAST = {
    "PERSONA_SENSOR_SECONDS": "2",
    # The judge is silent for as long as the test wants it.
    "PERSONA_JUDGE_DEADLINE": "600",
}
START_SENSOR = """mutation($selector: SensorSelector!) { startSensor(sensorSelector: $selector) {
  __typename ... on Sensor { sensorState { status } } } }"""
LAUNCH = """mutation($selector: JobOrPipelineSelector!, $tags: [ExecutionTag!]) { launchRun(
  executionParams: {selector: $selector, executionMetadata: {tags: $tags}}) { __typename } }"""
REPOSITORY = {"repositoryLocationName": "persona-pipeline", "repositoryName": "__repository__"}
# Somebody's own project with a code server of its own beside: another world in it, and a job that waits for a file.
OTHERS = """
import time
from pathlib import Path

import dagster as dg

from persona_pipeline.defs.component import build_world
from persona_pipeline.defs.component import world_settings
from persona_pipeline.defs.platform.place import Place

@dg.op
def wait():
    while not Path({file!r}).exists():
        time.sleep(0.1)

@dg.job(executor_def=dg.in_process_executor)
def waiting():
    wait()

place = Place(("others",), **world_settings(Path({root!r}), {{"sensor_seconds": 600}}))
defs = dg.Definitions.merge(build_world(place), dg.Definitions(jobs=[waiting]))
"""
WAITING = {"repositoryLocationName": "others", "repositoryName": "__repository__", "jobName": "waiting"}


@pytest.fixture
def deployment(tmp_path: Path, postgres_url: str, server: MessagesServer) -> Iterator[Deployment]:
    """A world with baselines, and the deployment of it; nothing is started."""
    world = write_cohort_world(tmp_path / "files", AGENTS)
    take_baselines(world)
    variables = {
        "POSTGRES_PASSWORD": "unused",
        "REDIS_PASSWORD": "letters",
        "PERSONA_JUDGE": "anthropic",
        "ANTHROPIC_API_KEY": "test-key",
    }
    others = write_cohort_world(tmp_path / "others", ("eve",))
    module = OTHERS.format(file=str(tmp_path / "go on"), root=str(others))
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "others.py").write_text(module, encoding="utf-8")
    addresses = {
        "PERSONA_DATABASE_URL": postgres_url,
        "PERSONA_DAGSTER_DATABASE_URL": postgres_url.replace("postgresql:", "postgresql+psycopg2:"),
        "ANTHROPIC_BASE_URL": server.url,
    }
    # Calls are counted below.
    path = os.pathsep.join([str(tmp_path / "modules"), os.environ.get("PYTHONPATH", "")])
    fixed = {
        "PERSONA_JUDGE_CANARIES": "0",
        "PERSONA_MESSAGE_VERDICTS": "0",
        "PERSONA_ANCHORS": "0",
        "PYTHONPATH": path,
    }
    everybody = {**addresses, **FAST, **fixed}
    made = Deployment(tmp_path / "containers", world, variables, everybody, ["others"])
    made.services["redis"]["command"] += ["--port", "6379", "--save", "", "--dir", str(tmp_path)]
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def instance(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    """Dagster as whoever looks at the deployment sees it."""
    for name, value in deployment.environment("daemon", "desk").items():
        if name.startswith(("PERSONA_", "DAGSTER_")):
            monkeypatch.setenv(name, value)
    with dg.DagsterInstance.get() as opened:
        yield opened


def start_all(deployment: Deployment) -> None:
    """Start everything in the order that ``depends_on`` asks for."""
    deployment.start("redis")
    deployment.start("migrate")
    assert deployment.running.pop("migrate").wait(PATIENCE) == 0, deployment.tail("migrate")
    start_workers(deployment)
    for name in ("code", "others"):
        deployment.start(name)
    for name in ("code", "others"):
        deployment.wait_for(name, "Started Dagster code server")
    for name in ("webserver", "daemon"):
        deployment.start(name)


def start_workers(deployment: Deployment, names: Sequence[str] = ("one", "two")) -> None:
    # The second is on another server: it shares no folder with anybody.
    for name in names:
        apart = name == "two"
        words = {"--concurrency=4": "--concurrency=1", "--hostname=worker@%h": f"--hostname=worker@{name}"}
        deployment.start("worker", name, apart=apart, words=words)


def wait_until_observed(deployment: Deployment, instance: dg.DagsterInstance) -> None:
    """Wait until the messages are read and a look that began afterwards found nothing that is not recorded."""

    def read() -> bool:
        runs = instance.get_runs(dg.RunsFilter(tags={"persona/asked": "message_files"}))
        return bool(runs) and all(run.is_finished for run in runs)

    nothing = f"Sensor source_changes skipped: {len(AGENTS)} agents, nothing changed\n"
    wait_until(read)
    looked = deployment.log("daemon").read_text("utf-8", "replace").count(nothing)
    deployment.wait_for("daemon", nothing, looked + 2)


def told_to_start(deployment: Deployment) -> bool:
    """Switch the sensor on at the webserver, as a person does; whether the webserver knows it already."""
    if not deployment.serves("3000"):
        return False
    selector = {**REPOSITORY, "sensorName": "automation"}
    return deployment.ask(START_SENSOR, selector=selector)["startSensor"]["__typename"] == "Sensor"


def evaluate(deployment: Deployment, first: str, last: str) -> None:
    """Launch a run over agents, as a backfill does."""
    names = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
    tags = [{"key": name, "value": value} for name, value in zip(names, (first, last), strict=True)]
    selector = {**REPOSITORY, "jobName": "evaluate_agent"}
    answer = deployment.ask(LAUNCH, selector=selector, tags=tags)
    assert answer["launchRun"]["__typename"] == "LaunchRunSuccess"


def refuses_to_launch(deployment: Deployment) -> bool:
    selector = {**REPOSITORY, "jobName": "upkeep"}
    answer = deployment.ask(LAUNCH, "3001", selector=selector)
    return answer["launchRun"]["__typename"] == "UnauthorizedError"


def events_by_agent(instance: dg.DagsterInstance) -> dict[str, Counter[str]]:
    """Return how often each agent's scores and verdicts were recorded, by asset."""
    names = [*(f"{dimension}_scores" for dimension in ALL_DIMENSIONS), "verdicts"]
    found: dict[str, Counter[str]] = {}
    for name in names:
        records = instance.fetch_materializations(dg.AssetKey(name), limit=1000).records
        found[name] = Counter(record.partition_key or "" for record in records)
    return found


def checks_by_agent(instance: dg.DagsterInstance) -> Counter[str]:
    """Return how many checks of each agent's verdict were recorded."""
    found: Counter[str] = Counter()
    for run in instance.get_runs():
        records = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION).records
        for record in records:
            event = record.event_log_entry.get_dagster_event()
            check = event.asset_check_evaluation_data
            # The check over all agents is of no partition.
            if check.asset_key == dg.AssetKey("verdicts") and check.partition:
                found[check.partition] += 1
    return found


def check(deployment: Deployment, service: str, container: str = "") -> None:
    """Wait until a service's health check passes: one that fails is asked again, as a container's is."""
    wait_until(partial(deployment.check, service, container))


def kill_children(pid: int) -> None:
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split():
        os.kill(int(child), signal.SIGKILL)


def contents(server: MessagesServer, start: int) -> set[str]:
    return {json.dumps(call.body, sort_keys=True) for call in server.calls[start:]}


def runs_of(instance: dg.DagsterInstance, job: str) -> list[dg.DagsterRun]:
    """Return the runs of a job, newest first."""
    return list(instance.get_runs(dg.RunsFilter(job_name=job)))


def runs_of_several(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """Return the runs over several agents, oldest first."""
    runs = [run for run in instance.get_runs() if "dagster/asset_partition_range_start" in run.tags]
    return runs[::-1]


def runs_of_ben(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    return list(instance.get_runs(dg.RunsFilter(tags=BEN)))


def worker_of(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    """Return the container of the worker that has a run's step."""
    [worker] = [name for name, steps in steps_by_worker(instance, run.run_id).items() if "evaluate" in steps]
    return worker.removeprefix("worker@")


@pytest.mark.skip(
    reason="since a run is one step, a killed worker's step waits for a worker that the silent judge keeps busy"
)
@pytest.mark.slow
@pytest.mark.xdist_group("postgres")
def test_everything_is_restarted_in_the_middle_of_an_evaluation(
    deployment: Deployment,
    instance: dg.DagsterInstance,
    server: MessagesServer,
    postgres_url: str,
    tmp_path: Path,
) -> None:
    asked, paid = len(server.calls), server.paid
    calls = lambda: len(server.calls) - asked  # noqa: E731
    start_all(deployment)
    with ThreadPoolExecutor() as threads:
        # What is seen before all of it is recorded would begin a run of its own.
        wait_until_observed(deployment, instance)
        # In the middle of the first run the judge answers nobody any more.
        server.answer_only(paid + 3)
        wait_until(lambda: deployment.serves("3000"))
        evaluate(deployment, "ada", "ben")
        evaluate(deployment, "cleo", "dan")
        assert deployment.ask(LAUNCH, selector=WAITING)["launchRun"]["__typename"] == "LaunchRunSuccess"
        checks = [
            threads.submit(check, deployment, service, container)
            for service, container in (("code", ""), ("webserver", ""), ("daemon", ""), ("worker", "one"))
        ]
        wait_until(lambda: calls() >= 2 * CLAIMS)
        for checked in checks:
            checked.result()

    # A worker is killed with the step it has; the other one has its own, so that it is given to the next that is free.
    first = runs_of_several(instance)[0]
    has_it = worker_of(instance, first)
    deployment.kill(has_it)
    server.drop_unanswered()
    seen = calls()
    with redis.Redis(port=int(deployment.ports["6379"]), password="letters") as queue:
        # Whose host died is given to another after PERSONA_CELERY_LOST_SECONDS: the hour is over.
        lost = queue.zrange("unacked_index", 0, -1)
        assert len(lost) == 1
        queue.zadd("unacked_index", dict.fromkeys(lost, 0))
    start_workers(deployment, [has_it])
    # The webserver whoever may only look has is the same program: that one comes back in the middle.
    for name, next_one in (("webserver", "viewer"), ("daemon", "daemon")):
        deployment.stop(name)
        deployment.start(next_one)
    # What was not answered is asked again. The code server waits for its run, which cannot end yet.
    wait_until(lambda: calls() > seen + CLAIMS)
    draining = deployment.running.pop("code")
    draining.terminate()
    deployment.wait_for("viewer", "Serving dagster-webserver")
    check(deployment, "viewer")
    assert draining.poll() is None and runs_of_several(instance)[0].status is dg.DagsterRunStatus.STARTED
    server.answer_only(None)
    draining.wait(PATIENCE)
    deployment.start("code")
    wait_until(lambda: [run.is_finished for run in runs_of_several(instance)] == [True, True])
    assert refuses_to_launch(deployment)

    assert {run.status for run in runs_of_several(instance)} == {dg.DagsterRunStatus.SUCCESS}
    once = dict.fromkeys(AGENTS, 1)
    assert events_by_agent(instance) == dict.fromkeys(events_by_agent(instance), once)
    assert checks_by_agent(instance) == dict.fromkeys(AGENTS, 4)
    assert server.paid - paid == len(contents(server, asked)) == len(AGENTS) * CLAIMS
    assert set(steps_by_worker(instance, first.run_id)) == {f"worker@{has_it}"}

    # Everybody has a verdict: the sensor asks for nothing but what changes from here on.
    deployment.stop("viewer")
    deployment.start("webserver")
    wait_until(lambda: told_to_start(deployment))
    # An edited persona, as git-sync brings it to each server. Killed are the process of the worker that has the step, which is done
    # again at once, and then the code server with the run.
    server.answer_only(server.paid)
    # Each file at once, and that which the sensor looks at last: who saw half of it or the old one would begin a run of its own.
    for folder in (deployment.folder / "two", deployment.folder / "volumes"):
        path = folder / "world" / "personas" / "ben.yaml"
        write_atomically(path, path.read_text(encoding="utf-8").replace("counts kettles", "counts spoons"))
    seen = calls()
    # Everything that is asked has arrived before whoever asked is killed: the server pays for no answer that nobody waits for.
    wait_until(lambda: calls() >= seen + OF_THE_PERSONA)
    [run] = runs_of_ben(instance)
    kill_children(deployment.running[worker_of(instance, run)].pid)
    server.drop_unanswered()
    wait_until(lambda: calls() >= seen + 2 * OF_THE_PERSONA)
    deployment.kill("code")
    server.answer_only(None)
    deployment.start("code")
    wait_until(lambda: [run.is_finished for run in runs_of_ben(instance)] == [True, True])

    retried, killed = runs_of_ben(instance)
    assert (killed.status, retried.status) == (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS)
    assert retried.parent_run_id == killed.run_id
    edited = {**once, "ben": 2}
    assert events_by_agent(instance) == dict.fromkeys(events_by_agent(instance), edited)
    assert server.paid - paid == len(contents(server, asked)) == len(AGENTS) * CLAIMS + OF_THE_PERSONA

    # The other code server's run went on all the time. Killed with it, the next one says so, and it is started again.
    [waiting] = runs_of(instance, "waiting")
    assert waiting.status is dg.DagsterRunStatus.STARTED
    deployment.kill("others")
    deployment.start("others")
    wait_until(lambda: len(runs_of(instance, "waiting")) == 2)
    (tmp_path / "go on").touch()
    wait_until(lambda: all(run.is_finished for run in runs_of(instance, "waiting")))
    again, lost_run = runs_of(instance, "waiting")
    assert (lost_run.run_id, lost_run.status) == (waiting.run_id, dg.DagsterRunStatus.FAILURE)
    assert (again.parent_run_id, again.status) == (waiting.run_id, dg.DagsterRunStatus.SUCCESS)

    with open_store(postgres_url).connect() as connection:
        runs = tables.evaluation_runs
        query = (
            sa.select(runs.c.agent_id, sa.func.count()).where(runs.c.status == "completed").group_by(runs.c.agent_id)
        )
        assert dict(map(tuple, connection.execute(query))) == edited
    for shared in (deployment.folder / "volumes", deployment.folder / "two"):
        written = {path.relative_to(shared / "world") for path in (shared / "world").rglob("*") if path.is_file()}
        assert written == {path.relative_to(deployment.world) for path in deployment.world.rglob("*") if path.is_file()}
    assert list((deployment.folder / "volumes" / "logs").rglob("*.err")), "what steps print is kept on the volume"
