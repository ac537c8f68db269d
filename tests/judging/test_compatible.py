"""Azure OpenAI, Gemini, Ollama, vLLM and OpenRouter, each against a local server with its own paths, keys, errors and usage."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import Settings
from persona_pipeline.judging.model.asking import ModelBackend, live_judge
from persona_pipeline.judging.model.probe import ProbeLevel, probe
from persona_pipeline.judging.money import price
from persona_pipeline.judging.providers.base import ModelOptions, find_provider
from persona_pipeline.judging.verdict import Unscored, Usage
from tests.support.clock import LONG
from tests.support.dialects import API_VERSION, BILLED, THOUGHTS
from tests.support.judging import request, requests, trajectory
from tests.support.messages_server import MessagesServer, Reply, status
from tests.support.protocols import BEARER
from tests.support.providers import options_of, set_environment


@dataclass(frozen=True)
class Case:
    """A server, and what is known of it.

    Attributes:
        served: the model that it says has answered.
        priced: whether the list knows the model's price.
        key: the variable with the key; stands in what is said of a refused one.
        thought: tokens of thinking that only the total counts.
        billed: US dollars that it says an answer cost.
    """

    judge: str
    model: str
    address: str
    key: str
    served: str
    priced: bool = False
    thought: int = 0
    billed: float | None = None
    more: dict[str, str] = field(default_factory=dict)


AZURE = Case("azure", "gpt-5-mini", "AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY", "gpt-5-mini-2025-08-07", True)
CASES = {
    "azure": AZURE,
    "azure, dated": replace(AZURE, more={"OPENAI_API_VERSION": API_VERSION}),
    "gemini": Case(
        "gemini", "gemini-2.5-flash", "GEMINI_BASE_URL", "GEMINI_API_KEY", "gemini-2.5-flash", True, THOUGHTS
    ),
    "ollama": Case("ollama", "qwen3:32b", "OLLAMA_BASE_URL", "OLLAMA_API_KEY", "qwen3:32b"),
    "vllm": Case("vllm", "Qwen/Qwen3-32B", "VLLM_BASE_URL", "VLLM_API_KEY", "Qwen/Qwen3-32B"),
    "openrouter": Case(
        "openrouter",
        "deepseek/deepseek-chat",
        "OPENROUTER_BASE_URL",
        "OPENROUTER_API_KEY",
        "deepseek/deepseek-chat",
        billed=BILLED,
    ),
}


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
    """What the environment alone says, as docs/reference/providers.md has it."""
    monkeypatch.delenv("OPENAI_API_VERSION", raising=False)
    for name, value in {case.address: server.url, case.key: BEARER, **case.more}.items():
        monkeypatch.setenv(name, value)
    options = ModelOptions.from_settings(Settings(judge=case.judge, judge_model=case.model))
    return replace(options, max_retries=0, deadline=LONG, patience=5.0, width=1)


def test_a_judgment_is_scored_counted_and_priced(case: Case, server: MessagesServer, options: ModelOptions) -> None:
    asked = [request(f"claim {n}", f"claim_{n}", trajectory=trajectory(length=80)) for n in range(3)]
    judge = live_judge(ModelBackend(options))
    told = asyncio.run(judge.judge(asked))
    with MessagesServer() as reference:
        expected = asyncio.run(live_judge(ModelBackend(options_of("anthropic", reference))).judge(asked))
    assert [(each.score, each.evidence) for each in told] == [(each.score, each.evidence) for each in expected]
    assert all(each.evidence[0].verified for each in told)
    assert {each.model for each in told} == {case.served}
    assert judge.name == f"{case.judge}:{case.model}"
    assert all("output_config" in call.body for call in server.calls)
    assert judge.backend.spent.input_tokens == server.usage["input_tokens"]
    assert judge.backend.spent.output_tokens == server.usage["output_tokens"] + len(asked) * case.thought
    listed = [price(replace(each.usage, usd=0.0), case.served) for each in told] if case.priced else None
    billed = None if case.billed is None else [case.billed] * len(asked)
    assert [each.usage.usd for each in told] == (listed or billed or [None] * len(asked))


def test_a_price_that_is_set_comes_before_what_was_billed(case: Case, options: ModelOptions) -> None:
    options = replace(options, prices=f"{case.model}=1/1")
    (told,) = asyncio.run(live_judge(ModelBackend(options)).judge([request()]))
    if case.served == case.model:
        assert told.usage.usd == pytest.approx((told.usage.input_tokens + told.usage.output_tokens) / 1e6)


def test_a_refused_key_is_named_once(case: Case, server: MessagesServer, options: ModelOptions) -> None:
    server.always(status(401, "authentication_error"))
    told = asyncio.run(live_judge(ModelBackend(options)).judge(requests(5)))
    assert {each.unscored for each in told} == {Unscored.API_ERROR}
    assert told[0].detail.endswith(f"; set {case.key}")
    assert BEARER not in repr(told)
    assert len(server.calls) == 1


def test_a_model_that_is_not_there_is_named_once(case: Case, server: MessagesServer, options: ModelOptions) -> None:
    server.always(status(404, "not_found_error"))
    told = asyncio.run(live_judge(ModelBackend(options)).judge(requests(5)))
    assert f"set PERSONA_JUDGE_MODEL to a model of {options.endpoint}, not {case.model}" in told[0].detail
    assert len(server.calls) == 1


def test_doctor_finds_it_working(case: Case, options: ModelOptions) -> None:
    found = {finding.name: finding for finding in asyncio.run(probe(options))}
    assert {finding.level for finding in found.values()} <= {ProbeLevel.OK, ProbeLevel.NOTE}
    assert found["judging"].level is found["structured output"].level is ProbeLevel.OK
    assert found["model"].level is (ProbeLevel.NOTE if case.judge == "azure" else ProbeLevel.OK)


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
    for name in ("OPENAI_API_VERSION", *(case.address for case in CASES.values())):
        monkeypatch.delenv(name, raising=False)
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
    set_environment(monkeypatch)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", *(case.key for case in CASES.values())):
        monkeypatch.setenv(variable, "key")
    for case in CASES.values():
        monkeypatch.delenv(case.address, raising=False)
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


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_its_section_says_what_to_set(case: Case) -> None:
    (page,) = (Path(__file__).parents[2] / "docs").rglob("providers.md")
    sections = page.read_text(encoding="utf-8").split("\n## ")
    (section,) = [
        text for text in sections[1:] if f"export PERSONA_JUDGE={case.judge} PERSONA_JUDGE_MODEL={case.model}" in text
    ]
    assert [word for word in (f"--judge {case.judge}", *case.more) if word not in section] == []
    assert case.address in sections[0] and case.key in sections[0]
