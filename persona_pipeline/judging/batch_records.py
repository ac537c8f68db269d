"""What is known of message batches: the table ``judge_batches``."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.judging.answers import proposition_problem
from persona_pipeline.judging.prompt import SCHEMA
from persona_pipeline.judging.questions import Question, schema_problem
from persona_pipeline.judging.verdict import Unscored
from persona_pipeline.store.engine import Store
from persona_pipeline.store.tables import SCHEMA as DATABASE_SCHEMA
from persona_pipeline.store.tables import judge_batches

SUBMITTING, SUBMITTED, COLLECTED, FAILED = "submitting", "submitted", "collected", "failed"


@dataclass(frozen=True)
class BatchedRequest:
    """What must be known of a question when its answer comes back. ``key`` is the judgment's and the custom id."""

    key: str
    subject_key: str
    kind: str
    label: str
    agent_id: str
    dimension: str
    mechanism: str
    prompt_version: str
    proposition_ids: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, key: str, question: Question) -> "BatchedRequest":
        is_proposition = question.schema == SCHEMA
        members = question.subject.get("requests", [question.subject]) if is_proposition else []
        return cls(
            key=key,
            subject_key=question.key,
            kind=question.kind,
            label=question.label,
            agent_id=question.agent_id,
            dimension=question.dimension,
            mechanism=question.mechanism,
            prompt_version=question.prompt_version,
            proposition_ids=tuple(member["proposition_id"] for member in members),
            schema=None if is_proposition else question.schema,
        )

    def problem(self, data: Any) -> str | None:
        """Return what makes parsed JSON no valid answer, or None. A question's own further check is made on reading."""
        if self.schema is None:
            return proposition_problem(data, self.proposition_ids)
        return schema_problem(self.schema, data)


@dataclass(frozen=True)
class BatchSummary:
    """How a batch ended.

    Attributes:
        answered: valid answers that are now among the judgments.
        unscored: reason and detail of the others, by key; they can be submitted again.
        usd: price of the answers, None when one is unknown.
    """

    batch_id: str
    answered: int = 0
    unscored: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = 0.0
    cache_creation_tokens: int = 0
    cache_read_tokens: int = 0

    @property
    def reasons(self) -> dict[str, int]:
        """How many requests are unscored, by reason."""
        counts: dict[str, int] = {}
        for reason, _ in self.unscored.values():
            counts[reason] = counts.get(reason, 0) + 1
        return counts


@dataclass(frozen=True)
class BatchRecord:
    """A row: a batch that is being submitted, submitted, collected, or failed to be submitted."""

    id: uuid.UUID
    batch_id: str | None
    status: str
    requests: tuple[BatchedRequest, ...]
    created_at: datetime
    summary: Mapping[str, Any] | None = None

    @property
    def not_ours(self) -> tuple[str, ...]:
        """Batches that were taken for this one and turned out not to be."""
        return tuple((self.summary or {}).get("not_ours", ()))


def lock(store: Store, connection: Connection) -> None:
    """Keep other submitters out until the transaction ends. SQLite has but one writer anyway."""
    if not store.is_sqlite:
        connection.execute(sa.text(f"LOCK TABLE {DATABASE_SCHEMA}.judge_batches IN SHARE ROW EXCLUSIVE MODE"))


def read(connection: Connection, *statuses: str) -> list[BatchRecord]:
    """Return the records of these statuses, oldest first."""
    query = sa.select(judge_batches).where(judge_batches.c.status.in_(statuses)).order_by(judge_batches.c.created_at)
    return [
        BatchRecord(
            id=row.id,
            batch_id=row.batch_id,
            status=row.status,
            requests=tuple(
                BatchedRequest(**{**item, "proposition_ids": tuple(item["proposition_ids"])}) for item in row.requests
            ),
            created_at=row.created_at,
            summary=row.summary,
        )
        for row in connection.execute(query)
    ]


def add(connection: Connection, requests: Sequence[BatchedRequest]) -> uuid.UUID:
    """Record that a batch is about to be submitted."""
    name = uuid.uuid4()
    connection.execute(
        sa.insert(judge_batches).values(
            id=name,
            status=SUBMITTING,
            requests=[asdict(request) for request in requests],
            created_at=datetime.now(UTC),
        )
    )
    return name


def update(store: Store, record_id: uuid.UUID, status: str, **values: Any) -> None:
    """Set a record's status, and in the same transaction what else is known."""
    with store.begin() as connection:
        connection.execute(
            sa.update(judge_batches).where(judge_batches.c.id == record_id).values(status=status, **values)
        )


def summary_to_json(summary: BatchSummary) -> dict[str, Any]:
    return asdict(summary)


def cache_hits(store: Store) -> float | None:
    """Return the share (0-1) of marked tokens that batches read from the API's cache so far; None: there was none."""
    with store.connect() as connection:
        summaries = [record.summary or {} for record in read(connection, COLLECTED)]
    hits, misses = (sum(item.get(f"cache_{what}_tokens") or 0 for item in summaries) for what in ("read", "creation"))
    return hits / (hits + misses) if hits + misses else None


def unscored_in(records: Sequence[BatchRecord]) -> dict[str, tuple[Unscored, str]]:
    """Return why requests of collected batches are unscored, by key; the newest batch counts."""
    found: dict[str, tuple[Unscored, str]] = {}
    for record in records:
        for key, (reason, detail) in ((record.summary or {}).get("unscored") or {}).items():
            found[key] = (Unscored(reason), detail)
    return found
