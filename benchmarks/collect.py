"""10,000 spans of real instrumentations through the real exporter, over a bad line, into a collector that is killed: who said what?

    python -m benchmarks.collect [--calls 10000] [--kills 3] [--turns 20]

Each instrumentation runs as a process of its own against a model server on this machine that refuses a call in twenty. Between
exporter and collector requests get lost, answers get lost, requests come twice, and spans of one request come apart, in another
order and some of them only at the very end. The collector is killed with SIGKILL in mid-stream. In the end every line of every
conversation must stand in the store once, under who said it and in order.
"""

import argparse
import json
import os
import random
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from persona_pipeline.testing.worlds import WorldBuilder
from tests.support.instrumented import ENVIRONMENT
from tests.support.otlp_relay import Relay, post, relaying

PORT_ANSWERS = 0.05


class Collector:
    """``persona-pipeline collect`` as a process that can be killed."""

    def __init__(self, root: Path, database_url: str = "") -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.port = taken.getsockname()[1]
        self._environment = os.environ | {"PERSONA_ROOT": str(root), "PERSONA_DATABASE_URL": database_url}
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        code = "from persona_pipeline.cli import main; main()"
        command = [sys.executable, "-c", code, "collect", "--port", str(self.port)]
        self.process = subprocess.Popen(command, env=self._environment, stderr=subprocess.DEVNULL)
        while post(f"{self.url}/v1/traces", b"")[0] != 200:
            time.sleep(PORT_ANSWERS)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--produce", nargs=3, metavar=("NAME", "ENDPOINT", "CONVERSATIONS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.produce:
        produce(*arguments.produce, turns=arguments.turns)
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), arguments.calls, arguments.turns, arguments.kills)


def measure(folder: Path, calls: int, turns: int, kills: int) -> None:
    WorldBuilder(folder).persona("michael", "Michael runs an office.").open()
    collector, began = Collector(folder), time.perf_counter()
    conversations = -(-calls // (turns * len(ENVIRONMENT)))
    relay, rolls = Relay(collector.url, 1), random.Random(2)
    with relaying(relay) as line:
        producers = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "benchmarks.collect",
                    "--turns",
                    str(turns),
                    "--produce",
                    name,
                    line.url,
                    str(conversations),
                ],
                env=os.environ | environment,
                stdout=subprocess.PIPE,
                text=True,
            )
            for name, environment in ENVIRONMENT.items()
        ]
        outputs: list[str] = []
        readers = [threading.Thread(target=lambda p=p: outputs.append(p.communicate()[0])) for p in producers]
        for reader in readers:
            reader.start()
        for _ in range(kills):
            time.sleep(rolls.uniform(5, 15))
            if any(reader.is_alive() for reader in readers):
                collector.kill()
                collector.start()
        for reader in readers:
            reader.join()
        relay.release()
    seconds = time.perf_counter() - began
    collector.process.terminate()
    collector.process.wait()
    results = [json.loads(output) for output in outputs]
    report(folder, results, relay, seconds)


def report(folder: Path, results: list[dict], relay: Relay, seconds: float) -> None:
    said: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for result in results:
        for conversation, speaker, text in result["said"]:
            said[conversation].append((speaker, text))
    store = sqlite3.connect(folder / ".persona" / "store.db")
    rows = store.execute(
        "SELECT channel_id, agent_id, text FROM run_messages ORDER BY channel_id, created_at, id"
    ).fetchall()
    stored: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for conversation, speaker, text in rows:
        stored[conversation].append((speaker, text))
    places = sorted({*said, *stored})
    lost = sum((Counter(said[key]) - Counter(stored[key])).total() for key in places)
    doubled = sum((Counter(stored[key]) - Counter(said[key])).total() for key in places)
    misplaced = sum(said[key] != stored[key] for key in places)
    for key in [key for key in places if said[key] != stored[key]][:4]:
        print(f"{key}: said {said[key]}\n  stored {stored[key]}")
    spans = sum(result["calls"] for result in results)
    print(
        f"{spans:,} calls of models traced by {len(results)} instrumentations, {sum(map(len, said.values())):,} lines said"
    )
    for result in sorted(results, key=lambda result: result["name"]):
        print(f"  {result['name']}: {result['calls']:,} calls")
    print("requests on the line: " + ", ".join(f"{count:,} {name}" for name, count in sorted(relay.faults.items())))
    print(f"lost {lost}, doubled {doubled}, conversations out of order {misplaced} of {len(places)}; {seconds:.0f} s")
    sys.exit(1 if lost or doubled or misplaced else 0)


def produce(name: str, endpoint: str, conversations: str, *, turns: int) -> None:
    """Hold conversations, send what traces them, and print what was said."""
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from tests.support.instrumented import talk

    spans, logs = TracerProvider(), LoggerProvider()
    exporter = OTLPSpanExporter(f"{endpoint}/v1/traces", timeout=240, compression=Compression.Gzip)
    spans.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=200_000, schedule_delay_millis=500))
    logged = OTLPLogExporter(f"{endpoint}/v1/logs", timeout=240)
    logs.add_log_record_processor(BatchLogRecordProcessor(logged, max_queue_size=200_000, schedule_delay_millis=500))
    # What the SDKs trace themselves goes along.
    trace.set_tracer_provider(spans)
    places = [f"{name}-{number}" for number in range(int(conversations))]
    said, calls = talk(name, spans, logs, places, turns=turns)
    spans.force_flush()
    logs.force_flush()
    lines = [[line.conversation, line.speaker, line.text] for line in said]
    print(json.dumps({"name": name, "calls": calls, "said": lines}))


if __name__ == "__main__":
    main()
