"""Scores as ``gen_ai.evaluation.result`` events over the OpenTelemetry Logs API, and to backends that show them with their spans.

Off unless asked for; nothing waits for them.
"""

import atexit
import logging
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from persona_pipeline.base.settings import Settings
from persona_pipeline.base.text import names_in
from persona_pipeline.version import __version__

EVENT = "gen_ai.evaluation.result"
# A large run has thousands of events at once. Beyond this number of waiting events, further ones are dropped.
_MOST_WAITING = 100_000
# Seconds that the end of a process waits for a collector.
_PATIENCE = 5.0
# All zeros is not an id.
_TRACE_ID, _SPAN_ID = re.compile(r"(?!0+$)[0-9a-f]{32}"), re.compile(r"(?!0+$)[0-9a-f]{16}")
_RESULT = ("score", "label", "explanation")
_SCORE = ("name", "score.value", "score.label", "explanation")
# Times that a backend is asked to take a batch of scores.
_ATTEMPTS = 4
_LOGGER = logging.getLogger("persona_pipeline.telemetry")


@dataclass(frozen=True)
class SpanIds:
    """A span somewhere else, by its ids in hexadecimal."""

    trace_id: str
    span_id: str

    @classmethod
    def among(cls, extras: Mapping[str, Any]) -> "SpanIds | None":
        """Return the span that a message's extras name, None where they name none that can be one."""
        trace_id, span_id = str(extras.get("trace_id")), str(extras.get("span_id"))
        return cls(trace_id, span_id) if _TRACE_ID.fullmatch(trace_id) and _SPAN_ID.fullmatch(span_id) else None


@dataclass(frozen=True)
class EvaluationEvent:
    """A score, or why there is none.

    Attributes:
        name: the measure, such as ``adherence`` or ``adherence/dry``.
        score: None where there is none; ``error`` says why.
        label: what the score means, one of a few words.
        explanation: the judge's reason; it is sent only where that is asked for.
        span: the evaluated span, where it is known; None: the current span, if there is one.
        response_id: the id that the model's provider gave to the answer that was evaluated.
        attributes: what else is known.
    """

    name: str
    score: float | None = None
    label: str | None = None
    error: str | None = None
    explanation: str | None = None
    span: SpanIds | None = None
    response_id: str | None = None
    attributes: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)

    def to_attributes(self, *, explained: bool) -> dict[str, Any]:
        """Return the event's attributes as the conventions call them."""
        found = {
            "gen_ai.evaluation.name": self.name,
            "gen_ai.evaluation.score.value": None if self.score is None else float(self.score),
            "gen_ai.evaluation.score.label": self.label,
            "gen_ai.evaluation.explanation": (self.explanation or None) if explained else None,
            "gen_ai.response.id": self.response_id,
            "error.type": self.error,
            **self.attributes,
        }
        return {key: value for key, value in found.items() if value is not None}

    @classmethod
    def of_span(cls, record: Any) -> "EvaluationEvent | None":
        """Return the event that a log record holds; None where it has no score, or is of no span."""
        given: dict[str, Any] = dict(record.attributes or {})
        name, score, label, reason = (given.pop(f"gen_ai.evaluation.{key}", None) for key in _SCORE)
        if score is None or not record.trace_id or not record.span_id:
            return None
        span = SpanIds(f"{record.trace_id:032x}", f"{record.span_id:016x}")
        return cls(name, score, label, explanation=reason, span=span, attributes=given)


class Emitter:
    """Hands events to threads that send them; never raises, never waits.

    ``otlp``: send them over OTLP/HTTP as ``OTEL_EXPORTER_OTLP_*`` says. ``backends``: send scores of spans to these too; each
    reads its own variables.
    """

    def __init__(self, *, explained: bool = False, otlp: bool = True, backends: Sequence[str] = ()) -> None:
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource

        self._explained = explained
        # What the environment says of it goes before.
        resource = Resource.create({"service.name": "persona-pipeline"}).merge(OTELResourceDetector().detect())
        most = int(os.environ.get("OTEL_BLRP_MAX_QUEUE_SIZE") or _MOST_WAITING)
        self._provider = LoggerProvider(resource, shutdown_on_exit=False)
        for name in [*(["otlp"] if otlp else []), *backends]:
            if exporter := _exporter(name):
                self._provider.add_log_record_processor(BatchLogRecordProcessor(exporter, max_queue_size=most))
        self._logger = self._provider.get_logger("persona_pipeline", __version__)

    def emit(self, events: Iterable[EvaluationEvent]) -> None:
        """Hand events over."""
        try:
            for event in events:
                self._logger.emit(
                    timestamp=time.time_ns(),
                    context=_context_from(f"00-{span.trace_id}-{span.span_id}-01") if (span := event.span) else None,
                    attributes=event.to_attributes(explained=self._explained),
                    event_name=EVENT,
                )
        except Exception:
            _LOGGER.exception("scores were not handed to OpenTelemetry")

    def close(self, seconds: float = _PATIENCE) -> None:
        """Send what waits, for so long at most."""
        closing = threading.Thread(target=self._close, name="telemetry-close", daemon=True)
        closing.start()
        closing.join(seconds)

    def _close(self) -> None:
        # Shutting down alone drops events that are not sent within a fixed time.
        self._provider.force_flush()
        self._provider.shutdown()


class SpanScores:
    """A backend that shows scores with their spans: its own client as an exporter of events.

    ``send`` gets a list of events, each with its span.
    """

    def __init__(self, send: Callable[[list[tuple[EvaluationEvent, SpanIds]]], None], flush: Callable[[], Any]) -> None:
        self._send, self.shutdown = send, flush

    def export(self, batch: Sequence[Any]) -> None:
        found = filter(None, (EvaluationEvent.of_span(each.log_record) for each in batch))
        if scores := [(event, event.span) for event in found if event.span]:
            self._send(scores)


def _langfuse() -> SpanScores:
    """Numeric scores of observations; ``LANGFUSE_BASE_URL``, ``LANGFUSE_PUBLIC_KEY`` and ``LANGFUSE_SECRET_KEY`` say where."""
    from langfuse import Langfuse
    from opentelemetry.sdk.trace import TracerProvider

    if missing := [name for name in ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY") if not os.environ.get(name)]:
        raise ValueError(f"{' and '.join(missing)} must be set")
    # The client is shared by the whole process: it is never shut down here and must not collect the program's spans.
    client = Langfuse(tracer_provider=TracerProvider())

    def send(scores: list[tuple[EvaluationEvent, SpanIds]]) -> None:
        for item, span in scores:
            # Stable when the same is measured again, so that the newest score counts.
            score_id = uuid.uuid5(uuid.NAMESPACE_OID, f"{span.trace_id}/{span.span_id}/{item.name}")
            client.create_score(
                name=item.name,
                value=item.score or 0.0,
                data_type="NUMERIC",
                trace_id=span.trace_id,
                observation_id=span.span_id,
                score_id=str(score_id),
                comment=item.explanation,
                metadata={**item.attributes, **({"label": item.label} if item.label else {})},
            )

    return SpanScores(send, client.flush)


def _phoenix() -> SpanScores:
    """Annotations of spans; ``PHOENIX_ENDPOINT`` or ``PHOENIX_COLLECTOR_ENDPOINT``, and ``PHOENIX_API_KEY``, say where."""
    import httpx
    from phoenix.client import Client

    client = Client()

    def send(scores: list[tuple[EvaluationEvent, SpanIds]]) -> None:
        found: list[Any] = [
            {
                "name": item.name,
                "annotator_kind": "LLM",
                "span_id": span.span_id,
                "identifier": "persona-pipeline",
                "result": {name: said for name in _RESULT if (said := getattr(item, name)) is not None},
                "metadata": dict(item.attributes),
            }
            for item, span in scores
        ]
        for attempt in range(_ATTEMPTS):
            try:
                client.spans.log_span_annotations(span_annotations=found)
                return
            except httpx.HTTPError as error:
                answer = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else 503
                if attempt + 1 == _ATTEMPTS or (answer < 500 and answer != 429):
                    _LOGGER.warning("Phoenix did not take %d scores: %s", len(found), str(error).split("\n")[0])
                    return
                # Scores that are sent again replace those that arrived.
                time.sleep(0.2 * 4**attempt)

    return SpanScores(send, lambda: None)


def _exporter(name: str) -> Any:
    """Return what sends to a place; None where that cannot be, which is logged: the others hear of scores all the same."""
    try:
        if name == "otlp":
            from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter

            return OTLPLogExporter()
        return {"langfuse": _langfuse, "phoenix": _phoenix}[name]()
    except ImportError as error:
        _LOGGER.warning("no scores are sent to %s: %s is not installed; %s", name, error.name, _install(name))
    except Exception as error:
        _LOGGER.warning("no scores are sent to %s: %s", name, error)
    return None


def _install(name: str) -> str:
    return f"pip install 'persona-pipeline[{'otel' if name == 'otlp' else name}]'"


def _context_from(traceparent: str) -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": traceparent})


def emitter(settings: Settings) -> Emitter | None:
    """Return this process's emitter; None where no scores are asked for, or none can be sent.

    They are asked for by ``PERSONA_OTEL_EVENTS`` and ``PERSONA_SCORE_BACKENDS``.
    """
    if not settings.otel_events and not settings.score_backends:
        return None
    return made_emitter(settings.otel_explanations, settings.otel_events, tuple(names_in(settings.score_backends)))


@lru_cache
def made_emitter(explained: bool, otlp: bool, backends: tuple[str, ...]) -> Emitter | None:
    """Return an emitter, made once; None where none can be, which is logged."""
    try:
        made = Emitter(explained=explained, otlp=otlp, backends=backends)
    except ImportError as error:
        _LOGGER.warning("no scores are sent: %s is not installed; %s", error.name, _install("otlp"))
        return None
    except Exception:
        _LOGGER.exception("no scores can be sent")
        return None
    atexit.register(made.close)
    return made


@contextmanager
def within_span(traceparent: str | None, settings: Settings) -> Iterator[None]:
    """Make the span that a W3C ``traceparent`` header names the current one; without one, or without events, nothing changes."""
    if traceparent is None or emitter(settings) is None:
        yield
        return
    from opentelemetry import context

    token = context.attach(_context_from(traceparent))
    try:
        yield
    finally:
        context.detach(token)
