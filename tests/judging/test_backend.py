"""Asking many questions: order, prefix, cache, groups, endpoints."""

import asyncio
import json
from dataclasses import replace

import pytest
from pydantic import SecretStr

from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.settings import Settings
from persona_pipeline.judging.cache import JudgmentCache
from persona_pipeline.judging.claims import proposition_question
from persona_pipeline.judging.model.asking import ModelBackend, live_judge
from persona_pipeline.judging.open import JudgeOptions, OpenedJudge, open_judge
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.verdict import Unscored
from tests.support.judging import every_entry, request, requests, trajectory
from tests.support.messages_server import MessagesServer, message, status, verdicts

LONG = trajectory(length=110)


def test_verdicts_come_in_the_order_of_the_requests(server: MessagesServer, judge: OpenedJudge) -> None:
    asked = requests(30)
    server.handler = lambda call: replace(
        message(json.dumps(verdicts(call.body))), delay=0.02 if call.index % 3 else 0.0
    )
    told = asyncio.run(judge.judge(asked))
    assert [verdict.proposition_id for verdict in told] == [item.proposition_id for item in asked]
    assert {verdict.reasoning for verdict in told} == {f"About {item.claim!r}." for item in asked}


def test_the_request_holds_rules_transcript_and_claim_in_their_places(
    server: MessagesServer, judge: OpenedJudge
) -> None:
    asyncio.run(judge.judge([request("is kind", persona="A kind man.")]))
    body = server.calls[0].body
    assert "0: false beyond doubt" in body["system"][0]["text"]
    assert '{"persona":"A kind man."}' in body["messages"][0]["content"][0]["text"]
    assert every_entry(server.calls[0].evidence) == trajectory().content()
    assert body["messages"][-1]["role"] == "user"
    assert '"claim":"is kind"' in body["messages"][-1]["content"][0]["text"]
    assert body["tool_choice"] == {"type": "none"}
    assert body["output_config"]["effort"] == "low"
    assert body["thinking"] == {"type": "adaptive"}
    assert "temperature" not in body


def test_quotes_are_checked_against_the_transcript(server: MessagesServer, judge: OpenedJudge) -> None:
    quotes = [
        {"message": "m2", "quote": "fact-checked  that"},
        {"message": "m2", "quote": "never said"},
        {"message": "m99", "quote": "fact-checked that"},
        {"message": "m2", "quote": " "},
    ]

    def handler(call: object) -> object:
        data = verdicts(server.calls[-1].body)
        data["verdicts"][0]["evidence"] = quotes
        return message(json.dumps(data))

    server.handler = handler  # pyright: ignore[reportAttributeAccessIssue]
    (verdict,) = asyncio.run(judge.judge([request()]))
    assert [(item.message_id, item.verified) for item in verdict.evidence] == [
        ("message-2", True),
        ("message-2", False),
        (None, False),
        ("message-2", False),
    ]


def test_an_empty_trajectory_is_no_evidence_without_a_call(server: MessagesServer, judge: OpenedJudge) -> None:
    (verdict,) = asyncio.run(judge.judge([request(trajectory=type(LONG)(()))]))
    assert verdict.unscored is Unscored.NO_EVIDENCE
    assert server.calls == []


def test_the_first_call_of_a_prefix_goes_alone_and_the_rest_reads_its_cache(
    server: MessagesServer, judge: OpenedJudge
) -> None:
    server.latency = 0.05
    asyncio.run(judge.judge(requests(6, trajectory=LONG)))
    assert server.usage["cache_read_input_tokens"] == 5 * server.usage["cache_creation_input_tokens"]
    total = judge.backend.spent
    assert total.cache_read_tokens == server.usage["cache_read_input_tokens"]
    assert total.calls == 6


def test_a_prefix_too_short_to_be_cached_does_not_wait_for_a_first_call(
    server: MessagesServer, options: ModelOptions
) -> None:
    server.latency = 0.1
    judge = live_judge(ModelBackend(replace(options, model="claude-haiku-4-5")))
    asyncio.run(judge.judge(requests(6)))
    assert server.busiest == 6
    assert "cache_control" not in server.calls[0].raw.decode()


def test_a_server_of_ones_own_needs_no_key(server: MessagesServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    judge = open_judge("anthropic", None, JudgeOptions(recorded=False, kept=False), settings=Settings())
    (verdict,) = asyncio.run(judge.judge([request()]))
    assert verdict.score is not None


def test_the_endpoint_in_provenance_holds_no_password() -> None:
    options = ModelOptions(base_url="https://user:secret@models.example:8443/api/")
    assert options.endpoint == "https://models.example:8443/api"


def test_grouped_claims_share_calls_and_keep_their_verdicts(server: MessagesServer, options: ModelOptions) -> None:
    asked = requests(7)
    alone = asyncio.run(live_judge(ModelBackend(options)).judge(asked))
    del server.calls[:]
    grouped = asyncio.run(live_judge(ModelBackend(options), grouping=3).judge(asked))
    assert len(server.calls) == 3
    assert [(verdict.proposition_id, verdict.score) for verdict in grouped] == [
        (verdict.proposition_id, verdict.score) for verdict in alone
    ]
    assert sum(verdict.usage.calls for verdict in grouped) == 3


def test_grouped_claims_keep_apart_trajectories_and_samples_and_tell_equal_ids_apart(
    server: MessagesServer, options: ModelOptions
) -> None:
    asked = [request(), request("another claim"), request(trajectory=LONG), request(name="other"), request(sample=1)]
    told = asyncio.run(live_judge(ModelBackend(options), grouping=9).judge(asked))
    assert len(server.calls) == 3
    assert [verdict.reasoning for verdict in told] == [f"About {item.claim!r}." for item in asked]


def test_only_what_changed_is_paid_for_again(server: MessagesServer, options: ModelOptions, store: Store) -> None:
    asked = [*requests(5), *(request(sample=index) for index in range(3))]
    first = asyncio.run(live_judge(ModelBackend(options, cache=JudgmentCache(store))).judge(asked))
    again = live_judge(ModelBackend(options, cache=JudgmentCache(store)))
    second = asyncio.run(again.judge(asked))
    assert server.paid == len(asked)
    assert [verdict.score for verdict in second] == [verdict.score for verdict in first]
    assert again.backend.spent.calls == sum(verdict.usage.calls for verdict in second) == 0
    asyncio.run(again.judge([*asked[1:], replace(asked[0], claim="Michael has another habit")]))
    assert server.paid == len(asked) + 1


def test_equal_questions_are_asked_once(server: MessagesServer, judge: OpenedJudge) -> None:
    first, second = asyncio.run(judge.judge([request(), request()]))
    assert server.paid == 1
    assert first.score == second.score
    assert (first.usage.calls, second.usage.calls) == (1, 0)


def test_structured_output_that_is_rejected_becomes_prompted_json_and_is_remembered(
    options: ModelOptions, store: Store
) -> None:
    with MessagesServer(structured_output=False) as plain:
        options = replace(options, base_url=plain.url, model="home-grown")
        backend = ModelBackend(options, cache=JudgmentCache(store))
        told = asyncio.run(live_judge(backend).judge(requests(3)))
        assert [verdict.unscored for verdict in told] == [None] * 3
        assert "rejects structured output for home-grown" in backend.notes[0]
        assert "JSON schema" in plain.calls[-1].body["messages"][-1]["content"][0]["text"]

        del plain.calls[:]
        later = ModelBackend(options, cache=JudgmentCache(store))
        assert later.notes == backend.notes
        asyncio.run(live_judge(later).judge(requests(4)))
        assert ["output_config" in call.body for call in plain.calls] == [False]


def test_a_server_that_rejects_plain_requests_too_is_not_taken_to_lack_structured_output(
    server: MessagesServer, options: ModelOptions
) -> None:
    server.always(status(400, "invalid_request_error"))
    backend = ModelBackend(replace(options, width=1))
    told = asyncio.run(live_judge(backend).judge(requests(5)))
    assert {verdict.unscored for verdict in told} == {Unscored.API_ERROR}
    assert backend.notes == ()
    assert len(server.calls) == 5 + 2


def test_connections_stay_open_inside_the_backends_context(server: MessagesServer, backend: ModelBackend) -> None:
    async def run() -> None:
        async with backend:
            for index in range(3):
                await live_judge(backend).judge([request(f"claim {index}")])

    asyncio.run(run())
    assert server.connections == 1


def test_one_backend_serves_several_asks_at_once_and_event_loops_one_after_another(
    server: MessagesServer, judge: OpenedJudge
) -> None:
    server.latency = 0.02

    async def both() -> list[int | None]:
        told = await asyncio.gather(judge.judge(requests(3)), judge.judge([request()]))
        return [verdict.score for some in told for verdict in some]

    assert None not in asyncio.run(both())
    assert None not in asyncio.run(both())


def test_a_model_asked_not_to_think_is_told_so(server: MessagesServer, backend: ModelBackend) -> None:
    question = replace(proposition_question([request()], max_tokens=300), thinking=False)
    (answer,) = asyncio.run(backend.ask([question]))
    assert answer.data is not None
    assert server.calls[0].body["thinking"] == {"type": "disabled"}


def test_the_key_is_nowhere_in_what_a_failure_says(server: MessagesServer, options: ModelOptions) -> None:
    secret = "sk-ant-api03-canary-canary"
    server.always(
        replace(
            status(401, "authentication_error"),
            body={"type": "error", "error": {"type": "authentication_error", "message": f"bad key {secret}"}},
        )
    )
    judge = live_judge(ModelBackend(replace(options, api_key=SecretStr(secret))))
    (verdict,) = asyncio.run(judge.judge([request()]))
    assert "bad key sk-..." in verdict.detail
    assert "canary" not in repr(judge) + verdict.detail
