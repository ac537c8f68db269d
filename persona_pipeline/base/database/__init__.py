"""The database: SQLite by default, Postgres by URL."""
