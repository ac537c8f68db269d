"""Every judge over a real socket: the same questions, the same verdicts, and nothing of a key in any log."""

import asyncio
import json
import logging
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import Settings
from persona_pipeline.judging.claims import proposition_question
from persona_pipeline.judging.estimate import estimate
from persona_pipeline.judging.model.asking import ModelBackend, live_judge
from persona_pipeline.judging.model.messages import RequestStyle, read_response, read_usage
from persona_pipeline.judging.model.probe import ProbeLevel, probe
from persona_pipeline.judging.money import price
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.providers.anthropic import AnthropicProvider
from persona_pipeline.judging.providers.base import PROVIDERS as REGISTRY
from persona_pipeline.judging.providers.base import ModelOptions, find_provider
from persona_pipeline.judging.verdict import Unscored, Usage
from persona_pipeline.scoring.messages.reading import read_messages
from persona_pipeline.scoring.messages.verdicts import Role
from tests.scoring.messages.test_reading import calls, talk
from tests.scoring.messages.test_reading import said as messages_of
from tests.support.clock import LONG
from tests.support.dialects import API_VERSION, BILLED, THOUGHTS
from tests.support.judging import request, requests, trajectory
from tests.support.messages_server import ANSWER, MessagesServer, Reply, message, status
from tests.support.protocols import BEARER
from tests.support.providers import MODELS, SECRETS, options_of, set_environment
from tests.support.rate_limits import RateLimits

PROJECT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Case:
    """A judge, and what is known of its server.

    Attributes:
        served: the model that it says has answered; "": the one that was asked.
        address, key: the variables with its address and its key, where the environment alone names the server.
        priced: whether the list knows the model's price.
        thought: tokens of thinking that only the total counts.
        billed: US dollars that it says an answer cost.
        describes: whether it can be asked about a model.
    """

    judge: str
    model: str
    served: str = ""
    address: str = ""
    key: str = ""
    priced: bool = True
    thought: int = 0
    billed: float | None = None
    describes: bool = True
    more: dict[str, str] = field(default_factory=dict)


AZURE = Case(
    "azure", "gpt-5-mini", "gpt-5-mini-2025-08-07", "AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY", describes=False
)
COMPATIBLE = {
    "azure": AZURE,
    "azure, dated": replace(AZURE, more={"OPENAI_API_VERSION": API_VERSION}),
    "gemini": Case(
        "gemini", "gemini-2.5-flash", address="GEMINI_BASE_URL", key="GEMINI_API_KEY", thought=THOUGHTS
    ),
    "ollama": Case("ollama", "qwen3:32b", address="OLLAMA_BASE_URL", key="OLLAMA_API_KEY", priced=False),
    "vllm": Case("vllm", "Qwen/Qwen3-32B", address="VLLM_BASE_URL", key="VLLM_API_KEY", priced=False),
    "openrouter": Case(
        "openrouter", "deepseek/deepseek-chat", address="OPENROUTER_BASE_URL", key="OPENROUTER_API_KEY", priced=False,
        billed=BILLED,
    ),
}  # fmt: skip
CASES = COMPATIBLE | {
    name: Case(name, model, describes=name not in ("bedrock", "vertex")) for name, model in MODELS.items()
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch)
    for name in ("OPENAI_API_VERSION", *(case.address for case in COMPATIBLE.values())):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=CASES)
def dialect(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def case(dialect: str) -> Case:
    return CASES[dialect]


@pytest.fixture
def server(dialect: str) -> Iterator[MessagesServer]:
    with MessagesServer(protocol=dialect) as running:
        yield running
    assert running.problems == []


@pytest.fixture
def options(case: Case, server: MessagesServer, monkeypatch: pytest.MonkeyPatch) -> ModelOptions:
    """What the environment alone says, as docs/reference/providers.md has it, where that names the server."""
    if not case.address:
        return replace(options_of(case.judge, server), width=1)
    for name, value in {case.address: server.url, case.key: BEARER, **case.more}.items():
        monkeypatch.setenv(name, value)
    options = ModelOptions.from_settings(Settings(judge=case.judge, judge_model=case.model))
    return replace(options, max_retries=0, deadline=LONG, patience=5.0, width=1)


@pytest.fixture
def judge(options: ModelOptions) -> OpenedJudge:
    return live_judge(ModelBackend(options))


def test_equal_answers_become_equal_verdicts_counted_and_priced(
    case: Case, server: MessagesServer, judge: OpenedJudge
) -> None:
    asked = [request(f"claim {n}", f"claim_{n}", persona="A boss.", trajectory=trajectory(length=80)) for n in range(3)]
    told = asyncio.run(judge.judge(asked))
    with MessagesServer() as reference:
        expected = asyncio.run(live_judge(ModelBackend(options_of("anthropic", reference))).judge(asked))
    assert [(each.score, each.evidence, each.reasoning) for each in told] == [
        (each.score, each.evidence, each.reasoning) for each in expected
    ]
    assert all(each.evidence[0].verified for each in told)
    served = case.served or case.model
    assert {each.model for each in told} == {served}
    assert judge.name == f"{case.judge}:{case.model}"
    for seen, wanted in zip(server.calls, reference.calls, strict=True):
        assert seen.evidence == wanted.evidence
        assert seen.body["output_config"]["format"] == wanted.body["output_config"]["format"]
        assert seen.body["max_tokens"] == wanted.body["max_tokens"]
    spent, used = judge.backend.spent, server.usage
    assert spent == sum((each.usage for each in told), Usage()) and spent.calls == len(asked)
    assert spent.input_tokens == used["input_tokens"]
    assert spent.output_tokens == used["output_tokens"] + len(asked) * case.thought
    listed = [price(replace(each.usage, usd=0.0), served, case.model) for each in told] if case.priced else None
    billed = None if case.billed is None else [case.billed] * len(asked)
    assert [each.usage.usd for each in told] == (listed or billed or [None] * len(asked))


def test_verdicts_on_messages_are_asked_of_every_provider(case: Case, judge: OpenedJudge) -> None:
    asked = calls(messages_of(talk(3)))
    (found,) = asyncio.run(read_messages([(asked, 0)], judge.ask))
    assert [item.verdict for item in found.verdicts] == [Role.IN] * 3
    assert (found.model, found.usage.calls, found.unscored) == (case.served or case.model, len(asked), {})


def test_a_server_without_structured_output_is_asked_in_words(server: MessagesServer, judge: OpenedJudge) -> None:
    server.structured_output = False
    (first,) = asyncio.run(judge.judge(requests(1)))
    told = asyncio.run(judge.judge(requests(3, persona="Another")))
    assert [each.score is None for each in (first, *told)] == [False] * 4
    assert len(server.calls) == 5
    assert "rejects structured output" in judge.notes[0]
    assert "JSON schema" in server.calls[-1].body["messages"][-1]["content"][0]["text"]


def test_a_refused_key_and_a_model_that_is_not_there_are_named_once(
    case: Case, server: MessagesServer, options: ModelOptions
) -> None:
    for outcome, remedy in (
        (status(401, "authentication_error"), options.provider.key_help),
        (status(404, "not_found_error"), f"set PERSONA_JUDGE_MODEL to a model of {options.endpoint}, not {case.model}"),
    ):
        del server.calls[:]
        server.always(outcome)
        told = asyncio.run(live_judge(ModelBackend(options)).judge(requests(5)))
        assert {each.unscored for each in told} == {Unscored.API_ERROR} and len(server.calls) == 1
        assert told[0].detail.endswith(f"; {remedy}") and case.key in options.provider.key_help
        assert BEARER not in repr(told)


def test_no_key_is_in_any_log_or_report(
    server: MessagesServer, options: ModelOptions, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        server.script(ANSWER, status(500), status(401, "authentication_error"), message("no JSON"))
        told = asyncio.run(live_judge(ModelBackend(options)).judge(requests(4)))
    assert caplog.text
    seen = caplog.text + repr(told) + repr(options)
    assert [secret for secret in SECRETS if secret in seen] == []


def test_doctor_finds_it_working_and_an_estimate_counts_where_the_provider_does(
    case: Case, options: ModelOptions
) -> None:
    found = {finding.name: finding for finding in asyncio.run(probe(options))}
    assert found["judging"].level is found["structured output"].level is ProbeLevel.OK
    assert found["model"].level is (ProbeLevel.OK if case.describes else ProbeLevel.NOTE)
    taken, counts = estimate(requests(2), options=options), case.judge in ("anthropic", "vertex")
    assert taken.counted is counts and ("counts none beforehand" in str(taken)) is not counts


@pytest.mark.parametrize(
    ("protocol", "kind"),
    [("anthropic", "rate"), ("bedrock", "ThrottlingException"), ("vertex", "RESOURCE_EXHAUSTED"), ("openai", "rate")],
)
def test_an_error_has_the_words_of_its_server(protocol: str, kind: str) -> None:
    with MessagesServer(protocol=protocol) as server:
        server.always(status(429, "rate"))
        (told,) = asyncio.run(live_judge(ModelBackend(options_of(protocol, server))).judge([request()]))
    assert f"HTTP 429 {kind}: the server says 429" in told.detail


def test_limits_that_openai_tells_are_kept() -> None:
    with MessagesServer(protocol="openai") as server:
        server.limits = RateLimits({"requests": 600.0}, left={"requests": 6.0})
        backend = ModelBackend(replace(options_of("openai", server), width=3, patience=60.0))
        told = asyncio.run(live_judge(backend).judge(requests(12)))
    assert all(each.score is not None for each in told)
    # Without a word of the limits each of the last six would be refused; one may be when the machine is busy.
    assert server.limits.refused <= 1


def test_a_price_that_is_set_comes_before_what_was_billed(monkeypatch: pytest.MonkeyPatch) -> None:
    with MessagesServer(protocol="openrouter") as server:
        monkeypatch.setenv("OPENROUTER_BASE_URL", server.url)
        monkeypatch.setenv("OPENROUTER_API_KEY", BEARER)
        options = ModelOptions.from_settings(Settings(judge="openrouter", judge_model="m", judge_prices="m=1/1"))
        (told,) = asyncio.run(live_judge(ModelBackend(options)).judge([request()]))
    assert told.usage.usd == pytest.approx((told.usage.input_tokens + told.usage.output_tokens) / 1e6)


def _question() -> Any:
    return proposition_question([request()], max_tokens=500)


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
    found = find_provider("openai").read({"choices": [choice], "usage": {"prompt_tokens": "many"}})
    answer = read_response(found, _question(), requested_model="gpt-5-mini")
    assert (answer.unscored, answer.usage.usd) == (reason, None)
    assert said in answer.detail


def test_tokens_of_openais_cache_are_cheaper_ones() -> None:
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


@pytest.mark.parametrize(
    ("error", "within", "said", "fatal"),
    [
        ({"code": 502, "message": "Provider returned error"}, False, "HTTP 502: Provider returned error", False),
        ({"code": 502, "message": "Provider returned error"}, True, "HTTP 502: Provider returned error", False),
        ({"code": 402, "message": "Insufficient credits"}, False, "HTTP 402: Insufficient credits", True),
        ({"code": 429, "message": "Rate limited upstream"}, True, "HTTP 429: Rate limited upstream", False),
        ({"message": "Lost"}, False, "HTTP 200: Lost", False),
    ],
)
def test_an_error_in_an_answer_is_no_answer(
    error: dict[str, object], within: bool, said: str, fatal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = {"finish_reason": "error", "message": {"role": "assistant", "content": '{"verdi'}, "error": error}
    body = {"id": "gen-1", "choices": [choice]} if within else {"error": error}
    monkeypatch.setenv("OPENROUTER_API_KEY", BEARER)
    with MessagesServer(protocol="openrouter") as server:
        monkeypatch.setenv("OPENROUTER_BASE_URL", server.url)
        server.always(Reply(body))
        options = ModelOptions.from_settings(Settings(judge="openrouter", judge_model="m"))
        told = asyncio.run(live_judge(ModelBackend(replace(options, width=1))).judge(requests(3)))
        assert {each.unscored for each in told} == {Unscored.API_ERROR}
        assert told[0].detail.startswith(said)
        # It may have been billed, and nobody says how much.
        assert told[0].usage == Usage(calls=1, usd=None)
        assert len(server.calls) == (1 if fatal else 3)


@pytest.mark.parametrize(
    ("judge", "environment", "url"),
    [
        ("azure", {"AZURE_OPENAI_ENDPOINT": "https://a.openai.azure.com/"}, "https://a.openai.azure.com/openai/v1"),
        (
            "azure",
            {"AZURE_OPENAI_ENDPOINT": "https://a.openai.azure.com", "OPENAI_API_VERSION": API_VERSION},
            "https://a.openai.azure.com",
        ),
        (
            "azure",
            {"AZURE_OPENAI_ENDPOINT": "https://a.openai.azure.com/openai/v1/", "OPENAI_API_VERSION": API_VERSION},
            "https://a.openai.azure.com/openai/v1",
        ),
        ("gemini", {}, "https://generativelanguage.googleapis.com/v1beta/openai"),
        (
            "gemini",
            {"GEMINI_BASE_URL": "https://aiplatform.googleapis.com/v1/projects/p/locations/global/endpoints/openapi"},
            "https://aiplatform.googleapis.com/v1/projects/p/locations/global/endpoints/openapi",
        ),
        ("ollama", {}, "http://localhost:11434/v1"),
        ("ollama", {"OLLAMA_BASE_URL": "http://gpu:11434"}, "http://gpu:11434/v1"),
        ("vllm", {}, "http://localhost:8000/v1"),
        ("openrouter", {}, "https://openrouter.ai/api/v1"),
    ],
)
def test_an_address_may_lack_its_path(
    judge: str, environment: dict[str, str], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert find_provider(judge).endpoint(None) == url


@pytest.mark.parametrize(
    ("judge", "unset", "said"),
    [
        ("anthropic", "ANTHROPIC_API_KEY", "set ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL"),
        ("bedrock", "AWS_REGION", "set AWS_REGION"),
        ("vertex", "CLOUD_ML_REGION", "set CLOUD_ML_REGION"),
        ("vertex", "ANTHROPIC_VERTEX_PROJECT_ID", "set ANTHROPIC_VERTEX_PROJECT_ID"),
        ("openai", "OPENAI_API_KEY", "set OPENAI_API_KEY, or OPENAI_BASE_URL to a server of your own"),
        ("openai", "PERSONA_JUDGE_MODEL", "set PERSONA_JUDGE_MODEL"),
        ("azure", "AZURE_OPENAI_ENDPOINT", "set AZURE_OPENAI_ENDPOINT to the resource's address"),
        ("azure", "AZURE_OPENAI_API_KEY", "set AZURE_OPENAI_API_KEY, or AZURE_OPENAI_ENDPOINT"),
        ("gemini", "GEMINI_API_KEY", "set GEMINI_API_KEY, or GEMINI_BASE_URL to a server of your own"),
        ("openrouter", "OPENROUTER_API_KEY", "set OPENROUTER_API_KEY"),
        ("ollama", "PERSONA_JUDGE_MODEL", "set PERSONA_JUDGE_MODEL"),
        ("ollama", "OLLAMA_API_KEY", ""),
        ("vllm", "VLLM_API_KEY", ""),
    ],
)
def test_what_is_missing_is_named(judge: str, unset: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", *(case.key for case in COMPATIBLE.values())):
        monkeypatch.setenv(variable, "key")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://a.openai.azure.com")
    monkeypatch.delenv(unset, raising=False)
    options = ModelOptions.from_settings(
        Settings(**({} if unset == "PERSONA_JUDGE_MODEL" else {"judge_model": "m"})), judge
    )
    if said:
        with pytest.raises(ConfigError, match=said):
            options.require_usable()
    else:
        options.require_usable()


@pytest.mark.parametrize("judge", ["openai", "openrouter"])
def test_a_server_that_a_stranger_names_gets_no_key_of_the_environment(
    judge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", BEARER)
    monkeypatch.setenv("OPENROUTER_API_KEY", BEARER)
    options = ModelOptions(
        provider=find_provider(judge), model="m", base_url="http://127.0.0.1:9/v1", ambient_key=False
    )
    assert find_provider(judge).connect(options, {}).api_key == "none"


@pytest.mark.parametrize("case", COMPATIBLE.values(), ids=COMPATIBLE)
def test_its_section_says_what_to_set(case: Case) -> None:
    (page,) = (PROJECT / "docs").rglob("providers.md")
    sections = page.read_text(encoding="utf-8").split("\n## ")
    (section,) = [
        text for text in sections[1:] if f"export PERSONA_JUDGE={case.judge} PERSONA_JUDGE_MODEL={case.model}" in text
    ]
    assert [word for word in (f"--judge {case.judge}", *case.more) if word not in section] == []
    assert case.address in sections[0] and case.key in sections[0]
