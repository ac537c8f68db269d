"""Answers of judges in the store, by a digest of everything that could change them."""

import asyncio
import hashlib
import json
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from persona_pipeline.base.database.engine import Store, chunks, upsert
from persona_pipeline.base.database.tables import judgments
from persona_pipeline.base.documents.json import canonical_json, content_hash, strict_json
from persona_pipeline.judging.verdict import Answer, Question, Usage
from persona_pipeline.world.models import grouped

log = logging.getLogger(__name__)

_C = judgments.c
# As text, so that a row with damaged JSON does not fail the whole query.
_ANSWER = sa.cast(_C.answer, sa.Text).label("answer")
_BATCH, _UNCHARGED = "batch", "uncharged"
# Servers are upgraded; what one rejected is tried again after this.
_REJECTION_LASTS = timedelta(days=7)


class JudgmentCache:
    """The table ``judgments``. Only valid answers are kept, so failures are never replayed. ``anew`` ignores stored answers."""

    def __init__(self, store: Store, *, anew: bool = False) -> None:
        self.store = store
        self.anew = anew
        self._unwritten: deque[tuple[str, dict[str, Any]]] = deque()
        self.writer: ThreadPoolExecutor = ThreadPoolExecutor(1, "judgments")

    def find(self, wanted: Iterable[tuple[str, Question]]) -> dict[str, Answer]:
        """Return cached answers by key. A damaged entry, or one not valid any more, is a miss and a warning."""
        questions = {} if self.anew else dict(wanted)
        found: dict[str, Answer] = {}
        for row in _rows(self.store, list(questions), _ANSWER, _C.model, _C.prompt_version):
            try:
                data = _unpacked(row.answer)
                problem = questions[row.key].problem(data)
            except ValueError as error:
                problem, data = str(error), {}
            if problem:
                log.warning("cached judgment %s is ignored and asked again: %s", row.key[:12], problem)
                continue
            found[row.key] = Answer(data, model=row.model, prompt_version=row.prompt_version, cached=True)
        return found

    def keys(self, kind: str) -> dict[str, list[str]]:
        """Return the keys of answers of a kind by what they are about, in the order in which they were given."""
        query = sa.select(_C.subject_key, _C.key).where(_C.kind == kind).order_by(_C.created_at, _C.key)
        rows = grouped(self.store.rows(query), lambda row: row.subject_key)
        return {subject_key: [row.key for row in own] for subject_key, own in rows.items()}

    def answers(self, keys: Sequence[str]) -> Iterator[tuple[str, Answer]]:
        """Yield the keys and answers that are there, unchecked. Damaged ones are left out: ``find`` warns of them."""
        for row in _rows(self.store, keys, _ANSWER, _C.model, _C.prompt_version):
            with suppress(ValueError):
                data = _unpacked(row.answer)
                yield row.key, Answer(data, model=row.model, prompt_version=row.prompt_version, cached=True)

    def charge(self, keys: Iterable[str]) -> dict[str, Usage]:
        """Return the cost of answers from message batches that no evaluation has used yet, and mark them as used."""
        due = {}
        with self.store.begin() as connection:
            for row in _rows(connection, list(keys), _C.token_usage, _C.usd):
                if (row.token_usage or {}).get(_BATCH) != _UNCHARGED:
                    continue
                counts = {name: count for name, count in row.token_usage.items() if name != _BATCH}
                due[row.key] = Usage(**counts, usd=row.usd)
                charged = judgments.update().where(_C.key == row.key)
                connection.execute(charged.values(token_usage={**counts, _BATCH: "charged"}))
        return due

    def put(self, key: str, question: Question, answer: Answer, *, batched_as: str | None = None) -> None:
        """Keep a valid answer, committed on return. A database that fails costs a warning, not the answer.

        ``batched_as``: the question's own key, where the answer came from a message batch. Its first user is charged for it.
        """
        self._write([_judgment(key, question, answer, batched_as)])

    async def keep(self, key: str, question: Question, answer: Answer) -> None:
        """Keep a valid answer as ``put`` does, off the event loop. Answers that arrive during a write share the next.

        Cancelling the caller does not stop the write; ``flush`` waits for it.
        """
        self._unwritten.append(_judgment(key, question, answer))
        await asyncio.shield(asyncio.wrap_future(self.writer.submit(self._write_all)))

    def flush(self) -> None:
        """Wait until all that is to be kept is committed."""
        self.writer.submit(self._write_all).result()

    def _write_all(self) -> None:
        rows = []
        with suppress(IndexError):
            while True:
                rows.append(self._unwritten.popleft())
        if rows:
            self._write(rows)

    def rejects_structured_output(self, base_url: str, model: str) -> bool:
        """Whether the endpoint is known to reject ``output_config`` for a model."""
        query = sa.select(_C.created_at).where(_C.key == _endpoint_key(base_url, model))
        with self.store.connect() as connection:
            noted = connection.execute(query).scalar_one_or_none()
        return noted is not None and abs(datetime.now(UTC) - noted) < _REJECTION_LASTS

    def note_rejection(self, base_url: str, model: str) -> None:
        """Remember that the endpoint rejects ``output_config`` for a model."""
        key = _endpoint_key(base_url, model)
        row = dict.fromkeys(("agent_id", "token_usage", "usd"), None) | {
            **{"key": key, "subject_key": key, "kind": "endpoint", "model": model, "prompt_version": ""},
            **{"answer": {"structured_output": False}, "created_at": datetime.now(UTC)},
        }
        self._write([(f"what {base_url} rejects was not remembered", row)])

    def _write(self, rows: Sequence[tuple[str, dict[str, Any]]]) -> None:
        try:
            with self.store.begin() as connection:
                upsert(connection, judgments, [row for _, row in rows])
        except SQLAlchemyError as error:
            for lost, _ in rows:
                log.warning("%s: %s", lost, type(error).__name__)


def _judgment(
    key: str, question: Question, answer: Answer, batched_as: str | None = None
) -> tuple[str, dict[str, Any]]:
    """Return the warning for a failed write, and the row of an answer; ``ValueError``: the answer is a failure."""
    if answer.data is None:
        raise ValueError("only valid answers are cached")
    tokens = {name: count for name, count in asdict(answer.usage).items() if name != "usd"}
    return f"judgment of {question.label} was not cached", {
        "key": key,
        "subject_key": batched_as or question.key,
        "kind": question.kind,
        "agent_id": question.agent_id or None,
        "model": answer.model or "",
        "prompt_version": answer.prompt_version or "",
        "answer": _packed(answer.data),
        "token_usage": tokens | ({_BATCH: _UNCHARGED} if batched_as else {}),
        "usd": answer.usage.usd,
        "created_at": datetime.now(UTC),
    }


def _rows(source: Store | Connection, keys: Sequence[str], *columns: sa.ColumnElement[Any]) -> Iterator[sa.Row[Any]]:
    query = sa.select(_C.key, *columns)
    with source.connect() if isinstance(source, Store) else nullcontext(source) as connection:
        for some in chunks(keys):
            yield from connection.execute(query.where(_C.key.in_(some))).all()


def _packed(data: Any) -> dict[str, str]:
    # As text, because JSONB changes keys and numbers. The digest detects damaged rows.
    text = canonical_json(data)
    return {"json": text, "sha256": hashlib.sha256(text.encode("ascii")).hexdigest()}


def _unpacked(column: str) -> Any:
    """Return the answer of a row, its JSON column read as text; raise ``ValueError`` where the row is damaged."""
    stored = json.loads(column)
    if not isinstance(stored, dict) or not isinstance(stored.get("json"), str):
        raise ValueError("it has no answer")
    text = stored["json"]
    if hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() != stored.get("sha256"):
        raise ValueError("its checksum is wrong")
    # Kept by earlier releases with texts that are not storable.
    return strict_json(text)


def _endpoint_key(base_url: str, model: str) -> str:
    return content_hash({"endpoint": base_url, "model": model})
