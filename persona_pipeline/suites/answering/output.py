"""Answers of targets: their messages, and their time, tokens and cost."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, Self, TypeGuard

from persona_pipeline.base.calls import Timing
from persona_pipeline.base.text import storable_data
from persona_pipeline.base.turn_forms import ASSISTANT, TurnError, UnknownCallError, is_one_answer
from persona_pipeline.base.turns import Turn, read_turns
from persona_pipeline.suites.format.files import ReasonedError
from persona_pipeline.suites.format.models import present
from persona_pipeline.suites.format.text import parse_object, stringify

# Texts and numbers that are recorded with an answer.
_TEXTS = ("file_changes", "start_time", "end_time")
_NUMBERS = ("cost_usd", "duration_ms", "waited_ms", "user_cost_usd")


class OutputError(ReasonedError):
    """A recorded or reported answer has no known shape.

    ``hides_a_call``: a part of it looks like a tool call, so it cannot be graded as plain text either.
    """

    def __init__(self, problem: TurnError | str) -> None:
        super().__init__("invalid_response", str(problem))
        self.hides_a_call = isinstance(problem, UnknownCallError)


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
    """One answer of a target. Numbers are None where the target did not report them.

    Attributes:
        messages: in order, plain JSON (``role``, ``content``, ``tool_calls`` with ``tool``, ``input``, ``output``).
        duration_ms: time of the request that brought the answer.
        waited_ms: time before it: connecting, failed attempts, pauses.
        workspace, file_changes: the folder it worked in, and its changes there as a unified diff.
        truncated: a token limit, a filter or a failure stopped the target.
        turns: the answers of a conversation, one per turn.
        asked: the messages that an answer in a conversation replies to.
        user_cost_usd: cost of the simulated user.
        calls_reported: the answer has a form in which tool calls would be present.
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
    truncated: bool = False
    turns: "list[Output]" = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    user_cost_usd: float | None = None
    calls_reported: bool = True

    def __post_init__(self) -> None:
        try:
            self.messages, self.file_changes = storable_data((self.messages, self.file_changes))
        except RecursionError:
            raise OutputError("an answer is nested too deeply") from None

    @classmethod
    def of_turns(cls, turns: "list[Output]") -> Self:
        """Return a conversation: all its messages, and the sums of its answers' figures."""
        usage = [turn.token_usage for turn in turns if turn.token_usage]
        cached = [item.cached for item in usage if item.cached is not None]
        tokens = TokenUsage(sum(item.input for item in usage), sum(item.output for item in usage), sum(cached) or None)
        return cls(
            [message for turn in turns for message in (*turn.asked, *turn.messages)],
            tokens if turns and len(usage) == len(turns) else None,
            _total(turn.cost_usd for turn in turns),
            _total(turn.duration_ms for turn in turns),
            waited_ms=_total(turn.waited_ms for turn in turns),
            truncated=any(turn.truncated for turn in turns),
            turns=turns,
            user_cost_usd=known_sum(turn.user_cost_usd for turn in turns),
            calls_reported=all(turn.calls_reported for turn in turns),
        )

    @cached_property
    def text(self) -> str:
        """The text that is graded: the last assistant message with content, data as JSON.

        For a conversation it is all answers, one paragraph each.
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
        """Every tool call of every message, in order; empty also where calls were not reported."""
        return [call for message in self.messages for call in message.get("tool_calls") or ()]

    @cached_property
    def llm_call_count(self) -> int:
        return sum(message.get("role") == "assistant" for message in self.messages)

    def trace(self) -> dict[str, Any] | None:
        """Return the summary for code judges; None without messages. Figures that were not reported are None."""
        if not self.messages:
            return None
        calls = Counter(call["tool"] for call in self.tool_calls)
        durations: dict[str, list[float]] = {}
        for call in self.tool_calls:
            if _number(call.get("duration_ms")) is not None:
                durations.setdefault(call["tool"], []).append(call["duration_ms"])
        counted: dict[str, Any] = {
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
        return (counted if self.calls_reported else dict.fromkeys(counted)) | present(optional)

    def timed(self, timing: Timing) -> Self:
        """Set the times from a call; a duration that the answer reports itself stays."""
        sent = timing.asked if timing.sent is None else timing.sent
        self.waited_ms = round((sent - timing.asked) * 1000, 3)
        if self.duration_ms is None and timing.ended is not None:
            self.duration_ms = round((timing.ended - sent) * 1000, 3)
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as JSON that ``parse_output`` reads."""
        data: dict[str, Any] = {"output_messages": self.messages}
        return data | present({name: getattr(self, name) for name in _TEXTS}) | self.measured()

    def measured(self) -> dict[str, Any]:
        """Return the known figures of the answer, whether it is whole, and the same of each turn of a conversation."""
        known = {name: getattr(self, name) for name in _NUMBERS}
        known["token_usage"] = self.token_usage and self.token_usage.to_dict()
        known["truncated"] = self.truncated or None
        known["calls_reported"] = None if self.calls_reported else False
        known["turns"] = [turn.measured() for turn in self.turns] or None
        return present(known)

    def by_turn(self) -> "list[Output]":
        """Return the answers of a recorded conversation: the messages after each user message."""
        if self.turns:
            return self.turns
        found: list[Output] = []
        for message in self.messages:
            asks = message["role"] == "user"
            if not found or (asks and found[-1].messages):
                found.append(Output(calls_reported=self.calls_reported))
            (found[-1].asked if asks else found[-1].messages).append(message)
        return found


def messages_of(value: Any) -> Any:
    """Return the messages of an agent's session by its shape, and anything else as it is.

    A session is a list of events around messages (Claude Code, Codex, the Claude Agent SDK, updates of LangGraph), a state or a
    checkpoint that holds them, or steps with content (Vercel AI SDK).
    """
    if isinstance(value, list) and value and not is_one_answer(value):
        return [message for event in value for message in _of_event(event)] or value
    if not isinstance(value, Mapping):
        return value
    steps = value.get("steps")
    for state in map(value.get, ("values", "channel_values")):
        if _holds(state, "messages"):
            return state["messages"]
    if isinstance(value.get("new_items"), list):
        return messages_of(value["new_items"])
    if isinstance(steps, list) and steps and all(_holds(step, "content") for step in steps):
        return [{"role": ASSISTANT, "content": step["content"]} for step in steps]
    return value


def _holds(value: Any, key: str) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping) and isinstance(value.get(key), list)


def _of_event(event: Any) -> Iterator[Any]:
    """Yield the messages in an event of a session. A sub-agent's are not the agent's own."""
    if not isinstance(event, Mapping) or event.get("isSidechain") or event.get("isMeta"):
        return
    if event and all(_holds(update, "messages") for update in event.values()):
        yield from (message for update in event.values() for message in update["messages"])
    elif "type" in event and isinstance(message := event.get("message"), Mapping) and "role" in message:
        yield message
    elif event.get("type") == "response_item" or "raw_item" in event:
        yield event.get("payload", event.get("raw_item"))


def is_session(value: Any) -> bool:
    """Return whether a value is what one agent said in one session, not answers by the ids of tests."""
    said = messages_of(value)
    said = said.get("messages") if isinstance(said, Mapping) else said
    if not isinstance(said, list) or not is_one_answer(said):
        return False
    # Messages may have ids, as rows of answers have. But a list of answers alone is not a session.
    return said is not value or any(item.get("role", item.get("type")) not in (ASSISTANT, None) for item in said)


# Keys of a row of results that are not part of the answer.
_OF_A_ROW = ("results", "trials", "metadata", "input", "expected_output")


def parse_output(value: Any) -> Output:
    """Return the output of a reported or recorded answer, in any form that ``read_turns`` knows.

    A mapping may also have ``token_usage``, ``cost_usd`` and ``duration_ms``.
    """
    value = messages_of(value)
    given = value if isinstance(value, Mapping) else {}
    answer = {key: item for key, item in value.items() if key not in _OF_A_ROW} if given else value
    try:
        turns = read_turns(answer)
    except TurnError as problem:
        raise OutputError(problem) from problem
    known: dict[str, Any] = {name: _number(given.get(name)) for name in _NUMBERS}
    known |= {name: given[name] for name in _TEXTS if isinstance(given.get(name), str)}
    output = Output(
        [_message(turn) for turn in turns],
        _token_usage(given.get("token_usage")),
        truncated=given.get("truncated") is True or any(turn.was_cut_off for turn in turns),
        calls_reported=given.get("calls_reported") is not False
        and all(turn.calls is not None for turn in turns if turn.role == ASSISTANT),
        **known,
    )
    took: Any = given.get("turns")
    said = output.by_turn() if isinstance(took, list) else []
    if said and len(said) == len(took):
        # The figures of each turn are in a separate list.
        output.turns = [
            replace(
                parse_output({**(own if isinstance(own, Mapping) else {}), "messages": turn.messages}), asked=turn.asked
            )
            for turn, own in zip(said, took, strict=True)
        ]
    return output


def _message(turn: Turn) -> dict[str, Any]:
    """Return a turn as outputs hold it."""
    calls = [{"tool": call.name, **call.given} for call in turn.calls or ()]
    said = {"role": turn.role, "content": turn.text if turn.data is None else turn.data, "tool_calls": calls or None}
    return present({**said, "thinking": turn.thinking or None, **turn.extras})


def _token_usage(value: Any) -> TokenUsage | None:
    if not isinstance(value, Mapping):
        return None
    counted = [_number(value.get(key)) for key in ("input", "output")]
    cached = _number(value.get("cached"))
    if counted[0] is None or counted[1] is None or (cached is None and value.get("cached") is not None):
        return None
    return TokenUsage(counted[0], counted[1], cached)


def _number(value: Any) -> float | None:
    """Return a finite number >= 0; other values count as not reported."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) and value >= 0 else None


def known_sum(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values; None without any."""
    known = [value for value in values if value is not None]
    return math.fsum(known) if known else None


def _total(values: Iterable[float | None]) -> float | None:
    """Return a sum; None if a value is not known."""
    found = [*values]
    return None if None in found else known_sum(found)


class Need(Enum):
    """Evidence that an assert may need: the message for missing evidence, and what an answer with it holds."""

    TEXT = ("the answer has no text", lambda output: output.text.strip())
    ANSWER = (
        "the answer has neither text nor tool calls",
        lambda output: output.text.strip() or output.tool_calls or output.file_changes,
    )
    COMPLETE = (
        "the answer is not complete: a limit of tokens (raise max_tokens), a filter or a failure stopped it",
        lambda output: not output.truncated,
    )
    CALLS = (
        "the target reported no messages with tool calls; let it return messages, or tool_calls beside its text",
        lambda output: output.messages and output.calls_reported,
    )
    DURATION = (
        "the target did not report how long it took; let it return duration_ms",
        lambda output: output.duration_ms is not None,
    )
    COST = (
        "the target did not report what it cost; let it return cost_usd",
        lambda output: output.cost_usd is not None,
    )
    TOKENS = ("the target did not report its tokens; let it return token_usage", lambda output: output.token_usage)
    JSON = ("the answer holds no JSON object", lambda output: parse_object(output.text) is not None)
