"""Message batches: half the price, within a day. A batch is on record before it is sent, so none is paid for twice."""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from persona_pipeline.documents import strict_json
from persona_pipeline.judging import batch_records as records
from persona_pipeline.judging.batch_records import BatchedRequest, BatchRecord, BatchSummary
from persona_pipeline.judging.cache import JudgmentCache
from persona_pipeline.judging.connection import connect_sync
from persona_pipeline.judging.options import AnthropicOptions
from persona_pipeline.judging.questions import Answer, Question
from persona_pipeline.judging.request import RequestStyle, prefix_of, request_key, traits_of
from persona_pipeline.judging.response import read_response
from persona_pipeline.judging.verdict import Unscored, Usage
from persona_pipeline.store.engine import Store

if TYPE_CHECKING:
    from anthropic import Anthropic

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


def submit_batch(store: Store, options: AnthropicOptions, questions: Sequence[Question]) -> Submission:
    """Submit what is neither answered nor under way, in as many batches as it takes.

    Raises:
        ConfigError: there is no key.
        anthropic.APIStatusError: the API refused the batch outright; nothing was created.
    """
    bodies = _bodies(questions, options)
    cached = JudgmentCache(store).find((key, question) for key, (question, _) in bodies.items())
    with connect_sync(options) as client:
        _reconcile(store, client)
        outcome = Submission(cached=len(cached))
        remaining = [key for key in bodies if key not in cached]
        for chunk in _chunks(remaining, bodies):
            outcome = _submit_chunk(store, client, chunk, bodies, outcome)
    return outcome


def collect_batches(store: Store, options: AnthropicOptions) -> list[BatchSummary]:
    """Collect every batch that has ended into the judgments, and return how each ended.

    What expired, failed or was cancelled, and answers that are not valid, stay unscored and can be submitted again.
    """
    with connect_sync(options) as client:
        _reconcile(store, client)
        with store.connect() as connection:
            submitted = records.read(connection, records.SUBMITTED)
        return [summary for record in submitted if (summary := _collect(store, client, record, options))]


def _bodies(questions: Sequence[Question], options: AnthropicOptions) -> dict[str, tuple[Question, dict[str, Any]]]:
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
    chunk: list[str] = []
    size = 0
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
        records.lock(store, connection)
        under_way = {
            request.key
            for record in records.read(connection, records.SUBMITTING, records.SUBMITTED)
            for request in record.requests
        }
        fresh = [key for key in keys if key not in under_way]
        so_far = replace(so_far, waiting=so_far.waiting + len(keys) - len(fresh))
        if not fresh:
            return so_far
        record_id = records.add(connection, [BatchedRequest.of(key, bodies[key][0]) for key in fresh])
    try:
        # No retries: the API has no idempotency key, so a second request would be a second batch.
        batch = client.with_options(max_retries=0).messages.batches.create(
            requests=[{"custom_id": key, "params": bodies[key][1]} for key in fresh]  # pyright: ignore[reportArgumentType]
        )
    except anthropic.APIStatusError as error:
        if error.status_code < 500 and error.status_code != 408:
            records.update(store, record_id, records.FAILED)
            raise
        log.warning(
            "the batch's submission ended with HTTP %s; whether it exists is found out later", error.status_code
        )
        return replace(so_far, uncertain=so_far.uncertain + 1)
    except anthropic.APIConnectionError as error:
        log.warning("the batch's submission had no answer (%s); whether it exists is found out later", error)
        return replace(so_far, uncertain=so_far.uncertain + 1)
    records.update(store, record_id, records.SUBMITTED, batch_id=batch.id)
    return replace(so_far, batch_ids=(*so_far.batch_ids, batch.id), submitted=so_far.submitted + len(fresh))


def _reconcile(store: Store, client: "Anthropic") -> None:
    """Find out what became of submissions without an answer."""
    with store.connect() as connection:
        open_records = records.read(connection, records.SUBMITTING)
        known = {
            record.batch_id for record in records.read(connection, records.SUBMITTED, records.COLLECTED, records.FAILED)
        }
    if not open_records:
        return
    oldest = min(record.created_at for record in open_records) - _CLOCK_SKEW
    unknown = []
    for batch in client.messages.batches.list(limit=100):
        if batch.created_at < oldest:
            break
        if batch.id not in known:
            unknown.append(batch)
    for record in open_records:
        # The list shows no custom ids: time and size pick the candidate, its results prove it when they are collected.
        match = next(
            (
                batch
                for batch in reversed(unknown)
                if batch.created_at >= record.created_at - _CLOCK_SKEW
                and _size(batch) == len(record.requests)
                and batch.id not in record.not_ours
            ),
            None,
        )
        if match is not None:
            unknown.remove(match)
            records.update(store, record.id, records.SUBMITTED, batch_id=match.id)
        elif datetime.now(UTC) - record.created_at > GRACE:
            records.update(store, record.id, records.FAILED)


def _size(batch: Any) -> int:
    counts = batch.request_counts
    return counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired


def _collect(store: Store, client: "Anthropic", record: BatchRecord, options: AnthropicOptions) -> BatchSummary | None:
    batch_id = record.batch_id or ""
    batch = client.messages.batches.retrieve(batch_id)
    if batch.processing_status != "ended":
        return None
    requests = {request.key: request for request in record.requests}
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
        answer = _answer(result, request, options.model)
        usage += answer.usage
        if answer.data is None:
            unscored[custom_id] = (str(answer.unscored), answer.detail)
        else:
            cache.put(custom_id, request, answer, batch=True)
            answered.add(custom_id)
    if strangers and not answered and not unscored:
        # Somebody else's batch of the same size and time was taken for ours; ours may still be on the list.
        not_ours = [*record.not_ours, batch_id]
        records.update(store, record.id, records.SUBMITTING, batch_id=None, summary={"not_ours": not_ours})
        log.warning("batch %s is not ours", batch_id)
        return None
    for key in requests.keys() - answered - unscored.keys():
        unscored[key] = (Unscored.API_ERROR, f"batch {batch_id} has no result for it")
    summary = BatchSummary(
        batch_id,
        len(answered),
        unscored,
        usage.input_tokens,
        usage.output_tokens,
        usage.usd,
        usage.cache_creation_tokens,
        usage.cache_read_tokens,
    )
    ended = batch.ended_at or datetime.now(UTC)
    records.update(store, record.id, records.COLLECTED, summary=records.summary_to_json(summary), ended_at=ended)
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


def _answer(result: Any, request: BatchedRequest, model: str) -> Answer:
    kind = result.get("type") if isinstance(result, dict) else None
    if kind == "succeeded":
        return read_response(result.get("message"), request, requested_model=model, batch=True)
    if kind == "expired":
        return Answer(unscored=Unscored.TIMEOUT, detail="the batch expired before it was its turn")
    if kind == "canceled":
        return Answer(unscored=Unscored.API_ERROR, detail="the batch was cancelled before it was its turn")
    error = result.get("error") if isinstance(result, dict) else None
    inner = error.get("error") if isinstance(error, dict) else None
    said = inner.get("type") if isinstance(inner, dict) else None
    return Answer(unscored=Unscored.API_ERROR, detail=f"the batch answered it with an error ({said or kind})")
