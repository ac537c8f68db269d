"""What a target answered (messages, and what it took), and recorded answers to be graded again."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.suites.format.javascript import json_rows, parse_json, stringify


class OutputError(Exception):
    """A recorded or reported answer has no known shape."""


@dataclass(frozen=True)
class TokenUsage:
    """Tokens a target reported. ``cached`` input is counted apart from ``input``."""

    input: float
    output: float
    cached: float | None = None

    @property
    def total(self) -> float:
        return self.input + self.output + (self.cached or 0)

    def to_dict(self) -> dict[str, float]:
        return {key: value for key, value in vars(self).items() if value is not None}


@dataclass
class Output:
    """One answer of a target.

    Attributes:
        messages: in order, plain JSON as the target gave them (``role``, ``content``, ``tool_calls``).
        duration_ms, cost_usd, token_usage: None where the target did not say.
        workspace: the folder it worked in; ``file_changes``: what it changed there, as a unified diff.
    """

    messages: list[dict[str, Any]] = field(default_factory=list)
    token_usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    file_changes: str | None = None
    workspace: str | None = None
    start_time: str | None = None
    end_time: str | None = None

    @cached_property
    def text(self) -> str:
        """The answer that is graded: the last assistant message that has content, JSON where it is no text."""
        for message in reversed(self.messages):
            content = message.get("content")
            if message.get("role") == "assistant" and content is not None:
                return content if isinstance(content, str) else stringify(content)
        return ""

    @cached_property
    def tool_calls(self) -> list[dict[str, Any]]:
        """Every tool call of every message, in order."""
        return [
            call
            for message in self.messages
            for call in (message.get("tool_calls") or ())
            if isinstance(call, dict) and isinstance(call.get("tool"), str)
        ]

    @property
    def has_trace(self) -> bool:
        """Whether anything is known about how the answer came about."""
        return bool(self.messages)

    @cached_property
    def llm_call_count(self) -> int:
        return sum(message.get("role") == "assistant" for message in self.messages)

    def trace(self) -> dict[str, Any] | None:
        """Return the summary code judges get, None when there are no messages."""
        if not self.has_trace:
            return None
        calls = Counter(call["tool"] for call in self.tool_calls)
        durations: dict[str, list[float]] = {}
        for call in self.tool_calls:
            if _number(call.get("duration_ms")) is not None:
                durations.setdefault(call["tool"], []).append(call["duration_ms"])
        trace: dict[str, Any] = {
            "event_count": len(self.tool_calls),
            "tool_names": sorted(calls),
            "tool_calls_by_name": dict(calls),
            "error_count": sum(bool(call.get("error")) for call in self.tool_calls),
            "llm_call_count": self.llm_call_count,
        }
        optional = {
            "tool_durations": durations or None,
            "token_usage": self.token_usage and self.token_usage.to_dict(),
            "cost_usd": self.cost_usd,
            "duration_ms": self.duration_ms,
            "start_time": self.start_time,
            "end_time": self.end_time,
        }
        return trace | {key: value for key, value in optional.items() if value is not None}

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as it can be recorded and read again with ``parse_output``."""
        data: dict[str, Any] = {"output_messages": self.messages}
        for name in ("cost_usd", "duration_ms", "file_changes", "start_time", "end_time"):
            if getattr(self, name) is not None:
                data[name] = getattr(self, name)
        if self.token_usage:
            data["token_usage"] = self.token_usage.to_dict()
        return data


_MESSAGE_KEYS = ("output_messages", "output", "messages")


def parse_output(value: Any) -> Output:
    """Return the output of what a target reported or a recording holds.

    Args:
        value: a string (the assistant's text), a list of messages, or a mapping with messages (``output_messages``, ``output`` or
            ``messages``) or ``text``, and perhaps ``token_usage``, ``cost_usd``, ``duration_ms``.

    Raises:
        OutputError: it is none of these.
    """
    if isinstance(value, str):
        return Output([{"role": "assistant", "content": value}])
    if isinstance(value, list):
        return Output(_messages(value))
    if not isinstance(value, Mapping):
        raise OutputError("an answer must be a string, a list of messages or a mapping")
    messages = next((value[key] for key in _MESSAGE_KEYS if isinstance(value.get(key), list)), None)
    if messages is not None:
        found = _messages(messages)
    else:
        text = next((value[key] for key in ("text", "answer", "output") if isinstance(value.get(key), str)), None)
        if text is None:
            raise OutputError(
                f"an answer must have output_messages or text; this one has {', '.join(map(str, value)) or 'nothing'}"
            )
        found = [{"role": "assistant", "content": text}]
    return Output(
        found,
        _token_usage(value.get("token_usage")),
        _number(value.get("cost_usd")),
        _number(value.get("duration_ms")),
        file_changes=_text(value.get("file_changes")),
        start_time=_text(value.get("start_time")),
        end_time=_text(value.get("end_time")),
    )


def _messages(value: list[Any]) -> list[dict[str, Any]]:
    for index, message in enumerate(value):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise OutputError(f"message {index} of the answer is not a mapping with a role")
        calls = message.get("tool_calls")
        if calls is None:
            continue
        if not isinstance(calls, list) or not all(
            isinstance(call, dict) and isinstance(call.get("tool"), str) for call in calls
        ):
            raise OutputError(f"tool_calls of message {index} of the answer are not a list of mappings with tool")
    return value


def _token_usage(value: Any) -> TokenUsage | None:
    if not isinstance(value, Mapping):
        return None
    counted = [_number(value.get(key)) for key in ("input", "output")]
    if counted[0] is None or counted[1] is None:
        return None
    return TokenUsage(counted[0], counted[1], _number(value.get("cached")))


def _number(value: Any) -> float | None:
    """A finite number >= 0, as it is; what a target reports otherwise counts as not reported."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


MAX_BYTES = 512_000_000


class ResponseError(Exception):
    """There is no recorded answer to give; ``reason`` is a word for machines."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


@dataclass(frozen=True)
class Responses:
    """Recorded answers by test id, or by ``<test>@<target>``; a list holds one a trial.

    ``content_hash``: SHA-256 of the file they came from, ``""`` where there was none.
    """

    answers: Mapping[str, Any]
    source: str = "the responses"
    content_hash: str = ""

    def raw(self, test_id: str, target: str | None, attempt: int) -> Any:
        """Return what is recorded for one attempt.

        Raises:
            ResponseError: nothing is.
        """
        row_id = f"{test_id}@{target}"
        key = row_id if row_id in self.answers else test_id
        if key not in self.answers:
            raise ResponseError(
                "no_response", f"{self.source} has no answer for {key!r}; record one or leave the test out"
            )
        value = self.answers[key]
        if not isinstance(value, list) or _is_conversation(value):
            return value
        if attempt >= len(value):
            raise ResponseError(
                "no_response",
                f"{self.source} has {len(value)} answers for {key!r}, attempt {attempt + 1} needs one more",
            )
        return value[attempt]

    def output(self, test_id: str, target: str | None, attempt: int, request_key: str | None = None) -> Output:
        """Return the answer of one attempt.

        Args:
            request_key: what is asked now; an answer recorded with another key is stale.

        Raises:
            ResponseError: there is none, it has no known shape, it is stale, or an error was recorded.
        """
        value = self.raw(test_id, target, attempt)
        if isinstance(value, Mapping):
            error = value.get("error")
            if error:
                text = error.get("message") if isinstance(error, Mapping) else error
                raise ResponseError("target_failed", f"the recorded answer is an error: {text}")
            if "__exit__" in value:
                raise ResponseError("target_failed", f"the recorded target exited with code {value['__exit__']}")
            known = value.get("request_key")
            if known is not None and request_key is not None and known != request_key:
                raise ResponseError("stale", f"the test has changed since {test_id!r} was recorded; record it again")
        try:
            return parse_output(value)
        except OutputError as problem:
            raise ResponseError("invalid_response", f"{self.source}, {test_id!r}: {problem}") from problem


def _is_conversation(value: list[Any]) -> bool:
    """Whether a list is the messages of one answer: a list of answers holds texts, mappings without a role, or lists."""
    return bool(value) and all(isinstance(item, dict) and "role" in item for item in value)


def read_responses(data: Any, source: str = "the responses") -> Responses:
    """Return the answers of a mapping from test id to answer, a list of rows with an ``id``, or results of an earlier run.

    Raises:
        ConfigError: it is none of these.
    """
    if isinstance(data, Mapping) and isinstance(data.get("tests"), list) and "summary" in data:
        data = data["tests"]
    if isinstance(data, Mapping):
        return Responses(data, source)
    if not isinstance(data, list):
        raise ConfigError(Problem("must map test ids to answers", source))
    answers: dict[str, Any] = {}
    for index, row in enumerate(data):
        name = row.get("id", row.get("test_id")) if isinstance(row, Mapping) else None
        if not isinstance(name, str):
            raise ConfigError(Problem(f"row {index + 1} has no id", source))
        if name in answers:
            raise ConfigError(Problem(f"row {index + 1}: id {name!r} stands twice; remove one", source))
        answers[name] = _answer_of(row)
    return Responses(answers, source)


def _answer_of(row: Mapping[str, Any]) -> Any:
    """The answer in a row: a list of attempts, or the row itself."""
    for key in ("responses", "attempts"):
        if isinstance(row.get(key), list):
            return row[key]
    trials = row.get("trials")
    if isinstance(trials, list) and trials and all(isinstance(item, Mapping) and "output" in item for item in trials):
        return trials
    return row


def load_responses(path: Path | str) -> Responses:
    """Read recorded answers from JSON (a mapping by test id) or JSON lines (a row an answer, with ``id``).

    Raises:
        ConfigError: the file cannot be read, or is neither.
    """
    path = Path(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8"
        raise ConfigError(Problem(f"cannot be read ({reason})", str(path))) from error
    if len(raw) > MAX_BYTES:
        raise ConfigError(Problem(f"is larger than {MAX_BYTES:,} bytes; split it", str(path)))
    digest = hashlib.sha256(raw).hexdigest()
    if path.suffix.lower() == ".jsonl":
        rows = [row for _, row in json_rows(text, str(path), "Malformed JSONL at line {number}: {error}")]
        return replace(read_responses(rows, str(path)), content_hash=digest)
    try:
        return replace(read_responses(parse_json(text), str(path)), content_hash=digest)
    except json.JSONDecodeError as error:
        raise ConfigError(Problem(f"is not JSON: {error.msg}", str(path), error.lineno, error.colno)) from error
    except ValueError as error:
        raise ConfigError(Problem(f"is not JSON: {error}", str(path), 1, 1)) from error
