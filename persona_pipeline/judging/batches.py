"""Message batches: half the price, within a day. A batch is on record before it is sent, so none is paid for twice."""

import json
import logging
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.database.tables import SCHEMA as DATABASE_SCHEMA
from persona_pipeline.base.database.tables import judge_batches
from persona_pipeline.base.documents.json import strict_json
from persona_pipeline.judging.cache import JudgmentCache
from persona_pipeline.judging.claims import SCHEMA, neutral_ids, proposition_problem
from persona_pipeline.judging.model.messages import (
    RequestStyle,
    keys_of,
    prefix_of,
    read_response,
    request_key,
    traits_of,
)
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.verdict import Answer, Question, Unscored, Usage

if TYPE_CHECKING:
    from anthropic import Anthropic


SUBMITTING, SUBMITTED, COLLECTED, FAILED = "submitting", "submitted", "collected", "failed"


def _written(key: str, question: Question) -> dict[str, Any]:
    """Return what must be known of a question when its answer comes back. ``key`` is the judgment's and the custom id."""
    is_proposition = question.schema == SCHEMA
    members = question.subject.get("requests", [question.subject]) if is_proposition else []
    same = ("kind", "label", "agent_id", "dimension", "prompt_version")
    return {
        "key": key,
        "subject_key": question.key,
        **{name: getattr(question, name) for name in same},
        # Of no use any more; earlier releases, which may read the row, want it.
        "mechanism": "evaluation",
        "proposition_ids": neutral_ids(len(members)),
        "schema": None if is_proposition else question.schema,
    }


def _question(request: Mapping[str, Any]) -> Question:
    """Return the question as far as its answer can be read; what it checks beyond its schema is checked when it is asked again."""
    schema, ids = request.get("schema"), request["proposition_ids"]
    return Question(
        kind=request["kind"],
        subject={},
        label=request["label"],
        system="",
        evidence="",
        ask="",
        schema=SCHEMA if schema is None else schema,
        max_tokens=0,
        agent_id=request["agent_id"],
        prompt_version=request["prompt_version"],
        check=(lambda data: proposition_problem(data, ids)) if schema is None else None,
    )


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
        return dict(Counter(reason for reason, _ in self.unscored.values()))


def _records(connection: Connection, *statuses: str) -> Sequence[sa.Row]:
    """Return the rows of batches of these statuses, oldest first."""
    query = sa.select(judge_batches).where(judge_batches.c.status.in_(statuses)).order_by(judge_batches.c.created_at)
    return connection.execute(query).all()


def _not_ours(record: sa.Row) -> list[str]:
    """Return the batches that were taken for this one and turned out not to be."""
    return list((record.summary or {}).get("not_ours", ()))


def _update(store: Store, record_id: uuid.UUID, status: str, **values: Any) -> None:
    own = sa.update(judge_batches).where(judge_batches.c.id == record_id)
    with store.begin() as connection:
        connection.execute(own.values(status=status, **values))


def _summaries(connection: Connection) -> list[Mapping[str, Any]]:
    """Return how collected batches ended, the oldest first, without what they asked."""
    query = sa.select(judge_batches.c.summary).where(judge_batches.c.status == COLLECTED)
    return [summary or {} for summary in connection.execute(query.order_by(judge_batches.c.created_at)).scalars()]


def _under_way(connection: Connection) -> set[str]:
    return {request["key"] for record in _records(connection, SUBMITTING, SUBMITTED) for request in record.requests}


log = logging.getLogger(__name__)

# The API takes 100,000 requests or 256 MB.
MAX_REQUESTS = 10_000
MAX_BYTES = 100_000_000
# A submission without an answer may still take effect for so long; until then it is not sent again.
GRACE = timedelta(minutes=10)
# Batches are billed for a day at most, and a cached prefix has to wait for its turn.
_CACHE_TTL = "1h"
_CLOCK_SKEW = timedelta(minutes=2)


@dataclass(frozen=True)
class Submission:
    """What ``submit_batch`` did.

    Attributes:
        batch_ids: of the batches that were created.
        submitted: requests in them.
        cached: requests that had been answered before.
        waiting: requests that are in an earlier batch that has not been collected.
        uncertain: submissions without an answer; ``collect_batches`` finds out what became of them.
    """

    batch_ids: tuple[str, ...] = ()
    submitted: int = 0
    cached: int = 0
    waiting: int = 0
    uncertain: int = 0


def submit_batch(store: Store, options: ModelOptions, questions: Sequence[Question]) -> Submission:
    """Submit the questions that are neither answered nor submitted yet, in as many batches as needed.

    ``ConfigError``: the key is missing; ``anthropic.APIStatusError``: the API refused the batch and created nothing.
    """
    bodies = _bodies(questions, options)
    cached = JudgmentCache(store).find((key, question) for key, (question, _) in bodies.items())
    with options.provider.connect_sync(options) as client:
        _reconcile(store, client)
        outcome = Submission(cached=len(cached))
        remaining = [key for key in bodies if key not in cached]
        for chunk in _chunks(remaining, bodies):
            outcome = _submit_chunk(store, client, chunk, bodies, outcome)
    return outcome


def collect_batches(store: Store, options: ModelOptions) -> list[BatchSummary]:
    """Collect every batch that has ended into the judgments, and return how each ended.

    What expired, failed or was cancelled, and answers that are not valid, stay unscored and can be submitted again.
    """
    with options.provider.connect_sync(options) as client:
        _reconcile(store, client)
        with store.connect() as connection:
            submitted = _records(connection, SUBMITTED)
        return [summary for record in submitted if (summary := _collect(store, client, record, options))]


def _bodies(questions: Sequence[Question], options: ModelOptions) -> dict[str, tuple[Question, dict[str, Any]]]:
    style = RequestStyle(options.model, options.effort)
    sharing = Counter(prefix_of(style, question) for question in questions)
    bodies: dict[str, tuple[Question, dict[str, Any]]] = {}
    for question in questions:
        prefix = prefix_of(style, question)
        shared = sharing[prefix] > 1 and prefix.tokens >= traits_of(options.model).cache_minimum
        body = style.body(question, cache_ttl=_CACHE_TTL if shared else None)
        bodies[request_key(prefix, question, options.endpoint, provider=options.provider)] = (question, body)
    return bodies


def _chunks(keys: Sequence[str], bodies: dict[str, tuple[Question, dict[str, Any]]]) -> Iterator[list[str]]:
    chunk, size = list[str](), 0
    for key in keys:
        length = len(json.dumps(bodies[key][1]))
        if chunk and (len(chunk) >= MAX_REQUESTS or size + length > MAX_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(key)
        size += length
    if chunk:
        yield chunk


def _submit_chunk(
    store: Store,
    client: "Anthropic",
    keys: Sequence[str],
    bodies: dict[str, tuple[Question, dict[str, Any]]],
    so_far: Submission,
) -> Submission:
    import anthropic

    with store.begin() as connection:
        if not store.is_sqlite:
            # Other submitters wait until the transaction ends; SQLite has but one writer anyway.
            connection.execute(sa.text(f"LOCK TABLE {DATABASE_SCHEMA}.judge_batches IN SHARE ROW EXCLUSIVE MODE"))
        under_way = _under_way(connection)
        fresh = [key for key in keys if key not in under_way]
        so_far = replace(so_far, waiting=so_far.waiting + len(keys) - len(fresh))
        if not fresh:
            return so_far
        record_id = uuid.uuid4()
        requests = [_written(key, bodies[key][0]) for key in fresh]
        row = {"id": record_id, "status": SUBMITTING, "requests": requests, "created_at": datetime.now(UTC)}
        connection.execute(sa.insert(judge_batches).values(row))
    try:
        # No retries: the API has no idempotency key, so a second request would be a second batch.
        batch = client.with_options(max_retries=0).messages.batches.create(
            requests=[{"custom_id": key, "params": bodies[key][1]} for key in fresh]  # pyright: ignore[reportArgumentType]
        )
    except (anthropic.APIStatusError, anthropic.APIConnectionError) as error:
        how = f"had no answer ({error})"
        if isinstance(error, anthropic.APIStatusError):
            if error.status_code < 500 and error.status_code != 408:
                _update(store, record_id, FAILED)
                raise
            how = f"ended with HTTP {error.status_code}"
        log.warning("the batch's submission %s; whether it exists is found out later", how)
        return replace(so_far, uncertain=so_far.uncertain + 1)
    _update(store, record_id, SUBMITTED, batch_id=batch.id)
    return replace(so_far, batch_ids=(*so_far.batch_ids, batch.id), submitted=so_far.submitted + len(fresh))


def _reconcile(store: Store, client: "Anthropic") -> None:
    """Find out what became of submissions without an answer."""
    with store.connect() as connection:
        open_records = _records(connection, SUBMITTING)
        known = {record.batch_id for record in _records(connection, SUBMITTED, COLLECTED, FAILED)}
    if not open_records:
        return
    now = datetime.now(UTC)
    oldest = min(_began(record, now) for record in open_records)
    # The newest come first.
    recent = takewhile(lambda batch: batch.created_at >= oldest, client.messages.batches.list(limit=100))
    unknown = [batch for batch in recent if batch.id not in known]
    for record in open_records:
        # The list shows no custom ids: time and size pick the candidate, its results prove it when they are collected.
        likely = (item for item in reversed(unknown) if item.created_at >= _began(record, now))
        alike = (item for item in likely if _size(item) == len(record.requests) and item.id not in _not_ours(record))
        if match := next(alike, None):
            unknown.remove(match)
            _update(store, record.id, SUBMITTED, batch_id=match.id)
        elif abs(now - record.created_at) > GRACE:
            _update(store, record.id, FAILED)


def _began(record: sa.Row, now: datetime) -> datetime:
    """Before this a submission cannot have taken effect; one of the future was written by a clock that was ahead."""
    return (record.created_at if record.created_at <= now else now - timedelta(days=1)) - _CLOCK_SKEW


def _size(batch: Any) -> int:
    counts = batch.request_counts
    return counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired


def _collect(store: Store, client: "Anthropic", record: sa.Row, options: ModelOptions) -> BatchSummary | None:
    batch_id = record.batch_id or ""
    batch = client.messages.batches.retrieve(batch_id)
    if batch.processing_status != "ended":
        return None
    requests = {request["key"]: request for request in record.requests}
    cache = JudgmentCache(store)
    usage = Usage()
    answered: set[str] = set()
    unscored: dict[str, tuple[str, str]] = {}
    strangers = 0
    for custom_id, result in _results(client, batch_id):
        request = requests.get(custom_id)
        if request is None:
            strangers += 1
            continue
        answer = _answer(result, request, options)
        usage += answer.usage
        if answer.data is None:
            unscored[custom_id] = (str(answer.unscored), answer.detail)
        else:
            cache.put(custom_id, _question(request), answer, batched_as=request["subject_key"])
            answered.add(custom_id)
    if strangers and not answered and not unscored:
        # Another user's batch of the same size and time was taken for ours; ours may still be on the list.
        not_ours = [*_not_ours(record), batch_id]
        _update(store, record.id, SUBMITTING, batch_id=None, summary={"not_ours": not_ours})
        log.warning("batch %s is not ours", batch_id)
        return None
    for key in requests.keys() - answered - unscored.keys():
        unscored[key] = (Unscored.API_ERROR, f"batch {batch_id} has no result for it")
    paid = {name: value for name, value in vars(usage).items() if name != "calls"}
    summary = BatchSummary(batch_id, len(answered), unscored, **paid)
    ended = batch.ended_at or datetime.now(UTC)
    _update(store, record.id, COLLECTED, summary=asdict(summary), ended_at=ended)
    return summary


def _results(client: "Anthropic", batch_id: str) -> Iterator[tuple[str, Any]]:
    """Yield custom ids and results; lines that cannot be read are left out, so their requests count as unanswered."""
    with client.messages.batches.with_streaming_response.results(batch_id) as response:
        for line in response.iter_lines():
            try:
                item = strict_json(line)
                yield item["custom_id"], item["result"]
            except (ValueError, KeyError, TypeError):
                if line.strip():
                    log.warning("a line of the results of batch %s cannot be read", batch_id)


def _answer(result: Any, request: Mapping[str, Any], options: ModelOptions) -> Answer:
    kind = result.get("type") if isinstance(result, dict) else None
    if kind == "succeeded":
        question, prices = _question(request), options.prices
        return read_response(result.get("message"), question, requested_model=options.model, prices=prices, batch=True)
    if kind == "expired":
        return Answer(unscored=Unscored.TIMEOUT, detail="the batch expired before it was its turn")
    if kind == "canceled":
        return Answer(unscored=Unscored.API_ERROR, detail="the batch was cancelled before it was its turn")
    error = result.get("error") if isinstance(result, dict) else None
    inner = error.get("error") if isinstance(error, dict) else None
    said = inner.get("type") if isinstance(inner, dict) else None
    return Answer(unscored=Unscored.API_ERROR, detail=f"the batch answered it with an error ({said or kind})")


@dataclass(frozen=True)
class CollectedBackend:
    """Answers questions from the judgments in the store, whether a batch or a call brought them."""

    store: Store
    options: ModelOptions

    live = True

    @property
    def name(self) -> str:
        return self.options.name

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        keys = keys_of(questions, self.options)
        answers = JudgmentCache(self.store).find(zip(keys, questions, strict=True))
        with self.store.connect() as connection:
            # The newest batch counts.
            missing = {
                key: Answer(unscored=Unscored(reason), detail=f"{detail}; submit it again")
                for summary in _summaries(connection)
                for key, (reason, detail) in (summary.get("unscored") or {}).items()
            }
            late = Answer(unscored=Unscored.TIMEOUT, detail="its batch has not been collected yet")
            missing |= dict.fromkeys(_under_way(connection), late)
        never = Answer(unscored=Unscored.UNRECORDED, detail="it has not been submitted in a batch")
        return [answers.get(key) or missing.get(key, never) for key in keys]
