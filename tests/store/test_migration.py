"""A store of an earlier version is carried over: nothing that was evaluated is lost."""

import hashlib
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import HEAD, Store, current_revision, open_store, upgrade, write_revision
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.scoring.adherence import message_scores
from persona_pipeline.testing.worlds import write_small_world
from persona_pipeline.world import World
from persona_pipeline.world.messages.revision import AgentRevision, day_revisions, revisions
from persona_pipeline.world.messages.store import write_messages
from persona_pipeline.world.models import Message, Window
from persona_pipeline.world.runs import newest_windows, touched_windows
from tests.support.earlier_stores import write_first_schema
from tests.support.evaluating import newest_outlines, newest_run

FIRST, SECOND = datetime(2026, 3, 8, tzinfo=UTC), datetime(2026, 3, 15, tzinfo=UTC)
RUN = uuid.uuid4()
SOURCE = "messages/general.jsonl"
LINE = '{"id": "1", "agent_id": "ann", "channel": "c", "text": "hi", "created_at": "2026-03-20T10:00:00Z", "mood": "glad"}\n'
ADHERENCE = {
    "dimension": "adherence", "score": 6.5, "n_scored": 2, "n_expected": 2, "statistics": {"channels": {}},
    "propositions": {
        "kind": {"id": "kind", "claim": "Ann is kind", "score": 8.0, "raw": 8.0, "weight": 1.0,
                 "parts": [{"part": "m1", "raw": 8}, {"part": "m2", "raw": None}]},
        "rude": {"id": "rude", "claim": "Ann is rude", "score": 5.0, "raw": 4.0, "weight": 0.5, "inverted": True,
                 "parts": [{"part": "m1", "raw": 4}]},
    },
}  # fmt: skip


def _first_schema(database_url: str) -> None:
    """Write a store of the first schema with one run that regressed."""
    store = open_store(database_url, migrate=False)
    schema = None if store.is_sqlite else "persona"
    with store.begin() as connection:
        write_first_schema(connection)
    with store.begin() as connection:
        known = sa.MetaData()
        known.reflect(connection, schema=schema)
        table = lambda name: known.tables[f"{schema}.{name}" if schema else name]  # noqa: E731
        run_id = RUN.hex if store.is_sqlite else RUN
        start, end = (FIRST, SECOND) if schema else (FIRST.replace(tzinfo=None), SECOND.replace(tzinfo=None))
        result = {
            "run_id": str(RUN), "agent_id": "ann", "display_name": "Ann", "overall": 7.0, "sample_size": 3,
            "window_start": FIRST.isoformat(), "window_end": SECOND.isoformat(),
            "dimensions": {"adherence": ADHERENCE},
        }  # fmt: skip
        finding = {"kind": "regression", "exit_code": 1, "message": "ann fell"}
        bounds = {"agent_id": "ann", "window_start": start, "window_end": end, "sample_size": 3}
        rows = {
            "agents": {"id": "ann", "display_name": "Ann"},
            "evaluation_runs": {
                "id": run_id, "status": "completed", "dimensions": [], "result": result, "overall_score": 7.0,
                "completed_at": end, **bounds,
            },
            "baseline_comparisons": {
                "evaluation_run_id": run_id, "agent_id": "ann", "regressed": True,
                "comparison": {"agent_id": "ann"}, "findings": [finding],
            },
            "message_windows": {"messages_hash": "x", **bounds},
            "message_sources": {
                "path": SOURCE, "content_hash": hashlib.sha256(LINE.encode()).hexdigest(),
                "problems": [{"message": "unknown key 'mood'", "path": SOURCE, "line": 1, "column": None}],
            },
        }  # fmt: skip
        for name, row in rows.items():
            connection.execute(sa.insert(table(name)).values(row))
    store.close()


def test_runs_keep_their_comparison_and_windows_stand_side_by_side(database_url: str) -> None:
    _first_schema(database_url)
    store = open_store(database_url)
    with store.connect() as connection:
        assert current_revision(connection) == HEAD
    run = newest_run(store, "ann")
    assert run is not None
    assert (run.evaluation.run_id, run.evaluation.overall, run.whole) == (str(RUN), 7.0, True)
    assert [finding.message for finding in run.findings] == ["ann fell"]
    assert run.comparison is not None
    assert newest_windows(store, ["ann"], now=datetime(2026, 4, 1, tzinfo=UTC)).get("ann") == Window(SECOND, FIRST)
    assert touched_windows(store, ["ann"]) == []
    outline = newest_outlines(store)["ann"]
    bare = run.evaluation.dimensions["adherence"].model_copy(update={"propositions": {}, "statistics": {}})
    assert outline.evaluation == run.evaluation.model_copy(update={"dimensions": {"adherence": bare}})
    with store.connect() as connection:
        judged = connection.execute(sa.select(tables.evaluation_runs.c.message_scores)).scalar_one()
    assert judged == message_scores(run.evaluation.dimensions["adherence"]) == {"m1": 7.0}
    store.close()


def test_a_line_that_was_left_out_for_a_key_nobody_knew_is_a_message_now(database_url: str, tmp_path: Path) -> None:
    _first_schema(database_url)
    root = write_small_world(tmp_path / "small")
    for path in (root / "messages").iterdir():
        path.unlink()
    (root / SOURCE).write_text(LINE, encoding="utf-8")
    world = World.open(root, database_url)
    assert world.sync_messages().problems == []
    assert [(message.id, message.extras) for message in world.messages()] == [("1", {"mood": "glad"})]
    world.store.close()


# That the indexes of expressions are used after a migration is asked in tests/store/test_store.py.
@pytest.mark.filterwarnings("ignore:.*expression-based index")
def test_a_store_of_the_first_release_gets_the_schema_of_a_new_one(database_url: str) -> None:
    _first_schema(database_url)
    store = open_store(database_url)
    with store.connect() as connection:
        assert current_revision(connection) == HEAD
    run = newest_run(store, "ann")
    assert run is not None and [finding.message for finding in run.findings] == ["ann fell"]
    assert newest_outlines(store)["ann"].evaluation.overall == 7.0
    assert newest_windows(store, ["ann"], now=datetime(2026, 4, 1, tzinfo=UTC)).get("ann") == Window(SECOND, FIRST)
    found = _schema_of(store)
    if not store.is_sqlite:
        with store.begin() as connection:
            connection.execute(sa.schema.DropSchema("persona", cascade=True))
    store.close()
    released = open_store(database_url.replace("store.db", "released.db"))
    assert found == _schema_of(released)
    released.close()


# What release 0.2 counted messages by.
COUNTS = {
    "sqlite": [
        "CREATE TABLE message_changes (id INTEGER PRIMARY KEY, agent_id TEXT NOT NULL, day DATE NOT NULL)",
        "CREATE TABLE message_days (agent_id TEXT, day DATE, messages INTEGER NOT NULL, PRIMARY KEY (agent_id, day))",
        "CREATE TABLE message_totals (agent_id TEXT PRIMARY KEY, messages BIGINT NOT NULL)",
        "CREATE TRIGGER count_inserted AFTER INSERT ON run_messages BEGIN "
        "INSERT INTO message_changes (agent_id, day) VALUES (NEW.agent_id, date(NEW.created_at)); END",
    ],
    "postgresql": [
        "CREATE TABLE persona.message_changes (id BIGINT GENERATED BY DEFAULT AS IDENTITY, agent_id TEXT, day DATE)",
        "CREATE TABLE persona.message_days (agent_id TEXT, day DATE, messages INTEGER, PRIMARY KEY (agent_id, day))",
        "CREATE TABLE persona.message_totals (agent_id TEXT PRIMARY KEY, messages BIGINT NOT NULL)",
        "CREATE FUNCTION persona.count_messages() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER count_inserted AFTER INSERT ON persona.run_messages "
        "FOR EACH STATEMENT EXECUTE FUNCTION persona.count_messages()",
    ],
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*expression-based index")
def test_a_store_of_release_0_2_counts_changes_from_then_on(store: Store) -> None:
    said = Message("m1", "ann", "Hi.", FIRST, "general")
    write_messages(store, [said])
    new = _schema_of(store)
    with store.begin() as connection:
        for name in ("message_changes", "message_days", "message_revisions"):
            tables.metadata.tables[f"persona.{name}"].drop(connection)
        if store.is_sqlite:
            for name in ("replaced", "inserted", "deleted", "updated"):
                connection.execute(sa.text(f"DROP TRIGGER note_{name}"))
        else:
            connection.execute(sa.text("DROP FUNCTION persona.note_messages CASCADE"))
        for statement in COUNTS[connection.dialect.name]:
            connection.execute(sa.text(statement))
        write_revision(connection, "0016")
    upgrade(store.engine)
    assert _schema_of(store) == new
    assert revisions(store) == {"ann": AgentRevision(1, 1)}
    assert day_revisions(store, ["ann"], FIRST.date(), FIRST.date()) == {("ann", FIRST.date()): 0}
    write_messages(store, [said, Message("m2", "bob", "Ho.", SECOND, "general")])
    assert revisions(store) == {"ann": AgentRevision(1, 1), "bob": AgentRevision(1, 1)}


@pytest.mark.parametrize("revision", ["0002", "0009"])
def test_a_store_whose_schema_no_release_wrote_is_refused_and_left_as_it_is(database_url: str, revision: str) -> None:
    _first_schema(database_url)
    store = open_store(database_url, migrate=False)
    schema = None if store.is_sqlite else "persona"
    with store.begin() as connection:
        table = sa.table("alembic_version", sa.column("version_num"), schema=schema)
        connection.execute(table.update().values(version_num=revision))
    with pytest.raises(ConfigError, match=f"schema {revision} belongs to no release"):
        open_store(database_url)
    with store.connect() as connection:
        assert current_revision(connection) == revision
    store.close()


def _schema_of(store: Store) -> dict[str, Any]:
    schema = None if store.is_sqlite else "persona"
    triggers = (
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        if store.is_sqlite
        else "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal"
    )
    with store.connect() as connection:
        known = sa.inspect(connection)
        where = f"{connection.dialect.name}_where"
        found: dict[str, Any] = {"": sorted(map(tuple, connection.execute(sa.text(triggers))))}
        for table in known.get_table_names(schema):
            columns = known.get_columns(table, schema)
            indexes = known.get_indexes(table, schema)
            found[table] = (
                {item["name"]: (str(item["type"]), item["nullable"], item["default"]) for item in columns},
                sorted(
                    (item["name"], item["column_names"], str(item.get("dialect_options", {}).get(where)))
                    for item in indexes
                ),
                sorted(map(str, known.get_foreign_keys(table, schema))),
                known.get_pk_constraint(table, schema)["constrained_columns"],
                sorted(map(str, known.get_unique_constraints(table, schema))),
                sorted(map(str, known.get_check_constraints(table, schema))),
            )
        return found
