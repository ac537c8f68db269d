"""The gate in the way: what speaks to a model through here gets the upstream's answers, those of agents in character."""

import asyncio
import hmac
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.request import getproxies, proxy_bypass

import httpx2
from starlette.responses import JSONResponse

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.http_server import Access, Boundary
from persona_pipeline.base.telemetry import within_span
from persona_pipeline.corrections.configuration import StoredSettings
from persona_pipeline.corrections.gate import ActionGate
from persona_pipeline.corrections.service.answers import (
    NOT_TEXT,
    AnswerForm,
    AnswerStream,
    Json,
    Speaker,
    answer_forms,
    in_character,
    speaker_of,
)

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

Headers = list[tuple[bytes, bytes]]
# What the service answers itself.
_OWN = re.compile(r"/v1/(gate|interventions|statistics|agents)(/|$)")
# Of one connection, not of what is said over it; the server writes its own date and name.
_HOP = (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade")
_NOT_SENT_ON = (*_HOP, b"host", b"expect", b"proxy-authorization")
_NOT_SENT_BACK = (*_HOP, b"date", b"server", b"proxy-authenticate")
_OURS = b"x-persona-"
# A larger request passes without being read.
_MOST_READ = 32 * 1024 * 1024
_CONNECT_SECONDS = 30.0
# Less than servers keep a connection that nobody uses.
_IDLE_SECONDS = 4.0
_EVENT_END = re.compile(rb"(?<=\n\n)|(?<=\r\n\r\n)|(?<=\r\r)")
_STREAM, _WHOLE = "text/event-stream", "application/json"
_LOGGER = logging.getLogger("persona_pipeline.corrections.service")


@dataclass(frozen=True)
class ModelUpstream:
    """Where requests go, and who speaks.

    Attributes:
        url: what a client would have for its base URL; without a path, ``/v1`` is meant.
        agents: by the name of the model that is asked for.
        keys: agents by the key that is sent.
    """

    url: str
    agents: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        try:
            url = httpx2.URL(self.url)
        except httpx2.InvalidURL:
            url = httpx2.URL("")
        if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query or url.fragment:
            raise ConfigError("--upstream: write a URL such as https://api.openai.com/v1, without a key in it")

    def speaker(self, headers: Mapping[str, str], request: Json) -> str | None:
        """Return the agent that a request is for: by its header, its key, or the model it asks."""
        if named := headers.get("x-persona-agent"):
            return named
        bearer = headers.get("authorization", "").partition(" ")[2].strip()
        sent = (bearer or headers.get("x-api-key") or headers.get("api-key", "")).encode()
        by_key = [agent_id for key, agent_id in self.keys.items() if hmac.compare_digest(key.encode(), sent)]
        return by_key[0] if by_key else self.agents.get(str(request.get("model")))

    def target(self, path: bytes, query: bytes) -> httpx2.URL:
        """Return where a request under ``/v1`` goes, whatever its path is: to the one upstream."""
        base = httpx2.URL(self.url)
        start = base.raw_path.rstrip(b"/") or b"/v1"
        return base.copy_with(raw_path=start + path.removeprefix(b"/v1") + (b"?" + query if query else b""))


class _ClientLeftError(Exception):
    """Nobody waits for the answer any more."""


class _Body:
    """The body of a request as it comes, and after it whether its sender is still there."""

    def __init__(self, receive: "Receive") -> None:
        self.receive, self._whole = receive, asyncio.Event()

    async def chunks(self) -> AsyncIterator[bytes]:
        while not self._whole.is_set():
            message = await self.receive()
            if message["type"] != "http.request":
                raise _ClientLeftError
            if not message.get("more_body"):
                self._whole.set()
            yield message.get("body", b"")

    async def left(self) -> None:
        await self._whole.wait()
        while (await self.receive())["type"] != "http.disconnect":
            pass


@dataclass(frozen=True)
class _Turn:
    """An agent's turn: the request for it, and in which form its answer comes."""

    speaker: Speaker
    form: AnswerForm
    request: Json


@dataclass(frozen=True)
class _Asked:
    """A request to the upstream. ``turn``: whose answer is checked; None: it passes as it comes."""

    method: str
    target: httpx2.URL
    headers: Headers
    content: bytes | AsyncIterator[bytes] | None
    turn: _Turn | None = None

    def again(self, turn: _Turn, written: str, feedback: str) -> "_Asked":
        """Return the request for another answer."""
        content = json.dumps(turn.form.asked_again(turn.request, written, feedback)).encode("ascii")
        # A key for one request is not for another.
        kept = [(name, value) for name, value in self.headers if name not in (b"content-length", b"idempotency-key")]
        return replace(self, headers=kept, content=content)


@dataclass(frozen=True)
class _Whole:
    """An answer that does not come as a stream. ``text``: as of ``AnswerForm.words_of``; ``failure``: what broke it off."""

    response: httpx2.Response
    content: bytes
    text: str | None
    failure: Exception | None

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self.content
        if self.failure is not None:
            raise self.failure


class PassThrough:
    """ASGI middleware that hands everything under ``/v1`` but the service's own to the upstream, and its answer back.

    Answers of agents whose gate is on are checked; all others, and whatever the gate cannot read, are handed on as they came. The
    caller's key goes to the upstream alone.
    """

    def __init__(self, app: "ASGIApp", upstream: ModelUpstream, access: Access, gate: ActionGate) -> None:
        self._app, self._boundary, self._upstream, self._gate = app, Boundary(app, access), upstream, gate
        self._forms, self._settings = answer_forms(), StoredSettings(gate.world.store)
        url = httpx2.URL(upstream.url)
        proxy = None if proxy_bypass(url.host) else getproxies().get(url.scheme)
        # Not a client: it would log addresses, and keep cookies.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=_IDLE_SECONDS)
        self._transport = httpx2.AsyncHTTPTransport(proxy=proxy, limits=limits)

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] == "lifespan":
            async with self._transport:
                await self._app(scope, receive, send)
        elif scope["type"] != "http" or not scope["path"].startswith("/v1/") or _OWN.match(scope["path"]):
            await self._app(scope, receive, send)
        else:
            await self._while_there(scope, receive, send)

    async def _while_there(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer for as long as whoever asked is there."""
        started, body = time.perf_counter(), _Body(receive)
        work, left = asyncio.ensure_future(self._answer(scope, body, send)), asyncio.ensure_future(body.left())
        try:
            await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, left):
                task.cancel()
            await asyncio.gather(work, left, return_exceptions=True)
        path = scope["path"].encode("unicode_escape").decode("ascii")
        _LOGGER.info("%s %s passed on, %.1f ms", scope["method"], path, (time.perf_counter() - started) * 1000)
        if not work.cancelled():
            work.result()

    async def _answer(self, scope: "Scope", body: _Body, send: "Send") -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        token = {"authorization": f"Bearer {headers.get('x-persona-token', '')}"}
        refused = self._boundary.refusal("GET", "/v1/", headers | token)
        if not refused and {".", ".."} & {*scope["path"].split("/")}:
            refused = _error(400, "a path does not lead upwards")
        try:
            if refused is None:
                with within_span(headers.get("traceparent"), self._gate.world.settings):
                    refused = await self._passed(await self._asked(scope, headers, body), send)
        except _ClientLeftError:
            return
        if refused is not None:
            await refused(scope, body.receive, send)

    async def _asked(self, scope: "Scope", headers: Mapping[str, str], body: _Body) -> _Asked:
        """Return what is asked of the upstream; the body is read only where it may be an agent's turn."""
        chunks, dropped = body.chunks(), {*_NOT_SENT_ON, *_of_connection(headers)}
        kept = [item for item in scope["headers"] if item[0] not in dropped and not item[0].startswith(_OURS)]
        target = self._upstream.target(scope["raw_path"], scope["query_string"])
        has_body = not {"content-length", "transfer-encoding"}.isdisjoint(headers)
        asked = _Asked(scope["method"], target, kept, chunks if has_body else None)
        form = self._forms.get(scope["path"]) if asked.method == "POST" else None
        if form is None:
            return asked
        read = bytearray()
        async for chunk in chunks:
            read += chunk
            if len(read) > _MOST_READ:
                return replace(asked, content=_joined(bytes(read), chunks))
        asked, request = replace(asked, content=bytes(read)), _json(bytes(read))
        agent_id = self._upstream.speaker(headers, request or {})
        if agent_id is None or request is None:
            return asked
        channel = headers.get("x-persona-channel")
        speaker = await speaker_of(agent_id, channel, self._gate, self._settings, lambda: form.is_text(request))
        if speaker is None:
            return asked
        # What is packed cannot be held by sentence.
        plain = [(name, value) for name, value in kept if name != b"accept-encoding"]
        resumed = form.resumed(request)
        if resumed is not request:
            plain = [(name, value) for name, value in plain if name != b"content-length"]
            asked = replace(asked, content=json.dumps(resumed).encode("ascii"))
        plain.append((b"accept-encoding", b"identity"))
        return replace(asked, headers=plain, turn=_Turn(speaker, form, resumed))

    async def _ask(self, asked: _Asked) -> httpx2.Response:
        timeout = {"connect": _CONNECT_SECONDS, "read": None, "write": None, "pool": None}
        request = httpx2.Request(
            asked.method, asked.target, headers=asked.headers, content=asked.content, extensions={"timeout": timeout}
        )
        response = await self._transport.handle_async_request(request)
        response.request = request
        return response

    async def _passed(self, asked: _Asked, send: "Send") -> JSONResponse | None:
        """Send the upstream's answer on; an answer of our own where it has none."""
        try:
            response = await self._ask(asked)
        except httpx2.TransportError as error:
            return _error(502, f"the upstream does not answer ({type(error).__name__})")
        try:
            turn = asked.turn if response.status_code == 200 else None
            if turn and _kind(response) == _STREAM and "content-encoding" not in response.headers:
                await self._streamed(asked, turn, response, send)
            elif turn and _kind(response) == _WHOLE:
                await self._whole(asked, turn, response, send)
            else:
                if turn:
                    turn.speaker.unchecked(NOT_TEXT)
                await _sent(send, response, response.aiter_raw())
        finally:
            await response.aclose()
        return None

    async def _asked_again(self, asked: _Asked, turn: _Turn, written: str, feedback: str, kind: str) -> httpx2.Response:
        """Have an answer written anew; ValueError: it is not one of that kind."""
        response = await self._ask(asked.again(turn, written, feedback))
        if response.status_code != 200 or _kind(response) != kind:
            await response.aclose()
            raise ValueError(f"the upstream answers {response.status_code}")
        return response

    async def _streamed(self, asked: _Asked, turn: _Turn, response: httpx2.Response, send: "Send") -> None:
        def answering(found: httpx2.Response) -> AnswerStream[bytes]:
            return AnswerStream(turn.form, _events(found), found.aclose, _event)

        async def again(written: str, feedback: str) -> AnswerStream[bytes]:
            return answering(await self._asked_again(asked, turn, written, feedback, _STREAM))

        async with aclosing(in_character(answering(response), turn.speaker, again)) as events:
            await _sent(send, response, events)

    async def _whole(self, asked: _Asked, turn: _Turn, response: httpx2.Response, send: "Send") -> None:
        async def again(written: str, feedback: str) -> _Whole:
            return await _read(turn.form, await self._asked_again(asked, turn, written, feedback, _WHOLE))

        draft = await turn.speaker.settled_whole(await _read(turn.form, response), lambda item: item.text, again)
        await _sent(send, draft.response, draft.chunks())


async def _read(form: AnswerForm, response: httpx2.Response) -> _Whole:
    """Read an answer that does not come as a stream, packed or not."""
    content, text, failure = bytearray(), None, None
    try:
        async for chunk in response.aiter_raw():
            content += chunk
        unpacked = httpx2.Response(200, headers=response.headers, content=bytes(content)).content
        text = form.words_of(_json(unpacked) or {})
    except httpx2.TransportError as error:
        failure = error
    except httpx2.DecodingError:
        pass
    return _Whole(response, bytes(content), text, failure)


async def _events(response: httpx2.Response) -> AsyncIterator[tuple[bytes, Json | None]]:
    """Yield the events of a stream: the bytes of each, and what its data is where that is a JSON object."""
    rest = b""
    async for chunk in response.aiter_raw():
        *whole, rest = _EVENT_END.split(rest + chunk)
        for raw in whole:
            yield raw, _data(raw)
    if rest:
        yield rest, _data(rest)


def _data(raw: bytes) -> Json | None:
    lines = [line[5:] for line in raw.splitlines() if line.startswith(b"data:")]
    return _json(b"\n".join(lines)) if lines else None


def _event(data: Json) -> bytes:
    head = f"event: {data['type']}\n" if "type" in data else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def _json(content: bytes) -> Json | None:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _kind(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": "upstream_error", "param": None, "code": None}}, status)


def _of_connection(headers: Mapping[str, str]) -> set[bytes]:
    return {item.strip().encode("latin-1") for item in headers.get("connection", "").lower().split(",")}


async def _joined(first: bytes, others: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in others:
        yield chunk


async def _sent(send: "Send", response: httpx2.Response, content: AsyncIterator[bytes]) -> None:
    """Send an answer on as it comes; one that breaks off is broken off here too."""
    dropped = {*_NOT_SENT_BACK, *_of_connection(response.headers)}
    kept = [(name.lower(), value) for name, value in response.headers.raw if name.lower() not in dropped]
    await send({"type": "http.response.start", "status": response.status_code, "headers": kept})
    try:
        async for chunk in content:
            if chunk:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
    except httpx2.TransportError as error:
        # Without an end: whoever reads it sees that there is none.
        _LOGGER.warning("the upstream broke an answer off (%s)", type(error).__name__)
        return
    await send({"type": "http.response.body", "body": b"", "more_body": False})
