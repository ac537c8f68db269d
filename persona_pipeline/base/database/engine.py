"""Opening the store: SQLite by default, Postgres by URL, migrated to the newest schema when it is opened."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.engine import URL, Connection, Engine, make_url

from persona_pipeline.base.database.migrate import upgrade
from persona_pipeline.base.database.tables import SCHEMA
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import Settings, get_settings

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


# What SQLite says of a disk that is full or fails; no setting mends that.
_OF_THE_MACHINE = ("disk I/O error", "disk is full", "readonly database")


class Store:
    """A database with the project's tables. One instance a process and URL; connections are pooled.

    Use ``begin()`` for one transaction (commit at the end, roll back on an error) and ``connect()`` to read.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._writer = engine.execution_options(writes=True)

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        with self._writer.begin() as connection:
            yield connection

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        with self.engine.connect() as connection:
            yield connection

    def insert(self, table: sa.Table) -> Any:
        """Return an INSERT of this dialect, which knows ``on_conflict_do_update`` and ``on_conflict_do_nothing``."""
        if self.is_sqlite:
            from sqlalchemy.dialects.sqlite import insert
        else:
            from sqlalchemy.dialects.postgresql import insert
        return insert(table)

    def close(self) -> None:
        self.engine.dispose()


def default_url(settings: Settings) -> URL:
    """Return the store's URL: ``PERSONA_DATABASE_URL``, else SQLite in the world's ``.persona`` folder."""
    if settings.database_url is None:
        return URL.create("sqlite", database=str(settings.world_root / ".persona" / "store.db"))
    return normalise_url(settings.database_url.get_secret_value())


def normalise_url(text: str) -> URL:
    """Return the URL with psycopg 3 as the driver of a bare Postgres URL.

    Raises:
        ConfigError: the text is no database URL, or names a database other than SQLite and Postgres.
    """
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


def open_store(url: URL | str | None = None, *, migrate: bool = True) -> Store:
    """Open the store and bring its schema up to date.

    Args:
        url: the database; by default what the settings say.
        migrate: run pending migrations first.

    Raises:
        ConfigError: the URL is not usable or the database cannot be reached.
    """
    if url is None:
        url = default_url(get_settings())
    elif isinstance(url, str):
        url = normalise_url(url)
    engine = _sqlite_engine(url) if url.get_backend_name() == "sqlite" else _postgres_engine(url)
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
    return sa.create_engine(url, pool_pre_ping=True, connect_args=limits)


def _sqlite_engine(url: URL) -> Engine:
    if url.database and url.database != ":memory:":
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine(
        url,
        connect_args={"timeout": SQLITE_BUSY_SECONDS},
        execution_options={"schema_translate_map": {SCHEMA: None}},
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        # The hook below issues BEGIN: pysqlite would start writers as readers, which fail at once when they upgrade.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("writes") else "BEGIN")

    return engine


# Bound parameters of one statement: SQLite takes 32,766, older builds 999.
MOST_NAMED = 500


def among(column: sa.ColumnElement[Any], values: Collection[Any]) -> sa.ColumnElement[bool]:
    """Return the condition that a column has one of some values; of very many the caller sorts out itself which rows it wants."""
    return column.in_(list(values)) if len(values) <= MOST_NAMED else sa.true()


def upsert(
    store: Store,
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
    names = list(key or [column.name for column in table.primary_key])
    statement = store.insert(table)
    changed = {name: statement.excluded[name] for name in rows[0] if name not in names}
    if update and changed:
        if "updated_at" in table.c and "updated_at" not in changed:
            changed["updated_at"] = sa.func.now()
        statement = statement.on_conflict_do_update(index_elements=names, set_=changed)
    else:
        statement = statement.on_conflict_do_nothing(index_elements=names)
    connection.execute(statement, [dict(row) for row in rows])
