"""Dagster's event log with its connections kept open, and events written in batches: nothing is lost, and everybody sees it."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import psycopg2
import pytest
from dagster._core.storage.event_log import SqliteEventLogStorage
from sqlalchemy.pool import QueuePool

from persona_pipeline.base.settings import get_settings
from persona_pipeline.defs.platform.dagster_internals import (
    CHECKED,
    MATERIALIZED,
    delete_run,
    newest_versions,
)
from persona_pipeline.defs.platform.instance_storage import (
    Batching,
    KeptEventLog,
    in_one_batch,
    kept_engine,
)
from persona_pipeline.defs.platform.instance_storage import postgres_url as dagster_url
from tests.defs.support import Project
from tests.support.waiting import PATIENCE

MOST_BYTES, MOST_BYTES_OF_CHECKS = 36_000, 22_000
STORAGE = {"module": "persona_pipeline.defs.platform.instance_storage", "class": "EnvironmentStorage"}


def opened(home: Path) -> dg.DagsterInstance:
    """Return an instance on the project's storage."""
    text = (
        f"storage: {{custom: {{module: {STORAGE['module']}, class: {STORAGE['class']}, config: {{base_dir: kept}}}}}}"
    )
    (home / "dagster.yaml").write_text(text, encoding="utf-8")
    return dg.DagsterInstance.from_config(str(home))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    return folder


@pytest.fixture
def on_postgres(home: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.setenv("PERSONA_DATABASE_URL", postgres_url)
    get_settings.cache_clear()
    with opened(home) as instance:
        yield instance


def test_the_storage_of_the_project_is_the_one_that_is_used(home: Path) -> None:
    with opened(home) as instance:
        assert isinstance(instance.event_log_storage, KeptEventLog)
        # Every table is there before anything is written.
        assert instance.get_dynamic_partitions("agents") == []


@pytest.mark.xdist_group("postgres")
def test_on_postgres_connections_are_kept_and_batches_written(on_postgres: dg.DagsterInstance) -> None:
    assert isinstance(on_postgres.event_log_storage, Batching)
    record(on_postgres, "made", 2)
    pool = kept_engine(str(dagster_url(os.environ))).pool
    assert isinstance(pool, QueuePool) and pool.checkedin() > 0


@pytest.mark.xdist_group("postgres")
def test_on_postgres_an_instance_that_is_opened_again_connects_no_more(
    on_postgres: dg.DagsterInstance, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every tick of a sensor opens one."""

    def used(instance: dg.DagsterInstance) -> None:
        assert instance.get_runs_count() == 0 and instance.all_instigator_state() == []
        record(instance, "made", 1)

    used(on_postgres)
    connect, opened_now = psycopg2.connect, []
    monkeypatch.setattr(psycopg2, "connect", lambda *args, **given: opened_now.append(1) or connect(*args, **given))
    with opened(home) as again:
        used(again)
    # The oldest Dagster looks once for its tables.
    assert len(opened_now) <= 1


def record(instance: dg.DagsterInstance, asset: str, count: int) -> None:
    for number in range(count):
        instance.report_runless_asset_event(
            dg.AssetMaterialization(asset, partition=f"p{number}", tags={"dagster/data_version": f"v{number}"})
        )


def test_what_one_process_writes_another_reads_at_once_and_after_it_was_killed(home: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; import dagster as dg;"
        "from tests.defs.test_event_log import opened, record;"
        f"instance = opened(Path({str(home)!r})); record(instance, 'made', 3);"
        "print('written', flush=True); sys.stdin.readline(); os.kill(os.getpid(), 9)"
    )
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    assert process.stdout is not None and process.stdout.readline() == "written\n"
    with opened(home) as instance:
        assert newest_versions(instance, dg.AssetKey("made"), MATERIALIZED) == {f"p{n}": f"v{n}" for n in range(3)}
    process.communicate("die\n", timeout=PATIENCE)
    assert process.returncode == -9
    with opened(home) as instance:
        record(instance, "made", 4)
        assert len(newest_versions(instance, dg.AssetKey("made"), MATERIALIZED)) == 4


def test_whoever_follows_a_run_sees_its_events_while_it_is_under_way(home: Path) -> None:
    with opened(home) as instance:
        run = instance.create_run_for_job(dg.GraphDefinition("nothing").to_job())
        path = Path(instance.event_log_storage.path_for_shard(run.run_id))  # type: ignore[attr-defined]
        instance.report_engine_event("first", run)
        os.utime(path, (0, 0))
        instance.report_engine_event("second", run)
        # The interface watches the file for a change.
        assert path.stat().st_mtime > 0
        with opened(home) as reader:
            said = [record.message for record in reader.all_logs(run.run_id)]
        assert [text.split(" - ")[-1] for text in said] == ["first", "second"]


def test_of_many_runs_a_few_files_are_kept_open_and_none_of_a_wiped_instance(home: Path) -> None:
    with opened(home) as instance:
        job = dg.GraphDefinition("nothing").to_job()
        runs = [instance.create_run_for_job(job) for _ in range(8)]
        for _ in range(2):
            for run in runs:
                instance.report_engine_event("here", run)
        folder = os.path.realpath(home)
        files = {os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()}
        open_runs = [name for name in files if name.startswith(folder) and name.endswith(".db")]
        assert len(open_runs) <= 5
        assert [len(instance.all_logs(run.run_id)) for run in runs] == [2] * 8
        instance.wipe()
        assert instance.get_runs_count() == 0
        record(instance, "made", 1)
        assert newest_versions(instance, dg.AssetKey("made"), MATERIALIZED) == {"p0": "v0"}


@pytest.mark.xdist_group("postgres")
def test_a_batch_is_there_when_it_ends_even_if_it_ends_in_an_error(on_postgres: dg.DagsterInstance) -> None:
    key = dg.AssetKey("made")
    with pytest.raises(ZeroDivisionError), in_one_batch(on_postgres):
        record(on_postgres, "made", 3)
        assert newest_versions(on_postgres, key, MATERIALIZED) == {}
        raise ZeroDivisionError
    assert newest_versions(on_postgres, key, MATERIALIZED) == {f"p{n}": f"v{n}" for n in range(3)}
    record(on_postgres, "made", 4)
    assert len(newest_versions(on_postgres, key, MATERIALIZED)) == 4


@pytest.mark.xdist_group("postgres")
def test_a_cohort_leaves_the_same_on_postgres_as_anywhere(
    on_postgres: dg.DagsterInstance, small_root: Path, instance: dg.DagsterInstance
) -> None:
    """Of every asset and agent the same version and metadata, and the same checks; the store is another one."""
    left = []
    for where in (on_postgres, instance):
        project = Project(small_root, where, f"sqlite:///{small_root}/{len(left)}.db")
        result = project.run("evaluate_cohort")
        stored = where.get_records_for_run(result.run_id, of_type=MATERIALIZED).records
        made = [item.event_log_entry.get_dagster_event().step_materialization_data.materialization for item in stored]
        events = {
            (item.asset_key, item.partition): (item.tags["dagster/data_version"], sorted(item.metadata))
            for item in made
        }
        checks = {(check.check_name, check.partition, check.passed) for check in result.get_asset_check_evaluations()}
        left.append((len(made), events, checks))
    assert left[0] == left[1]
    assert left[0][0] == 2 * 14


def messages_of(instance: dg.DagsterInstance, run: dg.DagsterRun) -> list[str]:
    return [record.message.split(" - ")[-1] for record in instance.all_logs(run.run_id)]


def test_what_a_cohort_leaves_stands_once_and_is_small(home: Path, small_root: Path) -> None:
    with opened(home) as instance:
        assert Project(small_root, instance).run("evaluate_cohort").get_asset_check_evaluations()
    [file] = (home / "kept").rglob("history/runs/*.db")
    assert file.name == "index.db"
    with sqlite3.connect(file) as connection:
        said = "select partition, sum(length(event)), count(*) from event_logs where partition is not null group by 1"
        rows = connection.execute(said).fetchall()
        [checks] = connection.execute("select sum(length(evaluation_event)) from asset_check_executions").fetchone()
        # Of pages that hold one event each, half would be empty.
        assert connection.execute("pragma page_size").fetchone() == (16384,)
    assert len(rows) == 2 and all(count >= 14 for *_, count in rows)
    assert max(size for _, size, _ in rows) < MOST_BYTES, f"{rows}, {checks}"
    assert checks < MOST_BYTES_OF_CHECKS


def test_an_event_about_an_asset_says_its_step_and_its_message_once(home: Path, small_root: Path) -> None:
    with opened(home) as instance:
        result = Project(small_root, instance).run("evaluate_cohort")
        for kind in (MATERIALIZED, CHECKED):
            entries = [
                item.event_log_entry for item in instance.get_records_for_run(result.run_id, of_type=kind).records
            ]
            assert entries
            yielded = [event for event in result.all_events if event.event_type is kind]
            assert [(item.message, item.step_key) for item in entries] == [
                (event.message, event.step_key) for event in yielded
            ]
            for entry in entries:
                assert entry.user_message == "" and entry.get_dagster_event().logging_tags == {}
        # What steps did is what a run is gone on with: it stays whole.
        started = instance.get_records_for_run(result.run_id, of_type=dg.DagsterEventType.STEP_START).records
        assert all(item.event_log_entry.get_dagster_event().step_handle for item in started)


def test_a_run_of_an_earlier_release_stays_in_its_file_and_goes_with_it(home: Path) -> None:
    with opened(home) as instance:
        job = dg.GraphDefinition("nothing").to_job()
        new, old = (instance.create_run_for_job(job) for _ in range(2))
        instance.report_engine_event("first", new)
        [entry] = instance.all_logs(new.run_id)
        [index] = (home / "kept").rglob("index.db")
        SqliteEventLogStorage(str(index.parent)).store_event(entry._replace(run_id=old.run_id))
        assert index.with_name(f"{old.run_id}.db").exists()
        instance.report_engine_event("second", old)
        assert messages_of(instance, old) == ["first", "second"]
        delete_run(instance, old.run_id)
        assert index.exists() and not index.with_name(f"{old.run_id}.db").exists()
        delete_run(instance, instance.create_run_for_job(job).run_id)
        assert index.exists() and messages_of(instance, new) == ["first"]
