"""Every provider's protocol over a real socket: the same questions, the same verdicts, and nothing of a key in any log."""

import asyncio
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.judging.cache import JudgmentCache
from persona_pipeline.judging.estimate import estimate
from persona_pipeline.judging.model.asking import ModelBackend, live_judge
from persona_pipeline.judging.model.probe import ProbeLevel, probe
from persona_pipeline.judging.money import price
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.providers.anthropic import AnthropicProvider
from persona_pipeline.judging.providers.base import PROVIDERS as REGISTRY
from persona_pipeline.judging.providers.base import ModelOptions, find_provider
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.judging.verdict import Unscored, Usage
from persona_pipeline.scoring.messages.reading import read_messages
from persona_pipeline.scoring.messages.verdicts import Role
from tests.scoring.messages.test_reading import calls, talk
from tests.scoring.messages.test_reading import said as messages_of
from tests.support.judging import recorded_by, request, requests, trajectory
from tests.support.messages_server import ANSWER, Hang, MessagesServer, message, status
from tests.support.protocols import BEARER
from tests.support.providers import MODELS, PROVIDERS, SECRETS, options_of, set_environment
from tests.support.rate_limits import RateLimits

PROJECT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch)


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def server(provider: str) -> Iterator[MessagesServer]:
    with MessagesServer(protocol=provider) as running:
        yield running
    assert running.problems == []


@pytest.fixture
def options(provider: str, server: MessagesServer) -> ModelOptions:
    return options_of(provider, server)


@pytest.fixture
def judge(options: ModelOptions) -> OpenedJudge:
    return live_judge(ModelBackend(options))


def test_equal_answers_become_equal_verdicts(provider: str, server: MessagesServer, judge: OpenedJudge) -> None:
    asked = [request(f"claim {n}", f"claim_{n}", persona="A boss.", trajectory=trajectory(length=80)) for n in range(4)]
    told = asyncio.run(judge.judge(asked))
    with MessagesServer() as reference:
        expected = asyncio.run(live_judge(ModelBackend(options_of("anthropic", reference))).judge(asked))
    assert [(each.score, each.evidence, each.reasoning) for each in told] == [
        (each.score, each.evidence, each.reasoning) for each in expected
    ]
    assert all(each.evidence[0].verified for each in told)
    assert {each.model for each in told} == {MODELS[provider]}
    assert judge.name == f"{provider}:{MODELS[provider]}"
    for seen, wanted in zip(server.calls, reference.calls, strict=True):
        assert seen.evidence == wanted.evidence
        assert seen.body["output_config"]["format"] == wanted.body["output_config"]["format"]
        assert seen.body["max_tokens"] == wanted.body["max_tokens"]


def test_verdicts_on_messages_are_asked_of_every_provider(provider: str, judge: OpenedJudge) -> None:
    asked = calls(messages_of(talk(3)))
    (found,) = asyncio.run(read_messages([(asked, 0)], judge.ask))
    assert [item.verdict for item in found.verdicts] == [Role.IN] * 3
    assert (found.model, found.usage.calls, found.unscored) == (MODELS[provider], len(asked), {})


def test_usage_is_the_servers_and_priced(provider: str, server: MessagesServer, judge: OpenedJudge) -> None:
    told = asyncio.run(judge.judge([request(trajectory=trajectory(length=80))]))
    used = server.usage
    expected = Usage(used["input_tokens"], used["output_tokens"], calls=1)
    assert replace(told[0].usage, usd=0.0) == expected
    assert told[0].usage.usd == price(expected, MODELS[provider])
    assert judge.backend.spent == told[0].usage


def test_a_server_without_structured_output_is_asked_in_words(server: MessagesServer, options: ModelOptions) -> None:
    server.structured_output = False
    backend = ModelBackend(replace(options, width=1))
    (first,) = asyncio.run(live_judge(backend).judge(requests(1)))
    told = asyncio.run(live_judge(backend).judge(requests(3, persona="Another")))
    assert [each.score is None for each in (first, *told)] == [False] * 4
    assert len(server.calls) == 5
    assert "rejects structured output" in backend.notes[0]
    assert "JSON schema" in server.calls[-1].body["messages"][-1]["content"][0]["text"]


def test_failures_are_named_and_never_a_number(provider: str, server: MessagesServer, options: ModelOptions) -> None:
    kinds = {"anthropic": "rate", "bedrock": "ThrottlingException", "vertex": "RESOURCE_EXHAUSTED", "openai": "rate"}
    for outcome, reason, said in (
        (message(None, stop_reason="refusal"), Unscored.REFUSAL, "refused"),
        (message('{"verdi', stop_reason="max_tokens"), Unscored.TRUNCATED, "stopped by max_tokens"),
        (status(429, "rate"), Unscored.API_ERROR, f"HTTP 429 {kinds[provider]}: the server says 429"),
        (Hang(), Unscored.TIMEOUT, "no answer within the deadline"),
    ):
        server.always(outcome)
        deadline = 0.3 if isinstance(outcome, Hang) else options.deadline
        judge = live_judge(ModelBackend(replace(options, deadline=deadline)))
        (told,) = asyncio.run(judge.judge([request()]))
        assert (told.score, told.unscored) == (None, reason)
        assert said in told.detail


def test_no_key_is_in_any_log_or_report(
    server: MessagesServer, options: ModelOptions, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        server.script(ANSWER, status(500), status(401, "authentication_error"), message("no JSON"))
        told = asyncio.run(live_judge(ModelBackend(replace(options, width=1))).judge(requests(4)))
    assert caplog.text
    seen = caplog.text + repr(told) + repr(options)
    assert [secret for secret in SECRETS if secret in seen] == []


def test_judgments_of_another_provider_are_not_taken(
    provider: str, options: ModelOptions, server: MessagesServer, store: Store
) -> None:
    """Though model, request and address are the same."""

    def calls(named: str) -> int:
        changed = replace(options, provider=find_provider(named), model="the-same", base_url="http://127.0.0.1:9")
        backend = ModelBackend(changed, cache=JudgmentCache(store))
        question = backend._prepare(_question(), backend.style)
        return sum(question.key == key for key in keys)

    keys: list[str] = []
    for name in PROVIDERS:
        assert calls(name) == 0
        backend = ModelBackend(replace(options, provider=find_provider(name), model="the-same", base_url="http://x"))
        keys.append(backend._prepare(_question(), backend.style).key)
    assert len(set(keys)) == len(PROVIDERS)
    judge = live_judge(ModelBackend(options, cache=JudgmentCache(store)))
    asyncio.run(judge.judge(requests(2)))
    again = live_judge(ModelBackend(options, cache=JudgmentCache(store)))
    assert [each.score is None for each in asyncio.run(again.judge(requests(2)))] == [False] * 2
    assert len(server.calls) == 2


def _question() -> Any:
    from persona_pipeline.judging.claims import proposition_question

    return proposition_question([request()], max_tokens=500)


def test_limits_that_are_told_are_kept(provider: str, server: MessagesServer, options: ModelOptions) -> None:
    server.limits = RateLimits({"requests": 600.0}, left={"requests": 6.0})
    backend = ModelBackend(replace(options, width=3, patience=60.0))
    told = asyncio.run(live_judge(backend).judge(requests(12)))
    assert all(each.score is not None for each in told)
    if provider in ("anthropic", "openai"):
        # Without a word of the limits each of the last six would be refused; one may be when the machine is busy.
        assert server.limits.refused <= 1


def test_recordings_come_first_and_replay(
    provider: str, server: MessagesServer, options: ModelOptions, judge: OpenedJudge, tmp_path: Path
) -> None:
    recording = recorded_by(judge, tmp_path)
    first = asyncio.run(recording.judge(requests(3)))
    assert recording.name == judge.name
    replayed = asyncio.run(OpenedJudge(RecordedBackend(tmp_path)).judge(requests(3)))
    again = recorded_by(live_judge(ModelBackend(options)), tmp_path, first=True)
    told = asyncio.run(again.judge(requests(4)))
    assert [each.score for each in first] == [each.score for each in replayed] == [each.score for each in told][:3]
    assert len(server.calls) == 4
    assert again.taken == {MODELS[provider]: 3}
    assert MODELS[provider] in next(tmp_path.rglob("*.jsonl")).read_text(encoding="utf-8")


def test_doctor_finds_it_working(provider: str, options: ModelOptions) -> None:
    found = {finding.name: finding for finding in asyncio.run(probe(options))}
    assert found["structured output"].level is ProbeLevel.OK
    assert found["model"].level is (ProbeLevel.NOTE if provider in ("bedrock", "vertex") else ProbeLevel.OK)


def test_an_estimate_counts_tokens_where_the_provider_does(provider: str, options: ModelOptions) -> None:
    found = estimate(requests(2), options=options)
    assert found.counted is (provider in ("anthropic", "vertex"))
    assert ("counts none beforehand" in str(found)) is (provider in ("bedrock", "openai"))


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("persona_pipeline.judging.providers.base._is_installed", lambda name: False)
    with pytest.raises(ConfigError, match=r"needs openai; install with: pip install 'persona-pipeline\[openai\]'"):
        ModelBackend(ModelOptions(provider=find_provider("openai"), api_key=SecretStr("x")))


def test_credentials_that_cannot_be_had_stop_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setattr("anthropic.lib.aws._auth._get_session.__wrapped__", None, raising=False)
    from anthropic.lib.aws import _auth

    _auth._get_session.cache_clear()
    with MessagesServer(protocol="bedrock") as server:
        judge = live_judge(ModelBackend(replace(options_of("bedrock", server), width=1)))
        told = asyncio.run(judge.judge(requests(3)))
    _auth._get_session.cache_clear()
    assert server.calls == []
    assert "nothing could be sent: RuntimeError: Could not resolve AWS credentials" in told[0].detail
    assert "the judge cannot be used" in told[2].detail
    assert told[0].usage.usd == 0


class HomeProvider(AnthropicProvider):
    """A provider of another package."""

    name = "home"


def test_another_package_adds_a_judge_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        "home": EntryPoint("home", f"{__name__}:HomeProvider", REGISTRY.group),
        "broken": EntryPoint("broken", "no_such_package:Judge", REGISTRY.group),
        "wrong": EntryPoint("wrong", f"{__name__}:PROJECT", REGISTRY.group),
        # What is built in is nobody else's to name.
        "openai": EntryPoint("openai", f"{__name__}:HomeProvider", REGISTRY.group),
    }
    monkeypatch.setattr("persona_pipeline.base.options.offered", {REGISTRY.group: points}.get)
    monkeypatch.setattr(REGISTRY, "loaded", {})
    find_provider.cache_clear()
    try:
        with MessagesServer() as server:
            options = replace(options_of("anthropic", server), provider=find_provider("home"))
            judge = live_judge(ModelBackend(options))
            (told,) = asyncio.run(judge.judge([request()]))
        assert told.score is not None
        assert judge.name == "home:claude-haiku-5-5"
        assert find_provider("openai").name == "openai"
        assert REGISTRY.names() == [*REGISTRY.built_in, "broken", "home", "wrong"]
        for name, said in {"broken": "cannot be loaded", "wrong": "no subclass", "hme": "did you mean 'home'"}.items():
            with pytest.raises(ConfigError, match=said):
                find_provider(name)
    finally:
        find_provider.cache_clear()


def test_the_built_in_providers_can_all_be_installed() -> None:
    import tomllib

    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name in REGISTRY.built_in:
        provider = find_provider(name)
        assert provider.name == name
        assert not provider.extra or provider.extra in project["optional-dependencies"]


@pytest.mark.parametrize(
    ("choice", "reason", "said"),
    [
        ({"message": {"content": None, "refusal": "I won't."}, "finish_reason": "stop"}, Unscored.REFUSAL, "refused"),
        ({"message": {"content": "{}"}, "finish_reason": "content_filter"}, Unscored.REFUSAL, "content_filter"),
        ({"message": {"content": 5}, "finish_reason": "stop"}, Unscored.INVALID_OUTPUT, "no text"),
        ({"message": "text", "finish_reason": "stop"}, Unscored.API_ERROR, "no message"),
        ({"finish_reason": "stop"}, Unscored.API_ERROR, "no message"),
        ({"message": {"content": [{"type": "text"}]}, "finish_reason": "stop"}, Unscored.API_ERROR, "no message"),
        ({"message": {"content": "{}"}, "finish_reason": ["stop"]}, Unscored.INVALID_OUTPUT, "stopped with"),
    ],
)
def test_odd_completions_are_no_answers(choice: dict, reason: Unscored, said: str) -> None:
    from persona_pipeline.judging.model.messages import read_response

    found = find_provider("openai").read({"choices": [choice], "usage": {"prompt_tokens": "many"}})
    answer = read_response(found, _question(), requested_model="gpt-5-mini")
    assert (answer.unscored, answer.usage.usd) == (reason, None)
    assert said in answer.detail


def test_tokens_of_openais_cache_are_cheaper_ones() -> None:
    from persona_pipeline.judging.model.messages import read_usage

    usage = {"prompt_tokens": 3000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 2048}}
    told = find_provider("openai").read({"choices": [{"message": {"content": ""}}], "usage": usage})
    found = read_usage(told["usage"], "gpt-5-mini")
    assert (found.input_tokens, found.cache_read_tokens, found.output_tokens) == (952, 2048, 100)
    assert found.usd == pytest.approx((952 * 0.25 + 2048 * 0.025 + 100 * 2.0) / 1e6)


@pytest.mark.parametrize(
    ("url", "field"), [("https://api.openai.com/v1", "max_completion_tokens"), ("http://x/v1", "max_tokens")]
)
def test_the_limit_of_an_answer_has_the_name_the_server_knows(url: str, field: str) -> None:
    sent: dict[str, Any] = {}

    class Client:
        base_url = url

        def __getattr__(self, name: str) -> Any:
            return self

        async def create(self, **body: Any) -> Any:
            sent.update(body)
            return self

        content = b"{}"

    from persona_pipeline.judging.model.messages import RequestStyle

    asyncio.run(find_provider("openai").create(Client(), RequestStyle("gpt-5-mini", "low").body(_question())))
    assert sent[field] == 500
    assert sent["reasoning_effort"] == "low"
    assert json.dumps(sent)


def test_a_bearer_token_does_for_bedrock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", BEARER)
    with MessagesServer(protocol="bedrock") as server:
        judge = live_judge(ModelBackend(options_of("bedrock", server)))
        assert asyncio.run(judge.judge([request()]))[0].score is not None
    assert server.problems == []
