"""Column types that mean the same on SQLite and Postgres."""

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

JsonColumn = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
TextArray = sa.JSON().with_variant(ARRAY(sa.Text()), "postgresql")


class UtcDateTime(sa.TypeDecorator[datetime]):
    """``timestamptz``; SQLite keeps UTC. Naive times are refused, so that no machine's zone slips in."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"time {value} has no offset")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Any) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class random_uuid(FunctionElement[Any]):  # noqa: N801 - reads as the SQL function it is
    """The server's own random uuid, as a column default."""

    type = sa.Uuid()
    inherit_cache = True


@compiles(random_uuid, "postgresql")
def _postgres_uuid(element: Any, compiler: Any, **options: Any) -> str:
    return "gen_random_uuid()"


@compiles(random_uuid, "sqlite")
def _sqlite_uuid(element: Any, compiler: Any, **options: Any) -> str:
    return "(lower(hex(randomblob(16))))"
