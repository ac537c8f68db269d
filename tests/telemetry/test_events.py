"""Scores as a collector gets them: a stand-in that speaks OTLP over a real socket, read field by field."""

import gzip
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.base.settings import get_settings
from persona_pipeline.base.telemetry import EVENT, Emitter, EvaluationEvent, SpanIds, emitter, within_span
from persona_pipeline.corrections.configuration import write_config
from persona_pipeline.corrections.service.app import ModelUpstream, create_app
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.importing.traces.otlp import attributes
from persona_pipeline.judging.verdict import JudgeRequest, Unscored, Verdict
from persona_pipeline.suites import load_suite, run_suite
from persona_pipeline.testing.judges import ScriptedJudge
from persona_pipeline.testing.worlds import WorldBuilder
from persona_pipeline.world import World
from tests.corrections.support import GATED, TextBackend
from tests.support.instrumented import QuietServer
from tests.support.model_server import ModelServer, Written
from tests.support.serving import serving
from tests.telemetry.support import SPAN, TRACE, flush, forget, traced


@dataclass
class Collector:
    """Keeps what it is sent."""

    requests: list[tuple[str, dict[str, str], ExportLogsServiceRequest]] = field(default_factory=list)
    status: int = 200

    def __call__(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        whole = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        self.requests.append((path, headers, ExportLogsServiceRequest.FromString(whole)))
        return self.status, {"content-type": "application/x-protobuf"}, b""

    def records(self) -> list[Any]:
        groups = [group for _, _, each in self.requests for group in each.resource_logs]
        return [record for group in groups for scope in group.scope_logs for record in scope.log_records]

    def events(self) -> dict[str, list[dict[str, Any]]]:
        """Return the attributes of events by what they measure, with the ids of their spans."""
        found: dict[str, list[dict[str, Any]]] = {}
        for record in self.records():
            assert record.event_name == EVENT
            assert record.time_unix_nano
            given = attributes(record.attributes) | {"trace": record.trace_id.hex(), "span": record.span_id.hex()}
            found.setdefault(given.pop("gen_ai.evaluation.name"), []).append(given)
        return found


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that this process's scores are sent to."""
    with QuietServer(kept := Collector()) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20t0ken")
        monkeypatch.setenv("PERSONA_OTEL_EVENTS", "true")
        forget()
        yield kept
    forget()


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Ann said two things, one of which came with a trace; each is judged by itself."""
    builder = (
        WorldBuilder(tmp_path).persona("ann", "Ann is dry.").say("ann", "The kettle is old.", at="2026-03-02T09:00:05Z")
    )
    claims = [
        {"id": "dry", "claim": "Ann is dry"},
        {"id": "rude", "claim": "Ann is rude", "inverted": True},
    ]
    builder._write(
        "propositions/adherence/ann.yaml",
        {"dimension": "adherence", "agent_id": "ann", "level": "action", "propositions": claims},
    )
    return traced(builder.claim("fluency", "fresh", "Ann is never the same").open())


def answer(asked: JudgeRequest) -> Verdict:
    if asked.dimension == "fluency":
        return Verdict(asked.proposition_id, unscored=Unscored.TIMEOUT, reasoning="too late")
    return Verdict(
        asked.proposition_id,
        score=8 if "I suppose." in str(asked.trajectory.entries[-1]) else 3,
        reasoning="A secret quote.",
    )


def evaluate(world: World) -> str:
    asked = EvaluationRequest(agents=["ann"], dimensions=["adherence", "fluency"], window="all")
    world = replace(world, environment=get_settings())
    return run_evaluation(world, ScriptedJudge(answer), asked).report.agents["ann"].evaluation.run_id


def test_an_evaluation_is_sent_score_by_score(world: World, collector: Collector) -> None:
    run_id = evaluate(world)
    flush()
    (path, headers, sent), *_ = collector.requests
    assert (path, headers["authorization"], headers["content-type"]) == (
        "/v1/logs",
        "Bearer t0ken",
        "application/x-protobuf",
    )
    assert attributes(sent.resource_logs[0].resource.attributes)["service.name"] == "persona-pipeline"
    events = collector.events()
    given = {
        "gen_ai.agent.id": "ann", "gen_ai.agent.name": "Ann", "persona.run.id": run_id, "persona.judge": "scripted",
        "persona.window.end": "2026-03-02T09:00:05Z",
    }  # fmt: skip
    nowhere = {"trace": "", "span": ""}
    of = {**given, "persona.dimension": "adherence"}
    counts = {"persona.scored": 4, "persona.expected": 4}
    # 8 and 3 of the one claim, turned 1 and 6 of the other.
    value = "gen_ai.evaluation.score.value"
    label = "gen_ai.evaluation.score.label"
    assert events["adherence"] == [{value: 4.5, label: "no_baseline", **of, **counts, **nowhere}]
    dry, *messages = events["adherence/dry"]
    assert dry == {value: 5.5, label: "ok", "persona.claim.id": "dry", **of, **nowhere}
    rude, *turned = events["adherence/rude"]
    assert rude == {
        value: 3.5,
        label: "ok",
        "persona.claim.id": "rude",
        "persona.claim.inverted": True,
        **of,
        **nowhere,
    }
    assert sorted(item[value] for item in turned) == [1.0, 6.0]
    (traced,) = [item for item in messages if item["span"]]
    assert traced.pop("persona.message.id").startswith("otel-")
    assert traced == {
        value: 8.0, "persona.claim.id": "dry", "gen_ai.response.id": "resp_9", "gen_ai.conversation.id": "c",
        "trace": TRACE, "span": SPAN, **of,
    }  # fmt: skip
    (other,) = [item for item in messages if not item["span"]]
    assert (other["persona.message.id"], other[value], "gen_ai.response.id" in other) == ("m1", 3.0, False)
    (late,) = events["fluency/fresh"]
    assert (late["error.type"], value in late) == ("timeout", False)
    assert events["fluency"][0]["error.type"] == "timeout" or value in events["fluency"][0]
    assert "overall" in events


@pytest.mark.parametrize("asked", [False, True])
def test_reasons_leave_only_where_that_is_asked_for(
    world: World, collector: Collector, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    if asked:
        monkeypatch.setenv("PERSONA_OTEL_EXPLANATIONS", "true")
        forget()
    evaluate(world)
    flush()
    everything = str(collector.requests)
    assert ("A secret quote." in everything) is asked
    assert "The kettle is old." not in everything


def test_nothing_is_sent_unless_it_is_asked_for(
    world: World, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSONA_OTEL_EVENTS", "")
    forget()
    evaluate(world)
    assert emitter(get_settings()) is None
    assert collector.requests == []


@pytest.mark.parametrize("status", [0, 503])
@pytest.mark.filterwarnings("default")
def test_an_evaluation_does_not_learn_of_a_dead_collector(
    world: World, collector: Collector, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    collector.status = status or 200
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    if not status:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    evaluate(world)
    sender = emitter(get_settings())
    assert sender is not None
    sender.close(0.01)


def test_events_that_cannot_be_made_are_no_reason_to_fail(
    world: World, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no such thing")

    monkeypatch.setattr("persona_pipeline.evaluation.history.evaluation_events", fail)
    evaluate(world)


def test_without_the_packages_a_line_is_logged_and_nothing_sent(
    world: World, collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk._logs", None)
    evaluate(world)
    assert emitter(get_settings()) is None
    (said,) = [record.getMessage() for record in caplog.records if record.name == "persona_pipeline.telemetry"]
    assert "persona-pipeline[otel]" in said


SUITE = """
name: sums
description: d
tests:
  - id: right
    input: 1 + 1?
    conversation_id: talk
    assert:
      - {name: two, type: contains, value: "2"}
  - id: wrong
    input: 1 + 2?
    assert:
      - {name: three, type: contains, value: "3"}
      - {name: judged, type: llm_judge, prompt: Is it right?}
"""


def test_a_suite_is_sent_test_by_test(tmp_path: Path, collector: Collector) -> None:
    path = tmp_path / "sums.yaml"
    path.write_text(SUITE, encoding="utf-8")
    run_suite(load_suite(path), targets=lambda request: "2")
    flush()
    events = collector.events()
    value, label = "gen_ai.evaluation.score.value", "gen_ai.evaluation.score.label"
    given = {"persona.suite": "sums", "trace": "", "span": "", "persona.target": "default"}
    right, wrong = events["sums"]
    assert right == {value: 1.0, label: "pass", "persona.test.id": "right", "gen_ai.conversation.id": "talk", **given}
    assert (wrong[label], value in wrong, wrong["error.type"]) == (
        "error",
        False,
        events["sums/judged"][0]["error.type"],
    )
    about = {"persona.test.id": "right", "persona.assert.type": "contains", "gen_ai.conversation.id": "talk"}
    assert events["sums/two"] == [{value: 1.0, label: "pass", **about, **given}]
    assert events["sums/three"][0][value] == 0.0


def test_the_gate_tells_of_the_span_that_asked(tmp_path: Path, collector: Collector) -> None:
    world = WorldBuilder(tmp_path).persona("ann", "Ann is dry.").claim("adherence", "dry", "Ann is dry").open()
    world.sync()
    write_config(world.store, "ann", GATED)
    body = {"agent_id": "ann", "channel": "general", "text": "bad 1"}
    with TestClient(create_app(world, TextBackend()), base_url="http://localhost") as client:
        traced = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
        decision = client.post("/v1/gate", json=body, headers=traced).json()
        assert (
            client.post("/v1/gate", json=body | {"text": "good 8"}, headers={"traceparent": "rubbish"}).json()["action"]
            == "commit"
        )
        assert client.post("/v1/gate", json=body | {"agent_id": "bob"}).json()["outcome"] == "disabled"
    flush()
    asked, other = collector.events()["gate"]
    assert asked.pop("persona.gate.latency_ms") > 0
    assert asked == {
        "gen_ai.evaluation.score.value": 1.0, "gen_ai.evaluation.score.label": "corrected", "gen_ai.agent.id": "ann",
        "persona.gate.action": "retry", "persona.gate.action_id": decision["action_id"], "persona.gate.threshold": 5.0,
        "persona.gate.attempt": 1, "trace": TRACE, "span": SPAN,
    }  # fmt: skip
    assert (other["gen_ai.evaluation.score.value"], other["trace"]) == (8.0, "")
    assert "bad 1" not in str(collector.requests)


def test_the_gate_in_the_way_tells_of_the_span_that_asked(tmp_path: Path, collector: Collector) -> None:
    world = WorldBuilder(tmp_path).persona("ann", "Ann is dry.").claim("adherence", "dry", "Ann is dry").open()
    world.sync()
    write_config(world.store, "ann", GATED)
    body = {"model": "ann", "messages": [{"role": "user", "content": "hi"}]}
    with (
        serving(ModelServer(lambda asked: Written("good 8" if asked.is_again else "bad 1"))) as model,
        TestClient(
            create_app(world, TextBackend(), upstream=ModelUpstream(model, {"ann": "ann"}, ask_again=True)),
            base_url="http://localhost",
        ) as client,
    ):
        traced = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
        answer = client.post("/v1/chat/completions", json=body, headers=traced).json()
    assert answer["choices"][0]["message"]["content"] == "good 8"
    flush()
    told = [
        (event["gen_ai.evaluation.score.label"], event["trace"], event["span"]) for event in collector.events()["gate"]
    ]
    assert told == [("corrected", TRACE, SPAN), ("passed_after_retry", TRACE, SPAN)]


def test_more_events_than_a_run_has_wait_for_the_collector(collector: Collector) -> None:
    sender = Emitter()
    sender.emit(EvaluationEvent(f"claim-{number}", 1.0) for number in range(2500))
    sender.close(240)
    assert len(collector.records()) == 2500


@pytest.mark.parametrize(
    ("extras", "found"),
    [
        ({"trace_id": TRACE, "span_id": SPAN}, SpanIds(TRACE, SPAN)),
        ({"trace_id": "0" * 32, "span_id": SPAN}, None),
        ({"trace_id": "mine", "span_id": 3}, None),
        ({}, None),
    ],
)
def test_extras_that_name_no_span_are_no_span(extras: dict[str, Any], found: SpanIds | None) -> None:
    assert SpanIds.among(extras) == found


def test_without_events_the_current_span_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERSONA_OTEL_EVENTS", raising=False)
    forget()
    with within_span(f"00-{TRACE}-{SPAN}-01", get_settings()):
        from opentelemetry.trace import get_current_span

        assert not get_current_span().get_span_context().is_valid
    forget()
