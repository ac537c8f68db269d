"""Lines that begin or end as another's do are found without reading what everybody said."""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_TABLE = "run_messages"
_PARTS = {
    "opening": "substr(text, 1, 16)",
    "ending": "CASE WHEN length(text) > 16 THEN substr(text, length(text) - 15) ELSE text END",
}


def upgrade() -> None:
    # Indexes that are only named know nothing of the map that takes the schema away on SQLite.
    table = _TABLE if op.get_bind().dialect.name == "sqlite" else f"persona.{_TABLE}"
    for name, part in _PARTS.items():
        op.execute(f"CREATE INDEX ix_{_TABLE}_{name} ON {table} (({part}), created_at)")


def downgrade() -> None:
    schema = "" if op.get_bind().dialect.name == "sqlite" else "persona."
    for name in _PARTS:
        op.execute(f"DROP INDEX {schema}ix_{_TABLE}_{name}")
