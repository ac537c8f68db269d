"""Whatever changes what an agent said raises its revision, whoever changed it and how."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, open_store
from persona_pipeline.world import Message, Window
from persona_pipeline.world.messages.revision import newest_times, revisions
from persona_pipeline.world.messages.store import (
    Selection,
    let_in,
    read_messages,
    remove_messages,
    select_messages,
    write_messages,
    write_messages_in,
)
from persona_pipeline.world.names import Aliases, rename_stored
from persona_pipeline.world.runs import record_windows

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
NAMES, IDS, DAYS, TEXTS = ["ann", "bob", "annie"], [f"m{n}" for n in range(5)], range(4), ["Hi.", "Ho.", "Né"]
ALL_DAYS = [NOON.date() + timedelta(days=day) for day in range(-1, 5)]
ALIASES = Aliases(frozenset({"ann", "bob"}), {"annie": "ann"})
Step = Callable[[Store], object]


def message(
    message_id: str, agent_id: str = "ann", day: int = 0, text: str = "Hi.", *, made_up: bool = False
) -> Message:
    return Message(message_id, agent_id, text, NOON + timedelta(days=day), "general", synthetic=made_up)


def said(store: Store) -> dict[str, dict[date, set[Message]]]:
    """Return what everybody said, by agent and day."""
    found: dict[str, dict[date, set[Message]]] = defaultdict(lambda: defaultdict(set))
    for item in read_messages(store):
        found[item.agent_id][item.created_at.date()].add(item)
    return found


def assert_noticed(store: Store, steps: Sequence[tuple[str, Step]]) -> None:
    """Whatever a step changes is noted on those days, and raises the revisions of their agents and of no others."""
    before, known = said(store), revisions(store)
    for name, step in steps:
        step(store)
        after, noted, now = said(store), noted_days(store), revisions(store)
        for agent_id in NAMES:
            changed = {day for day in ALL_DAYS if before[agent_id][day] != after[agent_id][day]}
            assert noted[agent_id] >= changed if name == "replace" else noted[agent_id] == changed, (name, agent_id)
            assert (known.get(agent_id) != now.get(agent_id)) == bool(noted[agent_id]), (name, agent_id)
        before, known = after, now


def noted_days(store: Store) -> dict[str, set[date]]:
    """Return the days of noted changes by agent."""
    found: dict[str, set[date]] = defaultdict(set)
    for row in store.rows(sa.select(tables.message_changes)):
        found[row.agent_id].add(row.said_at.date())
    return found


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
    said = [message(message_id, agent_id, day, text)]

    def run(store: Store) -> None:
        with store.begin() as connection:
            let_in(connection, said)
            write_messages_in(connection, said)

    return run


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
    }[kind]


KINDS = ["write", "remove", "insert", "replace", "edit", "delete", "rename", "forget"]


@pytest.fixture(scope="module")
def kept_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path_factory.mktemp('counted') / 'store.db'}")
    yield store
    store.close()


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    steps=st.lists(st.tuples(*map(st.sampled_from, (KINDS, IDS, NAMES, DAYS, TEXTS))), max_size=12),
)
def test_whatever_happens_to_messages_raises_revisions(
    kept_store: Store, steps: list[tuple[str, str, str, int, str]]
) -> None:
    sql("DELETE FROM run_messages")(kept_store)
    assert_noticed(kept_store, [(step[0], step_of(*step)) for step in steps])


HI = written("a", "ann", 0, "Hi.")
SEQUENCES: dict[str, list[Step]] = {
    "written": [HI, HI, written("b", "bob", 1, "Ho.")],
    "moved to another day and agent": [HI, written("a", "bob", 2, "Hi.")],
    "inserted by a runtime": [inserted("a", "ann", 0, "Hi."), inserted("b", "ann", 0, "Ho.")],
    "replaced by a runtime": [inserted("a", "ann", 0, "Hi."), inserted("a", "bob", 1, "Hi.", "INSERT OR REPLACE")],
    "edited by a runtime": [HI, *[sql("UPDATE run_messages SET text = 'x', agent_id = 'ann'")] * 2],
    "dated anew by a runtime": [HI, sql("UPDATE run_messages SET created_at = '2026-03-09 23:59:59.999999'")],
    "deleted by a runtime": [HI, sql("DELETE FROM run_messages")],
    "gone with its agent": [HI, sql("DELETE FROM agents")],
    "taken out": [HI, written("b", "ann", 0, "Ho."), removed("a")],
    "renamed and back": [
        written("a", "annie", 0, "Hi."), step_of("rename", "", "ann", 0, ""), step_of("forget", "", "ann", 0, ""),
    ],
    "made up": [lambda store: write_messages(store, [message("a", made_up=True), message("b")])],
    "no longer made up": [
        lambda store: write_messages(store, [message("a", made_up=True)]), sql("UPDATE run_messages SET synthetic = false"),
    ],
}  # fmt: skip


def test_revisions_follow_on_either_database(store: Store) -> None:
    for name, steps in SEQUENCES.items():
        sql("DELETE FROM run_messages")(store)
        assert_noticed(store, [(name, step) for step in steps])


def test_another_id_and_an_emptied_table_are_changes(store: Store) -> None:
    write_messages(store, [message("a"), message("b", "bob")])
    with store.begin() as connection:
        record_windows(connection, [("ann", Window(NOON, NOON - timedelta(days=7)), None)])
    emptied = [] if store.is_sqlite else [sql("TRUNCATE run_messages")]
    for step in (sql("UPDATE run_messages SET id = 'z' || id"), *emptied):
        agents = revisions(store)
        step(store)
        assert noted_days(store)["ann"] >= {NOON.date()}
        assert all(revisions(store)[agent_id] != before for agent_id, before in agents.items())


def test_the_future_does_not_count_until_it_comes(store: Store) -> None:
    write_messages(store, [message("a"), message("b", day=3), message("c", day=3, made_up=True)])
    now = revisions(store, NOON + timedelta(hours=1))
    assert now == {"ann": 1}
    write_messages(store, [message("b", day=3, text="Edited.")])
    assert revisions(store, NOON + timedelta(hours=1)) == now
    assert revisions(store, NOON + timedelta(days=4))["ann"] > 1
    assert newest_times(store) == {"ann": NOON + timedelta(days=3)}


def test_what_changes_outside_every_window_that_was_judged_is_set_aside(store: Store) -> None:
    write_messages(store, [message(f"m{n}", day=-n) for n in range(0, 70, 5)])
    with store.begin() as connection:
        for end in (NOON, NOON - timedelta(days=35)):
            record_windows(connection, [("ann", Window(end, end - timedelta(days=7)), None)])
    before = revisions(store)["ann"]
    # Two windows of a week, each with the week before it, which consistency compares with; the first moment is left out.
    judged = {-20: 0, -15: 0, -14: 0, -13: 1, -12: 1, -3: 1, 0: 1, 1: 1, -36: 1, -48: 1, -60: 0}
    for day, expected in judged.items():
        write_messages(store, [message(f"late {day}", day=day)])
        after = revisions(store)["ann"]
        assert (day, after) == (day, before + expected)
        before = after


def test_who_writes_while_somebody_looks_is_noticed(database_url: str) -> None:
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
        for n in range(10):
            # Several agents in one transaction, in another order than others write them: nobody may wait in a circle.
            write_messages(store, [message(f"{name}-{n}-{other}", other, n % 3) for other in others])
            if n % 5 == 4:
                sql("DELETE FROM run_messages WHERE id = :id", id=f"{name}-{n - 2}-{others[0]}")(store)

    def look(store: Store) -> None:
        while not done.is_set():
            revisions(store)

    writers = [threading.Thread(target=work, args=(partial(write, name="one", others=["ann", "bob"]),))]
    writers += [threading.Thread(target=work, args=(partial(write, name="two", others=["bob", "ann"]),))]
    lookers = [threading.Thread(target=work, args=(look,)) for _ in range(2)]
    for thread in (*writers, *lookers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in lookers:
        thread.join()
    assert failed == []
    store = open_store(database_url)
    # Each of the two agents had 20 messages written and 2 removed: no change is lost, and none is counted twice.
    assert revisions(store) == dict.fromkeys(["ann", "bob"], 22)
    store.close()


def test_a_change_that_is_not_committed_yet_counts_when_it_is(database_url: str) -> None:
    store, other = open_store(database_url), open_store(database_url)
    write_messages(store, [message("a"), message("b", "bob")])
    assert revisions(store)["ann"] == 1
    if store.is_sqlite:
        # There writers wait for one another.
        sql("UPDATE run_messages SET text = 'x' WHERE id = 'a'")(other)
    else:
        with other.begin() as connection:
            connection.execute(sa.text("UPDATE persona.run_messages SET text = 'x' WHERE id = 'a'"))
            # Later by its number, and earlier by its end.
            write_messages(store, [message("b", "bob", text="Ho.")])
            assert (revisions(store)["ann"], revisions(store)["bob"] > 1) == (1, True)
    assert revisions(store)["ann"] > 1
    store.close()
    other.close()
