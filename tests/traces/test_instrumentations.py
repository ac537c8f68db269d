"""What instrumentations as people install them send with the real exporter, over a line that loses and doubles requests."""

from collections import defaultdict

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from persona_pipeline.importing.traces.collector import create_app
from persona_pipeline.world import World
from tests.support.clock import LONG
from tests.support.instrumented import ENVIRONMENT, Line, talk
from tests.support.otlp_relay import Relay, relaying
from tests.support.serving import serving
from tests.traces.test_collector import opened  # noqa: F401


@pytest.mark.filterwarnings("default")
def test_every_line_of_every_conversation_is_stored_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """``python -m benchmarks.collect`` does the same with 10,000 calls and a collector that is killed."""
    lines: list[Line] = []
    with serving(create_app(world)) as address:
        relay = Relay(address, 1)
        with relaying(relay) as line:
            for name, environment in ENVIRONMENT.items():
                for key in {key for each in ENVIRONMENT.values() for key in each}:
                    monkeypatch.delenv(key, raising=False)
                for key, value in environment.items():
                    monkeypatch.setenv(key, value)
                spans, logs = TracerProvider(), LoggerProvider()
                # Small batches: more requests that something can happen to.
                exporter = OTLPSpanExporter(f"{line.url}/v1/traces", timeout=LONG, compression=Compression.Gzip)
                spans.add_span_processor(BatchSpanProcessor(exporter, max_export_batch_size=5))
                logged = OTLPLogExporter(f"{line.url}/v1/logs", timeout=LONG)
                logs.add_log_record_processor(BatchLogRecordProcessor(logged, max_export_batch_size=5))
                lines += talk(name, spans, logs, [f"{name}-1", f"{name}-2"], turns=4, agent="ann")[0]
                spans.force_flush()
                logs.force_flush()
                spans.shutdown()
                logs.shutdown()
            relay.release()
        assert {"lost", "answer lost", "twice", "apart", "none"} <= set(relay.faults)
    said: dict[str, list[tuple[str, str]]] = defaultdict(list)
    stored: dict[str | None, list[tuple[str, str]]] = defaultdict(list)
    for item in lines:
        said[item.conversation].append((item.speaker, item.text))
    for message in world.messages():
        stored[message.channel].append((message.agent_id, message.text))
    assert len(said) == 2 * len(ENVIRONMENT)
    assert stored == said
    assert all({"trace_id", "span_id", "model"} <= message.extras.keys() for message in world.messages(agent_id="ann"))
