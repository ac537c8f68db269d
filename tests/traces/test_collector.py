"""The endpoint over a real socket: what it answers, and that what it acknowledged is stored."""

import asyncio
import gzip
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from sqlalchemy.exc import OperationalError
from typer.testing import CliRunner

from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.errors import ConfigError, NothingError
from persona_pipeline.base.http_server import Access
from persona_pipeline.cli.app import app
from persona_pipeline.cli.world.messages import collect
from persona_pipeline.importing import ReadOptions, Source
from persona_pipeline.importing.traces import collector
from persona_pipeline.importing.traces.collector import Bounds, create_app
from persona_pipeline.importing.traces.importer import OTLPFile
from persona_pipeline.importing.traces.reading import RequestBudget
from persona_pipeline.testing.worlds import WorldBuilder
from persona_pipeline.world import World
from tests.support.clock import LONG, held
from tests.support.forking import forked_python
from tests.support.otlp_relay import post
from tests.support.serving import serving
from tests.support.spans import agent, chat, event, logs, request, span
from tests.support.waiting import PATIENCE, wait_until
from tests.traces.test_otlp import as_json
from tests.traces.test_recorded import RECORDED

JSON = {"content-type": "application/json"}
SPANS = request(chat(2, ["Hi"], "Yes?", parent=1), agent(1, "ann", "c"))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> World:
    return WorldBuilder(tmp_path_factory.mktemp("world")).persona("ann", "Ann is dry.").open()


@pytest.fixture
def url(world: World) -> Iterator[str]:
    with serving(create_app(world, bounds=Bounds(RequestBudget(unpacked=100_000)))) as address:
        yield address


def said(world: World) -> list[tuple[str | None, str, str]]:
    return [(message.channel, message.agent_id, message.text) for message in world.messages()]


LINES = [("c", "user", "Hi"), ("c", "ann", "Yes?")]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (SPANS.SerializeToString(), {}),
        (gzip.compress(SPANS.SerializeToString(), mtime=0), {"content-encoding": "gzip"}),
        (json.dumps(as_json(SPANS)).encode(), JSON),
        (
            gzip.compress(json.dumps(as_json(SPANS)).encode(), mtime=0),
            {"content-type": "application/json; charset=utf-8", "content-encoding": "gzip"},
        ),
    ],
    ids=["protobuf", "protobuf, packed", "JSON", "JSON, packed"],
)
def test_what_is_acknowledged_is_stored_once(world: World, url: str, body: bytes, headers: dict[str, str]) -> None:
    for _ in range(2):
        status, given, answer = post(f"{url}/v1/traces", body, headers)
        assert status == 200
        assert said(world) == LINES
        assert given["content-type"] == headers.get("content-type", "application/x-protobuf").partition(";")[0]
        assert answer == (b"{}" if "json" in given["content-type"] else b"")
    with world.store.connect() as connection:
        # FULL: a commit returns when the disk has it.
        assert connection.execute(sa.text("PRAGMA synchronous")).scalar() == 2


def test_events_come_by_another_path(world: World, url: str) -> None:
    records = logs(
        event(2, "gen_ai.user.message", {"content": "Hi"}),
        event(2, "gen_ai.choice", {"message": {"content": "Yes?"}}, at=1),
    )
    status, _, answer = post(f"{url}/v1/logs", records.SerializeToString())
    assert (status, ExportLogsServiceResponse.FromString(answer).partial_success.rejected_log_records) == (200, 0)
    assert [text for _, _, text in said(world)] == ["Hi", "Yes?"]
    # Langfuse's SDK has a path of its own.
    assert post(f"{url}/api/public/otel/v1/traces", SPANS.SerializeToString())[0] == 200


def test_spans_that_are_not_valid_are_refused_and_the_others_stored(world: World, url: str) -> None:
    wrong = [chat(number, ["Hi"], "No.") for number in range(3, 10)]
    for item in wrong:
        item.trace_id = b"short"
    body = request(*wrong, *SPANS.resource_spans[0].scope_spans[0].spans)
    status, _, answer = post(f"{url}/v1/traces", body.SerializeToString())
    partial = ExportTraceServiceResponse.FromString(answer).partial_success
    assert (status, partial.rejected_spans) == (200, 7)
    assert "73686f7274" in partial.error_message
    assert partial.error_message.endswith("and 2 more")
    assert said(world) == LINES
    as_text = json.loads(post(f"{url}/v1/traces", json.dumps(as_json(body)).encode(), JSON)[2])
    assert int(as_text["partialSuccess"]["rejectedSpans"]) == 7


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"\xff\xff", {}, 400),
        (b"{", JSON, 400),
        (b"plain", {"content-encoding": "gzip"}, 400),
        (b"plain", {"content-encoding": "br"}, 400),
        (b"{}", {"content-type": "text/plain"}, 415),
        (gzip.compress(bytes(100_001), mtime=0), {"content-encoding": "gzip"}, 413),
    ],
)
def test_what_cannot_be_taken_is_not_to_be_sent_again(
    world: World, url: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    answered, given, answer = post(f"{url}/v1/traces", body, headers)
    assert (answered, "retry-after" in given) == (status, False)
    message = (
        json.loads(answer)["message"]
        if given["content-type"] == "application/json"
        else Status.FromString(answer).message
    )
    assert message
    assert said(world) == []


def test_a_token_is_asked_for_where_one_is_set_and_a_body_larger_than_allowed_is_not_read(
    world: World, url: str
) -> None:
    body = SPANS.SerializeToString()
    assert post(f"{url}/v1/traces", body, {"host": "office.example"})[0] == 421, (
        "without one only this machine is served"
    )
    with serving(create_app(world, access=Access(token="secret", max_body=2000))) as url:
        assert post(f"{url}/v1/traces", bytes(2001), {"authorization": "Bearer secret"})[0] == 413
        assert post(f"{url}/v1/traces", body)[0] == 401
        assert post(f"{url}/v1/traces", body, {"authorization": "Bearer wrong"})[0] == 401
        assert said(world) == []
        assert post(f"{url}/v1/traces", body, {"authorization": "Bearer secret"})[0] == 200
    assert said(world) == LINES


def test_more_requests_than_may_wait_are_told_to_come_again(world: World) -> None:
    answers: list[int] = []
    with (
        serving(create_app(world, bounds=Bounds(waiting=2))) as url,
        held(world.store, lambda text: "trace_pieces" in text) as stuck,
    ):

        def send(number: int) -> None:
            body = request(chat(2, [f"Hi {number}"], "Yes?", trace=number + 5)).SerializeToString()
            answers.append(post(f"{url}/v1/traces", body)[0])

        threads = [threading.Thread(target=send, args=(number,)) for number in (1, 2)]
        for thread in threads:
            thread.start()
        gauge = "persona_collect_waiting 2.0"
        wait_until(lambda: stuck.waiting > 0 and gauge in _metrics(url), pause=0.01)
        status, given, answer = post(f"{url}/v1/traces", SPANS.SerializeToString())
        assert (status, given["retry-after"]) == (503, "1")
        assert "come again" in Status.FromString(answer).message
        stuck.released.set()
        for thread in threads:
            thread.join()
        assert answers == [200, 200]
        assert post(f"{url}/v1/traces", SPANS.SerializeToString())[0] == 200
        assert 'persona_collect_requests_total{status="503"} 1.0' in _metrics(url)
    assert len(said(world)) == 6


def _metrics(url: str) -> str:
    with urllib.request.urlopen(f"{url}/metrics", timeout=LONG) as answer:
        return answer.read().decode()


@pytest.mark.parametrize(
    ("error", "status", "retry"),
    [
        (OperationalError("INSERT", None, sqlite3.OperationalError("disk I/O error")), 503, "1"),
        (ValueError("nobody knows"), 500, None),
    ],
)
def test_only_what_may_go_better_is_a_reason_to_come_again(
    world: World, url: str, error: Exception, status: int, retry: str | None
) -> None:
    def fail(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "trace_pieces" in statement:
            raise error

    sa.event.listen(world.store.engine, "before_cursor_execute", fail)
    try:
        answered, given, _ = post(f"{url}/v1/traces", SPANS.SerializeToString())
        assert (answered, given.get("retry-after")) == (status, retry)
    finally:
        sa.event.remove(world.store.engine, "before_cursor_execute", fail)
    assert said(world) == []
    assert post(f"{url}/v1/traces", SPANS.SerializeToString())[0] == 200
    assert said(world) == LINES


def test_old_pieces_are_dropped_for_as_long_as_the_collector_runs(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[timedelta] = []

    def forget(_store: Store, older_than: timedelta, _now: datetime) -> int:
        asked.append(older_than)
        if len(asked) == 1:
            raise ValueError("the disk is full")
        return 0

    monkeypatch.setattr(collector, "forget_pieces", forget)
    monkeypatch.setattr(collector, "_FORGET_SECONDS", 0.01)

    async def run() -> None:
        forgetting = asyncio.create_task(collector._Collector(world, Bounds(keep_days=3.5)).forget())
        async with asyncio.timeout(PATIENCE):
            while len(asked) < 3 and not forgetting.done():
                await asyncio.sleep(0.01)
        forgetting.cancel()

    asyncio.run(run())
    assert asked[:3] == [timedelta(days=3.5)] * 3
    assert "pieces of old traces could not be dropped" in caplog.text and "the disk is full" in caplog.text


def test_the_command_listens_to_others_only_with_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERSONA_COLLECT_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="PERSONA_COLLECT_TOKEN"):
        collect(host="0.0.0.0")


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.collector.trace.v1.trace_service_pb2", None)
    with pytest.raises(ConfigError, match=r"persona-pipeline\[otel\]"):
        collect()
    with pytest.raises(ConfigError, match=r"persona-pipeline\[otel\]"):
        next(iter(OTLPFile().rows(Source(tmp_path / "spans.jsonl", "spans.jsonl"), ReadOptions())))


class Process:
    """``persona-pipeline collect`` as it is run."""

    def __init__(self, world: World) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self._port = taken.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}/v1/traces"
        self._environment = os.environ | {
            "PERSONA_ROOT": str(world.root),
            "PERSONA_DATABASE_URL": str(world.store.engine.url),
        }
        self.start()

    def start(self) -> None:
        code = "from persona_pipeline.cli import main; main()"
        arguments = [forked_python(), "-c", code, "collect", "--port", str(self._port)]
        self.process = subprocess.Popen(arguments, env=self._environment, stderr=subprocess.DEVNULL)
        wait_until(lambda: post(self.url, b"")[0] == 200, pause=0.05)

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.wait(LONG)


def test_what_was_acknowledged_is_stored_however_the_collector_ends(world: World) -> None:
    bodies = {n: request(chat(2, [f"Hi {n}"], f"Yes {n}", trace=n, at=n)).SerializeToString() for n in range(1, 1500)}
    collector = Process(world)
    for how in (signal.SIGKILL, signal.SIGTERM):
        acknowledged: set[int] = set()
        go_on = threading.Event()

        def send(share: int, acknowledged: set[int] = acknowledged, go_on: threading.Event = go_on) -> None:
            for number in range(1 + share, 1500, 4):
                if post(collector.url, bodies[number])[0] != 200:
                    return
                acknowledged.add(number)
                if len(acknowledged) >= 40:
                    go_on.set()

        threads = [threading.Thread(target=send, args=(share,)) for share in range(4)]
        for thread in threads:
            thread.start()
        assert go_on.wait(LONG)
        collector.end(how)
        for thread in threads:
            thread.join()
        texts = [text for _, _, text in said(world)]
        assert {f"{word} {number}" for number in acknowledged for word in ("Hi", "Yes")} <= set(texts)
        # What came twice, as whoever was not answered sends it again, stands there once.
        assert len(texts) == len(set(texts))
        if how is signal.SIGKILL:
            collector.start()


def _told(world: World, number: int, given: dict[str, Any], caplog: pytest.LogCaptureFixture) -> tuple[str, list[str]]:
    body = request(*(span(place + 1, given, trace=place + 1) for place in range(number)))
    body.resource_spans[0].scope_spans[0].scope.name = "some-sdk"
    with serving(create_app(world)) as address:
        assert post(f"{address}/v1/traces", body.SerializeToString())[0] == 200
        metrics = _metrics(address)
    # A gate of a test that is over may still say, in its thread, what it could not write down.
    heard = (record for record in caplog.records if not record.name.startswith("persona_pipeline.corrections"))
    return metrics, [record.getMessage() for record in heard]


LLM, CHAIN = ({"openinference.span.kind": kind} for kind in ("LLM", "CHAIN"))
REDACTED = [("input", "role", "user"), ("input", "content", "Hi"), ("output", "content", "__REDACTED__")]


@pytest.mark.parametrize(
    ("given", "reason", "said_of_it"),
    [
        ({"sdk.input": '{"a": 1}', "sdk.output": '{"b": 2}'}, "form_not_known", "in a form that is not read"),
        ({"gen_ai.operation.name": "chat"}, "no_contents", "no attribute or event holds words"),
        (LLM | {"input.value": "__REDACTED__", "output.value": "__REDACTED__"}, "redacted", "redacted"),
        (LLM | {f"llm.{side}_messages.0.message.{key}": text for side, key, text in REDACTED}, "redacted", "redacted"),
        (CHAIN | {"input.value": "Hi", "output.value": "Yes?"}, "no_call_of_a_model", "no calls of a model"),
        # Of spans that hold none nothing is said.
        ({"http.route": "/chat"}, "", ""),
        ({"ai.operationId": "ai.generateText", "ai.prompt": "{}"}, "", ""),
        ({"gen_ai.usage.input_tokens": 3}, "", ""),
    ],
)
def test_spans_without_words_are_counted_and_told_once_a_scope(
    world: World, caplog: pytest.LogCaptureFixture, given: dict[str, Any], reason: str, said_of_it: str
) -> None:
    metrics, lines = _told(world, 20, given, caplog)
    if not reason:
        assert ("some-sdk" in metrics, lines) == (False, [])
        return
    assert f'persona_collect_spans_without_words_total{{reason="{reason}",scope="some-sdk"}} 20.0' in metrics
    assert [line for line in lines if line.startswith("20 spans of some-sdk") and said_of_it in line] == lines
    assert len(lines) == 1


def test_a_file_is_explained_by_scope() -> None:
    path = RECORDED / "crewai_1.jsonl"
    done = CliRunner().invoke(app, ["collect", "--explain", str(path)])
    assert done.output.splitlines() == [
        "openinference.instrumentation.crewai: 6 spans, 0 with words, 0 channels; agents: nobody",
        "  6 had input and output, and were no calls of a model (input.value, output.value)",
        "openinference.instrumentation.openai: 4 spans, 4 with words, 1 channels; agents: ann, bob",
        "  words are read from (llm.input_messages, llm.output_messages)",
    ]


def test_a_file_in_which_no_span_is_read_is_explained_by_its_keys(tmp_path: Path) -> None:
    calls = {"sdk.input": "Hi", "sdk.output": '{"text": "Yes?", "tool_calls": [{"x": 1}]}'}
    given = [{"sdk.input": '{"a": 1}'}, {"gen_ai.operation.name": "chat"}, calls]
    lines = [json.dumps(as_json(request(span(number, found)))) for number, found in enumerate(given, start=1)]
    (tmp_path / "traces.jsonl").write_text("\n".join(lines), encoding="utf-8")
    done = CliRunner().invoke(app, ["collect", "--explain", str(tmp_path / "traces.jsonl")])
    assert isinstance(done.exception, NothingError)
    for said in (
        "a form that is not read (sdk.input)",
        "no attribute or event holds words",
        "sdk.output.tool_calls[0] names no",
    ):
        assert said in done.output
