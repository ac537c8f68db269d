"""The store: one schema on two databases."""

import socket
import threading
import uuid
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import HEAD, Store, current_revision, normalise_url, open_store, upsert
from persona_pipeline.base.database.schema import _add_missing
from persona_pipeline.base.database.tables import SCHEMA, metadata
from persona_pipeline.base.errors import ConfigError, NewerStoreError


def _run(store: Store) -> uuid.UUID:
    run_id = uuid.uuid4()
    with store.begin() as connection:
        upsert(connection, tables.agents, [{"id": "ann", "display_name": "Ann"}])
        row = {"id": run_id, "agent_id": "ann", "dimensions": ["adherence"], "sample_size": 3}
        connection.execute(sa.insert(tables.evaluation_runs).values(row))
    return run_id


# It compares tables and columns; that the indexes of expressions are used stands below.
@pytest.mark.filterwarnings("ignore:.*expression-based index")
def test_migrations_make_what_the_tables_say(store: Store) -> None:
    with store.connect() as connection:
        options = {
            "include_schemas": True,
            "version_table_schema": None if store.is_sqlite else SCHEMA,
            "include_name": lambda name, kind, _: kind != "schema" or name in (SCHEMA, None),
        }
        context = MigrationContext.configure(connection, opts=options)
        target = metadata
        if store.is_sqlite:
            target = sa.MetaData()
            for table in metadata.tables.values():
                table.to_metadata(target, schema=None, referred_schema_fn=lambda *_: sa.schema.BLANK_SCHEMA)
        differences = [
            d for d in compare_metadata(context, target) if d[0] in ("add_table", "remove_table", "add_column")
        ]
        assert differences == []
        assert current_revision(connection) == HEAD


@pytest.mark.parametrize("migrated", [False, True], ids=["new", "from the release before"])
def test_lines_that_begin_or_end_alike_are_looked_up(store: Store, migrated: bool) -> None:
    messages = tables.run_messages
    with store.begin() as connection:
        if migrated:
            for index in messages.indexes:
                index.drop(connection)
            _add_missing(connection)
        if not store.is_sqlite:
            # Of an empty table it would read everything.
            connection.execute(sa.text("SET LOCAL enable_seqscan = off"))
        for name, part in tables.said_alike(messages.c.text).items():
            query = sa.select(messages.c.id).where(part == "Thank you for co").order_by(messages.c.created_at)
            asked = query.compile(connection, compile_kwargs={"literal_binds": True, "render_postcompile": True})
            text = str(asked).replace("persona.", "") if store.is_sqlite else str(asked)
            plan = connection.execute(sa.text(f"{'EXPLAIN QUERY PLAN' if store.is_sqlite else 'EXPLAIN'} {text}"))
            assert f"ix_run_messages_{name}" in str(plan.all())


def test_a_newer_schema_is_refused(database_url: str) -> None:
    store = open_store(database_url)
    run_id = _run(store)
    again = open_store(database_url)
    assert again.value(sa.select(tables.evaluation_runs.c.id)) == run_id, "opening again migrates nothing"
    again.close()
    table = "alembic_version" if store.is_sqlite else f"{SCHEMA}.alembic_version"
    with store.begin() as connection:
        connection.execute(sa.text(f"UPDATE {table} SET version_num = '9999'"))  # noqa: S608
    store.close()
    with pytest.raises(NewerStoreError, match="newer than this version"):
        open_store(database_url)


def test_many_processes_may_open_an_empty_database(database_url: str) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            open_store(database_url).close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_no_impossible_score_enters(store: Store) -> None:
    row = {"evaluation_run_id": _run(store), "dimension": "adherence", "proposition_id": "p", "reasoning": "r"}
    for values in (
        *({"score": 9.1}, {"score": -0.1}, {"score": float("nan")}, {"score": float("inf")}, {}),
        *({"score": 5.0, "unscored_reason": "timeout"}, {"score": 5.0, "raw": 10.0}),
    ):
        with pytest.raises(sa.exc.IntegrityError), store.begin() as connection:
            connection.execute(sa.insert(tables.evaluation_scores).values({**row, **values}))


def test_rows_survive_with_their_types(store: Store) -> None:
    run_id = _run(store)
    offset = datetime(2026, 3, 1, 10, tzinfo=timezone(timedelta(hours=2)))
    with store.begin() as connection:
        runs = tables.evaluation_runs
        connection.execute(
            sa.update(runs).where(runs.c.id == run_id).values(window_end=offset, token_usage={"input_tokens": 3})
        )
        row = connection.execute(sa.select(runs)).one()
    assert row.window_end == offset
    assert row.window_end.tzinfo == UTC
    assert row.dimensions == ["adherence"]
    assert row.token_usage == {"input_tokens": 3}
    assert row.status == "pending"
    assert row.is_baseline is False
    with pytest.raises(sa.exc.StatementError, match="no offset"), store.begin() as connection:
        connection.execute(sa.select(tables.runs).where(tables.runs.c.created_at == datetime(2026, 1, 1)))
    with store.begin() as connection:
        connection.execute(sa.delete(tables.agents))
        assert connection.execute(sa.select(runs)).all() == [], "what is an agent's own goes with it"


def test_server_defaults_fill_a_row_written_by_other_hands(store: Store) -> None:
    _run(store)
    name = "agent_evaluation_config" if store.is_sqlite else f"{SCHEMA}.agent_evaluation_config"
    with store.begin() as connection:
        connection.execute(sa.text(f"INSERT INTO {name} (agent_id) VALUES ('ann')"))  # noqa: S608
        row = connection.execute(sa.select(tables.agent_evaluation_config)).one()
    assert isinstance(row.id, uuid.UUID)
    assert row.action_gate_enabled is False
    assert (row.action_gate_threshold, row.max_correction_attempts) == (5.0, 2)
    assert row.convergence_threshold == pytest.approx(0.6)


def test_a_failed_transaction_leaves_nothing(store: Store) -> None:
    with pytest.raises(RuntimeError), store.begin() as connection:
        upsert(connection, tables.agents, [{"id": "bob", "display_name": "Bob"}])
        raise RuntimeError("stop")
    with store.connect() as connection:
        assert connection.execute(sa.select(tables.agents)).all() == []


def test_hostile_ids_are_data(store: Store) -> None:
    for agent_id in ("a'b", 'a"b', "a\\b", "a%b", "a;--", "é", "\U0001f600"):
        with store.begin() as connection:
            upsert(connection, tables.agents, [{"id": agent_id, "display_name": agent_id}])
            found = connection.execute(sa.select(tables.agents.c.display_name).where(tables.agents.c.id == agent_id))
            assert found.scalar_one() == agent_id


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("not a url", "is not a database URL"),
        ("mysql://u:p@h/d", "not supported"),
        ("postgresql://u:hunter2@127.0.0.1:1/d?connect_timeout=2", "cannot be opened"),
    ],
)
def test_bad_urls_are_explained_without_the_password(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as error:
        open_store(url)
    assert "hunter2" not in str(error.value)


def test_a_bare_postgres_url_means_psycopg_3() -> None:
    assert normalise_url("postgres://u@h/d").drivername == "postgresql+psycopg"
    assert normalise_url("postgresql+psycopg2://u@h/d").drivername == "postgresql+psycopg2"


def test_connections_to_postgres_notice_a_server_that_vanished(postgres_url: str) -> None:
    joined = "&" if "?" in postgres_url else "?"
    store = open_store(f"{postgres_url}{joined}keepalives_idle=7")
    with store.connect() as connection:
        driver: Any = connection.connection.driver_connection
        used = driver.info.get_parameters()
    store.close()
    assert used["connect_timeout"] == "10"
    assert used["tcp_user_timeout"] == "30000"
    assert used["keepalives_idle"] == "7", "what the URL says goes first"


def test_a_server_that_takes_connections_and_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(ConfigError, match="check PERSONA_DATABASE_URL and that the server runs"):
            open_store(f"postgresql://127.0.0.1:{port}/none?connect_timeout=2")


@pytest.mark.xdist_group("postgres")
def test_a_connection_that_is_gone_is_replaced(postgres_url: str) -> None:
    store, other = open_store(postgres_url), open_store(postgres_url)
    lost = store.value(sa.select(sa.func.pg_backend_pid()))
    assert other.value(sa.select(sa.func.pg_terminate_backend(lost, 5000)))
    assert store.value(sa.select(sa.func.pg_backend_pid())) != lost
    for each in (store, other):
        each.close()
