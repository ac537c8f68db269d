"""Message files as this project writes them, and any others whose keys are mapped to theirs: JSON lines or CSV."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.importing.base import Found, Importer, ReadOptions, Source
from persona_pipeline.importing.records import first_records
from persona_pipeline.world.messages.files import ENDINGS, REQUIRED, MessageFile, parse_message
from persona_pipeline.world.models import Message


class OwnMessages(Importer):
    """Lines with id, agent_id, channel or recipient, text and created_at, whatever else they have."""

    name: ClassVar[str] = "messages"
    about: ClassVar[str] = "JSON lines or CSV with id, agent_id, channel or recipient, text, created_at"

    def recognises(self, source: Source) -> bool:
        if source.is_folder or source.path.suffix.lower() not in ENDINGS:
            return False
        text, found = source.beginning.strip(), first_records(source)
        return not text or any(len(record.keys() & set(REQUIRED)) > 2 for record in found)

    def may_be(self, source: Source, *, mapped: bool) -> bool:
        """Return whether lines of a file that is of no other format are worth naming one by one."""
        if source.is_folder or source.path.suffix.lower() not in ENDINGS:
            return False
        found = first_records(source)
        return mapped or not found or any(record.keys() & set(REQUIRED) for record in found)

    def rows(self, file: Source, options: ReadOptions) -> Iterator[Found]:
        def parse(record: Any) -> Message:
            if options.fields and isinstance(record, dict):
                taken = set(options.fields)
                record = {**{key: item for key, item in record.items() if key not in taken}, **options.given(record)}
            return parse_message(record)

        try:
            with MessageFile(file.path, mapped=options.fields) as opened:
                opened.require_text()
                yield from opened.rows(parse)
        except ConfigError as error:
            raise ConfigError([replace(problem, path=file.name) for problem in error.problems]) from error
