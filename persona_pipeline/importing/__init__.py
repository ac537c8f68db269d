"""Messages from what other programs export. Another package adds a format by entry point ``persona_pipeline.importers``."""

from persona_pipeline.importing.base import Found, Importer, ReadOptions, Skipped, Source

__all__ = ["Found", "Importer", "ReadOptions", "Skipped", "Source"]
