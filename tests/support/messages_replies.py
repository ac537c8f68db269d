"""What the local server can answer: replies, faults, and valid verdicts on proposition questions."""

import asyncio
import hashlib
import json
import re
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from persona_pipeline.judging.model.probe import PLAIN_CLAIMS
from tests.support.messages_api import answer_body


@dataclass(frozen=True)
class Reply:
    """An HTTP response. ``body`` is JSON unless it is bytes; ``delay`` seconds come before it."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0


@dataclass(frozen=True)
class Reset:
    """The connection breaks off with a TCP reset instead of a response."""


@dataclass(frozen=True)
class Hang:
    """Nothing ever comes."""


@dataclass(frozen=True)
class Trickle:
    """The response comes one byte at a time, ``interval`` seconds apart."""

    reply: Reply
    interval: float = 0.05


@dataclass(frozen=True)
class Cut:
    """The connection ends after ``share`` of the response's body."""

    reply: Reply
    share: float = 0.5


ANSWER = Reply(body="answer")
Outcome = Reply | Reset | Hang | Trickle | Cut


@dataclass(frozen=True)
class Call:
    """One request as it came over the wire."""

    method: str
    path: str
    headers: Mapping[str, str]
    raw: bytes
    body: Any
    index: int

    @property
    def evidence(self) -> str:
        """The text of the ``tool_result`` block."""
        return next(
            block["content"]
            for item in self.body["messages"]
            for block in item["content"]
            if block["type"] == "tool_result"
        )


Handler = Callable[[Call], Outcome]


def message(text: str | None = None, *, stop_reason: str | None = "end_turn", **changes: Any) -> Reply:
    """Return a message with one text block (None: no block); ``changes`` replace fields or, if None, remove them."""
    body = answer_body(text, stop_reason=stop_reason) | changes
    return Reply({key: value for key, value in body.items() if value is not None})


def status(code: int, kind: str = "api_error", *, error_code: str | None = None, **headers: str) -> Reply:
    """Return an API error; header names are written with underscores."""
    details = {"details": {"error_code": error_code}} if error_code else {}
    body = {"type": "error", "error": {"type": kind, "message": f"the server says {code}", **details}}
    return Reply(body, code, {name.replace("_", "-"): value for name, value in headers.items()})


def verdicts(request: Mapping[str, Any], score: Callable[[str], int] | None = None) -> dict[str, Any]:
    """Return valid verdicts on the messages of a request, or on its propositions: scores from the claims, quotes from the transcript."""
    question = request["messages"][-1]["content"][0]["text"]
    if question.startswith("Give a verdict on each"):
        ids = question.partition(": ")[2].partition(".")[0].split(", ")
        return {"verdicts": [{"id": name, "verdict": "in"} for name in ids], "why": []}
    asked = json.loads(question.split("\n")[1])
    evidence = next(
        block["content"] for item in request["messages"] for block in item["content"] if block["type"] == "tool_result"
    )
    entries = [entry for entry in json.loads(evidence) if "text" in entry]
    quotes = [{"message": entries[0]["id"], "quote": entries[0]["text"][:40]}] if entries else []
    return {
        "verdicts": [
            {
                "proposition_id": item["proposition_id"],
                "evidence": quotes,
                "reasoning": f"About {item['claim'][:40]!r}.",
                "ideas": ["an idea"] if item.get("list_ideas") else [],
                "verdict": "scored",
                "score": _honest(item["claim"], evidence, score or _score),
            }
            for item in asked["propositions"]
        ]
    }


def _honest(claim: str, transcript: str, score: Callable[[str], int]) -> int:
    """Whether a word is used can be looked up, and every stand-in does; each knows what doctor asks, too."""
    if claim in PLAIN_CLAIMS:
        return 9 * PLAIN_CLAIMS[claim]
    word = re.search(r'word "(\w+)"', claim)
    return score(claim) if word is None else 9 * (word[1] in transcript)


def _score(claim: str) -> int:
    return hashlib.sha256(claim.encode("utf-8", "surrogatepass")).digest()[0] % 10


def encoded(reply: Reply) -> bytes:
    """Return the response's bytes."""
    is_bytes = isinstance(reply.body, bytes)
    content = reply.body if is_bytes else json.dumps(reply.body).encode("utf-8")
    headers = {
        "content-type": "text/html" if is_bytes else "application/json",
        "content-length": str(len(content)),
        "request-id": "req_test",
        **reply.headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {reply.status} Status\r\n{lines}\r\n".encode("latin-1") + content


async def send(writer: asyncio.StreamWriter, outcome: Outcome) -> None:
    """Let happen what an outcome says. Raises ``ConnectionResetError`` when the connection is over."""
    match outcome:
        case Hang():
            await asyncio.sleep(3600)
        case Reset():
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            raise ConnectionResetError
        case Trickle(reply, interval):
            for byte in encoded(reply):
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(interval)
        case Cut(reply, share):
            head, _, content = encoded(reply).partition(b"\r\n\r\n")
            writer.write(head + b"\r\n\r\n" + content[: int(len(content) * share)])
            await writer.drain()
            writer.close()
            raise ConnectionResetError
        case Reply():
            await asyncio.sleep(outcome.delay)
            writer.write(encoded(outcome))
            await writer.drain()
