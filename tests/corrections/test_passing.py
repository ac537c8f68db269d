"""The gate in the way of a model, over real sockets: whatever is sent is an answer of the upstream, byte for byte."""

import asyncio
import http.client
import json
import logging
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from persona_pipeline.base.database.engine import open_store
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.http_server import Access
from persona_pipeline.corrections.configuration import write_config
from persona_pipeline.corrections.gate import ActionGate
from persona_pipeline.corrections.service import passing
from persona_pipeline.corrections.service.answers import read_stream
from persona_pipeline.corrections.service.app import ModelUpstream, create_app
from persona_pipeline.corrections.service.forms import TOO_LARGE, ChatForm, EventPart
from persona_pipeline.corrections.statistics import correction_statistics
from persona_pipeline.judging.verdict import Answer, Question, Unscored, Usage
from persona_pipeline.world import CorrectionSettings, World
from tests.corrections.support import TextBackend, claims_of, reviewed_text, unscored
from tests.support.command_line import in_process
from tests.support.model_server import ENDPOINTS, ModelServer, Written
from tests.support.serving import serving
from tests.support.waiting import wait_until

CHAT, RESPONSES, MESSAGES = ENDPOINTS
SAID = "Hello there my friend. This is dry stuff, friend. And the rest of it."
FINE = "Hello there my friend. This is lively stuff. And the rest of it."
# Not the answer, and so not out of character.
THOUGHT = "<think>\nStay dry, my friend. The dry stuff sells.\n</think>\n\n"
KEY = "sk-caller-4711"
# What the servers of both sides write of themselves.
OF_SERVERS = {"date", "server"}
Reader = Callable[[Any, bool], str]


def body_of(path: str, **told: Any) -> dict[str, Any]:
    asked = {"input": "hi"} if path == RESPONSES else {"messages": [{"role": "user", "content": "hi"}]}
    return {"model": "ann", "max_tokens": 99, "x_new": [1.0, None]} | asked | told


def judged(question: Question) -> Answer:
    """Dry stuff is out of character."""
    score = 1 if "dry" in reviewed_text(question.evidence) else 8
    verdicts = [{"id": claim["id"], "reason": "So it is.", "score": score} for claim in claims_of(question.context)]
    return Answer({"verdicts": verdicts}, usage=Usage(100, 20, calls=1, usd=0.00002), model="text-1")


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[ModelServer, str]]:
    server = ModelServer(lambda asked: Written())
    with serving(server) as url:
        yield server, url


@pytest.fixture
def model(running: tuple[ModelServer, str]) -> ModelServer:
    server, _ = running
    server.requests.clear()
    server.left, server.write = 0, lambda asked: Written(FINE)
    return server


@contextmanager
def in_the_way(
    world: World, running: tuple[ModelServer, str], judge: Callable[[Question], Answer] = judged, **told: Any
) -> Iterator[str]:
    agents = {name: name for name in ("ann", "bob")}
    upstream = ModelUpstream(running[1], agents, {KEY: "ann"}, ask_again=True)
    with serving(create_app(world, TextBackend(judge), upstream=upstream, **told)) as url:
        yield url.replace("127.0.0.1", "localhost")


@pytest.fixture(scope="module")
def shared_world(finished_world: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = Path(shutil.copytree(finished_world, tmp_path_factory.mktemp("passing") / "world"))
    store = open_store(f"sqlite:///{root / 'gate.db'}", migrate=False)
    yield World(root, store)
    store.close()


@pytest.fixture(scope="module")
def gate(shared_world: World, running: tuple[ModelServer, str]) -> Iterator[str]:
    with in_the_way(shared_world, running) as url:
        yield url


@pytest.fixture
def counted(shared_world: World) -> Callable[[str], int]:
    """How often something has happened since the test began, as the statistics say."""
    before = correction_statistics(shared_world.store).total.model_dump()
    return lambda name: correction_statistics(shared_world.store).total.model_dump()[name] - before[name]


CLIENT = httpx2.Client(timeout=60)


def sent(
    url: str, path: str, body: Any, method: str = "POST", **headers: str
) -> tuple[int, dict[str, str], bytes, bool]:
    """Return status, headers and bytes of an answer, and whether it came to its end."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    whole, received = True, b""
    told = {"authorization": "Bearer other", "content-type": "application/json", "accept-encoding": "identity"}
    with CLIENT.stream(method, url + path, content=content, headers=told | headers) as response:
        try:
            for chunk in response.iter_raw():
                received += chunk
        except httpx2.RemoteProtocolError:
            whole = False
        kept = {name: value for name, value in response.headers.items() if name not in OF_SERVERS}
        return response.status_code, kept, received, whole


def same(gate: str, running: tuple[ModelServer, str], path: str, body: Any, **headers: str) -> None:
    """Check that an answer through the gate is that of the upstream, which has not been asked twice."""
    server, url = running
    server.requests.clear()
    through = sent(gate, path, body, **headers)
    (asked,) = server.requests
    server.requests.clear()
    assert through == sent(url, path, body, **headers)
    assert asked.content == server.requests[0].content
    own = ("host", "connection")
    own = dict.fromkeys(("host", "connection"), "")
    assert asked.headers | own == server.requests[0].headers | own


FAULTS = ["half", "bad", "gzip", "429", "500"]


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("agent", ["ann", "bob"])
def test_what_is_in_character_or_not_checked_passes_as_it_came(
    gate: str, running: tuple[ModelServer, str], model: ModelServer, path: str, agent: str
) -> None:
    for stream in (False, True):
        body = body_of(path, model=agent, stream=stream, stream_options={"include_usage": True})
        for written in (
            Written(FINE),
            Written(THOUGHT + FINE),
            Written(),
            Written("No end"),
            *(Written(FINE, fault=fault) for fault in FAULTS),
        ):
            model.write = lambda asked, written=written: written
            same(gate, running, path, body)


@pytest.mark.parametrize(
    ("method", "path", "content"),
    [
        ("GET", "/v1/models", b""),
        ("GET", "/v1/models?limit=2&after=%2F", b""),
        ("POST", "/v1/embeddings", json.dumps({"model": "ann"}).encode()),
        ("POST", "/v1/files", bytes(range(256)) * 4000),
        ("DELETE", "/v1/responses/resp_1", b""),
        ("POST", CHAT, b"\x1f\x8b no JSON"),
        ("POST", CHAT, b'[{"model": "ann"}]'),
        ("POST", CHAT, b'{"model": ["ann"]}'),
        ("POST", CHAT, b"[" * 3000),
    ],
)
def test_everything_else_is_handed_on(
    gate: str, running: tuple[ModelServer, str], model: ModelServer, method: str, path: str, content: bytes
) -> None:
    through = sent(gate, path, content, method)
    assert through == sent(running[1], path, content, method)
    assert [asked.content for asked in model.requests] == [content, content]
    assert model.requests[0].query == model.requests[1].query


def test_a_stream_of_many_events_without_text_is_not_kept_whole() -> None:
    async def events() -> AsyncIterator[tuple[bytes, EventPart]]:
        for _ in range(1000):
            yield b": \n\n", EventPart()

    async def run() -> None:
        held = await read_stream(ChatForm(), events(), 6400)
        assert (len(held.pieces), held.text, held.passes) == (101, None, TOO_LARGE)
        assert [piece async for piece in held.all_pieces()] == [b": \n\n"] * 1000

    asyncio.run(run())


def openai_chat(client: Any, stream: bool) -> str:
    asked = {"model": "ann", "messages": [{"role": "user", "content": "hi"}]}
    if not stream:
        return client.chat.completions.create(**asked).choices[0].message.content
    with client.chat.completions.stream(**asked) as events:
        texts = [event.delta for event in events if event.type == "content.delta"]
        (choice,) = events.get_final_completion().choices
    assert choice.finish_reason == "stop" and choice.message.content == "".join(texts)
    return "".join(texts)


def openai_response(client: Any, stream: bool) -> str:
    if not stream:
        return client.responses.create(model="ann", input="hi").output_text
    with client.responses.stream(model="ann", input="hi") as events:
        seen = list(events)
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    text = "".join(event.delta for event in seen if event.type == "response.output_text.delta")
    assert events.get_final_response().output_text == text
    assert {event.item_id for event in seen if hasattr(event, "item_id")} == {seen[3].item_id}
    return text


def anthropic_message(client: Any, stream: bool) -> str:
    asked = {"model": "ann", "max_tokens": 99, "messages": [{"role": "user", "content": "hi"}]}
    if not stream:
        return client.messages.create(**asked).content[0].text
    with client.messages.stream(**asked) as events:
        text = "".join(events.text_stream)
        assert events.get_final_message().content[0].text == text
    return text


CLIENTS = [
    ("openai", CHAT, openai_chat),
    ("openai", RESPONSES, openai_response),
    ("anthropic", MESSAGES, anthropic_message),
]


@contextmanager
def client_of(library: str, url: str) -> Iterator[Any]:
    if library == "openai":
        openai = pytest.importorskip("openai")
        with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
            yield client
        return
    import anthropic

    with anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0) as client:
        yield client


@pytest.mark.parametrize(("library", "path", "read"), CLIENTS)
def test_what_is_out_of_character_is_asked_for_again(
    counted: Callable[[str], int], gate: str, model: ModelServer, library: str, path: str, read: Reader
) -> None:
    model.write = lambda asked: Written("Now with a joke. That is all." if asked.is_again else SAID)
    with client_of(library, gate) as client:
        assert read(client, False) == "Now with a joke. That is all."
        first, again = model.requests
        written, feedback = again.turns[-2:]
        assert (written["role"], written["content"], feedback["role"]) == ("assistant", SAID, "user")
        assert feedback["content"].startswith("Not sent: 1.0 of 9")
        assert {**again.body, "messages": 0, "input": 0} == {**first.body, "messages": 0, "input": 0}
        assert read(client, True) == "Now with a joke. That is all."
    assert model.requests[-1].turns[-2:] == [written, feedback]
    # A message is one action, streamed or not.
    assert [*map(counted, ("actions", "passed", "passed_after_retry", "rejections"))] == [2, 0, 2, 2]


@pytest.mark.parametrize(("library", "path", "read"), CLIENTS)
def test_an_answer_written_again_comes_with_its_own_headers(
    gate: str, running: tuple[ModelServer, str], model: ModelServer, library: str, path: str, read: Reader
) -> None:
    """A length of the rejected answer would cut the other one off, or leave the client waiting."""
    for again in ("No, not so.", " ".join(["Now with a joke."] * 40)):
        model.write = lambda asked, again=again: Written(again if asked.is_again else SAID, fault="length")
        with client_of(library, gate) as client:
            assert read(client, False) == read(client, True) == again
        for stream in (False, True):
            _, headers, content, whole = sent(gate, path, body_of(path, stream=stream))
            assert whole and int(headers.get("content-length", len(content))) == len(content)
            assert (path, headers, content, whole) == (path, *sent(running[1], path, model.requests[-1].content)[1:])


def failing(question: Question) -> Answer:
    raise OSError("no judge")


# What fails, and the reason by which the answers are counted.
FAILURES: dict[str, tuple[Callable[[Question], Answer], str]] = {
    "the judge raises": (failing, "api_error"),
    "the judge writes nonsense": (unscored(Unscored.INVALID_OUTPUT), "invalid_output"),
    "the judge is slow": (unscored(Unscored.TIMEOUT), "timeout"),
    "the gate": (judged, "internal_error"),
    "the store": (judged, "database"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_whatever_fails_costs_no_message(
    world: World, running: tuple[ModelServer, str], model: ModelServer, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    judge, reason = FAILURES[failure]
    if failure == "the gate":
        monkeypatch.setattr(ActionGate, "check", broken)
    if failure == "the store":
        world = World(world.root, open_store("postgresql://nobody@127.0.0.1:1/none", migrate=False))
    model.write = lambda asked: Written(SAID)
    with in_the_way(world, running, judge) as url:
        for path in ENDPOINTS:
            for stream in (False, True):
                same(url, running, path, body_of(path, stream=stream))
        # One check a message: where there is no score, the rest of it is not asked about. The breaker opens after five.
        counts = unchecked(url, reason), unchecked(url, "circuit_open")
        assert sum(counts) == 2 * len(ENDPOINTS) and counts[1] <= 1


class NeverBackend(TextBackend):
    """A judge that has not answered by the time that anybody waits."""

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        await asyncio.sleep(600)
        raise AssertionError


def test_clients_get_the_answer_though_the_judge_is_slow(
    world: World, running: tuple[ModelServer, str], model: ModelServer
) -> None:
    model.write = lambda asked: Written(SAID)
    upstream = ModelUpstream(running[1], {"ann": "ann"}, {KEY: "ann"}, ask_again=True)
    with serving(create_app(world, NeverBackend(), upstream=upstream, deadline=0.2)) as url:
        for library, _, read in CLIENTS:
            with client_of(library, url.replace("127.0.0.1", "localhost")) as client:
                assert [read(client, stream) for stream in (False, True)] == [SAID, SAID]
    assert len(model.requests) == 2 * len(CLIENTS)
    assert correction_statistics(world.store).total.fail_open == 2 * len(CLIENTS)


def unchecked(gate: str, reason: str) -> float:
    """How many texts the metrics say went out unchecked for a reason."""
    metrics = sent(gate, "/metrics", b"", "GET")[2].decode()
    (found,) = [
        line.split()[-1]
        for line in metrics.splitlines()
        if line.startswith(f'gate_unchecked_total{{reason="{reason}"}}')
    ] or ["0"]
    return float(found)


@pytest.mark.parametrize(
    ("path", "told", "written"),
    [
        (CHAT, {"n": 2}, Written(SAID)),
        (CHAT, {"response_format": {"type": "json_object"}}, Written(SAID)),
        (CHAT, {}, Written(SAID, tool="look_up")),
        (CHAT, {"messages": "hi"}, Written(SAID)),
        (RESPONSES, {"conversation": "conv_1"}, Written(SAID)),
        (RESPONSES, {"text": {"format": {"type": "json_schema"}}}, Written(SAID)),
        (RESPONSES, {}, Written(SAID, tool="look_up")),
        (MESSAGES, {}, Written(SAID, tool="look_up")),
    ],
)
def test_what_is_not_one_text_passes_and_is_counted(
    gate: str, running: tuple[ModelServer, str], model: ModelServer, path: str, told: dict, written: Written
) -> None:
    model.write = lambda asked: written
    before = unchecked(gate, "not_text")
    same(gate, running, path, body_of(path, **told))
    assert unchecked(gate, "not_text") == before + 1


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_call_of_a_tool_without_words_passes(
    gate: str, running: tuple[ModelServer, str], model: ModelServer, path: str
) -> None:
    model.write = lambda asked: Written("Dry.", tool="look_up") if asked.body.get("stream") else Written(tool="look_up")
    for stream in (False, True):
        same(gate, running, path, body_of(path, stream=stream))


NO_OTHER = {
    "silent": Written(),
    "breaks off": Written("Well", fault="half"),
    **{fault: Written("Now with a joke. That is all.", fault=fault) for fault in ("429", "500", "reset")},
}


@pytest.mark.parametrize("fault", NO_OTHER)
@pytest.mark.parametrize("path", ENDPOINTS)
def test_where_no_other_answer_comes_the_first_is_sent(
    gate: str, running: tuple[ModelServer, str], model: ModelServer, path: str, fault: str
) -> None:
    model.write = lambda asked: NO_OTHER[fault] if asked.is_again else Written(SAID)
    before = unchecked(gate, "not_rewritten")
    for stream in (False, True):
        through = sent(gate, path, body_of(path, stream=stream))
        assert [asked.is_again for asked in model.requests] == [False, True]
        assert through == sent(running[1], path, body_of(path, stream=stream))
        model.requests.clear()
    assert unchecked(gate, "not_rewritten") == before + 2


def test_a_client_that_leaves_ends_the_stream_of_the_upstream(gate: str, model: ModelServer) -> None:
    model.write = lambda asked: Written(FINE * 500, pause=0.001)
    with CLIENT.stream("POST", gate + CHAT, json=body_of(CHAT, stream=True, model="bob")) as response:
        next(response.iter_raw())
    wait_until(lambda: model.left == 1)
    with pytest.raises(httpx2.ReadTimeout):
        # Nothing of a held answer comes meanwhile.
        CLIENT.post(gate + CHAT, json=body_of(CHAT, stream=True), timeout=0.5)
    wait_until(lambda: model.left == 2)


def test_a_gate_that_watches_changes_nothing(
    world: World, running: tuple[ModelServer, str], model: ModelServer
) -> None:
    write_config(world.store, "ann", CorrectionSettings(action_gate_enabled=True, shadow_mode=True))
    model.write = lambda asked: Written(SAID)
    with in_the_way(world, running) as gate:
        for count, stream in enumerate((False, True), 1):
            same(gate, running, CHAT, body_of(CHAT, stream=stream))
            wait_until(lambda count=count: correction_statistics(world.store).total.would_hold == count)


@pytest.mark.parametrize(
    ("headers", "name", "checked"),
    [
        ({}, "ann", True),
        ({"x-persona-agent": "ann", "x-persona-channel": "general"}, "gpt-5", True),
        ({"authorization": f"Bearer {KEY}"}, "gpt-5", True),
        ({"x-api-key": KEY, "authorization": ""}, "gpt-5", True),
        ({"api-key": KEY, "authorization": ""}, "gpt-5", True),
        ({"x-persona-agent": "bob", "authorization": f"Bearer {KEY}"}, "ann", False),
        ({"x-persona-agent": "nobody"}, "ann", False),
        ({}, "gpt-5", False),
    ],
)
def test_who_speaks_is_told_by_header_key_or_model(
    gate: str, model: ModelServer, caplog: pytest.LogCaptureFixture, headers: dict[str, str], name: str, checked: bool
) -> None:
    model.write = lambda asked: Written("Now with a joke." if asked.is_again else SAID)
    with caplog.at_level(logging.DEBUG):
        assert (b"a joke" in sent(gate, CHAT, body_of(CHAT, model=name), **headers)[2]) is checked
    for asked in model.requests:
        assert not [header for header in asked.headers if header.startswith("x-persona")]
        assert KEY not in str(headers) or KEY in str(asked.headers)
    assert KEY not in caplog.text


def test_own_paths_are_never_handed_on(world: World, running: tuple[ModelServer, str], model: ModelServer) -> None:
    app = create_app(world, TextBackend())
    own = [path for path in app.openapi()["paths"] if path.startswith("/v1/")]
    assert len(own) == 4 and all(passing._OWN.match(path) for path in own)
    with in_the_way(world, running) as url:
        for path in own:
            sent(url, path.replace("{agent_id}", "ann"), b"", "DELETE")
    assert not model.requests


@pytest.mark.parametrize("path", ["/v1/../admin", "/v1/%2e%2e/admin", "/v1/x/%2E./y"])
def test_no_path_leads_out_of_the_upstream(gate: str, model: ModelServer, path: str) -> None:
    for target, statuses in ((path, {400}), (f"http://other.example{path}", {400, 404})):
        connection = http.client.HTTPConnection(gate.removeprefix("http://"))
        connection.request("GET", target, headers={"host": "localhost"})
        assert connection.getresponse().status in statuses
        connection.close()
    assert not model.requests


@pytest.mark.parametrize(
    "url",
    ["", "api.openai.com/v1", "ftp://x/v1", "https://key@host/v1", "https://host/v1?key=1", "http://", "http://x:y"],
)
def test_an_upstream_that_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="--upstream"):
        ModelUpstream(url)


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://api.example", "https://api.example/v1/models?a=%2F"),
        ("https://api.example/", "https://api.example/v1/models?a=%2F"),
        ("https://api.example/v1", "https://api.example/v1/models?a=%2F"),
        ("http://localhost:11434/openai/v1/", "http://localhost:11434/openai/v1/models?a=%2F"),
    ],
)
def test_where_a_request_goes(url: str, target: str) -> None:
    assert str(ModelUpstream(url).target(b"/v1/models", b"a=%2F")) == target


def test_with_a_token_only_who_has_it_is_passed_on(
    world: World, running: tuple[ModelServer, str], model: ModelServer
) -> None:
    with in_the_way(world, running, access=Access("open-up")) as url:
        assert sent(url, "/v1/models", b"", "GET")[0] == 401
        assert sent(url, "/v1/models", b"", "GET", authorization="Bearer open-up")[0] == 401
        assert not model.requests
        assert sent(url, "/v1/models", b"", "GET", **{"x-persona-token": "open-up"})[0] == 200
    (asked,) = model.requests
    assert asked.headers["authorization"] == "Bearer other" and "open-up" not in str(asked.headers)


def test_an_upstream_that_is_not_there_is_an_error_of_the_gateway(world: World, model: ModelServer) -> None:
    with in_the_way(world, (model, "http://127.0.0.1:1")) as url:
        status, _, content, _ = sent(url, CHAT, body_of(CHAT))
    assert status == 502 and json.loads(content)["error"]["message"] == "the upstream does not answer (ConnectError)"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--agent", "gpt-5=ann"], "--agent and --agent-key-env need --upstream"),
        (
            ["--upstream", "https://x.example", "--agent", "gpt-5=anne"],
            "the world has no agent 'anne'; did you mean 'ann'?",
        ),
        (["--upstream", "https://x.example", "--agent", "ann"], "--agent =ann"),
        (["--upstream", "https://x.example", "--agent-key-env", "NO_SUCH_KEY=ann"], "no key is in NO_SUCH_KEY"),
        (["--upstream", "x.example"], "--upstream: write a URL such as"),
    ],
)
def test_options_that_name_no_upstream_or_no_agent_are_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    done = in_process(world.root, monkeypatch, capsys)("corrections", "serve", "--judge", "recorded", *options)
    assert done.returncode == 2 and said in " ".join(done.stderr.split())
