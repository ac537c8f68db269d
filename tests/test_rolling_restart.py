"""A deployment under way: the services of the compose file as processes, restarted and killed in the middle of an evaluation.

It is one test because starting the processes is what it costs.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import open_store
from persona_pipeline.base.documents.json import write_atomically
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS
from tests.support.cohort import take_baselines, write_cohort_world
from tests.support.deployment import Deployment, load
from tests.support.docker_engine import Container
from tests.support.messages_server import MessagesServer
from tests.support.waiting import PATIENCE, wait_until

AGENTS = ("ada", "ben", "cleo", "dan")
CLAIMS = len(ALL_DIMENSIONS)
# The judge of these is shown the persona, so an edited one is judged again.
OF_THE_PERSONA = 2
FIRST, LAST = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
BEN = {"dagster/partition": "ben"}
SETTINGS = {
    "PERSONA_SENSOR_SECONDS": "2",
    # The judge is silent for as long as the test wants it.
    "PERSONA_JUDGE_DEADLINE": "600",
    # Calls are counted below.
    "PERSONA_JUDGE_CANARIES": "0",
    "PERSONA_MESSAGE_VERDICTS": "0",
    "PERSONA_ANCHORS": "0",
}
START_SENSOR = """mutation($selector: SensorSelector!) { startSensor(sensorSelector: $selector) {
  __typename ... on Sensor { sensorState { status } } } }"""
LAUNCH = """mutation($selector: JobOrPipelineSelector!, $tags: [ExecutionTag!]) { launchRun(
  executionParams: {selector: $selector, executionMetadata: {tags: $tags}}) { __typename } }"""
REPOSITORY = {"repositoryLocationName": "persona-pipeline", "repositoryName": "__repository__"}


@pytest.fixture
def deployment(tmp_path: Path, postgres_url: str, server: MessagesServer, forked: Path) -> Iterator[Deployment]:
    """A world with baselines, and the deployment of it; nothing is started."""
    pytest.importorskip("dagster_docker")
    world = write_cohort_world(tmp_path / "files", AGENTS)
    take_baselines(world)
    variables = {
        "POSTGRES_PASSWORD": "unused",
        "DOCKER_GROUP": "999",
        "PERSONA_JUDGE": "anthropic",
        "ANTHROPIC_API_KEY": "test-key",
    }
    addresses = {
        "PERSONA_DATABASE_URL": postgres_url,
        "PERSONA_DAGSTER_DATABASE_URL": postgres_url.replace("postgresql:", "postgresql+psycopg2:"),
        "ANTHROPIC_BASE_URL": server.url,
    }
    made = Deployment(tmp_path / "containers", world, variables, forked, {**addresses, **SETTINGS})
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def instance(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    """The deployment's instance of Dagster."""
    for name, value in deployment.environment("daemon").items():
        if name.startswith(("PERSONA_", "DAGSTER_", "DOCKER_")):
            monkeypatch.setenv(name, value)
    with dg.DagsterInstance.get() as opened:
        yield opened


def start_all(deployment: Deployment) -> None:
    """Start everything in the order that ``depends_on`` asks for."""
    deployment.start("migrate")
    assert deployment.running.pop("migrate").wait(PATIENCE) == 0, deployment.tail("migrate")
    deployment.start("code")
    deployment.wait_for("code", "Started Dagster code server")
    for name in ("webserver", "daemon"):
        deployment.start(name)


def starts_automation(deployment: Deployment) -> bool:
    """Switch the sensor on at the webserver; False: the webserver does not know it yet."""
    if not deployment.serves("3000"):
        return False
    selector = {**REPOSITORY, "sensorName": "automation"}
    return deployment.ask(START_SENSOR, selector=selector)["startSensor"]["__typename"] == "Sensor"


def launch(deployment: Deployment, job: str, tags: dict[str, str], port: str = "3000") -> str:
    """Launch a run at a webserver and return the kind of its answer."""
    selector = {**REPOSITORY, "jobName": job}
    asked = [{"key": key, "value": value} for key, value in tags.items()]
    return deployment.ask(LAUNCH, port, selector=selector, tags=asked)["launchRun"]["__typename"]


def events_by_agent(instance: dg.DagsterInstance) -> dict[str, Counter[str]]:
    """Return how often each agent's scores and verdicts were recorded, by asset."""
    names = [*(f"{dimension}_scores" for dimension in ALL_DIMENSIONS), "verdicts"]
    found: dict[str, Counter[str]] = {}
    for name in names:
        records = instance.fetch_materializations(dg.AssetKey(name), limit=1000).records
        found[name] = Counter(record.partition_key or "" for record in records)
    return found


def contents(server: MessagesServer, start: int) -> set[str]:
    """Return what was asked, each question once; whether the API is to cache it depends on what else is left to ask."""
    texts = (json.dumps(call.body, sort_keys=True) for call in server.calls[start:])
    return {re.sub(r'"cache_control": {[^}]*}, ', "", text) for text in texts}


def runs_of(instance: dg.DagsterInstance, *keys: str, **tags: str) -> list[dg.DagsterRun]:
    """Return the runs with tags, and with tags of these keys, oldest first."""
    runs = instance.get_runs(dg.RunsFilter(tags=tags))
    return [run for run in runs[::-1] if all(key in run.tags for key in keys)]


def container_of(deployment: Deployment, run: dg.DagsterRun) -> Container:
    return deployment.docker.containers[run.tags["docker/container_id"]]


def running(deployment: Deployment, instance: dg.DagsterInstance, run_id: str) -> bool:
    """Return whether a run is under way in its container."""
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run.status is dg.DagsterRunStatus.STARTED and container_of(deployment, run).is_running


@pytest.mark.slow
@pytest.mark.xdist_group("postgres")
def test_everything_is_restarted_in_the_middle_of_an_evaluation(
    deployment: Deployment, instance: dg.DagsterInstance, server: MessagesServer, postgres_url: str
) -> None:
    asked, paid = len(server.calls), server.paid
    start_all(deployment)
    with ThreadPoolExecutor() as threads:
        checks = [
            threads.submit(wait_until, partial(deployment.check, name)) for name in ("code", "webserver", "daemon")
        ]
        # As long as messages are to be read, a look says that too.
        deployment.wait_for("daemon", f"Sensor source_changes skipped: {len(AGENTS)} agents, nothing changed\n")
        # In the middle of the first run the judge answers nobody any more.
        server.answer_only(paid + 3)
        wait_until(lambda: deployment.serves("3000"))
        for first, last in (("ada", "ben"), ("cleo", "dan")):
            assert launch(deployment, "evaluate_agent", {FIRST: first, LAST: last}) == "LaunchRunSuccess"
        wait_until(lambda: server.paid - paid == 3 and server.under_way > 0)
        for checked in checks:
            checked.result()

    # Every service is restarted or killed: the run is a container of its own and goes on.
    first = runs_of(instance, FIRST)[0]
    for end, ended, started in (
        (deployment.stop, "webserver", "viewer"),
        (deployment.stop, "code", "code"),
        (deployment.kill, "daemon", "daemon"),
    ):
        end(ended)
        deployment.start(started)
    deployment.wait_for("viewer", "Serving dagster-webserver")
    deployment.wait_for("code", "Started Dagster code server", 2)
    wait_until(lambda: launch(deployment, "upkeep", {}, "3001") == "UnauthorizedError")
    assert running(deployment, instance, first.run_id)

    # Its container is killed: the daemon notices, and starts the run again, which asks what was not answered.
    [container] = [item for item in deployment.docker.containers.values() if item.is_running]
    deployment.docker.kill(container)
    server.drop_unanswered()
    wait_until(lambda: server.under_way > 0)
    server.answer_only(None)
    wait_until(lambda: [run.is_finished for run in runs_of(instance, FIRST)] == [True] * 3)

    killed, again = (run for run in runs_of(instance, FIRST) if run.tags[FIRST] == "ada")
    assert (killed.status, again.status) == (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS)
    assert (again.parent_run_id, killed.run_id) == (first.run_id, first.run_id)
    once = dict.fromkeys(AGENTS, 1)
    assert events_by_agent(instance) == dict.fromkeys(events_by_agent(instance), once)
    assert server.paid - paid == len(contents(server, asked)) == len(AGENTS) * CLAIMS

    # An edited persona, as git-sync brings it. Everybody has a verdict: the sensor asks for nothing else.
    deployment.stop("viewer")
    deployment.start("webserver")
    wait_until(lambda: starts_automation(deployment))
    path = deployment.folder / "world" / "personas" / "ben.yaml"
    write_atomically(path, path.read_text(encoding="utf-8").replace("counts kettles", "counts spoons"))
    wait_until(lambda: [run.is_finished for run in runs_of(instance, **BEN)] == [True])
    edited = {**once, "ben": 2}
    assert events_by_agent(instance) == dict.fromkeys(events_by_agent(instance), edited)
    assert server.paid - paid == len(contents(server, asked)) == len(AGENTS) * CLAIMS + OF_THE_PERSONA

    with open_store(postgres_url).connect() as connection:
        runs = tables.evaluation_runs
        query = (
            sa.select(runs.c.agent_id, sa.func.count()).where(runs.c.status == "completed").group_by(runs.c.agent_id)
        )
        assert dict(map(tuple, connection.execute(query))) == edited
    left = {path.relative_to(deployment.folder / "world") for path in (deployment.folder / "world").rglob("*")}
    assert left == {path.relative_to(deployment.world) for path in deployment.world.rglob("*")}, "nothing writes there"
    code = load("compose.yaml")["services"]["code"]
    for item in deployment.docker.containers.values():
        assert item.asked["Image"] == deployment.services["code"]["environment"]["DAGSTER_CURRENT_IMAGE"]
        assert item.asked["HostConfig"]["VolumesFrom"] == [code["container_name"]]
        assert item.asked["HostConfig"]["CapDrop"] == code["cap_drop"]
    assert list((deployment.home / ".dagster" / "logs").rglob("*.err")), "what steps print is kept"
