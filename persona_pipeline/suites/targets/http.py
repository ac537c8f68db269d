"""``http``: an agent behind a URL, with JSON of any shape."""

import asyncio
import json
import re
import time
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import quote

from pydantic import AfterValidator, Field, PrivateAttr

from persona_pipeline.base.calls import Timing
from persona_pipeline.suites.answering.base import Request, TargetError
from persona_pipeline.suites.answering.output import Output, OutputError, parse_output
from persona_pipeline.suites.format.models import Text, over_texts
from persona_pipeline.suites.targets.python import AwaitedTarget

MOST_BYTES = 16_000_000
_PASSING = (408, 409, 425, 429, 500, 502, 503, 504)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_SHOWN = 200
_STREAM = "text/event-stream"
_VARIABLE = re.compile(r"\{\{\s*(prompt|messages|last_message|test_id|attempt|metadata|turn|conversation)\s*\}\}")


def _is_path(text: str) -> str:
    import jsonpath

    try:
        jsonpath.compile(text)
    except jsonpath.JSONPathError as error:
        raise ValueError(f"is no JSONPath: {str(error).splitlines()[0]}") from None
    return text


class HttpTarget(AwaitedTarget):
    """Sends a request made from the test, and reads the answer from the JSON reply.

    ``url``, ``headers`` and ``body`` may contain ``{{ prompt }}``, ``{{ messages }}``, ``{{ last_message }}``,
    ``{{ test_id }}``, ``{{ attempt }}``, ``{{ metadata }}``, ``{{ turn }}`` and ``{{ conversation }}``. A value of the body
    that is only a variable becomes its list or mapping; inside a text it is text. Redirects are not followed.
    """

    asks_network: ClassVar[bool] = True
    retried: ClassVar[bool] = True

    url: str = Field(pattern="^https?://", description="Where the agent listens.")
    method: Literal["GET", "POST", "PUT", "PATCH"] = Field("POST", description="How it is asked.")
    headers: dict[str, str] = Field(default_factory=dict, description="Sent with each request.")
    body: Any = Field(
        default_factory=lambda: {"prompt": "{{ prompt }}"}, description="What is sent as JSON; none with GET."
    )
    answer: Annotated[Text, AfterValidator(_is_path)] | None = Field(
        None, description="JSONPath of the answer: a text, a list of messages, or a mapping as recorded answers are."
    )
    max_retries: int = Field(2, ge=0, le=10, description="How often it is asked again after what can pass.")

    _client: Any = PrivateAttr(None)

    async def ask(self, request: Request) -> Output:
        import httpx2

        if self._client is None:
            self._client = httpx2.AsyncClient(timeout=None, limits=httpx2.Limits(max_connections=None))
        timing = Timing()
        return self._read(await self._ask(request, timing)).timed(timing)

    async def _ask(self, request: Request, timing: Timing) -> "str | list[str]":
        """Return the reply, or the data of its events for a stream."""
        import httpx2

        ends = timing.asked + request.timeout
        sent: dict[str, Any] = {
            "method": self.method,
            "url": _VARIABLE.sub(lambda match: quote(_as_text(request.named[match[1]]), safe=""), self.url),
            "headers": {name: str(_filled(value, request)) for name, value in self.headers.items()},
            "extensions": {"trace": timing.follow},
        }
        if self.method != "GET":
            sent["json"] = over_texts(self.body, lambda text: _filled(text, request))
        for retry in range(self.max_retries + 1):
            try:
                async with self._client.stream(**sent) as response:
                    if response.is_success and _STREAM in response.headers.get("content-type", "").lower():
                        return await _events(response, self.name, timing)
                    text = await _content(response, self.name)
                    timing.ended = time.monotonic()
            except httpx2.HTTPError as error:
                problem = self.failure("connection", f"{error or type(error).__name__}")
                pause = None
            else:
                if response.is_success:
                    return text
                shown = " ".join(text.split())[:_SHOWN]
                problem = self.failure("api_error", f"it said {response.status_code}: {shown}")
                if response.status_code not in _PASSING:
                    raise problem
                # Few servers send a date, so it is ignored.
                told = response.headers.get("retry-after", "")
                pause = float(told) if told.isascii() and told.isdigit() else None
                if pause is not None and pause > ends - time.monotonic():
                    said = f"; it asks to wait {pause:g} s, which is longer than the time that is left"
                    raise TargetError("api_error", problem.message + said)
            if retry == self.max_retries:
                raise problem
            await asyncio.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**retry) if pause is None else pause)
        raise AssertionError("unreachable")

    @cached_property
    def _path(self) -> Any:
        import jsonpath

        return None if self.answer is None else jsonpath.compile(self.answer)

    def _read(self, text: "str | list[str]") -> Output:
        if isinstance(text, list):
            if not (answer := "".join(map(self._piece, text))):
                raise self.failure("invalid_response", "it sent a stream with no piece of an answer")
            return parse_output(answer)
        try:
            data: Any = json.loads(text)
        except (ValueError, RecursionError):
            if self._path is not None:
                shown = " ".join(text.split())[:_SHOWN]
                raise self.failure("invalid_response", f"it did not send JSON: {shown}") from None
            return parse_output(text)
        if self._path is not None:
            found = self._path.findall(data)
            if not found:
                raise self.failure("invalid_response", f"there is nothing at {self.answer}")
            data = found[0]
        try:
            return parse_output(data)
        except OutputError as error:
            if self._path is None and not error.hides_a_call:
                # The shape is unknown: the whole reply is the answer.
                return parse_output(text)
            raise self.failure("invalid_response", f"{self.answer or 'the reply'}: {error}") from error

    def _piece(self, data: str) -> str:
        """Return the text of an event; without a path its data."""
        if self._path is None:
            return data
        try:
            found = self._path.findall(json.loads(data))
        except (ValueError, RecursionError):
            raise self.failure("invalid_response", "it sent an event that is not JSON") from None
        return "".join(item for item in found if isinstance(item, str))

    def close(self) -> None:
        if self._client is not None:
            self._loop.wait(self._client.aclose())
            self._client = None
        super().close()


async def _content(response: Any, name: str) -> str:
    read = bytearray()
    async for part in response.aiter_bytes():
        read += part
        if len(read) > MOST_BYTES:
            raise TargetError("invalid_response", f"target {name!r} sent more than {MOST_BYTES:,} bytes")
    try:
        return read.decode(response.charset_encoding or "utf-8", "replace")
    except (LookupError, ValueError):
        # The declared encoding is unknown.
        return read.decode("utf-8", "replace")


async def _events(response: Any, name: str, timing: Timing) -> list[str]:
    from httpx2 import EventSource

    found: list[str] = []
    size = 0
    async for event in EventSource(response, max_event_size=MOST_BYTES):
        if event.data != "[DONE]":
            found.append(event.data)
        size += len(event.data)
        if size > MOST_BYTES:
            raise TargetError("invalid_response", f"target {name!r} sent more than {MOST_BYTES:,} bytes")
    timing.ended = time.monotonic()
    return found


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _filled(template: str, request: Request) -> Any:
    """Fill the variables of a text; a text that is only a variable becomes its value."""
    whole = _VARIABLE.fullmatch(template.strip())
    if whole:
        return request.named[whole[1]]
    return _VARIABLE.sub(lambda match: _as_text(request.named[match[1]]), template)
