"""What is counted as messages are written is what a count of all messages gives, whoever wrote them and how."""

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, open_store
from persona_pipeline.world import Message, Window
from persona_pipeline.world.messages import counting
from persona_pipeline.world.messages.counting import Said, Tally, count_messages, said_by_agent
from persona_pipeline.world.messages.store import (
    Selection,
    read_messages,
    remove_messages,
    select_messages,
    write_messages,
)
from persona_pipeline.world.names import Aliases, rename_stored
from persona_pipeline.world.runs import record_windows
from tests.support.counting import counted_wrongly
from tests.support.earlier_stores import write_first_schema

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
NAMES, IDS, DAYS, TEXTS = ["ann", "bob", "annie"], [f"m{n}" for n in range(5)], range(4), ["Hi.", "Ho.", "Né"]
ALIASES = Aliases(frozenset({"ann", "bob"}), {"annie": "ann"})
Step = Callable[[Store], object]


def message(
    message_id: str, agent_id: str = "ann", day: int = 0, text: str = "Hi.", *, made_up: bool = False
) -> Message:
    return Message(message_id, agent_id, text, NOON + timedelta(days=day), "general", synthetic=made_up)


def tallied(store: Store) -> dict[str, dict[date, int]]:
    """Return by agent and day how many messages there are, by a count of all of them."""
    found: dict[str, dict[date, int]] = {}
    for item in read_messages(store):
        days = found.setdefault(item.agent_id, {})
        days[item.created_at.date()] = days.get(item.created_at.date(), 0) + 1
    return found


def assert_counted(store: Store) -> None:
    """The counts are those of all messages, and a count anew finds no difference."""
    said = said_by_agent(store)
    with store.connect() as connection:
        rows = connection.execute(sa.select(tables.message_days)).all()
    kept: dict[str, dict[date, int]] = {}
    for row in rows:
        kept.setdefault(row.agent_id, {})[row.day] = row.messages
    assert kept == tallied(store)
    assert {name: item.all.messages for name, item in said.items()} == {n: sum(d.values()) for n, d in kept.items()}
    newest = {name: max(m.created_at for m in read_messages(store, agent_id=name)) for name in kept}
    assert {name: item.newest for name, item in said.items()} == newest
    assert counted_wrongly(store) == {}


def sql(statement: str, **values: object) -> Step:
    """Return a step that writes to the tables as a runtime does, past this package."""

    def run(store: Store) -> None:
        named = statement if store.is_sqlite else statement.replace("run_messages", "persona.run_messages")
        named = named if store.is_sqlite else named.replace(" agents", " persona.agents")
        with store.engine.begin() as connection:
            connection.execute(sa.text(named), values)

    return run


INSERT = (
    "INSERT INTO run_messages (id, agent_id, channel_id, text, created_at) VALUES (:id, :agent, 'general', :text, :at)"
)


def inserted(message_id: str, agent_id: str, day: int, text: str, verb: str = "INSERT") -> Step:
    at = f"2026-03-{10 + day} 12:00:00.000000"

    def run(store: Store) -> None:
        known = select_ids(store)
        if message_id not in known or (verb != "INSERT" and store.is_sqlite):
            write_messages(store, [message(f"parent-{agent_id}", agent_id, made_up=True)])
            sql(INSERT.replace("INSERT", verb, 1), id=message_id, agent=agent_id, text=text, at=at)(store)

    return run


def select_ids(store: Store) -> set[str]:
    with store.connect() as connection:
        return set(connection.execute(sa.select(tables.run_messages.c.id)).scalars())


def removed(message_id: str) -> Step:
    def run(store: Store) -> None:
        if any(item.id == message_id for item in read_messages(store)):
            remove_messages(store, select_messages(store, Selection(ids=[message_id])))

    return run


def written(message_id: str, agent_id: str, day: int, text: str) -> Step:
    return lambda store: write_messages(store, [message(message_id, agent_id, day, text)], restore=True)


def step_of(kind: str, message_id: str, agent_id: str, day: int, text: str) -> Step:
    """Return a step of any kind about a message."""
    return {
        "write": written(message_id, agent_id, day, text),
        "remove": removed(message_id),
        "insert": inserted(message_id, agent_id, day, text),
        "replace": inserted(message_id, agent_id, day, text, "INSERT OR REPLACE"),
        "edit": sql("UPDATE run_messages SET text = :text WHERE id = :id", text=text, id=message_id),
        "delete": sql("DELETE FROM run_messages WHERE id = :id", id=message_id),
        "rename": lambda store: rename_stored(store, ALIASES),
        "forget": lambda store: rename_stored(store, Aliases()),
        "count": count_messages,
    }[kind]


KINDS = ["write", "remove", "insert", "replace", "edit", "delete", "rename", "forget", "count"]


@pytest.mark.filterwarnings("error")
def test_messages_that_another_process_counted_meanwhile_are_no_error(
    kept_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_messages(kept_store, [message("waiting")])

    def taken_by_another(connection: sa.Connection) -> None:
        connection.execute(sa.delete(tables.message_changes))

    monkeypatch.setattr(counting, "_lock", taken_by_another)
    assert count_messages(kept_store) == 0


@pytest.fixture(scope="module")
def kept_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path_factory.mktemp('counted') / 'store.db'}")
    yield store
    store.close()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    steps=st.lists(
        st.builds(
            step_of,
            st.sampled_from(KINDS),
            st.sampled_from(IDS),
            st.sampled_from(NAMES),
            st.sampled_from(DAYS),
            st.sampled_from(TEXTS),
        ),
        max_size=12,
    )
)
def test_whatever_happens_to_messages_the_counts_are_those_of_all_of_them(kept_store: Store, steps: list[Step]) -> None:
    sql("DELETE FROM run_messages")(kept_store)
    for step in steps:
        step(kept_store)
    assert_counted(kept_store)


def test_the_sum_does_not_depend_on_how_it_came_about(store: Store) -> None:
    write_messages(store, [message("a"), message("b", day=1)])
    first = said_by_agent(store)["ann"]
    assert first == Said(Tally(2, first.all.digest), Tally(), NOON + timedelta(days=1))
    write_messages(store, [message("a", text="Edited.")])
    assert said_by_agent(store)["ann"].all != first.all
    sql("DELETE FROM run_messages")(store)
    assert said_by_agent(store) == {}
    for item in (message("b", day=1), message("a")):
        write_messages(store, [item])
    assert said_by_agent(store)["ann"] == first


SEQUENCES = {
    "written": [written("a", "ann", 0, "Hi."), written("b", "bob", 1, "Ho.")],
    "moved to another day and agent": [written("a", "ann", 0, "Hi."), count_messages, written("a", "bob", 2, "Hi.")],
    "inserted by a runtime": [inserted("a", "ann", 0, "Hi."), count_messages, inserted("b", "ann", 0, "Ho.")],
    "replaced by a runtime": [inserted("a", "ann", 0, "Hi."), count_messages, inserted("a", "bob", 1, "Hi.", "INSERT OR REPLACE")],
    "edited by a runtime": [
        written("a", "ann", 0, "Hi."), count_messages, sql("UPDATE run_messages SET text = 'x', agent_id = 'ann'"),
    ],
    "dated anew by a runtime": [
        written("a", "ann", 0, "Hi."), count_messages, sql("UPDATE run_messages SET created_at = '2026-03-09 23:59:59.999999'"),
    ],
    "called otherwise by a runtime": [written("a", "ann", 0, "Hi."), count_messages, sql("UPDATE run_messages SET id = 'z'")],
    "deleted by a runtime": [written("a", "ann", 0, "Hi."), count_messages, sql("DELETE FROM run_messages")],
    "gone with its agent": [written("a", "ann", 0, "Hi."), count_messages, sql("DELETE FROM agents")],
    "taken out": [written("a", "ann", 0, "Hi."), written("b", "ann", 0, "Ho."), count_messages, removed("a")],
    "renamed and back": [
        written("a", "annie", 0, "Hi."), count_messages, step_of("rename", "", "ann", 0, ""), count_messages,
        step_of("forget", "", "ann", 0, ""),
    ],
    "made up": [lambda store: write_messages(store, [message("a", made_up=True), message("b")])],
}  # fmt: skip


def test_counts_follow_on_either_database(store: Store) -> None:
    for name, steps in SEQUENCES.items():
        sql("DELETE FROM run_messages")(store)
        for step in steps:
            step(store)
        try:
            assert_counted(store)
        except AssertionError as error:
            raise AssertionError(name) from error


def test_an_emptied_table_is_counted(postgres_url: str) -> None:
    store = open_store(postgres_url)
    write_messages(store, [message("a"), message("b", "bob")])
    count_messages(store)
    sql("TRUNCATE run_messages")(store)
    assert_counted(store)
    store.close()


def test_the_future_does_not_count_until_it_comes(store: Store) -> None:
    write_messages(store, [message("a"), message("b", day=3), message("c", day=3, made_up=True)])
    now = said_by_agent(store, NOON + timedelta(hours=1))["ann"]
    assert (now.all.messages, now.newest) == (1, NOON)
    write_messages(store, [message("b", day=3, text="Edited.")])
    assert said_by_agent(store, NOON + timedelta(hours=1))["ann"] == now
    assert said_by_agent(store, NOON + timedelta(days=4))["ann"].all.messages == 2


def test_what_changes_outside_every_window_that_was_judged_is_set_aside(store: Store) -> None:
    write_messages(store, [message(f"m{n}", day=-n) for n in range(0, 70, 5)])
    count_messages(store)
    with store.begin() as connection:
        for end in (NOON, NOON - timedelta(days=35)):
            record_windows(connection, [("ann", Window(end, end - timedelta(days=7)), None)])
    before = said_by_agent(store)["ann"]
    # Two windows of a week, each with the week before it, which consistency compares with.
    counts = {
        -20: False,
        -15: False,
        -14: True,
        -12: True,
        -3: True,
        0: True,
        1: True,
        -36: True,
        -48: True,
        -60: False,
    }
    for day, expected in counts.items():
        write_messages(store, [message("late", day=day)])
        after = said_by_agent(store)["ann"]
        assert after.all.messages == before.all.messages + 1
        assert (day, after.judged != before.judged) == (day, expected)
        sql("DELETE FROM run_messages WHERE id = 'late'")(store)
        assert said_by_agent(store)["ann"] == before


def test_a_store_of_an_earlier_release_is_counted_when_it_is_opened(tmp_path: Path, database_url: str) -> None:
    store = open_store(database_url, migrate=False)
    with store.begin() as connection:
        write_first_schema(connection)
    dot = "" if store.is_sqlite else "persona."
    with store.engine.begin() as connection:
        connection.execute(sa.text(f"INSERT INTO {dot}agents (id, display_name) VALUES ('ann', 'Ann'), ('bob', 'Bob')"))  # noqa: S608
        connection.execute(sa.text(f"INSERT INTO {dot}channels (id) VALUES ('general')"))  # noqa: S608
        rows = [
            {
                "id": f"m{n}",
                "agent": ("ann", "bob")[n % 2],
                "text": "Hi.",
                "at": f"2026-03-{n % 28 + 1:02} 12:00:00.000000",
            }
            for n in range(2000)
        ]
        connection.execute(sa.text(INSERT.replace("run_messages", f"{dot}run_messages")), rows)
    store.close()
    opened = open_store(database_url)
    assert_counted(opened)
    assert said_by_agent(opened)["ann"].all.messages == 1000
    opened.close()


def test_who_writes_while_it_is_counted_is_counted(database_url: str) -> None:
    open_store(database_url).close()
    failed: list[BaseException] = []
    done = threading.Event()

    def work(task: Callable[[Store], object]) -> None:
        # A pool of its own is what another process has.
        store = open_store(database_url)
        try:
            task(store)
        except BaseException as error:
            failed.append(error)
        finally:
            store.close()

    def write(store: Store, name: str, others: Sequence[str]) -> None:
        for n in range(25):
            # Several agents in one transaction, in another order than others write them: nobody may wait in a circle.
            write_messages(store, [message(f"{name}-{n}-{other}", other, n % 3) for other in others])
            if n % 5 == 4:
                sql("DELETE FROM run_messages WHERE id = :id", id=f"{name}-{n - 2}-{others[0]}")(store)

    def count(store: Store) -> None:
        while not done.is_set():
            count_messages(store)

    writers = [threading.Thread(target=work, args=(partial(write, name="one", others=["ann", "bob"]),))]
    writers += [threading.Thread(target=work, args=(partial(write, name="two", others=["bob", "ann"]),))]
    counters = [threading.Thread(target=work, args=(count,)) for _ in range(2)]
    for thread in (*writers, *counters):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in counters:
        thread.join()
    assert failed == []
    store = open_store(database_url)
    assert_counted(store)
    assert sum(item.all.messages for item in said_by_agent(store).values()) == 90
    store.close()
