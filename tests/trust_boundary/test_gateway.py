"""Rows 32 to 43 of the trust boundary that concern the gateway: an upstream, a model or a client that means no good."""

import asyncio
import gzip
import http.client
import itertools
import json
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.base.database.engine import open_store
from persona_pipeline.base.http_server import ServerLimits, guarded_protocol
from persona_pipeline.corrections.configuration import write_config
from persona_pipeline.corrections.records import Action, GateDecision, Outcome
from persona_pipeline.corrections.service import passing
from persona_pipeline.corrections.service.answers import HeldAnswer, Speaker
from persona_pipeline.corrections.service.app import ModelUpstream, create_app
from persona_pipeline.corrections.service.budget import MessageBudget, Spending
from persona_pipeline.corrections.service.forms import is_plain_model
from persona_pipeline.judging.verdict import Answer, Question, Usage
from persona_pipeline.testing.worlds import write_small_world
from persona_pipeline.world import CorrectionSettings, World
from tests.corrections.support import GATED, TextBackend, bypass_counts, claims_of, reviewed_text
from tests.support.clock import take_deadlines_off
from tests.support.model_server import ENDPOINTS, Written, as_events, as_whole
from tests.support.serving import serving

CHAT, RESPONSES, MESSAGES = ENDPOINTS
LIMITS = {CHAT: "max_tokens", RESPONSES: "max_output_tokens", MESSAGES: "max_tokens"}
SIX = " ".join(f"This is number {number} of six." for number in range(6))
Json = dict[str, Any]


@dataclass
class Asked:
    path: str
    headers: dict[str, str]
    content: bytes

    @property
    def body(self) -> Json:
        return json.loads(self.content)


@dataclass
class Hostile:
    """An upstream that sends what a test says: headers and bytes by the number of the request.

    Attributes:
        most_open: answers that were written at the same time.
    """

    answer: Callable[[Asked, int], tuple[list[tuple[bytes, bytes]], list[bytes]]]
    requests: list[Asked] = field(default_factory=list)
    open: int = 0
    most_open: int = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        content = b""
        while True:
            told = await receive()
            content += told.get("body", b"")
            if not told.get("more_body"):
                break
        asked = Asked(scope["path"], {n.decode(): v.decode() for n, v in scope["headers"]}, content)
        self.requests.append(asked)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        headers, chunks = self.answer(asked, len(self.requests) - 1)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        self.open -= 1


STREAM, WHOLE = (b"content-type", b"text/event-stream"), (b"content-type", b"application/json")


def writes(*texts: str, tool: str | None = None) -> Callable[[Asked, int], tuple[list[Any], list[bytes]]]:
    """Answer with one text after the other, the last one for ever, in the form of the request."""

    def answer(asked: Asked, number: int) -> tuple[list[Any], list[bytes]]:
        written = Written(texts[min(number, len(texts) - 1)], tool=tool)
        path = f"/{asked.path.strip('/').replace('//', '/')}"
        if asked.body.get("stream"):
            return [STREAM], as_events(path, written, number + 1, asked.body)
        return [WHOLE], [as_whole(path, written, number + 1, asked.body)]

    return answer


def scoring(rejects: Callable[[str], bool], usd: float = 0.00002) -> TextBackend:
    """A judge that rejects a text by what a test says of it."""

    def judged(question: Question) -> Answer:
        score = 1 if rejects(reviewed_text(question.evidence)) else 8
        verdicts = [{"id": claim["id"], "reason": "So it is.", "score": score} for claim in claims_of(question.context)]
        return Answer({"verdicts": verdicts}, usage=Usage(100, 20, calls=1, usd=usd), model="text-1")

    return TextBackend(judged)


@pytest.fixture(autouse=True)
def _in_no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    take_deadlines_off(monkeypatch)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_small_world(tmp_path_factory.mktemp("gateway") / "world")
    world = World.open(root, f"sqlite:///{root / 'gate.db'}")
    world.sync()
    write_config(world.store, "ann", GATED)
    world.store.close()
    return root


@pytest.fixture
def world(finished: Path, tmp_path: Path) -> Iterator[World]:
    root = Path(shutil.copytree(finished, tmp_path / "world"))
    store = open_store(f"sqlite:///{root / 'gate.db'}", migrate=False)
    yield World(root, store)
    store.close()


@dataclass
class Gateway:
    url: str
    upstream: Hostile
    judge: TextBackend
    metrics: Callable[[], dict[str, int]]

    def ask(self, path: str, body: Any, **headers: str) -> httpx2.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        told = {"content-type": "application/json", "x-persona-agent": "ann"} | headers
        with httpx2.Client(timeout=60) as client:
            return client.post(self.url + path, content=content, headers=told)


@contextmanager
def gateway(
    world: World, upstream: Hostile, judge: TextBackend | None = None, *, ask_again: bool | None = True, **told: Any
) -> Iterator[Gateway]:
    judge = judge or scoring(lambda text: False)
    with serving(upstream) as direct:
        app = create_app(world, judge, upstream=ModelUpstream(direct, {"ann": "ann"}, ask_again=ask_again, **told))
        with serving(app, guarded_protocol(ServerLimits())) as url:
            url = url.replace("127.0.0.1", "localhost")
            yield Gateway(url, upstream, judge, lambda: counted(url))


def counted(url: str) -> dict[str, int]:
    """What went out unchecked, by reason, as the metrics say."""
    with httpx2.Client(timeout=60) as client:
        lines = client.get(f"{url}/metrics").text.splitlines()
    found = [line.partition('{reason="')[2] for line in lines if line.startswith("gate_unchecked_total{")]
    return {line.partition('"')[0]: int(float(line.split()[-1])) for line in found}


def body_of(path: str, **told: Any) -> Json:
    asked = {"input": "hi"} if path == RESPONSES else {"messages": [{"role": "user", "content": "hi"}]}
    return {"model": "ann", "stream": True} | asked | told


def text_of(response: httpx2.Response) -> str:
    """The text of a stream or of a whole answer, in whichever form."""
    if response.headers["content-type"] == "application/json":
        answer = response.json()
        parts = answer.get("content") or answer.get("output", [{}])[0].get("content")
        return parts[0]["text"] if parts else answer["choices"][0]["message"]["content"]
    found = ""
    for line in response.text.splitlines():
        event = json.loads(line[6:]) if line.startswith("data: {") else {}
        if event.get("type") == "response.output_text.delta":
            found += event["delta"]
        elif event.get("type") == "content_block_delta":
            found += event["delta"]["text"]
        elif event.get("choices"):
            found += event["choices"][0]["delta"].get("content") or ""
    return found


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_32_a_message_that_is_always_rejected_has_an_end(world: World, path: str, stream: bool) -> None:
    with gateway(world, Hostile(writes(SIX)), scoring(lambda text: True)) as gate:
        answer = gate.ask(path, body_of(path, stream=stream))
        attempts = 1 + GATED.max_correction_attempts
        assert len(gate.upstream.requests) == len(gate.judge.questions) == attempts
        assert gate.upstream.most_open == 1
        assert text_of(answer) == SIX and gate.metrics() == {}


def test_32_rewrites_end_with_the_budget_and_with_its_price(world: World) -> None:
    write_config(world.store, "ann", CorrectionSettings(action_gate_enabled=True, max_correction_attempts=10))
    for usd, checks in ((0.00002, 4), (0.02, 3)):
        with gateway(world, Hostile(writes(SIX)), scoring(lambda text: True, usd=usd)) as gate:
            assert text_of(gate.ask(CHAT, body_of(CHAT))) == SIX
            assert len(gate.judge.questions) == checks and gate.metrics() == {"budget": 1}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_32_rewrites_share_the_tokens_that_the_client_allows(world: World, path: str, stream: bool) -> None:
    with gateway(world, Hostile(writes(SIX)), scoring(lambda text: True)) as gate:
        gate.ask(path, body_of(path, stream=stream, **{LIMITS[path]: 100}))
    first, *again = [asked.body[LIMITS[path]] for asked in gate.upstream.requests]
    assert first == 100 and again and again == sorted(again, reverse=True) and max(again) <= 100
    # Six sentences are more than 40 tokens: no third rewrite has room.
    assert len(again) < MessageBudget().rewrites


def test_32_a_message_that_may_not_be_held_is_not_checked(world: World) -> None:
    with gateway(world, Hostile(writes(SIX)), scoring(lambda text: True), budget=MessageBudget(seconds=0)) as gate:
        assert text_of(gate.ask(CHAT, body_of(CHAT))) == SIX
        assert (len(gate.upstream.requests), gate.judge.questions, gate.metrics()) == (1, [], {"budget": 1})


class Fickle:
    """A gate that says of texts what a test draws, and counts itself."""

    def __init__(self, rejects: list[bool], attempts: int) -> None:
        self.rejects, self.attempts, self.checks = itertools.cycle(rejects), attempts, 0
        self.bypasses, self.counted = self, list[str]()

    def count(self, reason: str, agent_id: str | None = None) -> None:
        self.counted.append(reason)

    async def check(self, agent_id: str, text: str, *, attempt: int, action_id: str, **_: Any) -> GateDecision:
        self.checks += 1
        rejected = next(self.rejects)
        action = Action.COMMIT if not rejected else Action.RETRY if attempt <= self.attempts else Action.FORCE
        outcome = Outcome.CORRECTED if action is Action.RETRY else Outcome.PASSED
        return GateDecision(action, outcome, text, "no", action_id=action_id, attempt=attempt, usage=Usage(usd=0.001))


@given(
    rejects=st.lists(st.booleans(), min_size=1, max_size=12),
    attempts=st.integers(0, 10),
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    budget=st.builds(MessageBudget, rewrites=st.integers(0, 5), usd=st.floats(0, 0.02)),
    most_tokens=st.none() | st.integers(1, 200),
)
def test_32_whatever_is_rejected_a_message_keeps_its_budget(
    rejects: list[bool], attempts: int, lengths: list[int], budget: MessageBudget, most_tokens: int | None
) -> None:
    """The loop alone, which LiteLLM's hook shares."""
    allowed = list[int | None]()

    def written(number: int) -> HeldAnswer[str]:
        count = lengths[min(number, len(lengths) - 1)]
        return HeldAnswer([f"This is {number}, sentence {place}.\n" for place in range(count)], "This is it. " * count)

    async def ask(text: str, feedback: str, tokens: int | None) -> HeldAnswer[str]:
        allowed.append(tokens)
        return written(len(allowed))

    gate = Fickle(rejects, attempts)
    spending = Spending(budget, most_tokens)
    speaker = Speaker(gate, "ann", None, watched=False, repeatable=True, spending=spending)  # pyright: ignore[reportArgumentType]
    sent = asyncio.run(speaker.settled(written(0), ask))
    assert sent in [written(number) for number in range(len(allowed) + 1)]
    assert len(allowed) <= budget.rewrites and gate.checks <= budget.rewrites + 1
    assert len(gate.counted) <= 1
    if most_tokens is not None:
        assert all(tokens is not None and tokens <= most_tokens for tokens in allowed)


ACTING = [
    (CHAT, {"tools": [{"type": "function", "function": {"name": "f"}}, {"type": "mcp", "server_url": "https://x"}]}),
    (CHAT, {"web_search_options": {}, "tools": [{"type": "web_search"}]}),
    (CHAT, {"tools": [{"name": "no type"}]}),
    (RESPONSES, {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}),
    (RESPONSES, {"tools": [{"type": "web_search"}]}),
    (RESPONSES, {"prompt": {"id": "pmpt_1"}}),
    (MESSAGES, {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
    (MESSAGES, {"mcp_servers": [{"type": "url", "url": "https://x", "name": "x"}]}),
    (MESSAGES, {"container": "c1"}),
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("path", "told"), ACTING)
def test_33_a_request_that_may_act_is_sent_once(world: World, path: str, told: Json, stream: bool) -> None:
    with gateway(world, Hostile(writes(SIX, "Fine.")), scoring(lambda text: "number" in text)) as gate:
        assert text_of(gate.ask(path, body_of(path, stream=stream, **told))) == SIX
        assert len(gate.upstream.requests) == 1 and gate.metrics() == {"not_repeatable": 1}
        assert len(gate.judge.questions) == 1


@pytest.mark.parametrize(
    ("path", "tools"),
    [
        (CHAT, [{"type": "function", "function": {"name": "f"}}]),
        (RESPONSES, [{"type": "function", "name": "f"}, {"type": "custom", "name": "g"}]),
        (MESSAGES, [{"name": "f", "input_schema": {}}, {"type": "bash_20250124", "name": "bash"}]),
    ],
)
def test_33_tools_that_the_client_runs_do_not_keep_an_answer_from_being_written_again(
    world: World, path: str, tools: list[Json]
) -> None:
    with gateway(world, Hostile(writes(SIX, "All is fine here.")), scoring(lambda text: "number" in text)) as gate:
        assert text_of(gate.ask(path, body_of(path, tools=tools))) == "All is fine here."
    assert len(gate.upstream.requests) == 2


@pytest.mark.parametrize("stream", [True, False])
def test_33_an_upstream_that_nobody_vouches_for_is_asked_once(world: World, stream: bool) -> None:
    with gateway(world, Hostile(writes(SIX, "Fine.")), scoring(lambda text: True), ask_again=None) as gate:
        assert text_of(gate.ask(CHAT, body_of(CHAT, stream=stream))) == SIX
        assert len(gate.upstream.requests) == 1 and gate.metrics() == {"not_repeatable": 1}


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("api.openai.com", True),
        ("eu.api.openai.com", True),
        ("mine.openai.azure.com", True),
        ("api.anthropic.com", True),
        ("localhost", False),
        ("api.openai.com.example", False),
        ("notapi.openai.com", False),
        ("", False),
    ],
)
def test_33_hosts_that_are_known_to_serve_models_alone(host: str, known: bool) -> None:
    assert is_plain_model(host) is known


@pytest.mark.parametrize("stream", [True, False])
def test_33_each_request_has_a_key_of_its_own(world: World, stream: bool) -> None:
    with gateway(world, Hostile(writes(SIX)), scoring(lambda text: True)) as gate:
        gate.ask(CHAT, body_of(CHAT, stream=stream), **{"idempotency-key": "key"})
        gate.ask(CHAT, body_of(CHAT, stream=stream))
    keys = [asked.headers.get("idempotency-key") for asked in gate.upstream.requests]
    keyed = [key for key in keys if key is not None]
    assert keyed == ["key", "key-r1", "key-r2", "key-r3"][: len(keyed)] and len(keyed) * 2 == len(keys)


async def read_events(chunks: list[bytes], most: int = 10**6) -> list[passing.ServerEvent]:
    async def coming() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return [event async for event in passing.server_events(coming(), most)]


@given(
    parts=st.lists(st.tuples(st.sampled_from([b"a", b"b\xc3\xa9", b": no"]), st.integers(1, 2)), max_size=6),
    end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    other=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    cuts=st.lists(st.integers(0, 80), max_size=8),
)
def test_35_events_are_the_same_however_they_come(
    parts: list[tuple[bytes, int]], end: bytes, other: bytes, cuts: list[int]
) -> None:
    # CR LF is one end of a line: after CR alone it is no second one.
    blank = end if end == b"\r" and other == b"\n" else other
    content = b"".join(b"data: " + text + end + (b"data: more" + end) * (n - 1) + blank for text, n in parts)
    places = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    chunks = [content[start:stop] for start, stop in itertools.pairwise(places)]
    found = asyncio.run(read_events(chunks))
    assert b"".join(event.raw for event in found) == content
    wanted = [b"\n".join([b" " + text, *[b" more"] * (n - 1)]) for text, n in parts]
    assert [event.data for event in found if event.data is not None] == wanted


class Counting:
    """A pattern that counts the bytes it is to search."""

    def __init__(self, pattern: Any) -> None:
        self.pattern, self.searched = pattern, 0

    def search(self, text: bytes, start: int) -> Any:
        found = self.pattern.search(text, start)
        self.searched += (found.end() if found else len(text)) - start
        return found


@pytest.mark.parametrize("size", [100_000, 1_000_000, 5_000_000])
def test_35_the_work_on_an_event_grows_as_its_size(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    counting = Counting(passing._EVENT_END)
    monkeypatch.setattr(passing, "_EVENT_END", counting)
    content = b"data: " + b"x" * size + b"\r\n\r\n" + b"data: y\n\n" * 1000
    chunks = [content[start : start + 1000] for start in range(0, len(content), 1000)]
    found = asyncio.run(read_events(chunks, most=10**9))
    assert len(found) == 1001 and b"".join(event.raw for event in found) == content
    assert counting.searched <= 1.01 * len(content)


def test_35_what_follows_too_large_an_event_passes_and_is_counted(world: World) -> None:
    small, _, *rest = as_events(CHAT, Written("This is fine. This is dry."), 1, {})
    large = b'data: {"choices": [{"delta": {"x": "' + b"x" * passing.MOST_EVENT + b'"}}]}\n\n'
    chunks = [small, large[:70_000], large[70_000:], *rest]
    with gateway(world, Hostile(lambda asked, number: ([STREAM], chunks)), scoring(lambda text: True)) as gate:
        assert gate.ask(CHAT, body_of(CHAT)).content == b"".join(chunks)
        assert gate.metrics() == {"too_large": 1} and not gate.judge.questions


def plain_chat(**message: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()


def chunk_of(**delta: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


CALL = [{"id": "c", "type": "function", "function": {"name": "send", "arguments": '{"text": "dry"}'}}]
# Path, request, kind and bytes of the answer, and why it is counted; none: it is checked.
WAYS: dict[str, tuple[str, Any, Any, bytes, str]] = {
    "completions": ("/v1/completions", {"model": "ann", "prompt": "hi"}, WHOLE, b'{"choices": []}', "endpoint"),
    "a batch": ("/v1/batches", {"endpoint": CHAT}, WHOLE, b"{}", "endpoint"),
    "an assistant": ("/v1/threads/t/runs", {"model": "ann"}, WHOLE, b"{}", "endpoint"),
    "a list as body": (CHAT, [body_of(CHAT)], WHOLE, plain_chat(content="dry"), "not_read"),
    "no JSON as body": (CHAT, b"\x1f\x8b packed", WHOLE, plain_chat(content="dry"), "not_read"),
    "a refusal": (CHAT, body_of(CHAT), WHOLE, plain_chat(content=None, refusal="dry"), "not_text"),
    "a transcript": (CHAT, body_of(CHAT), WHOLE, plain_chat(content=None, audio={"transcript": "dry"}), "not_text"),
    "a call alone": (CHAT, body_of(CHAT), WHOLE, plain_chat(content=None, tool_calls=CALL), "not_text"),
    "no answer": (CHAT, body_of(CHAT), WHOLE, plain_chat(content=None), "not_text"),
    "a list as answer": (CHAT, body_of(CHAT), WHOLE, b"[" + plain_chat(content="dry") + b"]", "not_text"),
    "a refusal in pieces": (CHAT, body_of(CHAT), STREAM, chunk_of(refusal="dry"), "not_text"),
    "a transcript in pieces": (CHAT, body_of(CHAT), STREAM, chunk_of(audio={"transcript": "dry"}), "not_text"),
    "a call in pieces": (CHAT, body_of(CHAT), STREAM, chunk_of(tool_calls=CALL), "not_text"),
    "a whole message in a piece": (CHAT, body_of(CHAT), STREAM, b'data: {"choices": [{"text": "dry"}]}\n\n', "not_text"),
    "an event that is no JSON": (CHAT, body_of(CHAT), STREAM, b"data: dry\n\n", "not_text"),
    "an event that is a list": (CHAT, body_of(CHAT), STREAM, b"data: [1]\n\n", "not_text"),
    "another kind": (CHAT, body_of(CHAT), (b"content-type", b"text/plain"), chunk_of(content="dry"), "not_text"),
    "a response's refusal": (
        RESPONSES, body_of(RESPONSES), STREAM, b'data: {"type": "response.refusal.delta", "delta": "dry"}\n\n', "not_text",
    ),
    "a response at its end alone": (
        RESPONSES, body_of(RESPONSES), STREAM, b'data: {"type": "response.output_text.done", "text": "dry"}\n\n', "not_text",
    ),
    "a message at its start": (
        MESSAGES, body_of(MESSAGES), STREAM,
        b'data: {"type": "message_start", "message": {"content": [{"type": "text", "text": "dry"}]}}\n\n', "not_text",
    ),
    "a block at its start": (
        MESSAGES, body_of(MESSAGES), STREAM,
        b'data: {"type": "content_block_start", "content_block": {"type": "text", "text": "dry"}}\n\n', "not_text",
    ),
    "a slash at the end": (f"{CHAT}/", body_of(CHAT), STREAM, chunk_of(content="dry"), ""),
    "two slashes": ("/v1//chat//completions", body_of(CHAT), STREAM, chunk_of(content="dry"), ""),
    "events that end with LF CR LF": (
        CHAT, body_of(CHAT), STREAM, chunk_of(content="dry").replace(b"\n\n", b"\n\r\n") * 2, "",
    ),
    "a byte order mark": (CHAT, body_of(CHAT), STREAM, b"\xef\xbb\xbf" + chunk_of(content="dry"), ""),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_36_whatever_is_not_checked_is_counted(world: World, way: str) -> None:
    path, body, kind, content, reason = WAYS[way]
    with gateway(world, Hostile(lambda asked, number: ([kind], [content]))) as gate:
        assert gate.ask(path, body).content == content
        assert gate.metrics() == ({reason: 1} if reason else {})
        assert bool(gate.judge.questions) is not bool(reason)
        assert gate.upstream.requests[0].path == path
    assert bypass_counts(world.store) == gate_counts(reason)


def gate_counts(reason: str) -> dict[str, int]:
    return {reason: 1} if reason else {}


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/files", "/v1/messages/count_tokens", "/v1/models/m/"])
def test_36_where_no_agent_says_anything_nothing_is_counted(world: World, path: str) -> None:
    with gateway(world, Hostile(lambda asked, number: ([WHOLE], [b"{}"]))) as gate:
        gate.ask(path, {"model": "ann"})
        assert gate.metrics() == {}


def test_36_too_large_a_request_is_counted(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    monkeypatch.setattr(passing, "_MOST_READ", 1000)
    with gateway(world, Hostile(writes(SIX))) as gate:
        assert text_of(gate.ask(CHAT, body_of(CHAT, user="x" * 2000))) == SIX
        assert gate.metrics() == {"too_large": 1}


def test_37_a_large_answer_is_not_kept_and_counted(world: World) -> None:
    with gateway(
        world, Hostile(writes("Bad. " * 1000)), scoring(lambda text: True), budget=MessageBudget(size=1000)
    ) as gate:
        assert text_of(gate.ask(CHAT, body_of(CHAT, stream=False))) == "Bad. " * 1000
        assert (gate.judge.questions, gate.metrics()) == ([], {"too_large": 1})


def test_37_what_an_upstream_packs_is_not_unpacked(world: World) -> None:
    packed = gzip.compress(b" " * 10_000_000)
    headers = [WHOLE, (b"content-encoding", b"gzip")]
    with gateway(world, Hostile(lambda asked, number: (headers, [packed]))) as gate:
        gate.ask(CHAT, body_of(CHAT, stream=False))
        assert gate.metrics() == {"not_text": 1}


def raw(url: str, *lines: bytes) -> bytes:
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(b"\r\n".join(lines))
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
        return received


def test_39_a_body_that_does_not_go_on_ends(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    monkeypatch.setattr(passing, "_BODY_SECONDS", 0.05)
    with gateway(world, Hostile(writes(SIX))) as gate:
        head = (b"Host: localhost", b"Content-Length: 100", b"", b"{")
        for path in (CHAT, "/v1/files"):
            assert raw(gate.url, f"POST {path} HTTP/1.1".encode(), *head).startswith(b"HTTP/1.1 408")


def test_42_a_request_of_two_lengths_is_refused_and_nothing_after_it_read(world: World) -> None:
    second = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = (b"Host: localhost", f"Content-Length: {len(second) + 5}".encode(), b"Transfer-Encoding: chunked")
    with gateway(world, Hostile(writes(SIX))) as gate:
        for path in (CHAT, "/v1/files", "/v1/gate"):
            answer = raw(gate.url, f"POST {path} HTTP/1.1".encode(), *head, b"", b"0\r\n\r\n" + second)
            assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1") == 1
    assert not gate.upstream.requests


@pytest.mark.parametrize(
    ("origin", "status"), [("https://evil.example", 403), ("null", 403), (None, 200), ("own", 200)]
)
def test_43_no_other_page_posts_to_the_gateway(world: World, origin: str | None, status: int) -> None:
    with gateway(world, Hostile(writes(SIX))) as gate:
        own = {} if origin is None else {"origin": gate.url if origin == "own" else origin}
        assert gate.ask(CHAT, body_of(CHAT), **own, **{"content-type": "text/plain"}).status_code == status
    assert len(gate.upstream.requests) == (status == 200)


def test_a_client_of_the_standard_library_reads_the_stream_to_its_end(world: World) -> None:
    with gateway(world, Hostile(writes(SIX, "All is fine here.")), scoring(lambda text: "number" in text)) as gate:
        connection = http.client.HTTPConnection(gate.url.removeprefix("http://"))
        connection.request("POST", CHAT, json.dumps(body_of(CHAT)), {"x-persona-agent": "ann"})
        assert connection.getresponse().read().endswith(b"data: [DONE]\n\n")
        connection.close()
