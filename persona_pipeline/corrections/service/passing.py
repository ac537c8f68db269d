"""The gate as a proxy in front of a model: requests go to the upstream, and answers of agents are checked on the way back."""

import asyncio
import hmac
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Mapping
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
from persona_pipeline.corrections.service.answers import Events, HeldAnswer, Speaker, read_stream, speaker_of
from persona_pipeline.corrections.service.budget import MessageBudget
from persona_pipeline.corrections.service.forms import (
    ENDPOINT,
    FORMS,
    NOT_READ,
    NOT_TEXT,
    TOO_LARGE,
    AnswerForm,
    EventPart,
    Json,
    endpoint_of,
    holds_words,
    is_plain_model,
)

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

Headers = list[tuple[bytes, bytes]]
# Paths that the service answers itself.
_OWN = re.compile(r"/v1/(gate|interventions|statistics|agents)(/|$)")
# Headers of a single connection; the server writes its own date and name.
_HOP = (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade")
_NOT_SENT_ON = (*_HOP, b"host", b"expect", b"proxy-authorization")
_NOT_SENT_BACK = (*_HOP, b"date", b"server", b"proxy-authenticate")
# They describe a body, and go with it where another takes its place.
_OF_BODY = (
    *(b"content-length", b"content-encoding", b"content-md5", b"content-digest", b"repr-digest", b"digest", b"etag"),
    *(b"last-modified", b"accept-ranges", b"content-range", b"signature", b"signature-input"),
)
_KEY = b"idempotency-key"
_OURS = b"x-persona-"
# A larger request passes without being read.
_MOST_READ = 32 * 1024 * 1024
_CONNECT_SECONDS = 30.0
# Without a byte of a request's body.
_BODY_SECONDS = 30.0
# Less than servers keep an idle connection.
_IDLE_SECONDS = 4.0
# Most bytes of an event. A longer one is not read, and neither are those after it.
MOST_EVENT = 1024 * 1024
# A line ends with CR LF, LF or CR; an empty line ends an event. Atomic: CR LF is one end of a line and never two.
_EVENT_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
# An end has up to four bytes, so three may be there already.
_PART_OF_END = 3
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_STREAM, _WHOLE = "text/event-stream", "application/json"
_LOGGER = logging.getLogger("persona_pipeline.corrections.service")


@dataclass(frozen=True)
class ModelUpstream:
    """The server that requests go to, and the agents that speak.

    Attributes:
        url: the client's former base URL; without a path, ``/v1`` is added.
        agents: by the name of the requested model.
        keys: agents by the caller's key.
        ask_again: whether the same request may be sent again, as the server only writes; None: where its host is known to serve
            plain models.
        budget: of each message of a client.
    """

    url: str
    agents: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    ask_again: bool | None = None
    budget: MessageBudget = field(default_factory=MessageBudget)

    def __post_init__(self) -> None:
        try:
            url = httpx2.URL(self.url)
        except httpx2.InvalidURL:
            url = httpx2.URL("")
        if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query or url.fragment:
            raise ConfigError("--upstream: write a URL such as https://api.openai.com/v1, without a key in it")

    @property
    def is_asked_again(self) -> bool:
        """Whether a request may be sent again; see ``ask_again``."""
        return is_plain_model(httpx2.URL(self.url).host) if self.ask_again is None else self.ask_again

    def speaker(self, headers: Mapping[str, str], request: Json) -> str | None:
        """Return the agent that a request is for: by its header, its key, or the model it asks."""
        if named := headers.get("x-persona-agent"):
            return named
        bearer = headers.get("authorization", "").partition(" ")[2].strip()
        sent = (bearer or headers.get("x-api-key") or headers.get("api-key", "")).encode()
        by_key = [agent_id for key, agent_id in self.keys.items() if hmac.compare_digest(key.encode(), sent)]
        return by_key[0] if by_key else self.agents.get(str(request.get("model")))

    def target(self, path: bytes, query: bytes) -> httpx2.URL:
        """Return the address of a request under ``/v1``: always at the one upstream, for any path."""
        base = httpx2.URL(self.url)
        start = base.raw_path.rstrip(b"/") or b"/v1"
        return base.copy_with(raw_path=start + path.removeprefix(b"/v1") + (b"?" + query if query else b""))


class _ClientLeftError(Exception):
    """The client has left."""


class _Body:
    """The body of a request as it comes, and after it whether its sender is still there."""

    def __init__(self, receive: "Receive") -> None:
        self.receive, self._whole = receive, asyncio.Event()

    async def chunks(self) -> AsyncIterator[bytes]:
        while not self._whole.is_set():
            async with asyncio.timeout(_BODY_SECONDS):
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
    """A request to the upstream.

    Attributes:
        turn: whose answer is checked; None: it passes as it comes.
        unread: why an answer that passes is counted, for ``agent_id``; "": it is not.
    """

    method: str
    target: httpx2.URL
    headers: Headers
    content: bytes | AsyncIterator[bytes] | None
    turn: _Turn | None = None
    unread: str = ""
    agent_id: str | None = None

    def with_body(self, request: Json) -> "_Asked":
        """Return the request with another body."""
        kept = [(name, value) for name, value in self.headers if name not in _OF_BODY]
        return replace(self, headers=kept, content=json.dumps(request).encode("ascii"))

    def again(self, turn: _Turn, written: str, feedback: str, tokens: int | None) -> "_Asked":
        """Return the request for another answer; a key for one request is not for another."""
        mark = f"-r{turn.speaker.spending.rewrites}".encode()
        asked = self.with_body(turn.form.asked_again(turn.request, written, feedback, tokens))
        return replace(asked, headers=[(n, v + mark if n == _KEY else v) for n, v in asked.headers])


class PassThrough:
    """ASGI middleware that hands everything under ``/v1`` but the service's own to the upstream, and its answer back.

    Answers of agents whose gate is on are checked; all others, and whatever the gate cannot read, are handed on as they came. The
    caller's key goes to the upstream alone.
    """

    def __init__(self, app: "ASGIApp", upstream: ModelUpstream, access: Access, gate: ActionGate) -> None:
        self._app, self._boundary, self._upstream, self._gate = app, Boundary(app, access), upstream, gate
        self._settings = StoredSettings(gate.world.store)
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
        """Answer for as long as the client is connected."""
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
        except TimeoutError:
            refused = _error(408, f"no part of the body came for {_BODY_SECONDS:g} seconds")
        if refused is not None:
            await refused(scope, body.receive, send)

    async def _asked(self, scope: "Scope", headers: Mapping[str, str], body: _Body) -> _Asked:
        """Return the request to the upstream; the body is read only where it may be an agent's turn."""
        chunks, dropped = body.chunks(), {*_NOT_SENT_ON, *_of_connection(headers)}
        kept = [item for item in scope["headers"] if item[0] not in dropped and not item[0].startswith(_OURS)]
        target = self._upstream.target(scope["raw_path"], scope["query_string"])
        has_body = not {"content-length", "transfer-encoding"}.isdisjoint(headers)
        asked = _Asked(scope["method"], target, kept, chunks if has_body else None)
        if asked.method != "POST":
            return asked
        form = FORMS.get(endpoint_of(scope["path"]))
        if form is None:
            unread = ENDPOINT if holds_words(scope["path"]) else ""
            return replace(asked, unread=unread, agent_id=self._upstream.speaker(headers, {}))
        read = bytearray()
        async for chunk in chunks:
            read += chunk
            if len(read) > _MOST_READ:
                asked = replace(asked, content=_joined(bytes(read), chunks), unread=TOO_LARGE)
                return replace(asked, agent_id=self._upstream.speaker(headers, {}))
        asked, request = replace(asked, content=bytes(read)), _json(bytes(read))
        agent_id = self._upstream.speaker(headers, request or {})
        if request is None:
            return replace(asked, unread=NOT_READ, agent_id=agent_id)
        if agent_id is None:
            return asked
        speaker = await speaker_of(
            agent_id,
            headers.get("x-persona-channel"),
            self._gate,
            self._settings,
            form,
            request,
            self._upstream.budget,
            plain=self._upstream.is_asked_again,
        )
        if speaker is None:
            return asked
        # A packed answer cannot be read.
        plain = [(name, value) for name, value in asked.headers if name != b"accept-encoding"]
        return replace(asked, headers=[*plain, (b"accept-encoding", b"identity")], turn=_Turn(speaker, form, request))

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
            turn = asked.turn
            is_turn = turn is not None and response.status_code == 200 and not _is_packed(response)
            if turn and is_turn and _kind(response) == _STREAM and not turn.speaker.holds:
                await _sent(send, response, turn.speaker.passed(turn.form, _events(response)))
            elif turn and is_turn and _kind(response) in (_STREAM, _WHOLE):
                await self._settled(asked, turn, response, send)
            else:
                if turn and response.is_success:
                    turn.speaker.unchecked(NOT_TEXT)
                elif asked.unread and response.is_success:
                    self._gate.bypasses.count(asked.unread, asked.agent_id)
                await _sent(send, response, response.aiter_raw())
        finally:
            await response.aclose()
        return None

    async def _asked_again(self, asked: _Asked, kind: str) -> httpx2.Response:
        """Ask for another answer; ValueError: it is not of that kind."""
        response = await self._ask(asked)
        if response.status_code != 200 or _kind(response) != kind or _is_packed(response):
            await response.aclose()
            raise ValueError(f"the upstream answers {response.status_code}")
        return response

    async def _settled(self, asked: _Asked, turn: _Turn, response: httpx2.Response, send: "Send") -> None:
        """Hold an answer until it is checked, and send it or one that was written again."""
        kind, most = _kind(response), self._upstream.budget.size

        async def ask(written: str, feedback: str, tokens: int | None) -> HeldAnswer[bytes]:
            again = await self._asked_again(asked.again(turn, written, feedback, tokens), kind)
            try:
                return await _read(turn.form, again, most)
            finally:
                await again.aclose()

        answer = await turn.speaker.settled(await _read(turn.form, response, most), ask)
        await _sent(send, answer.response, answer.all_pieces())


async def _read(form: AnswerForm, response: httpx2.Response, most: int) -> HeldAnswer[bytes]:
    """Read an answer. One with more bytes than ``most``, or a stream with more than text, is not read to its end."""
    if _kind(response) == _STREAM:
        return replace(await read_stream(form, _events(response), most), response=response)
    content, chunks = bytearray(), response.aiter_raw()
    try:
        async for chunk in chunks:
            content += chunk
            if len(content) > most:
                return HeldAnswer([bytes(content)], None, TOO_LARGE, chunks, response=response)
    except httpx2.TransportError as error:
        return HeldAnswer([bytes(content)], failure=error, response=response)
    return HeldAnswer([bytes(content)], form.words_of(_json(bytes(content)) or {}), response=response)


@dataclass(frozen=True)
class ServerEvent:
    """The bytes of an event. ``too_large``: they are part of an event that is too large, or follow one, and are not read."""

    raw: bytes
    too_large: bool = False

    @property
    def data(self) -> bytes | None:
        """The event's data; None: it has none, as a comment."""
        lines = self.raw.removeprefix(_BYTE_ORDER_MARK).splitlines()
        found = [line[5:] for line in lines if line.startswith(b"data:")]
        return b"\n".join(found) if found else None


async def server_events(chunks: AsyncIterator[bytes], most: int = MOST_EVENT) -> AsyncIterator[ServerEvent]:
    """Yield the events of a stream; together their bytes are those of the chunks.

    ``most``: bytes of an event. From the first that is larger on, all that comes is yielded as ``too_large``.
    """
    held, searched, too_large = bytearray(), 0, False
    async for chunk in chunks:
        if too_large:
            yield ServerEvent(chunk, too_large=True)
            continue
        held += chunk
        start = 0
        # Each byte is searched once: only the last bytes may belong to an end that the next chunk completes.
        position = max(0, searched - _PART_OF_END)
        while (found := _EVENT_END.search(held, position)) and found.end() - start <= most:
            yield ServerEvent(bytes(held[start : found.end()]))
            start = position = found.end()
        del held[:start]
        searched = len(held)
        too_large = found is not None or searched > most
        if too_large:
            yield ServerEvent(bytes(held), too_large=True)
            held.clear()
    if held:
        yield ServerEvent(bytes(held))


async def _events(response: httpx2.Response) -> Events[bytes]:
    """Yield the events of a stream: the bytes of each, and its data or, where that cannot be read, its part."""
    async for event in server_events(response.aiter_raw()):
        data = event.data
        if event.too_large:
            yield event.raw, EventPart(passes=TOO_LARGE)
        elif data is None or data.strip() in (b"", b"[DONE]"):
            yield event.raw, None
        else:
            yield event.raw, _json(data) or EventPart(passes=NOT_TEXT)


def _json(content: bytes) -> Json | None:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _kind(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_packed(response: httpx2.Response) -> bool:
    return response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity")


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": "upstream_error", "param": None, "code": None}}, status)


def _of_connection(headers: Mapping[str, str]) -> set[bytes]:
    return {item.strip().encode("latin-1") for item in headers.get("connection", "").lower().split(",")}


async def _joined(first: bytes, others: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in others:
        yield chunk


async def _sent(send: "Send", response: httpx2.Response, content: AsyncIterator[bytes]) -> None:
    """Send an answer on; one that breaks off is broken off here too."""
    without = {*_NOT_SENT_BACK, *_of_connection(response.headers)}
    kept = [(name.lower(), value) for name, value in response.headers.raw if name.lower() not in without]
    await send({"type": "http.response.start", "status": response.status_code, "headers": kept})
    try:
        async for chunk in content:
            if chunk:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
    except httpx2.TransportError as error:
        # No end: a client can see that the answer is incomplete.
        _LOGGER.warning("the upstream broke an answer off (%s)", type(error).__name__)
        return
    await send({"type": "http.response.body", "body": b"", "more_body": False})
