"""The gate as a guardrail of a real LiteLLM proxy, where `litellm[proxy]` is installed: the project's own environment has none."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
import yaml

from persona_pipeline.corrections.configuration import write_config
from persona_pipeline.corrections.service.app import ModelUpstream, create_app
from persona_pipeline.corrections.statistics import correction_statistics
from persona_pipeline.world import CorrectionSettings, World
from tests.corrections.support import TextBackend, answer_gate, say
from tests.support.messages_server import MessagesServer
from tests.support.model_server import Asked, ModelServer, Written
from tests.support.serving import serving
from tests.support.waiting import wait_until

pytest.importorskip("litellm.proxy.proxy_server", reason="litellm[proxy] is not installed")

# The judge scores a text by the digit it ends with.
SAID, BETTER = "Hello there my friend 8\nThis is dry stuff 1\nAnd the rest 1", "Now with a joke 8\nThat is all 8"
KEY = "sk-" + "4711" * 16
ALL_ON = CorrectionSettings(action_gate_enabled=True, repetition_suppression_enabled=True)


@pytest.fixture(scope="module")
def model() -> Iterator[tuple[ModelServer, str]]:
    server = ModelServer(lambda asked: Written(BETTER if asked.is_again else SAID))
    with serving(server) as url:
        yield server, url


@pytest.fixture(scope="module")
def judge() -> Iterator[MessagesServer]:
    with MessagesServer(answer_gate) as server:
        yield server


@pytest.fixture(scope="module")
def own_world(finished_world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(finished_world, tmp_path_factory.mktemp("proxied") / "world"))


@pytest.fixture(scope="module")
def proxy(
    own_world: Path,
    model: tuple[ModelServer, str],
    judge: MessagesServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """A proxy in front of the model, with the guardrail."""
    folder = tmp_path_factory.mktemp("litellm")
    served = {"api_base": f"{model[1]}/v1", "api_key": "sk-upstream"}
    guardrail = {
        "guardrail": "persona_pipeline.corrections.guardrail.PersonaGate",
        "mode": ["pre_call", "post_call"],
        "default_on": True,
        "agents": {"spoken": "ann"},
        "ask_again": True,
    }
    config = {
        "model_list": [
            {"model_name": name, "litellm_params": {"model": "openai/m", **served}} for name in ("spoken", "bob")
        ],
        "guardrails": [{"guardrail_name": "persona-gate", "litellm_params": guardrail}],
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    environment = os.environ | {
        "PERSONA_ROOT": str(own_world),
        "PERSONA_DATABASE_URL": f"sqlite:///{own_world / 'gate.db'}",
        "ANTHROPIC_BASE_URL": judge.url,
        "ANTHROPIC_API_KEY": "none",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "LITELLM_MASTER_KEY": KEY,
    }
    code = "from litellm import run_server; run_server()"
    command = [
        sys.executable,
        "-c",
        code,
        "--config",
        str(folder / "config.yaml"),
        "--port",
        str(port),
        "--host",
        "127.0.0.1",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_until(lambda: process.poll() is not None or _listens(port), pause=0.2)
            assert process.poll() is None, (folder / "log").read_text("utf-8")[-3000:]
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(60)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def asked(proxy: str, model: str, *, stream: bool) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    with httpx2.Client(timeout=60) as client:
        response = client.post(f"{proxy}/v1/chat/completions", json=body, headers={"authorization": f"Bearer {KEY}"})
    assert response.status_code == 200, response.text
    if not stream:
        return response.json()["choices"][0]["message"]["content"]
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: {")]
    chunks = [json.loads(line) for line in lines]
    assert len({chunk["id"] for chunk in chunks}) == 1
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


def turns(model: ModelServer) -> list[Asked]:
    """What the model was asked; the proxy looks at other paths too."""
    return [asked for asked in model.requests if asked.path == "/v1/chat/completions"]


def test_answers_of_an_agent_are_checked_and_those_of_others_pass(
    proxy: str, model: tuple[ModelServer, str], own_world: Path
) -> None:
    world = World.open(own_world, f"sqlite:///{own_world / 'gate.db'}")
    assert asked(proxy, "spoken", stream=False) == BETTER
    assert asked(proxy, "spoken", stream=True) == BETTER
    assert [request.is_again for request in turns(model[0])] == [False, True] * 2
    for stream in (False, True):
        assert asked(proxy, "bob", stream=stream) == SAID
    wait_until(lambda: correction_statistics(world.store).total.passed_after_retry == 2)
    write_config(world.store, "ann", ALL_ON)
    say(world, *(("ann", "general", "I think we should all go to the beach today, my friends.") for _ in range(5)))
    model[0].requests.clear()
    asked(proxy, "spoken", stream=False)
    first = turns(model[0])[0].body["messages"][0]
    assert first["role"] == "system" and first["content"].startswith("### Conversation Guidance")
    world.store.close()


def test_a_gate_in_front_of_the_proxy_asks_it_again(proxy: str, world: World) -> None:
    with serving(
        create_app(world, TextBackend(), upstream=ModelUpstream(proxy, {"bob": "ann"}, ask_again=True))
    ) as gate:
        assert asked(gate, "bob", stream=False) == BETTER
        assert asked(gate, "bob", stream=True) == BETTER
    assert correction_statistics(world.store).total.passed_after_retry == 2


@pytest.mark.filterwarnings("ignore")  # of LiteLLM's own
@pytest.mark.parametrize("stream", [False, True])
def test_litellm_asks_a_model_through_the_gate(model: tuple[ModelServer, str], world: World, stream: bool) -> None:
    import litellm

    with serving(
        create_app(world, TextBackend(), upstream=ModelUpstream(model[1], {"m": "ann"}, ask_again=True))
    ) as gate:
        told: dict = {"model": "openai/m", "api_base": f"{gate}/v1", "api_key": "sk-caller", "stream": stream}
        answer = litellm.completion(messages=[{"role": "user", "content": "hi"}], **told)
        texts = (
            [chunk.choices[0].delta.content or "" for chunk in answer]
            if stream
            else [answer.choices[0].message.content]
        )
    assert "".join(texts) == BETTER


def test_a_judge_that_is_gone_costs_no_message(proxy: str, judge: MessagesServer) -> None:
    from tests.support.messages_server import status

    judge.always(status(500))
    for stream in (False, True):
        assert asked(proxy, "spoken", stream=stream) == SAID
