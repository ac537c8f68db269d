"""A person's data in a world: found in the store, in files and in git; removed from the store."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.files import FileRefusedError, ask_git, read_regular
from persona_pipeline.world.messages.store import Selected, Selection, remove_messages, select_messages

REMOVED = "[removed]"
_MESSAGES = tables.run_messages
# Rows of no worth once something in them is gone: they hold a digest of themselves, or wait for what belongs to them.
_DROPPED = (tables.judgments, tables.trace_pieces)
# Shorter texts are not specific to a person.
_OWN_WORDS, _QUOTED = 20, re.compile(r'"([^"]{12,})"')
_SKIPPED = (".git", ".venv", "__pycache__", "node_modules")
_FILE, _GIT = "change the file and commit it", "rewrite the history, or let the repository go; nobody else can"
_KEY = "a key of other rows, which stays; remove the messages of that channel, or the agent"


@dataclass(frozen=True)
class Mention:
    """A place with a person's data and its count; ``remedy``: the manual step, ``""``: it is removed."""

    where: str
    count: int
    remedy: str = ""


class Person:
    """A person by ids and names: their messages, and other places with their data."""

    def __init__(self, store: Store, names: Sequence[str]) -> None:
        self.store, self.names = store, [name.strip() for name in names]
        if any(len(name) < 2 for name in self.names):
            raise ConfigError("an id or name of one letter stands everywhere; give all of it")
        self._written: list[Selected] = []
        for selection in (Selection(agents=self.names), Selection(speakers=self.names)):
            # A person without messages may be mentioned elsewhere.
            with suppress(ConfigError):
                self._written.append(select_messages(store, selection))
        self.messages = frozenset(name for found in self._written for name in found.ids)
        rows = store.rows(sa.select(_MESSAGES.c.id, _MESSAGES.c.text))
        self._words = "\0".join(row.text for row in rows if row.id in self.messages)
        self._names = re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in self.names), re.IGNORECASE)

    def without(self, value: Any) -> Any:
        """Return a stored value without their names and words, also in a judge's quotes."""
        if isinstance(value, str):
            is_theirs = len(value) >= _OWN_WORDS and value in self._words
            quotes = is_theirs or any(quoted in self._words for quoted in _QUOTED.findall(value))
            return REMOVED if quotes else self._names.sub(REMOVED, value)
        if isinstance(value, list):
            return [self.without(item) for item in value]
        if isinstance(value, dict):
            plain = {key: self.without(item) for key, item in value.items()}
            if value.get("message_id") in self.messages and "quote" in plain:
                plain["quote"] = REMOVED
            return plain
        return value

    def in_store(self, *, remove: bool = False) -> list[Mention]:
        """Return the places in the store, and remove them on request."""
        found = [Mention("store: messages they wrote", len(self.messages))] if self.messages else []
        if remove:
            for selected in self._written:
                remove_messages(self.store, selected)
        with self.store.begin() if remove else self.store.connect() as connection:
            for table in tables.metadata.sorted_tables:
                found += self._in_table(connection, table, remove)
        if remove and self.store.is_sqlite:
            # Deleted data stays readable in the file until its pages are rewritten.
            raw = self.store.engine.raw_connection()
            raw.cursor().execute("VACUUM")
            raw.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
            raw.close()
        return found

    def _in_table(self, connection: Connection, table: sa.Table, remove: bool) -> Iterator[Mention]:
        keys = list(table.primary_key)
        fixed = [column for column in table.c if column.primary_key or column.foreign_keys or column.name == "agent_id"]
        texts = [column for column in table.c if column not in fixed and isinstance(column.type, sa.Text | sa.JSON)]
        changed: dict[str, int] = {}
        for row in connection.execute(sa.select(table)).mappings().all():
            if table is _MESSAGES and row["id"] in self.messages:
                continue
            held = [column.name for column in fixed if self._names.search(str(row[column.name] or ""))]
            new = {column.name: now for column in texts if (now := self.without(row[column.name])) != row[column.name]}
            for name in (*held, *new):
                changed[name] = changed.get(name, 0) + 1
            if not remove or not new or not keys:
                continue
            this = sa.and_(*(column == row[column.name] for column in keys))
            dropped = table in _DROPPED
            connection.execute(sa.delete(table).where(this) if dropped else sa.update(table).where(this).values(new))
        kept = {column.name for column in fixed}
        for name, count in changed.items():
            yield Mention(f"store: {table.name}.{name}", count, _KEY if name in kept else "")

    def in_files(self, root: Path) -> Iterator[Mention]:
        """Yield the files of a world that mention them, without links."""
        for folder, folders, files in os.walk(root):
            folders[:] = sorted(name for name in folders if name not in _SKIPPED)
            for name in sorted(files):
                path = Path(folder, name)
                if path.is_symlink() or name.startswith("store.db"):
                    continue
                shown = path.relative_to(root).as_posix()
                try:
                    text = read_regular(path).decode("utf-8", "replace")
                except FileRefusedError as error:
                    yield Mention(shown, 0, f"not looked into: {error.strerror}")
                    continue
                if count := sum(self.without(line) != line for line in text.split("\n")):
                    yield Mention(shown, count, _FILE)

    def in_history(self, root: Path) -> Iterator[Mention]:
        """Yield the number of commits that add or remove one of their names; nothing without git."""
        for name in self.names:
            try:
                told = ask_git(root, "log", "--all", "--format=%h", "-i", f"-G{re.escape(name)}", "--", ".").split()
            except ConfigError:
                return
            if told:
                yield Mention(f"git: {name}", len(told), _GIT)
