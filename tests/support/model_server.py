"""A model behind chat completions, Responses and Messages that writes what a test says, plain or streamed, and fails so too."""

import asyncio
import gzip
import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Written:
    """What the model writes: its text in pieces, and a tool that it calls after it. ``fault``: how the server fails."""

    text: str = ""
    tool: str | None = None
    fault: str | None = None
    pause: float = 0.0

    @property
    def pieces(self) -> list[str]:
        return re.findall(r"\s*\S+", self.text)


@dataclass
class Asked:
    """A request as it came."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    content: bytes

    @property
    def body(self) -> Json:
        return json.loads(self.content)

    @property
    def turns(self) -> list[Json]:
        return self.body.get("messages") or self.body["input"]

    @property
    def is_again(self) -> bool:
        """Whether it shows the model what it wrote, and what is to be said of that."""
        turns = self.body.get("messages") or self.body.get("input")
        return isinstance(turns, list) and len(turns) > 1 and turns[-2]["role"] == "assistant"


def chat(written: Written, number: int, request: Json) -> Json:
    message: Json = {"role": "assistant", "content": written.text or None}
    if written.tool:
        call = {"name": written.tool, "arguments": "{}"}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": call}]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if written.tool else "stop", "x_new": None}
    choices = [choice | {"index": index} for index in range(request.get("n") or 1)]
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": choices,
        "usage": usage,
    }


def chat_events(written: Written, number: int, request: Json) -> Iterator[Json]:
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": number, "model": "m"}

    def chunk(delta: Json, finish: str | None = None) -> Json:
        return head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]}

    yield chunk({"role": "assistant", "content": ""})
    for piece in written.pieces:
        yield chunk({"content": piece})
    if written.tool:
        function = {"name": written.tool, "arguments": "{}"}
        yield chunk({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]})
    yield chunk({}, "tool_calls" if written.tool else "stop")
    if (request.get("stream_options") or {}).get("include_usage"):
        yield head | {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}}


def response(written: Written, number: int, request: Json) -> Json:
    part = {"type": "output_text", "text": written.text, "annotations": []}
    output: list[Json] = [
        {"type": "message", "id": f"msg_{number}", "status": "completed", "role": "assistant", "content": [part]}
    ]
    if written.tool:
        output.append({"type": "function_call", "id": "fc_1", "call_id": "c", "name": written.tool, "arguments": "{}"})
    head = {"id": f"resp_{number}", "object": "response", "created_at": 1, "status": "completed", "model": "m"}
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    rest = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": usage}
    return head | {"output": output} | rest


def response_events(written: Written, number: int, request: Json) -> Iterator[Json]:
    whole = response(written, number, request)
    count = itertools.count()

    def event(kind: str, **told: Any) -> Json:
        return {"type": f"response.{kind}", "sequence_number": next(count), **told}

    empty = whole | {"output": [], "status": "in_progress", "usage": None}
    item = whole["output"][0]
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    part = item["content"][0]
    yield event("created", response=empty)
    yield event("in_progress", response=empty)
    yield event("output_item.added", output_index=0, item=item | {"content": [], "status": "in_progress"})
    yield event("content_part.added", **place, part=part | {"text": ""})
    for piece in written.pieces:
        yield event("output_text.delta", **place, delta=piece, logprobs=[])
    yield event("output_text.done", **place, text=written.text, logprobs=[])
    yield event("content_part.done", **place, part=part)
    yield event("output_item.done", output_index=0, item=item)
    if written.tool:
        yield event("output_item.added", output_index=1, item=whole["output"][1])
        yield event("output_item.done", output_index=1, item=whole["output"][1])
    yield event("completed", response=whole)


def message(written: Written, number: int, request: Json) -> Json:
    content: list[Json] = [{"type": "text", "text": written.text}] if written.text else []
    if written.tool:
        content.append({"type": "tool_use", "id": "toolu_1", "name": written.tool, "input": {}})
    usage = {"input_tokens": 3, "output_tokens": 4}
    head = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m", "content": content}
    return head | {"stop_reason": "tool_use" if written.tool else "end_turn", "stop_sequence": None, "usage": usage}


def message_events(written: Written, number: int, request: Json) -> Iterator[Json]:
    whole = message(written, number, request)
    yield {"type": "message_start", "message": whole | {"content": [], "stop_reason": None}}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for piece in written.pieces:
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
    yield {"type": "content_block_stop", "index": 0}
    if written.tool:
        yield {"type": "content_block_start", "index": 1, "content_block": whole["content"][-1]}
        yield {"type": "content_block_stop", "index": 1}
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 4}}
    yield {"type": "message_stop"}


ENDPOINTS = {
    "/v1/chat/completions": (chat, chat_events),
    "/v1/responses": (response, response_events),
    "/v1/messages": (message, message_events),
}


def as_events(path: str, written: Written, number: int, request: Json) -> list[bytes]:
    """The events of a stream, as they go over the wire."""
    events = ENDPOINTS[path][1](written, number, request)
    if path == "/v1/chat/completions":
        return [*(f"data: {json.dumps(event)}\n\n".encode() for event in events), b"data: [DONE]\n\n"]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


def as_whole(path: str, written: Written, number: int, request: Json) -> bytes:
    return json.dumps(ENDPOINTS[path][0](written, number, request), indent=1).encode()


@dataclass
class ModelServer:
    """An ASGI application: ``write`` says what is answered to a request.

    Attributes:
        left: streams that whoever asked did not wait for.
    """

    write: Callable[[Asked], Written]
    requests: list[Asked] = field(default_factory=list)
    left: int = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        content = b""
        while (told := await receive())["type"] == "http.request":
            content += told.get("body", b"")
            if not told.get("more_body"):
                break
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        path = scope["path"]
        asked = Asked(scope["method"], path, scope["query_string"].decode(), headers, content)
        self.requests.append(asked)
        if path not in ENDPOINTS:
            await _respond(send, 200, content or path.encode(), "application/octet-stream", [(b"x-own", b"1")])
            return
        try:
            request = asked.body
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict):
            await _respond(send, 400, b'{"error": {"message": "no JSON"}}')
            return
        # Another answer has other ids than the first.
        gone = asyncio.create_task(receive())
        await self._answer(asked, request, 1 + asked.is_again, send, gone)
        gone.cancel()

    async def _answer(self, asked: Asked, request: Json, number: int, send: Any, gone: asyncio.Task[Any]) -> None:
        written = self.write(asked)
        await asyncio.sleep(written.pause)
        packed: list[tuple[bytes, bytes]] = []
        match written.fault:
            case "429":
                limited = b'{"error": {"message": "slow down", "code": "rate_limit_exceeded"}}'
                await _respond(send, 429, limited, headers=[(b"retry-after", b"7")])
                return
            case "500":
                await _respond(send, 500, b"upstream broke", "text/plain")
                return
            case "reset":
                # The server ends the connection where an application answers nothing.
                return
        if request.get("stream"):
            events = as_events(asked.path, written, number, request)
            if written.fault == "bad":
                events = [*events[:3], b'data: {"choices": [{"delta"\n\n', b"data: \xff\xfe\n\n", *events[3:]]
            if written.fault == "gzip":
                events, packed = [gzip.compress(b"".join(events), mtime=0)], [(b"content-encoding", b"gzip")]
            if written.fault == "length":
                # As buffering proxies do.
                packed = [(b"content-length", str(len(b"".join(events))).encode()), (b"content-encoding", b"identity")]
            half = len(events) // 2 if written.fault == "half" else len(events)
            await _start(send, 200, "text/event-stream; charset=utf-8", packed)
            for event in events[:half]:
                await send({"type": "http.response.body", "body": event, "more_body": True})
                await asyncio.sleep(written.pause and 0.002)
                if gone.done():
                    self.left += 1
                    return
            if written.fault != "half":
                await send({"type": "http.response.body", "body": b""})
            return
        body = as_whole(asked.path, written, number, request)
        if written.fault == "bad":
            body = body[:-7]
        if written.fault == "gzip":
            body, packed = gzip.compress(body, mtime=0), [(b"content-encoding", b"gzip")]
        if written.fault == "length":
            packed = [(b"content-encoding", b"identity"), (b"etag", b'"1"')]
        if written.fault == "half":
            await _start(send, 200, "application/json", [(b"content-length", str(len(body)).encode())])
            await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})
            return
        await _respond(send, 200, body, headers=packed)


async def _start(send: Any, status: int, kind: str, headers: list[tuple[bytes, bytes]]) -> None:
    told = [(b"content-type", kind.encode()), (b"x-request-id", b"req_1"), *headers]
    await send({"type": "http.response.start", "status": status, "headers": told})


async def _respond(
    send: Any,
    status: int,
    body: bytes,
    kind: str = "application/json",
    headers: list[tuple[bytes, bytes]] | None = None,
) -> None:
    await _start(send, status, kind, [(b"content-length", str(len(body)).encode()), *(headers or [])])
    await send({"type": "http.response.body", "body": body})
