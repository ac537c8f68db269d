"""What producers talk about, and how what they say and trace comes out."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

COLLECT, MODEL = os.environ["COLLECT"], os.environ["MODEL"]
PLAIN, TOOLS, HUGE = (
    ("Hi", "Tea?", "ok", "ok"),
    ("Hi", "What is the weather?", "ok"),
    ("Hi", "Say something huge.", "ok"),
)


def tracing(service: str = "shop") -> Any:
    """Return a tracer provider that exports to the collector."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{COLLECT}/v1/traces")))
    return provider


def told(talks: dict[str, Callable[[str], Iterator[tuple[str, str]]]], provider: Any) -> None:
    """Hold conversations (those that are named on the command line, else all but "huge") and print who said what in which."""
    chosen = sys.argv[1:] or [name for name in talks if name != "huge"]
    said = [[name, speaker, text] for name in chosen for speaker, text in talks[name](name)]
    provider.force_flush()
    print(json.dumps(said))
