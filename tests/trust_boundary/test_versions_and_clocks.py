"""Data that outlives versions, and clocks that jump: a newer store is refused, nothing lost."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import pytest
import sqlalchemy as sa
from pydantic import SecretStr
from sqlalchemy.exc import DBAPIError

from persona_pipeline.base.database import engine, tables
from persona_pipeline.base.database.engine import HEAD, SCHEMA, Store, open_store
from persona_pipeline.cli import EXIT_MACHINE, machine_failure, main
from persona_pipeline.corrections import statistics
from persona_pipeline.corrections.statistics import forget_texts
from persona_pipeline.judging import batches, cache
from persona_pipeline.judging.batches import collect_batches, submit_batch
from persona_pipeline.judging.cache import JudgmentCache
from persona_pipeline.judging.claims import questions_of
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.testing.worlds import write_small_world
from persona_pipeline.world import runs
from persona_pipeline.world.runs import evaluated_since, note_asked
from tests.support.judging import requests
from tests.support.messages_server import MessagesServer

YEAR = timedelta(days=365)
# The step after the newest one.
NEWER = f"{int(HEAD) + 1:04}"
CLOCKED: tuple[ModuleType, ...] = (engine, statistics, batches, cache, runs)


class Wall:
    """The clock on the wall of this process, which ``jump`` puts forward or back; ``time.monotonic`` goes on as ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        wall = self
        self.off = timedelta(0)

        class Jumping(datetime):
            @classmethod
            def now(cls, tz=None):
                return datetime.now(tz) + wall.off

        for module in CLOCKED:
            monkeypatch.setattr(module, "datetime", Jumping)

    def jump(self, by: timedelta) -> None:
        self.off += by


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    return Wall(monkeypatch)


@pytest.mark.parametrize(
    "command", [("evaluate", "--judge", "recorded"), ("forget", "--person", "U0123"), ("report",), ("collect",)]
)
def test_a_store_of_a_newer_version_is_refused_by_name(
    command: tuple[str, ...],
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = write_small_world(tmp_path / "world")
    store = open_store(database_url)
    table = "alembic_version" if store.is_sqlite else f"{SCHEMA}.alembic_version"
    with store.begin() as connection:
        connection.execute(sa.text(f"UPDATE {table} SET version_num = '{NEWER}'"))  # noqa: S608
    store.close()
    monkeypatch.setenv("PERSONA_ROOT", str(root))
    monkeypatch.setenv("PERSONA_DATABASE_URL", database_url)
    monkeypatch.setattr("sys.argv", ["persona-pipeline", *command])
    # A server that starts would be waited for.
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: pytest.fail("the store was not refused"))
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err.strip()
    assert (ended.value.code, len(said.splitlines())) == (EXIT_MACHINE, 1), said
    assert f"{NEWER}, newer than this version's" in said and "upgrade persona-pipeline" in said


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE {agents} RENAME COLUMN display_name TO shown_as",
        "ALTER TABLE {agents} RENAME TO speakers",
        "ALTER TABLE {agents} ADD COLUMN kind VARCHAR NOT NULL",
    ],
)
def test_a_process_whose_store_a_newer_one_changes_meanwhile_says_so(store: Store, statement: str) -> None:
    """It has looked at the schema when it was started; what it writes is refused whole, and no traceback ends it."""
    agents = tables.agents if not store.is_sqlite else "agents"
    name = agents if isinstance(agents, str) else f"{SCHEMA}.agents"
    with store.begin() as connection:
        if "ADD COLUMN" in statement and store.is_sqlite:
            connection.execute(sa.text("DROP TABLE agents"))
            connection.execute(
                sa.text("CREATE TABLE agents (id VARCHAR PRIMARY KEY, display_name VARCHAR, kind VARCHAR NOT NULL)")
            )
        else:
            connection.execute(sa.text(statement.format(agents=name)))
    with pytest.raises(DBAPIError) as failed, store.begin() as connection:
        connection.execute(sa.insert(tables.agents).values(id="eve", display_name="Eve"))
    said = machine_failure(failed.value)
    assert said is not None and "a newer persona-pipeline may have migrated it" in said and "\n" not in said


@pytest.mark.parametrize("by", [YEAR, -YEAR], ids=["ahead", "behind"])
def test_what_a_clock_that_was_wrong_wrote_holds_nobody_back(by: timedelta, store: Store, wall: Wall) -> None:
    url = "http://endpoint"
    with store.begin() as connection:
        connection.execute(sa.insert(tables.agents).values(id="ann", display_name="Ann"))
    wall.jump(by)
    JudgmentCache(store).note_rejection(url, "m")
    note_asked(store, ["ann"])
    assert JudgmentCache(store).rejects_structured_output(url, "m")
    wall.jump(-by)
    assert not JudgmentCache(store).rejects_structured_output(url, "m")
    assert evaluated_since(store, ["ann"], datetime.now(UTC) - timedelta(hours=1)) == set()
    note_asked(store, ["ann"])
    assert evaluated_since(store, ["ann"], datetime.now(UTC) - timedelta(hours=1)) == {"ann"}


@pytest.mark.parametrize("by", [YEAR, -YEAR], ids=["ahead", "behind"])
def test_a_batch_that_was_sent_under_a_wrong_clock_is_found_and_not_paid_twice(
    by: timedelta, store: Store, wall: Wall
) -> None:
    """The answer to the submission was lost: the record says submitting."""
    asked = [question for _, question in questions_of(requests(6), max_tokens=500)]
    with MessagesServer() as server:
        options = ModelOptions(base_url=server.url, api_key=SecretStr("k"))
        wall.jump(by)
        submit_batch(store, options, asked)
        with store.begin() as connection:
            connection.execute(sa.update(tables.judge_batches).values(status=batches.SUBMITTING, batch_id=None))
        wall.jump(-by)
        collect_batches(store, options)
        submit_batch(store, options, asked)
        collect_batches(store, options)
        assert len(server.batches.created) == 1
    with store.connect() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(tables.judgments)).scalar_one() == len(asked)


def test_a_clock_that_jumps_ahead_makes_nothing_old(store: Store, wall: Wall) -> None:
    with store.begin() as connection:
        connection.execute(sa.insert(tables.agents).values(id="ann", display_name="Ann"))
        row = {
            "agent_id": "ann",
            "original_text": "Yo.",
            "score": 1.0,
            "threshold": 5.0,
            "reasoning": "dull",
            "attempt_number": 1,
        }
        row |= {"outcome": "corrected", "created_at": datetime.now(UTC)}
        connection.execute(sa.insert(tables.correction_logs).values(row))
    wall.jump(YEAR)
    assert forget_texts(store, 30) == 0
    wall.jump(-2 * YEAR)
    assert forget_texts(store, 30) == 0
