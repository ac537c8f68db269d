# ruff: noqa: S608 - what stands in the statements is written here.
"""A store of many messages: those that are old are deleted.

    python -m benchmarks.old_messages [--messages 1000000] [--postgres]

A hundred agents talk for 400 days, and half of the messages go: seconds, memory, the longest that another writer waits, the store's
size before and after, and that the same messages do not come in again.
"""

import argparse
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.base.database.engine import Store, open_store
from persona_pipeline.world.messages.revision import age_out, raise_revisions
from persona_pipeline.world.messages.store import read_messages, write_messages
from persona_pipeline.world.models import Window
from tests.support.postgres import fresh_database, postgres_server

NOW, DAYS, AGENTS = datetime(2026, 6, 1, tzinfo=UTC), 400, 100
_TEXT = "'what somebody says on the job, some hundred letters of it, as it is in many a world of many agents ' || n"


def fill(store: Store, count: int) -> None:
    """Write messages in SQL: from the store's first schema on their columns have been called so."""
    first, step = NOW - timedelta(days=DAYS), DAYS * 86400 / count
    if store.is_sqlite:
        numbers = f"WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < {count - 1}) "
        rows, dot = numbers, ""
        at = f"strftime('%Y-%m-%d %H:%M:%f000', '{first:%Y-%m-%d %H:%M:%S}', '+' || (n * {step}) || ' seconds')"
    else:
        rows, dot = f"WITH s AS (SELECT generate_series(0, {count - 1}) AS n) ", "persona."
        at = f"timestamptz '{first:%Y-%m-%d %H:%M:%S}+00' + n * interval '{step} seconds'"
    names = "(" + ", ".join(f"('a{number}', 'A {number}')" for number in range(AGENTS)).removeprefix("(")
    with store.begin() as connection:
        connection.execute(sa.text(f"INSERT INTO {dot}agents (id, display_name) VALUES {names}"))
        connection.execute(sa.text(f"INSERT INTO {dot}channels (id) VALUES ('c')"))
        into = f"INSERT INTO {dot}run_messages (id, agent_id, channel_id, text, created_at) "
        connection.execute(sa.text(f"{into}{rows}SELECT 'm' || n, 'a' || (n % {AGENTS}), 'c', {_TEXT}, {at} FROM s"))


@contextmanager
def others(store: Store, writes: bool) -> Iterator[list[float]]:
    """Let somebody else read or write a message all the time; takes up how many seconds each time took."""
    waited, done, dot = [0.0], threading.Event(), "" if store.is_sqlite else "persona."
    write = f"UPDATE {dot}run_messages SET text = text || '.' WHERE id = 'm{10**5 - 1}'"
    read = f"SELECT text FROM {dot}run_messages WHERE id = 'm1'"

    def work() -> None:
        while not done.is_set():
            began = time.monotonic()
            with store.begin() if writes else store.connect() as connection:
                connection.execute(sa.text(write if writes else read))
            waited.append(time.monotonic() - began)
            time.sleep(0.02)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield waited
    finally:
        done.set()
        thread.join()


def size(store: Store) -> float:
    if store.is_sqlite:
        return sum(path.stat().st_size for path in Path(store.engine.url.database or "").parent.glob("store.db*")) / 1e6
    with store.connect() as connection:
        return connection.execute(sa.text("SELECT pg_database_size(current_database())")).scalar_one() / 1e6


def measure(store: Store, count: int) -> None:
    fill(store, count)
    raise_revisions(store)
    before, began, cpu = size(store), time.monotonic(), time.process_time()
    with others(store, writes=False) as reads, others(store, writes=True) as writes:
        deleted = age_out(store, DAYS // 2, now=NOW)
    print(
        f"  {time.monotonic() - began:.1f} s, CPU {time.process_time() - cpu:.1f} s of this process, "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB, {before:.0f} MB before, {size(store):.0f} MB after; "
        f"longest wait: reading {max(reads):.2f} s, writing {max(writes):.2f} s (median {sorted(writes)[len(writes) // 2]:.3f})"
    )
    kept = read_messages(store, Window(NOW - timedelta(days=DAYS - 1)))
    old = read_messages(store, Window(NOW - timedelta(days=DAYS // 2 - 1)))[:1000]
    again = [message for message in old if message.created_at < NOW - timedelta(days=DAYS // 2)]
    print(f"  deleted {deleted:,}; older ones left: {len(kept) + len(again)}")
    moved = [type(old[0])(f"n{n}", "a1", "x", NOW - timedelta(days=300), "c") for n in range(1000)]
    print(f"  written again: {write_messages(store, moved)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--postgres", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        url = f"sqlite:///{name}/store.db"
        if options.postgres:
            url = stack.enter_context(fresh_database(stack.enter_context(postgres_server(Path(name) / "postgres"))))
        print(f"{options.messages:,} messages on {url.partition(':')[0]}", flush=True)
        store = open_store(url)
        stack.callback(store.close)
        measure(store, options.messages)


if __name__ == "__main__":
    main()
