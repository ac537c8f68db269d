"""Writing rows idempotently."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.store.engine import Store

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
