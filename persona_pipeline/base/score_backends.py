"""Scores of spans as Langfuse and Phoenix show them beside these spans, sent with their own clients.

What has no score, or is of no span, is left out: both attach scores to what was traced.
"""

import logging
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
from opentelemetry.trace import format_span_id, format_trace_id

_LOGGER = logging.getLogger("persona_pipeline.telemetry")
_ATTEMPTS = 4
_PREFIX = "gen_ai.evaluation."


@dataclass(frozen=True)
class SpanScore:
    """One score of one span; ``id`` is the same whenever the same is measured again, and the newest score counts."""

    name: str
    score: float
    label: str | None
    explanation: str | None
    trace_id: str
    span_id: str
    about: dict[str, Any]

    @property
    def id(self) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self.trace_id}/{self.span_id}/{self.name}"))


def span_scores(batch: Sequence[ReadableLogRecord]) -> Iterator[SpanScore]:
    """Yield those of a batch of events that are scores of spans."""
    for record in (each.log_record for each in batch):
        given: dict[str, Any] = dict(record.attributes or {})
        name, score = given.pop(f"{_PREFIX}name"), given.pop(f"{_PREFIX}score.value", None)
        label, explanation = given.pop(f"{_PREFIX}score.label", None), given.pop(f"{_PREFIX}explanation", None)
        if score is not None and record.trace_id and record.span_id:
            ids = format_trace_id(record.trace_id), format_span_id(record.span_id)
            yield SpanScore(name, score, label, explanation, *ids, given)


class LangfuseScores(LogRecordExporter):
    """Numeric scores of observations; ``LANGFUSE_BASE_URL``, ``LANGFUSE_PUBLIC_KEY`` and ``LANGFUSE_SECRET_KEY`` say where."""

    def __init__(self) -> None:
        from langfuse import Langfuse

        if missing := [name for name in ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY") if not os.environ.get(name)]:
            raise ValueError(f"{' and '.join(missing)} must be set")
        # One for the whole process, whoever makes it: it is never shut down here.
        self._client = Langfuse()

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        for item in span_scores(batch):
            self._client.create_score(
                name=item.name,
                value=item.score,
                data_type="NUMERIC",
                trace_id=item.trace_id,
                observation_id=item.span_id,
                score_id=item.id,
                comment=item.explanation,
                metadata=item.about | ({"label": item.label} if item.label else {}),
            )
        return LogRecordExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 0) -> bool:
        self._client.flush()
        return True

    def shutdown(self) -> None:
        self._client.flush()


class PhoenixAnnotations(LogRecordExporter):
    """Annotations of spans; ``PHOENIX_ENDPOINT`` or ``PHOENIX_COLLECTOR_ENDPOINT``, and ``PHOENIX_API_KEY``, say where."""

    def __init__(self) -> None:
        from phoenix.client import Client

        self._client = Client()

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        found: list[Any] = [
            {
                "name": item.name,
                "annotator_kind": "LLM",
                "span_id": item.span_id,
                "identifier": "persona-pipeline",
                "result": {"score": item.score}
                | ({"label": item.label} if item.label else {})
                | ({"explanation": item.explanation} if item.explanation else {}),
                "metadata": item.about,
            }
            for item in span_scores(batch)
        ]
        for attempt in range(_ATTEMPTS if found else 0):
            try:
                self._client.spans.log_span_annotations(span_annotations=found)
                break
            except httpx.HTTPError as error:
                answer = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else 503
                if attempt + 1 == _ATTEMPTS or (answer < 500 and answer != 429):
                    _LOGGER.warning("Phoenix did not take %d scores: %s", len(found), str(error).split("\n")[0])
                    return LogRecordExportResult.FAILURE
                # What is sent again takes the place of what may have arrived.
                time.sleep(0.2 * 4**attempt)
        return LogRecordExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return True

    def shutdown(self) -> None:
        """Nothing waits here."""


def score_exporter(name: str) -> LogRecordExporter:
    """Return what sends scores to one of ``settings.SCORE_BACKENDS``.

    Raises:
        ImportError: its client is not installed.
        ValueError: the environment does not say where, or with which key.
    """
    return {"langfuse": LangfuseScores, "phoenix": PhoenixAnnotations}[name]()
