"""Alembic's entry point. ``store.migrate`` passes the connection; ``alembic revision`` is run through ``store.migrate`` too."""

from alembic import context

from persona_pipeline.base.database.tables import SCHEMA, metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    include_schemas=True,
    version_table_schema=None if connection.dialect.name == "sqlite" else SCHEMA,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
