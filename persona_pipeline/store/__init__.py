"""The database: SQLite by default, Postgres by URL."""

from persona_pipeline.store.engine import Store, default_url, normalise_url, open_store
from persona_pipeline.store.rows import upsert

__all__ = ["Store", "default_url", "normalise_url", "open_store", "upsert"]
