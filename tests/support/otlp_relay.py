"""What stands between an exporter and a collector on a bad day: requests are lost, answers are lost, things come twice and late."""

import gzip
import itertools
import random
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.instrumented import QuietServer

FAILURES, MOST_FAILURES = ("lost", "answer lost"), 2
PROTOBUF = {"content-type": "application/x-protobuf"}


def post(url: str, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of the answer; status 0: none came."""
    request = urllib.request.Request(url, body, {**PROTOBUF, **(headers or {})}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=240) as answer:
            return answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, {name.lower(): value for name, value in error.headers.items()}, error.read()
    except OSError:
        return 0, {}, b""


class Relay:
    """Passes requests on to a collector, badly: ``faults`` counts how. What it holds back goes with ``release``."""

    def __init__(self, target: str, seed: int) -> None:
        self._target, self._random = target, random.Random(seed)
        self._order = itertools.cycle(("lost", "apart", "answer lost", "none", "twice", "apart", "none"))
        self._lock = threading.Lock()
        self._held: list[tuple[str, bytes]] = []
        self._failed: Counter[bytes] = Counter()
        self.faults: Counter[str] = Counter()

    def __call__(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        whole = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        with self._lock:
            # Exporters give up after a few times.
            may_fail = self._failed[whole] < MOST_FAILURES
            fault = next(fault for fault in self._order if may_fail or fault not in FAILURES)
            self._failed[whole] += fault in FAILURES
            self.faults[fault] += 1
            parts = self._apart(path, whole) if fault == "apart" else [whole]
            if fault == "apart":
                self._held.append((path, parts.pop()))
        if fault == "lost":
            return 503, {"retry-after": "0"}, b""
        for part in parts * (2 if fault == "twice" else 1):
            self._forward(path, part)
        return (503, {"retry-after": "0"}, b"") if fault == "answer lost" else (200, PROTOBUF, b"")

    def release(self) -> None:
        """Send what was held back, the last first."""
        for path, body in reversed(self._held):
            self._forward(path, body)
        self._held.clear()

    def _forward(self, path: str, body: bytes) -> None:
        while (answer := post(self._target + path, body))[0] in (0, 503):
            time.sleep(0.05)
        assert answer[0] == 200, answer
        assert answer[2] == b"", "something was refused"

    def _apart(self, path: str, body: bytes) -> list[bytes]:
        """Return two requests with the spans, or log records, of one, in another order."""
        request: Any = ExportLogsServiceRequest() if path.endswith("logs") else ExportTraceServiceRequest()
        request.ParseFromString(body)
        halves = [type(request)(), type(request)()]
        if path.endswith("logs"):
            found = [
                (group, scope, item)
                for group in request.resource_logs
                for scope in group.scope_logs
                for item in scope.log_records
            ]
        else:
            found = [
                (group, scope, item)
                for group in request.resource_spans
                for scope in group.scope_spans
                for item in scope.spans
            ]
        self._random.shuffle(found)
        for number, (group, scope, item) in enumerate(found):
            half = halves[number % 2]
            groups = half.resource_logs if path.endswith("logs") else half.resource_spans
            new = groups.add(resource=group.resource)
            scopes = new.scope_logs if path.endswith("logs") else new.scope_spans
            of = scopes.add(scope=scope.scope)
            (of.log_records if path.endswith("logs") else of.spans).append(item)
        return [half.SerializeToString() for half in halves]


def relaying(relay: Relay) -> QuietServer:
    """Return a server that an exporter takes for the collector."""
    return QuietServer(relay)
