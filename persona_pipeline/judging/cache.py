"""Judgments that were paid for, by all that could have changed them, each committed when it is obtained."""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from persona_pipeline.base.database.engine import Store, upsert
from persona_pipeline.base.database.tables import judgments
from persona_pipeline.base.documents.json import canonical_json, content_hash
from persona_pipeline.judging.verdict import Answer, KeptQuestion, Question, Usage

log = logging.getLogger(__name__)

# Bound parameters of one statement: SQLite takes 32,766, older builds 999.
_CHUNK = 500
_ENDPOINT = "endpoint"
_BATCH, _UNCHARGED = "batch", "uncharged"
# Servers are upgraded; what one rejected is tried again after this.
_REJECTION_LASTS = timedelta(days=7)


class JudgmentCache:
    """The table ``judgments``. Only valid answers are kept, so no failure is ever replayed.

    Args:
        anew: what is kept is not read, only replaced.
    """

    def __init__(self, store: Store, *, anew: bool = False) -> None:
        self.store = store
        self.anew = anew

    def find(self, wanted: Iterable[tuple[str, Question]]) -> dict[str, Answer]:
        """Return cached answers by key. A damaged entry, or one not valid any more, is a miss and a warning."""
        questions = {} if self.anew else dict(wanted)
        found: dict[str, Answer] = {}
        keys = list(questions)
        # As text, so that a row whose JSON is damaged can be told from the rest.
        answer = sa.cast(judgments.c.answer, sa.Text)
        columns = (judgments.c.key, answer, judgments.c.model, judgments.c.prompt_version)
        with self.store.connect() as connection:
            for start in range(0, len(keys), _CHUNK):
                chosen = judgments.c.key.in_(keys[start : start + _CHUNK])
                for key, stored, model, prompt_version in connection.execute(sa.select(*columns).where(chosen)):
                    try:
                        data = unpack_answer(stored)
                        problem = questions[key].problem(data)
                    except ValueError as error:
                        problem, data = str(error), {}
                    if problem:
                        log.warning("cached judgment %s is ignored and asked again: %s", key[:12], problem)
                        continue
                    found[key] = Answer(data, model=model, prompt_version=prompt_version, cached=True)
        return found

    def charge(self, keys: Iterable[str]) -> dict[str, Usage]:
        """Return what answers cost that a message batch brought and that no evaluation has used so far; from now on one has."""
        wanted, due = list(keys), {}
        with self.store.begin() as connection:
            for start in range(0, len(wanted), _CHUNK):
                chosen = judgments.c.key.in_(wanted[start : start + _CHUNK])
                query = sa.select(judgments.c.key, judgments.c.token_usage, judgments.c.usd).where(chosen)
                for key, tokens, usd in connection.execute(query).all():
                    if (tokens or {}).get(_BATCH) != _UNCHARGED:
                        continue
                    counts = {name: count for name, count in tokens.items() if name != _BATCH}
                    due[key] = Usage(**counts, usd=usd)
                    charged = judgments.update().where(judgments.c.key == key)
                    connection.execute(charged.values(token_usage={**counts, _BATCH: "charged"}))
        return due

    def put(self, key: str, question: KeptQuestion, answer: Answer, *, batch: bool = False) -> None:
        """Keep a valid answer, committed on return. A database that fails costs a warning, not the answer.

        Args:
            batch: a message batch brought it; whoever uses it first is charged for it.
        """
        if answer.data is None:
            raise ValueError("only valid answers are cached")
        row = {
            "key": key,
            "subject_key": question.subject_key,
            "kind": question.kind,
            "agent_id": question.agent_id or None,
            "model": answer.model or "",
            "prompt_version": answer.prompt_version or "",
            "answer": _pack(answer.data),
            "token_usage": _tokens(answer.usage) | ({_BATCH: _UNCHARGED} if batch else {}),
            "usd": answer.usage.usd,
        }
        try:
            self._write(row)
        except SQLAlchemyError as error:
            log.warning("judgment of %s was not cached: %s", question.label, type(error).__name__)

    def rejects_structured_output(self, base_url: str, model: str) -> bool:
        """Whether the endpoint is known to reject ``output_config`` for a model."""
        query = sa.select(judgments.c.created_at).where(judgments.c.key == _endpoint_key(base_url, model))
        with self.store.connect() as connection:
            noted = connection.execute(query).scalar_one_or_none()
        return noted is not None and datetime.now(UTC) - noted < _REJECTION_LASTS

    def note_rejection(self, base_url: str, model: str) -> None:
        """Remember that the endpoint rejects ``output_config`` for a model."""
        key = _endpoint_key(base_url, model)
        self.note(key, _ENDPOINT, model, "", {"structured_output": False})

    def note(self, key: str, kind: str, model: str, prompt_version: str, answer: Mapping[str, Any]) -> None:
        """Remember something of a model that is no judgment. A database that fails costs a warning."""
        row = {
            "key": key,
            "subject_key": key,
            "kind": kind,
            "agent_id": None,
            "model": model,
            "prompt_version": prompt_version,
            "answer": dict(answer),
            "token_usage": None,
            "usd": None,
        }
        try:
            self._write(row)
        except SQLAlchemyError as error:
            log.warning("%s of %s was not remembered: %s", kind, model, type(error).__name__)

    def _write(self, row: Mapping[str, Any]) -> None:
        with self.store.begin() as connection:
            upsert(connection, judgments, [{**row, "created_at": datetime.now(UTC)}])


def _pack(data: Any) -> dict[str, str]:
    # As text: JSONB takes neither NUL nor lone surrogates, and the digest tells a damaged row from a sound one.
    text = canonical_json(data)
    return {"json": text, "sha256": hashlib.sha256(text.encode("ascii")).hexdigest()}


def unpack_answer(column: str) -> Any:
    """Return the answer of a row of ``judgments``, its JSON column read as text.

    Raises:
        ValueError: the row is damaged.
    """
    stored = json.loads(column)
    if not isinstance(stored, dict) or not isinstance(stored.get("json"), str):
        raise ValueError("it has no answer")
    text = stored["json"]
    if hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() != stored.get("sha256"):
        raise ValueError("its checksum is wrong")
    return json.loads(text)


def _tokens(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_creation_tokens": usage.cache_creation_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "calls": usage.calls,
    }


def _endpoint_key(base_url: str, model: str) -> str:
    return content_hash({"endpoint": base_url, "model": model})


ABILITY = "ability"


@dataclass(frozen=True)
class Abilities:
    """What the store knows of judges by model and prompt version."""

    store: Store

    def unable(self, models: Iterable[str], prompt_versions: Iterable[str]) -> list[str]:
        """Return those of these models that were found unable to judge with one of these prompts."""
        prompts = list(prompt_versions)
        asked = {_key(model, prompt): model for model in models for prompt in prompts}
        if not asked:
            return []
        query = sa.select(judgments.c.key, judgments.c.answer).where(judgments.c.key.in_(asked))
        with self.store.connect() as connection:
            rows = connection.execute(query).all()
        return sorted({asked[key] for key, answer in rows if not answer.get("able", True)})

    def note(self, models: Iterable[str], prompt_version: str, *, able: bool) -> None:
        """Keep what was found of a model, under the name it was asked by and the one it answered with."""
        for model in set(models):
            key = _key(model, prompt_version)
            JudgmentCache(self.store).note(key, ABILITY, model, prompt_version, {"able": able})


def _key(model: str, prompt_version: str) -> str:
    return content_hash([ABILITY, model, prompt_version])
