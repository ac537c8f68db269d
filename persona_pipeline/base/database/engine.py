"""The store: SQLite by default, Postgres by URL, brought to the newest schema when it is opened; locks that exclude others."""

import hashlib
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from filelock import FileLock, Timeout
from sqlalchemy import event, exc
from sqlalchemy.engine import URL, Connection, Engine, make_url

from persona_pipeline.base.database.schema import create_triggers, migrate
from persona_pipeline.base.database.tables import HEAD, SCHEMA, metadata
from persona_pipeline.base.errors import ConfigError, NewerStoreError
from persona_pipeline.base.settings import Settings
from persona_pipeline.base.text import storable_data, storable_json

# The one of release 0.2 is the oldest that is migrated.
_OLDEST = "0010"
_REVISION = sa.Table(
    "alembic_version", sa.MetaData(schema=SCHEMA), sa.Column("version_num", sa.String(32), primary_key=True)
)


def current_revision(connection: Connection) -> str | None:
    """Return the schema's revision, None for an empty database."""
    schema = None if connection.dialect.name == "sqlite" else SCHEMA
    if not sa.inspect(connection).has_table("alembic_version", schema=schema):
        return None
    # The schema is named because the connection may lack the store's map of schemas.
    table = sa.table("alembic_version", sa.column("version_num"), schema=schema)
    return connection.execute(sa.select(table.c.version_num)).scalar()


def upgrade(store: "Store") -> None:
    """Run the pending migrations, or make all tables in an empty database; ``NewerStoreError``: a newer version wrote it."""
    with store.connect() as connection:
        revision = current_revision(connection)
    if revision == HEAD:
        return
    _refuse_newer(revision)
    with exclusive(store, ["schema"]), store.begin() as connection:
        if not store.is_sqlite:
            connection.execute(sa.schema.CreateSchema(SCHEMA, if_not_exists=True))
        revision = current_revision(connection)
        # Another process may have migrated it meanwhile.
        _refuse_newer(revision)
        if revision == HEAD:
            return
        if revision is None:
            metadata.create_all(connection)
            create_triggers(connection)
        else:
            migrate(connection)
        write_revision(connection, HEAD)


def write_revision(connection: Connection, revision: str) -> None:
    """Note the schema's revision, where earlier releases have it too."""
    _REVISION.create(connection, checkfirst=True)
    connection.execute(sa.delete(_REVISION))
    connection.execute(sa.insert(_REVISION).values(version_num=revision))


def _refuse_newer(revision: str | None) -> None:
    if revision is not None and revision > HEAD:
        raise NewerStoreError(
            f"the store's schema is {revision}, newer than this version's {HEAD}, and is left as it is; upgrade persona-pipeline, "
            "or name another store with PERSONA_DATABASE_URL (a backup from before the upgrade can be read by this version)"
        )
    if revision is not None and revision < _OLDEST:
        raise ConfigError(
            f"the store's schema {revision} is older than release 0.2; open it once with version 0.2.0, or name a new store with "
            "PERSONA_DATABASE_URL"
        )


# Bounds how long a writer waits for another on SQLite before `database is locked`.
SQLITE_BUSY_SECONDS = 30
# Limits after which a vanished server is noticed: 10 s to connect, a minute of waiting, 30 s (in milliseconds) of sending.
_POSTGRES_CONNECTION = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}

# SQLite's messages about a full or failing disk, which no setting can fix.
_OF_THE_MACHINE = ("disk I/O error", "disk is full", "readonly database")
# Primary result codes by which SQLite itself calls a file damaged.
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class _Held(threading.local):
    """The connection that a thread shares, its number of current readers, and whether one of its users writes."""

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
        """Share one connection in this thread.

        All reads see the same moment until something is written. Writing inside ``begin()`` joins that transaction.
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
            # Open readers keep their view, so the write gets another connection.
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
    store = Store(engine)
    try:
        if migrate:
            upgrade(store)
    except exc.OperationalError as error:
        reason = str(error.orig).strip().splitlines()[0] if error.orig else "no reason given"
        if any(word in reason for word in _OF_THE_MACHINE):
            raise
        raise ConfigError(
            f"the store at {url.render_as_string(hide_password=True)} cannot be opened ({reason}); "
            "check PERSONA_DATABASE_URL and that the server runs"
        ) from error
    return store


def _postgres_engine(url: URL) -> Engine:
    # What the URL says about connections goes before ours.
    limits = {name: value for name, value in _POSTGRES_CONNECTION.items() if name not in url.query}
    return sa.create_engine(url, connect_args=limits, json_serializer=_json_to_store, pool_pre_ping=True)


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
        # The hook below issues BEGIN, because pysqlite starts writers as readers, which fail at once when they upgrade.
        connection.isolation_level = None
        cursor = connection.cursor()
        # Of two connections that switch a new file to a write-ahead log, SQLite refuses one at once, despite its timeout.
        with suppress(sqlite3.OperationalError):
            cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("writes") else "BEGIN")

    return engine


# Parameters of a statement: SQLite takes 32,766, older builds 999.
MOST_NAMED = 500


def chunks(values: Sequence[str], size: int = MOST_NAMED) -> Iterator[Sequence[str]]:
    """Yield values in parts, by default as large as one statement can name."""
    return (values[start : start + size] for start in range(0, len(values), size))


def among(column: sa.ColumnElement[Any], values: Collection[Any]) -> sa.ColumnElement[bool]:
    """Return the condition that a column has one of some values. For very many values it is always true: the caller filters."""
    return column.in_(list(values)) if len(values) <= MOST_NAMED else sa.true()


def upsert(
    connection: Connection,
    table: sa.Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    key: Iterable[str] | None = None,
    update: bool = True,
    add: bool = False,
) -> None:
    """Insert rows; where the key (default: the primary key) is taken, update the row's other columns or leave it.

    ``add``: add numbers to those that are there. ``updated_at`` is set to the database's clock on update.
    """
    if not rows:
        return
    statement = _upsert(connection.dialect.name, table, tuple(rows[0]), tuple(key or ()), update, add)
    connection.execute(statement, [dict(row) for row in rows])


# Making a statement takes as long as executing it for one row.
@lru_cache(maxsize=256)
def _upsert(
    dialect: str, table: sa.Table, columns: tuple[str, ...], key: tuple[str, ...], update: bool, add: bool
) -> Any:
    names = key or tuple(column.name for column in table.primary_key)
    # Only the INSERT of a dialect knows conflicts.
    statement: Any = import_module(f"sqlalchemy.dialects.{dialect}").insert(table)
    new = {name: statement.excluded[name] for name in columns if name not in names} if update else {}
    if not new:
        return statement.on_conflict_do_nothing(index_elements=names)
    values = {name: table.c[name] + value if add else value for name, value in new.items()}
    now = {"updated_at": sa.func.now()} if "updated_at" in table.c else {}
    return statement.on_conflict_do_update(index_elements=names, set_=now | values)


def differing(
    connection: Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]], key: str = "id"
) -> list[Mapping[str, Any]]:
    """Return those of some rows that the table does not have just so; ``key``: the column by which they are found."""
    if not rows:
        return []
    query = sa.select(table).where(among(table.c[key], {row[key] for row in rows}))
    known = {row[key]: row for row in connection.execute(query).mappings()}
    here = [(row, known.get(row[key])) for row in rows]
    return [row for row, own in here if own is None or any(own[name] != value for name, value in row.items())]


# Clocks of hosts that agree no better than this do not agree.
CLOCKS_DIFFER = timedelta(minutes=5)

log = logging.getLogger(__name__)
_STARTED = datetime.now(UTC), time.monotonic()


def pruning_time() -> datetime:
    """Return the moment from which ages are counted when old rows are dropped.

    A clock that jumps ahead while this process runs makes nothing old: time since the start is measured without it.
    """
    wall, counted = _STARTED
    return min(datetime.now(UTC), wall + timedelta(seconds=time.monotonic() - counted))


# Lock files of a kind next to a SQLite store: a run over thousands of agents holds few files open.
_LOCK_FILES = 64
_SAID_AFTER = 5.0
# Half a minute after a holder's host vanished, the server closes its connection, which frees its locks.
_NOTICED = "SET tcp_keepalives_idle = 15; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"


@contextmanager
def exclusive(store: Store, names: Collection[str]) -> Iterator[None]:
    """Hold the locks of all these names; wait until their holders are done.

    They are file locks next to SQLite's file, and advisory locks on Postgres. Both are free when their holder dies. All callers
    take them in the same order, which excludes deadlocks.
    """
    said = threading.Timer(_SAID_AFTER, log.warning, ("waiting until %s is free", ", ".join(sorted(names))))
    said.daemon = True
    with ExitStack() as held:
        said.start()
        try:
            if store.is_sqlite:
                for lock in _file_locks(store, names):
                    held.enter_context(lock.acquire())
            else:
                connection = held.enter_context(store.engine.connect())
                connection.execution_options(isolation_level="AUTOCOMMIT")
                # It is closed in the end, not given back, and its locks end with it.
                connection.detach()
                connection.execute(sa.text(_NOTICED))
                for key in sorted({_key(name) for name in names}):
                    connection.execute(sa.select(sa.func.pg_advisory_lock(key)))
        finally:
            said.cancel()
        yield


def is_held(store: Store, name: str) -> bool:
    """Return whether a lock is held."""
    if not store.is_sqlite:
        # On a separate connection: the lock is free again when its transaction ends.
        with store.engine.connect() as connection:
            return not connection.execute(sa.select(sa.func.pg_try_advisory_xact_lock(_key(name)))).scalar()
    for lock in _file_locks(store, [name]):
        try:
            with lock.acquire(timeout=0):
                pass
        except Timeout:
            return True
    return False


def _file_locks(store: Store, names: Collection[str]) -> Iterator[FileLock]:
    """Yield the locks of some names in their order; none for a database in memory, which no other process sees."""
    database = store.engine.url.database
    if not database or database == ":memory:":
        return
    # Names of different kinds never share a file: the holder of a lock may take one of another kind.
    shared = {f"{'-'.join(name.partition('/')[0].split())}-{_key(name) % _LOCK_FILES:02}" for name in names}
    for name in sorted(shared):
        yield FileLock(f"{database}.{name}.lock")


def _key(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
