"""The store: SQLite by default, Postgres by URL, brought to the newest schema when it is opened; leases that exclude others."""

import json
import logging
import os
import socket
import sqlite3
import threading
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import DBAPIError

from persona_pipeline.base.database.counting import count_messages
from persona_pipeline.base.database.tables import SCHEMA, leases, metadata
from persona_pipeline.base.errors import ConfigError, NewerStoreError
from persona_pipeline.base.settings import Settings
from persona_pipeline.base.text import storable_data, storable_json

MIGRATIONS = Path(__file__).parent / "migrations"
# Read without importing Alembic, which every start would pay for; a test holds it equal to Alembic's own head.
HEAD = "0016"
_ADVISORY_LOCK = 0x706572736F6E61


def current_revision(connection: Connection) -> str | None:
    """Return the schema's revision, None for an empty database."""
    schema = None if connection.dialect.name == "sqlite" else SCHEMA
    if not sa.inspect(connection).has_table("alembic_version", schema=schema):
        return None
    table = sa.table("alembic_version", sa.column("version_num"), schema=schema)
    return connection.execute(sa.select(table.c.version_num)).scalar()


def upgrade(engine: Engine) -> None:
    """Run the pending migrations, or make all tables in an empty database; ``NewerStoreError``: a newer version wrote it."""
    with engine.connect() as connection:
        revision = current_revision(connection)
    if revision == HEAD:
        return
    _refuse_newer(revision)
    from alembic import command

    with _exclusive(engine) as connection:
        revision = current_revision(connection)
        # Another version may have been quicker.
        _refuse_newer(revision)
        if revision is None:
            metadata.create_all(connection)
            count_messages(connection)
            command.stamp(alembic_config(connection), "head")
            return
        command.upgrade(alembic_config(connection), "head")


def _refuse_newer(revision: str | None) -> None:
    if revision is not None and revision > HEAD:
        raise NewerStoreError(
            f"the store's schema is {revision}, newer than this version's {HEAD}, and is left as it is; upgrade persona-pipeline, "
            "or name another store with PERSONA_DATABASE_URL (a backup from before the upgrade can be read by this version)"
        )
    if revision is not None and "0001" < revision < "0010":
        raise ConfigError(
            f"the store's schema {revision} belongs to no release; name a new store with PERSONA_DATABASE_URL, or open this one "
            "with version 0.2.0 first"
        )


def alembic_config(connection: Connection):
    """Return Alembic's configuration bound to a connection."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config


@contextmanager
def _exclusive(engine: Engine) -> Iterator[Connection]:
    """One migration at a time: a lock file beside SQLite's file, an advisory lock on Postgres."""
    if engine.dialect.name != "sqlite":
        with engine.begin() as connection:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
            connection.execute(sa.schema.CreateSchema(SCHEMA, if_not_exists=True))
            yield connection
        return
    database = engine.url.database
    if not database or database == ":memory:":
        with engine.begin() as connection:
            yield connection
        return
    from filelock import FileLock

    with FileLock(f"{database}.lock"), engine.execution_options(writes=True).begin() as connection:
        yield connection


# Bounds how long a writer waits for another on SQLite before `database is locked`.
SQLITE_BUSY_SECONDS = 30
# A server that vanishes without a word is noticed: after 10 s when connecting, a minute when waiting, half a minute
# (in milliseconds) when nothing that is sent arrives.
_POSTGRES_CONNECTION = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}

# A connection that was used so lately is there still.
TRUSTED_SECONDS = 1.0

# What SQLite says of a disk that is full or fails; no setting mends that.
_OF_THE_MACHINE = ("disk I/O error", "disk is full", "readonly database")
# Primary result codes by which SQLite itself calls a file damaged.
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class _Held(threading.local):
    """The connection that all in this thread share, how many read from it just now, and whether somebody writes."""

    connection: Connection | None = None
    readers = 0
    writes = False


class Store:
    """A database with the project's tables. One instance a process and URL; connections are pooled.

    Use ``begin()`` for one transaction (commit at the end, roll back on an error), ``connect()`` to read, and ``together()`` around
    many of both.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._here = _Held()
        # On SQLite a transaction sees one moment anyway.
        self._reading: dict[str, Any] = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
        self._writing = dict.fromkeys(self._reading, "READ COMMITTED") | {"writes": True}

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def together(self) -> Iterator[None]:
        """Let all that this thread does meanwhile share one connection.

        What is read is of one moment, up to whatever is written in between; writing inside ``begin()`` joins that transaction.
        """
        if self._here.connection is not None:
            yield
            return
        with self.engine.connect() as connection:
            self._here.connection = connection.execution_options(**self._reading)
            try:
                yield
            finally:
                self._here.connection = None

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        here, held = self._here, self._here.connection
        if held is not None and here.writes:
            yield held
        elif held is None or here.readers:
            # Whoever still reads goes on reading what was there.
            with self.engine.execution_options(**self._writing).begin() as connection:
                yield connection
        else:
            held.rollback()
            here.writes = True
            try:
                with held.execution_options(**self._writing).begin():
                    yield held
            finally:
                here.writes = False
                held.execution_options(writes=False, **self._reading)

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        here = self._here
        if here.connection is None:
            with self.engine.connect() as connection:
                yield connection
            return
        here.readers += 1
        try:
            yield here.connection
        finally:
            here.readers -= 1

    def rows(self, query: sa.Executable) -> Sequence[sa.Row]:
        """Return all rows of a query."""
        with self.connect() as connection:
            return connection.execute(query).all()

    def row(self, query: sa.Executable) -> sa.Row | None:
        """Return the row of a query that has one at most."""
        with self.connect() as connection:
            return connection.execute(query).one_or_none()

    def value(self, query: sa.Executable) -> Any:
        """Return the first value of the first row; None where there is none."""
        with self.connect() as connection:
            return connection.execute(query).scalar()

    def ping(self) -> None:
        """Ask the database for nothing; raises what it raises where it does not answer."""
        self.value(sa.select(1))

    def close(self) -> None:
        self.engine.dispose()


def default_url(settings: Settings) -> URL:
    """Return the store's URL: ``PERSONA_DATABASE_URL``, else SQLite in the world's ``.persona`` folder."""
    if settings.database_url is None:
        return URL.create("sqlite", database=str(settings.world_root / ".persona" / "store.db"))
    return normalise_url(settings.database_url.get_secret_value())


def normalise_url(text: str) -> URL:
    """Return the URL with psycopg 3 as a bare Postgres URL's driver; ``ConfigError``: it is none of SQLite or Postgres."""
    try:
        url = make_url(text)
    except exc.ArgumentError as error:
        raise ConfigError(
            "PERSONA_DATABASE_URL is not a database URL; write postgresql://user:password@host/name"
        ) from error
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise ConfigError(f"database {url.get_backend_name()!r} is not supported; use SQLite or Postgres")
    return url


def open_store(url: URL | str, *, migrate: bool = True) -> Store:
    """Open the store and bring its schema up to date, unless it is not to ``migrate``.

    ``ConfigError``: the URL is not usable or the database cannot be reached.
    """
    if isinstance(url, str):
        url = normalise_url(url)
    is_sqlite = url.get_backend_name() == "sqlite"
    _opened[:] = [url.database] if is_sqlite and url.database else []
    engine = _sqlite_engine(url) if is_sqlite else _postgres_engine(url)
    event.listen(engine, "before_cursor_execute", _stored_text, retval=True)
    if migrate:
        try:
            upgrade(engine)
        except exc.OperationalError as error:
            reason = str(error.orig).strip().splitlines()[0] if error.orig else "no reason given"
            if any(word in reason for word in _OF_THE_MACHINE):
                raise
            raise ConfigError(
                f"the store at {url.render_as_string(hide_password=True)} cannot be opened ({reason}); "
                "check PERSONA_DATABASE_URL and that the server runs"
            ) from error
    return Store(engine)


def _postgres_engine(url: URL) -> Engine:
    # What the URL says about connections goes before ours.
    limits = {name: value for name, value in _POSTGRES_CONNECTION.items() if name not in url.query}
    return ask_when_idle(sa.create_engine(url, connect_args=limits, json_serializer=_json_to_store))


def ask_when_idle(engine: Engine) -> Engine:
    """Have the pool ask the server before a connection is used again that lay idle, and connect anew where it is gone.

    The pool's own ``pool_pre_ping`` asks each time, and to the server that is a transaction for every one of ours.
    """

    @event.listens_for(engine, "checkout")
    def _look(connection: Any, record: Any, _proxy: Any) -> None:
        before, record.info["used"] = record.info.get("used"), time.monotonic()
        if before is not None and record.info["used"] - before > TRUSTED_SECONDS:
            try:
                engine.dialect.do_ping(connection)
            except engine.dialect.loaded_dbapi.Error as error:
                raise exc.InvalidatePoolError from error

    return engine


def _stored_text(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> tuple[str, Any]:
    """Store texts as in ``storable`` whatever a caller gives, and look for them so."""
    return statement, storable_data(parameters)


def _json_to_store(value: Any) -> str:
    return storable_json(json.dumps(value))


def _stored_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        # Postgres checks the JSON of its columns; SQLite does not.
        raise exc.DatabaseError(None, None, sqlite3.DatabaseError(f"a stored value is not JSON: {error}")) from error


# The SQLite file of the store that this process opened last.
_opened: list[str] = []


def damage() -> str | None:
    """Return the path of the store that was opened last and what SQLite's own check says of it; None: the file passes."""
    for path in _opened:
        try:
            with closing(sqlite3.connect(path)) as connection:
                connection.text_factory = lambda text: text.decode("utf-8", "replace")
                (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.Error as error:
            found = str(error) if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED else "ok"
        except UnicodeDecodeError:
            # So the sqlite3 module raises what SQLite says of a schema that is not text.
            found = "malformed database schema"
        if found != "ok":
            return f"{path}: {' '.join(found.split())}"
    return None


def _sqlite_engine(url: URL) -> Engine:
    if url.database and url.database != ":memory:":
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine(
        url,
        connect_args={"timeout": SQLITE_BUSY_SECONDS},
        json_serializer=_json_to_store,
        json_deserializer=_stored_json,
        execution_options={"schema_translate_map": {SCHEMA: None}},
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        # The hook below issues BEGIN: pysqlite would start writers as readers, which fail at once when they upgrade.
        connection.isolation_level = None
        cursor = connection.cursor()
        _log_ahead(cursor)
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("writes") else "BEGIN")

    return engine


def _log_ahead(cursor: sqlite3.Cursor) -> None:
    """Have writes logged ahead. Of two who switch a new file to that, SQLite refuses one at once, whatever its timeout."""
    until = time.monotonic() + SQLITE_BUSY_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)


# Bound parameters of one statement: SQLite takes 32,766, older builds 999.
MOST_NAMED = 500


def chunks(values: Sequence[str], size: int = MOST_NAMED) -> Iterator[Sequence[str]]:
    """Yield values in parts, by default as large as one statement can name."""
    return (values[start : start + size] for start in range(0, len(values), size))


def among(column: sa.ColumnElement[Any], values: Collection[Any]) -> sa.ColumnElement[bool]:
    """Return the condition that a column has one of some values; of very many the caller sorts out itself which rows it wants."""
    return column.in_(list(values)) if len(values) <= MOST_NAMED else sa.true()


def _insert_of(dialect: str, table: sa.Table) -> Any:
    """Return an INSERT of a dialect, which knows ``on_conflict_do_update`` and ``on_conflict_do_nothing``."""
    if dialect == "sqlite":
        from sqlalchemy.dialects.sqlite import insert
    else:
        from sqlalchemy.dialects.postgresql import insert
    return insert(table)


def upsert(
    connection: Connection,
    table: sa.Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    key: Iterable[str] | None = None,
    update: bool = True,
) -> None:
    """Insert rows; where the key (default: the primary key) is taken, update the row's other columns or leave it.

    ``updated_at``, where the table has one, is set to the database's clock on update.
    """
    if not rows:
        return
    names = tuple(key or [column.name for column in table.primary_key])
    changed = tuple(name for name in rows[0] if name not in names) if update else ()
    connection.execute(_upsertion(connection.dialect.name, table, names, changed), [dict(row) for row in rows])


@lru_cache(maxsize=256)
def _upsertion(dialect: str, table: sa.Table, names: tuple[str, ...], changed: tuple[str, ...]) -> Any:
    statement = _insert_of(dialect, table)
    if not changed:
        return statement.on_conflict_do_nothing(index_elements=names)
    values = {name: statement.excluded[name] for name in changed}
    if "updated_at" in table.c:
        values.setdefault("updated_at", sa.func.now())
    return statement.on_conflict_do_update(index_elements=names, set_=values)


# A holder that is killed without a word on another host is waited for this long.
LEASE_TIME = timedelta(seconds=60)
_RENEWED_EVERY = LEASE_TIME.total_seconds() / 4
# Clocks of hosts that agree no better than this do not agree.
CLOCKS_DIFFER = timedelta(minutes=5)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_SAID_AFTER = 5.0

log = logging.getLogger(__name__)
_held_here: set[str] = set()
# Holder and name of a lease, when it runs out, and since when (``time.monotonic``) that has been so.
_Seen = dict[tuple[str, str, datetime], float]
_STARTED = datetime.now(UTC), time.monotonic()


def pruning_time() -> datetime:
    """Return the moment from which ages are counted of what is dropped for its age.

    A clock that jumps ahead while this process runs makes nothing old: what has passed since the start is measured without it.
    """
    wall, counted = _STARTED
    return min(datetime.now(UTC), wall + timedelta(seconds=time.monotonic() - counted))


@contextmanager
def exclusive(store: Store, names: Collection[str]) -> Iterator[None]:
    """Hold the leases of these names, all or none; waits until whoever holds one of them is done.

    A holder that died is not waited for: at once when it ran on this host, else until its lease has not been renewed for as long as
    the living renew it. Clocks may jump meanwhile: how long that is is counted here, and the clock only says whether it is likely.
    """
    holder = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"
    _held_here.add(holder)
    _acquire(store, sorted(set(names)), holder)
    done = threading.Event()
    renewal = threading.Thread(target=_renew, args=(store, holder, done), name="lease", daemon=True)
    renewal.start()
    try:
        yield
    finally:
        done.set()
        renewal.join()
        _held_here.discard(holder)
        _release(store, holder)


def is_held(store: Store, name: str) -> bool:
    """Return whether somebody works on this just now."""
    row = store.row(sa.select(leases).where(leases.c.name == name))
    if row is None or _is_dead(row.holder):
        return False
    now = datetime.now(UTC)
    # Whoever wrote a later one had a clock that was wrong.
    return now <= row.expires_at <= now + LEASE_TIME + CLOCKS_DIFFER


def _acquire(store: Store, names: list[str], holder: str) -> None:
    pause, began, said, seen = _FIRST_PAUSE, time.monotonic(), False, {}
    while others := _try(store, names, holder, seen):
        if not said and time.monotonic() - began > _SAID_AFTER:
            log.warning("waiting for %s, held by %s", ", ".join(sorted(others)), next(iter(others.values())))
            said = True
        time.sleep(pause)
        pause = min(_LONGEST_PAUSE, pause * 1.5)


def _try(store: Store, names: list[str], holder: str, seen: _Seen) -> dict[str, str]:
    """Take all leases, or none and return who holds those that are taken."""
    now = datetime.now(UTC)
    with store.begin() as connection:
        # In their order, so that no two wait for one another; the database lets one have each.
        rows = [{"name": name, "holder": holder, "expires_at": now + LEASE_TIME} for name in names]
        free = _insert_of(connection.dialect.name, leases).on_conflict_do_nothing().returning(leases.c.name)
        if len(connection.execute(free, rows).all()) == len(names):
            return {}
        connection.execute(sa.delete(leases).where(leases.c.holder == holder))
        others = connection.execute(sa.select(leases).where(leases.c.name.in_(names)).order_by(leases.c.name)).all()
    left = [row for row in others if _is_dead(row.holder) or _is_left(row, now, seen)]
    if len(left) < len(others):
        return {row.name: row.holder for row in others if row not in left}
    with store.begin() as connection:
        for row in left:
            connection.execute(sa.delete(leases).where(*(column == row._mapping[column] for column in leases.c)))
    return _try(store, names, holder, seen)


def _is_left(row: sa.Row[Any], now: datetime, seen: _Seen) -> bool:
    counted = time.monotonic()
    since = seen.setdefault((row.holder, row.name, row.expires_at), counted)
    return counted - since > (2 * _RENEWED_EVERY if row.expires_at < now else LEASE_TIME.total_seconds())


def _release(store: Store, holder: str) -> None:
    try:
        with store.begin() as connection:
            connection.execute(sa.delete(leases).where(leases.c.holder == holder))
    except DBAPIError as error:
        # Whatever went wrong inside is the news; nobody waits for a lease that is not held any more.
        log.warning("a lease could not be given back: %s", error.orig)


def _is_dead(holder: str) -> bool:
    host, pid, _ = holder.rsplit(":", 2)
    if host != socket.gethostname():
        return False
    if int(pid) == os.getpid():
        return holder not in _held_here
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _renew(store: Store, holder: str, done: threading.Event) -> None:
    while not done.wait(_RENEWED_EVERY):
        try:
            with store.begin() as connection:
                own = sa.update(leases).where(leases.c.holder == holder)
                connection.execute(own.values(expires_at=datetime.now(UTC) + LEASE_TIME))
        except DBAPIError as error:
            # The next renewal may reach it; a lease lasts four of them.
            log.warning("a lease could not be renewed: %s", error.orig)
