"""Scores as Langfuse and Phoenix get them: their own clients, and stand-ins of their documented APIs over a real socket."""

import base64
import itertools
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.base.settings import Settings, from_environment, get_settings
from persona_pipeline.base.telemetry import EvaluationEvent, SpanIds, emitter
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.judging.verdict import Evidence, JudgeRequest, Verdict
from persona_pipeline.testing.judges import ScriptedJudge
from persona_pipeline.testing.worlds import WorldBuilder
from persona_pipeline.world import World
from tests.support.instrumented import QuietServer
from tests.telemetry.support import SPAN, TRACE, flush, forget, traced

BACKENDS = ("langfuse", "phoenix")
KEYS = itertools.count()


@dataclass
class Backend:
    """Keeps the scores it is sent, whole, after so many answers of another status."""

    status: int = 503
    refusals: int = 0
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    scores: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        if path.partition("?")[0] not in ("/api/public/scores", "/v1/span_annotations"):
            return 404, {}, b"{}"
        self.requests.append((path, headers))
        if self.refusals:
            self.refusals -= 1
            return self.status, {}, b"{}"
        sent = json.loads(body)
        self.scores += sent["data"] if isinstance(sent, dict) else sent
        answer = {"data": []} if isinstance(sent, dict) else {"message": "Accepted"}
        return (
            (200 if isinstance(sent, dict) else 202),
            {"content-type": "application/json"},
            json.dumps(answer).encode(),
        )


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Backend]]:
    """Both stand-ins, and a process that sends its scores to both."""
    found = {name: Backend() for name in BACKENDS}
    with QuietServer(found["langfuse"]) as langfuse, QuietServer(found["phoenix"]) as phoenix:
        monkeypatch.setenv("LANGFUSE_BASE_URL", langfuse.url)
        # A client is made once for a key.
        monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", f"pk-{next(KEYS)}")
        monkeypatch.setenv("LANGFUSE_SECRET_KEY", "sk-1")
        monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", phoenix.url)
        monkeypatch.setenv("PHOENIX_API_KEY", "px-1")
        asked_for(monkeypatch, "langfuse, phoenix")
        yield found
        asked_for(monkeypatch, "")


def asked_for(monkeypatch: pytest.MonkeyPatch, names: str, *, explained: bool = False) -> None:
    monkeypatch.setenv("PERSONA_SCORE_BACKENDS", names)
    monkeypatch.setenv("PERSONA_OTEL_EXPLANATIONS", "true" if explained else "")
    forget()


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Ann answered once, in a conversation that was traced, and is judged over the window and message by message."""
    builder = WorldBuilder(tmp_path).persona("ann", "Ann is dry.").claim("adherence", "dry", "Ann is dry")
    return traced(builder.say("ann", "The kettle is old.", at="2026-03-02T09:00:05Z").open())


def evaluate(world: World, score: int = 3, *, taken: bool = False, made_up: bool = False) -> str:
    """Judge Ann, quoting what she said in the traced conversation; ``taken``: as her baseline. Returns the run's id."""

    def answer(asked: JudgeRequest) -> Verdict:
        traced = next(entry for entry in asked.trajectory.entries if "I suppose." in str(entry))
        quotes = [Evidence(traced.message_id, "I suppose.", True)] * 2 + [
            Evidence("m1", "Never said.", False)
        ] * made_up
        return Verdict(asked.proposition_id, score=score, reasoning="She only supposes.", evidence=tuple(quotes))

    asked = EvaluationRequest(agents=["ann"], dimensions=["adherence"], window="all", samples=4, update_baseline=taken)
    world = replace(world, environment=get_settings())
    return run_evaluation(world, ScriptedJudge(answer), asked).report.agents["ann"].evaluation.run_id


def test_a_claim_is_shown_on_the_span_that_it_quotes(world: World, backends: dict[str, Backend]) -> None:
    run_id = evaluate(world, made_up=True)
    flush()
    about = {
        "gen_ai.agent.id": "ann", "gen_ai.agent.name": "Ann", "gen_ai.conversation.id": "c", "gen_ai.response.id": "resp_9",
        "persona.run.id": run_id, "persona.judge": "scripted", "persona.window.end": "2026-03-02T09:00:05Z",
        "persona.dimension": "adherence", "persona.claim.id": "dry", "persona.quoted": True,
    }  # fmt: skip
    (score,) = backends["langfuse"].scores
    metadata = score.pop("metadata")
    assert metadata.pop("persona.message.id").startswith("otel-")
    assert metadata == about | {"label": "ok"}
    assert score.pop("timestamp") and score.pop("id") and score.pop("environment", None) is None
    assert score == {
        "name": "adherence/dry", "value": 3.0, "dataType": "NUMERIC", "traceId": TRACE, "observationId": SPAN,
    }  # fmt: skip
    (annotation,) = backends["phoenix"].scores
    assert annotation.pop("metadata").items() >= about.items()
    assert annotation == {
        "name": "adherence/dry", "annotator_kind": "LLM", "span_id": SPAN, "identifier": "persona-pipeline",
        "result": {"score": 3.0, "label": "ok"},
    }  # fmt: skip
    (_, to_langfuse), *_ = backends["langfuse"].requests
    keys = f"{os.environ['LANGFUSE_PUBLIC_KEY']}:sk-1"
    assert to_langfuse["authorization"] == "Basic " + base64.b64encode(keys.encode()).decode()
    (_, to_phoenix), *_ = backends["phoenix"].requests
    assert to_phoenix["authorization"] == "Bearer px-1"


def test_a_claim_that_fell_opens_its_conversation(world: World, backends: dict[str, Backend]) -> None:
    evaluate(world, 9, taken=True)
    evaluate(world, 1)
    flush()
    score = backends["langfuse"].scores[-1]
    assert (score["metadata"]["label"], score["traceId"], score["observationId"]) == ("regressed", TRACE, SPAN)
    assert score["metadata"]["gen_ai.conversation.id"] == "c"
    annotation = backends["phoenix"].scores[-1]
    assert (annotation["result"]["label"], annotation["span_id"]) == ("regressed", SPAN)


def test_what_is_judged_again_takes_the_place_of_what_was_said_before(
    world: World, backends: dict[str, Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate(world)
    flush()
    asked_for(monkeypatch, "langfuse,phoenix")
    evaluate(world)
    flush()
    first, again = backends["langfuse"].scores
    assert first["id"] == again["id"]
    one, other = backends["phoenix"].scores
    assert [one[key] == other[key] for key in ("name", "span_id", "identifier")] == [True] * 3


@pytest.mark.parametrize("explained", [False, True])
def test_reasons_leave_only_where_that_is_asked_for(
    world: World, backends: dict[str, Backend], monkeypatch: pytest.MonkeyPatch, explained: bool
) -> None:
    asked_for(monkeypatch, "langfuse,phoenix", explained=explained)
    evaluate(world)
    flush()
    reason = "She only supposes." if explained else None
    assert [item.get("comment") for item in backends["langfuse"].scores] == [reason]
    assert [item["result"].get("explanation") for item in backends["phoenix"].scores] == [reason]
    assert "I suppose." not in str([item.scores for item in backends.values()])


def test_only_scores_of_spans_are_sent(backends: dict[str, Backend]) -> None:
    sender, span = emitter(get_settings()), SpanIds(TRACE, SPAN)
    assert sender is not None
    sender.emit(
        [
            EvaluationEvent("window", 4.0),
            EvaluationEvent("late", error="timeout", span=span),
            EvaluationEvent("gate", 2.5, "corrected", span=span),
        ]
    )
    flush()
    assert [item["name"] for each in backends.values() for item in each.scores] == ["gate", "gate"]


@pytest.mark.parametrize("failing", BACKENDS)
def test_a_backend_that_is_down_for_a_while_gets_its_scores_and_holds_no_other_up(
    world: World, backends: dict[str, Backend], failing: str
) -> None:
    backends[failing].refusals = 2
    evaluate(world)
    flush()
    assert {name: (len(each.requests), len(each.scores)) for name, each in backends.items()} == {
        name: (3 if name == failing else 1, 1) for name in BACKENDS
    }


@pytest.mark.filterwarnings("default")
def test_a_backend_that_refuses_is_named_and_not_asked_again(
    world: World, backends: dict[str, Backend], caplog: pytest.LogCaptureFixture
) -> None:
    for each in backends.values():
        each.status, each.refusals = 401, 100
    evaluate(world)
    flush()
    assert [len(each.requests) for each in backends.values()] == [1, 1]
    assert "Phoenix did not take 1 scores" in caplog.text
    assert "sk-1" not in caplog.text and "px-1" not in caplog.text


@pytest.mark.parametrize(
    ("variable", "module", "said"),
    [
        ("LANGFUSE_SECRET_KEY", "", "langfuse: LANGFUSE_SECRET_KEY must be set"),
        ("", "langfuse", "langfuse: langfuse is not installed; pip install 'persona-pipeline[langfuse]'"),
        ("", "phoenix.client", "phoenix: phoenix.client is not installed; pip install 'persona-pipeline[phoenix]'"),
    ],
)
def test_what_cannot_be_sent_to_one_is_said_and_sent_to_the_other(
    world: World,
    backends: dict[str, Backend],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variable: str,
    module: str,
    said: str,
) -> None:
    if variable:
        monkeypatch.delenv(variable)
    if module:
        monkeypatch.setitem(sys.modules, module, None)
    evaluate(world)
    flush()
    assert [r.getMessage() for r in caplog.records if r.name == "persona_pipeline.telemetry"] == [
        f"no scores are sent to {said}"
    ]
    assert sorted(len(each.scores) for each in backends.values()) == [0, 1]


def test_a_backend_that_is_not_known_is_an_error_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONA_SCORE_BACKENDS", "langfuse, langsmith")
    with pytest.raises(ConfigError, match=r"PERSONA_SCORE_BACKENDS.*langsmith is none of langfuse, phoenix"):
        from_environment(Settings)
