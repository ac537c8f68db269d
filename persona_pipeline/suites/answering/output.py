"""What a target answered: messages, and what it took."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from persona_pipeline.base.calls import Timing
from persona_pipeline.base.text import storable_data
from persona_pipeline.suites.format.javascript import stringify
from persona_pipeline.suites.format.loading.messages import content_texts
from persona_pipeline.suites.format.models import present

# What an answer is recorded with beside its messages, as the target said it.
_TEXTS = ("file_changes", "start_time", "end_time")
_NUMBERS = ("cost_usd", "duration_ms", "waited_ms", "first_token_ms", "user_cost_usd")


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
        return present(vars(self))


@dataclass
class Output:
    """One answer of a target.

    ``messages``: in order, plain JSON as the target gave them (``role``, ``content``, ``tool_calls``). ``duration_ms``,
    ``cost_usd``, ``token_usage``: None where the target did not say. ``workspace``: the folder it worked in; ``file_changes``:
    what it changed there, as a unified diff. ``duration_ms`` is that of the request that brought the answer; ``waited_ms``: what
    came before it (connecting, attempts that failed, pauses); ``first_token_ms``: until the first piece of a streamed answer came.
    ``truncated``: the target stopped at its limit of tokens, so the answer is not whole. ``turns``: of a conversation, the answer
    to each thing the user said; ``asked``: of such an answer, what that was. ``user_cost_usd``: what a simulated user took.
    ``left_out``: figures it came with that cannot be, such as a negative duration.
    """

    messages: list[dict[str, Any]] = field(default_factory=list)
    token_usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    file_changes: str | None = None
    workspace: str | None = None
    start_time: str | None = None
    end_time: str | None = None
    waited_ms: float | None = None
    first_token_ms: float | None = None
    truncated: bool = False
    turns: "list[Output]" = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    user_cost_usd: float | None = None
    left_out: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        try:
            self.messages, self.file_changes = storable_data((self.messages, self.file_changes))
        except RecursionError:
            raise OutputError("an answer is nested too deeply") from None

    @classmethod
    def of_turns(cls, turns: "list[Output]") -> Self:
        """Return a conversation: all that was said, and what its answers took together."""
        usage = [turn.token_usage for turn in turns if turn.token_usage]
        cached = [item.cached for item in usage if item.cached is not None]
        tokens = TokenUsage(sum(item.input for item in usage), sum(item.output for item in usage), sum(cached) or None)
        return cls(
            [message for turn in turns for message in (*turn.asked, *turn.messages)],
            tokens if usage else None,
            _total(turn.cost_usd for turn in turns),
            _total(turn.duration_ms for turn in turns),
            waited_ms=_total(turn.waited_ms for turn in turns),
            truncated=any(turn.truncated for turn in turns),
            turns=turns,
            user_cost_usd=_total(turn.user_cost_usd for turn in turns),
        )

    @cached_property
    def text(self) -> str:
        """The answer that is graded: the last assistant message that has content, JSON where it is no text; of a conversation
        all its answers, a paragraph each.
        """
        if self.turns:
            return "\n\n".join(turn.text for turn in self.turns if turn.text)
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
    def asked_by(self) -> list[tuple[str, str]]:
        """Who said what this is the answer to."""
        return [(str(said.get("name") or "User"), "\n".join(content_texts(said.get("content")))) for said in self.asked]

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
        return trace | present(optional)

    def timed(self, timing: Timing) -> Self:
        """Take the times of a call, that of the answer where it does not say how long it took itself."""
        sent = timing.asked if timing.sent is None else timing.sent
        spans = {"waited_ms": (timing.asked, sent), "first_token_ms": (sent, timing.first)}
        if self.duration_ms is None:
            spans["duration_ms"] = (sent, timing.ended)
        for name, (start, end) in spans.items():
            setattr(self, name, None if end is None else round((end - start) * 1000, 3))
        return self

    def timing(self) -> dict[str, Any]:
        """Return how long it took and whether it was cut off, as far as that is known."""
        known = {name: getattr(self, name) for name in ("duration_ms", "waited_ms", "first_token_ms")}
        known["truncated"] = self.truncated or None
        return present(known)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as it can be recorded and read again with ``parse_output``."""
        data: dict[str, Any] = {"output_messages": self.messages}
        return data | present({name: getattr(self, name) for name in _TEXTS}) | self.measured()

    def measured(self) -> dict[str, Any]:
        """Return what the answer took, and of a conversation what each of its answers took."""
        usage = self.token_usage and self.token_usage.to_dict()
        data = {"token_usage": usage, "cost_usd": self.cost_usd, "user_cost_usd": self.user_cost_usd, **self.timing()}
        data["turns"] = [turn.measured() for turn in self.turns] or None
        return present(data)

    def by_turn(self) -> "list[Output]":
        """Return the answers of a recorded conversation: what follows each thing that a user said."""
        if self.turns:
            return self.turns
        found: list[Output] = []
        for message in self.messages:
            asks = message["role"] == "user"
            if not found or (asks and found[-1].messages):
                found.append(Output())
            (found[-1].asked if asks else found[-1].messages).append(message)
        return found


_MESSAGE_KEYS = ("output_messages", "output", "messages")


def parse_output(value: Any) -> Output:
    """Return the output of what a target reported or a recording holds.

    ``value``: a string (the assistant's text), a list of messages, or a mapping with messages (``output_messages``, ``output`` or
    ``messages``) or ``text``, and perhaps ``token_usage``, ``cost_usd``, ``duration_ms``.
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
    known: dict[str, Any] = {name: _number(value.get(name)) for name in _NUMBERS}
    left_out = [name for name, number in known.items() if number is None and value.get(name) is not None]
    known |= {name: value[name] for name in _TEXTS if isinstance(value.get(name), str)}
    usage, truncated = _token_usage(value.get("token_usage")), value.get("truncated") is True
    output = Output(found, usage, truncated=truncated, left_out=left_out, **known)
    turns: Any = value.get("turns")
    said = output.by_turn() if isinstance(turns, list) else []
    if said and len(said) == len(turns):
        # What each took stands apart from what was said.
        output.turns = [
            replace(
                parse_output({**(took if isinstance(took, Mapping) else {}), "messages": turn.messages}),
                asked=turn.asked,
            )
            for turn, took in zip(said, turns, strict=True)
        ]
    return output


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


def _total(values: Iterable[float | None]) -> float | None:
    """Return the sum of what is known, None where nothing is."""
    known = [value for value in values if value is not None]
    return math.fsum(known) if known else None
