"""The database: SQLite by default, Postgres by URL."""

from persona_pipeline.store.engine import Store, default_url, normalise_url, open_store
from persona_pipeline.store.rows import MOST_NAMED, among, upsert

__all__ = ["MOST_NAMED", "Store", "among", "default_url", "normalise_url", "open_store", "upsert"]
