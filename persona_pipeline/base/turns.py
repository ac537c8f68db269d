"""One reader for what chats and SDKs write: turns with their words, their thinking and the tools that they called.

A value is read by its shape: messages, one message, its parts, a response around them, or ``{text, tool_calls}``. Known forms are
OpenAI chat completions and Responses, Anthropic and Bedrock blocks, Gemini parts, the Vercel AI SDK, LangChain, pydantic-ai and
OpenTelemetry GenAI. What looks like a tool call and has none of these forms is refused with its place, never dropped.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

USER, ASSISTANT, SYSTEM, TOOL = "user", "assistant", "system", "tool"
_ROLES = {
    **dict.fromkeys(("user", "human", "user_prompt"), USER),
    **dict.fromkeys(("assistant", "ai", "bot", "model", "chat", "chatbot"), ASSISTANT),
    **dict.fromkeys(("system", "developer", "system_prompt"), SYSTEM),
    **dict.fromkeys(("tool", "function", "tool_return", "retry_prompt"), TOOL),
}
# Keys of messages, texts and calls and of what a call holds; the first that is there counts.
_LISTS = ("output_messages", "messages", "new_messages", "all_messages", "output")
_TEXTS = ("text", "answer", "output", "content")
_CALLS = (
    "tool_calls", "toolCalls", "toolInvocations", "tool_invocations", "function_call", "functionCall", "function_calls",
    "functionCalls", "invalid_tool_calls",
)  # fmt: skip
_TOOLS = ("tool", "tool_name", "toolName", "function", "function_name", "functionName", "recipient_name")
_NAMES = (*_TOOLS, "name")
_ARGUMENTS = (
    "input", "arguments", "args", "parameters", "params", "kwargs", "tool_kwargs", "tool_input", "toolInput", "tool_args",
    "action_input",
)  # fmt: skip
_IDS = ("call_id", "tool_call_id", "toolCallId", "toolUseId", "tool_use_id", "id")
_RESULTS = ("output", "result", "response")
_STOPS = ("stop_reason", "finish_reason", "finishReason", "stopReason", "done_reason")
_STOPPED_TO_CALL = ("tool_use", "tool_call", "tool_calls", "tool-calls", "function_call")
_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "thought")
_OF_A_MESSAGE = frozenset((*_CALLS, *_STOPS, *_THOUGHTS, "role", "content", "parts", "refusal", "additional_kwargs"))
# What the Vercel SDK repeats beside the calls of a result.
_REPEATED = (
    "response",
    "toolResults",
    "staticToolCalls",
    "dynamicToolCalls",
    "staticToolResults",
    "dynamicToolResults",
)
# What is kept of a call in the form of an SDK; in the project's own form everything is.
_OF_A_CALL = ("duration_ms", "start_time", "end_time", "error")
# Parts that name their kind by a key instead of a type.
_WRAPPERS = (
    "functionCall", "function_call", "toolUse", "tool_use", "toolCall", "tool_call", "toolInvocation", "executableCode",
    "executable_code", "functionResponse", "function_response", "toolResult", "tool_result",
)  # fmt: skip
_TEXT_KINDS = ("text", "input_text", "output_text", "user_prompt", "system_prompt")
_THINKING_KINDS = ("redacted_thinking", "summary_text", "reasoning_text", *_THOUGHTS)
_CALL_KIND = re.compile(r"(?:\w+_)?(?:tool|function)_(?:use|call|invocation)|dynamic_tool|executable_code|\w+_call")
_RESULT_KIND = re.compile(
    r"(?:\w+_)?(?:tool|function)_(?:call_)?(?:result|return|response|output|error)|\w+_call_output|retry_prompt"
)
# Keys under which programs list calls or their results.
_LIKE_CALLS = re.compile(
    r"(?:\w+_)?(?:tool|function)s?_(?:call|use|invocation|request|execution|result|return|response|output)s?(?:_list|_chunks)?"
    r"|(?:called|used|invoked)_(?:tool|function)s?|(?:tool|function)s?_(?:called|used|invoked)|intermediate_steps"
)
# Keys that only look so: what was counted, and what could have been called.
_QUIET = frozenset(
    (
        "usage", "usage_metadata", "usageMetadata", "token_usage", "tools", "tool_choice", "toolChoice", "tool_config",
        "toolConfig", "functions", "function_declarations", "functionDeclarations",
    )
)  # fmt: skip
_WORD_ENDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-\s]")
_TAG = "(?:think|thinking|thought|reasoning)"
# Thinking in front of an answer: between tags, before a closing tag that stands alone, or cut off before its end.
_THINKING = re.compile(
    rf"\s*(?:<{_TAG}>)?((?:(?!</?{_TAG}>).)*)</{_TAG}>\s*|\s*<{_TAG}>(.*)", re.DOTALL | re.IGNORECASE
)


class TurnError(ValueError):
    """A value is not a turn in a known form."""


class UnknownCallError(TurnError):
    """Something looks like a tool call and has no known form; the message names its place."""

    def __init__(self, place: str, said: str = "looks like a tool call and has no known form") -> None:
        super().__init__(f"{place or 'the answer'} {said}; write it as tool_calls: [{{tool, input}}]")


@dataclass
class ToolCall:
    """A call of a tool. ``given``: ``input`` (an object where a text is one), ``output`` and ``id``, as far as they were written,
    and what else was written of it, such as ``duration_ms``.
    """

    name: str
    given: dict[str, Any] = field(default_factory=dict)


@dataclass
class Turn:
    """What one side said, and which tools it called.

    Attributes:
        role: ``user``, ``assistant``, ``system``, ``tool``, or another word that was written.
        text: its words without thinking; None: it has none.
        data: what stands in place of words, such as an object.
        calls: None where the form has no place for calls, so that nothing is known of them.
        stop: why the model stopped, in lower case, where that is written.
        extras: what else was written of it.
    """

    role: str
    text: str | None = None
    data: Any = None
    thinking: str = ""
    refusal: str = ""
    calls: list[ToolCall] | None = None
    stop: str = ""
    extras: dict[str, Any] = field(default_factory=dict)

    @property
    def was_cut_off(self) -> bool:
        """Whether the model stopped at a limit of tokens."""
        return self.stop in ("length", "max_tokens", "max_output_tokens")

    def say(self, text: Any) -> None:
        """Add words. Thinking in front of an answer's words is kept apart."""
        if isinstance(text, str):
            thinking, words = split_thinking(text) if self.role == ASSISTANT and not self.text else ("", text)
            self.text, self.thinking = (self.text or "") + words, self.thinking + thinking

    def refuse(self, refusal: Any) -> None:
        if isinstance(refusal, str) and refusal:
            self.refusal, self.text = refusal, self.text or refusal

    def call(self, calls: Sequence[ToolCall]) -> None:
        """Add calls, but those that have their place in the turn already: SDKs write the same ones in several places."""
        self.calls = self.calls or []
        for call in calls:
            identity = call.given.get("id")
            same = next((item for item in self.calls if identity and item.given.get("id") == identity), None)
            if same is None:
                self.calls.append(call)
            else:
                same.given = {**call.given, **same.given}


def split_thinking(text: str) -> tuple[str, str]:
    """Return the thinking in front of an answer, ``""`` where there is none, and the answer's words."""
    thinking = ""
    while "<" in text and (found := _THINKING.match(text)):
        thinking, text = thinking + (found[1] or found[2] or ""), text[found.end() :]
    return thinking, text


def read_turns(value: Any) -> list[Turn]:
    """Return the turns of a value in any known form; results of tools stand in the calls that they answer.

    Raises:
        TurnError: it is no turn; ``UnknownCallError``: something that looks like a tool call has no known form.
    """
    reader = _Reader()
    try:
        reader.read(value, "messages" if isinstance(value, list) else "")
    except RecursionError:
        raise TurnError("an answer is nested too deeply") from None
    stops = {turn.stop for turn in reader.turns} & {*_STOPPED_TO_CALL}
    if stops and not any(turn.calls for turn in reader.turns):
        raise UnknownCallError("the answer", f"stopped with {min(stops)!r}, and no tool call was found in it")
    return reader.turns


def is_one_answer(listed: Sequence[Any]) -> bool:
    """Return whether a list holds the messages or parts of one answer, not several answers."""
    return bool(listed) and all(_is_message(item) or _is_part(item) for item in listed)


class _Reader:
    """Collects turns. ``at`` names the place of a value in what is read, such as ``messages[2].content[0]``."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []

    def read(self, value: Any, at: str) -> None:
        if isinstance(value, str):
            self.turns.append(turn := Turn(ASSISTANT))
            turn.say(value)
        elif isinstance(value, list):
            self.items(value, at)
        elif not isinstance(value, Mapping):
            raise TurnError("an answer must be a string, a list of messages or a mapping")
        elif _is_message(value):
            self.message(value, at)
        elif _is_part(value) and not any(key in value for key in _CALLS):
            self.items([value], at)
        else:
            self.response(value, at)

    def items(self, listed: Sequence[Any], at: str) -> None:
        """Read messages, or the items and parts of a single answer."""
        turn: Turn | None = None
        for index, item in enumerate(listed):
            place = f"{at}[{index}]"
            is_item = isinstance(item, Mapping) and item.get("type") == "message"
            if _is_message(item) and not (is_item and turn):
                turn = self.message(item, place) if is_item else self.message(item, place) and None
            elif is_item or _is_part(item):
                if turn is None:
                    self.turns.append(turn := Turn(ASSISTANT, calls=[]))
                self.parts(turn, item["content"] if is_item else [item], place)
                turn = None if _RESULT_KIND.fullmatch(_kind(item)[0]) else turn
            else:
                refuse_calls(item, place)
                raise TurnError(f"message {index} of the answer is not a mapping with a role")

    def response(self, value: Mapping[str, Any], at: str) -> None:
        """Read what an API or an agent wraps around its messages."""
        before, steps = len(self.turns), value.get("steps")
        key = next((key for key in _LISTS if isinstance(value.get(key), list)), None)
        offered = next((key for key in ("choices", "candidates") if isinstance(value.get(key), list)), None)
        inner = next((key for key in ("message", "output") if isinstance(value.get(key), Mapping)), None)
        if key is not None:
            self.items(value[key], _at(at, key))
            self.unread(value, at, key)
        elif offered is not None and value[offered] and isinstance(value[offered][0], Mapping):
            # The others are alternatives that nobody reads.
            choice, place = value[offered][0], _at(at, f"{offered}[0]")
            self.read(_first(choice, ("message", "content", "text")), place)
            self.unread(choice, place, "message", "content", "text")
            self.unread(value, at, offered)
            self.turns[-1].stop = self.turns[-1].stop or _stop(choice)
        elif isinstance(steps, list) and any(isinstance(item, Mapping) and "toolCalls" in item for item in steps):
            for index, step in enumerate(steps):
                self.response(step, f"{_at(at, 'steps')}[{index}]")
            # What stands around the steps repeats the last of them.
            self.unread(value, at, "steps", *_TEXTS, *_OF_A_MESSAGE, *_REPEATED)
        elif inner is not None:
            self.read(value[inner], _at(at, inner))
            self.unread(value, at, inner)
        else:
            self.text_and_calls(value, at)
        if len(self.turns) == before and "status" in value:
            # A response of a model that said nothing.
            self.turns.append(Turn(ASSISTANT, calls=[]))
        for turn in self.turns[before:]:
            turn.stop = turn.stop or _stop(value)

    def text_and_calls(self, value: Mapping[str, Any], at: str) -> None:
        text = next((value[key] for key in _TEXTS if isinstance(value.get(key), str)), None)
        has_calls = any(value.get(key) is not None for key in _CALLS)
        if text is None and not has_calls:
            refuse_calls(value, at)
            raise TurnError(
                f"an answer must have output_messages or text; this one has {', '.join(map(str, value)) or 'nothing'}"
            )
        self.turns.append(turn := Turn(ASSISTANT, calls=[] if has_calls else None))
        turn.say(text)
        self.calls(turn, value, at)
        for result in value.get("toolResults") or () if has_calls else ():
            self.answered(result)
        self.unread(value, at, *_TEXTS, *_OF_A_MESSAGE, *(_REPEATED if has_calls else ()))

    def message(self, value: Mapping[str, Any], at: str) -> Turn:
        """Read one message, or the several that a request of pydantic-ai holds, and return the last."""
        value = _plain(value)
        content, parts = value.get("content"), value.get("parts")
        if value.get("kind") == "request" and isinstance(parts, list) and parts:
            for index, part in enumerate(parts):
                self.turns.append(turn := Turn(_ROLES.get(_kind(part)[0], USER), calls=[]))
                self.parts(turn, [part], f"{_at(at, 'parts')}[{index}]")
            return self.turns[-1]
        turn = Turn(_role(value), calls=[], stop=_stop(value))
        self.turns.append(turn)
        turn.thinking = "".join(value[key] for key in _THOUGHTS if isinstance(value.get(key), str))
        turn.say(content)
        if isinstance(content, list) or _is_part(content):
            self.parts(turn, content if isinstance(content, list) else [content], _at(at, "content"))
        elif not isinstance(content, str):
            refuse_calls(content, _at(at, "content"))
            turn.data = content
        if isinstance(parts, list):
            said = turn.text
            self.parts(turn, parts, _at(at, "parts"))
            # A message of the Vercel SDK may say its words twice.
            turn.text = said or turn.text
        self.calls(turn, value, at)
        turn.refuse(value.get("refusal"))
        if turn.role == TOOL and isinstance(content, str):
            self.answered({**value, "output": content})
        self.unread(value, at, *_OF_A_MESSAGE)
        turn.extras = {key: item for key, item in value.items() if key not in _OF_A_MESSAGE}
        return turn

    def parts(self, turn: Turn, parts: Sequence[Any], at: str) -> None:
        """Read the parts of a message's content; where none has a known form they are its data."""
        kinds = [_kind(part)[0] for part in parts]
        for index, (kind, part) in enumerate(zip(kinds, parts, strict=True)):
            self.part(turn, kind, part, f"{at}[{index}]")
        if parts and not any(kinds) and turn.text is None:
            turn.data = list(parts)
        if parts and turn.role == USER and all(map(_RESULT_KIND.fullmatch, kinds)):
            turn.role = TOOL

    def part(self, turn: Turn, kind: str, part: Any, at: str) -> None:
        body = _kind(part)[1]
        words = _first(body, ("text", "thinking", "content", "value"))
        if isinstance(part, str):
            turn.say(part)
        elif kind == "refusal":
            turn.refuse(body.get("refusal"))
        elif kind in _THINKING_KINDS or (kind in _TEXT_KINDS and body.get("thought") is True):
            turn.thinking += words if isinstance(words, str) else ""
        elif kind in _TEXT_KINDS:
            for text in words if isinstance(words, list) else [words]:
                turn.say(text)
        elif _RESULT_KIND.fullmatch(kind):
            self.answered(body)
        elif _CALL_KIND.fullmatch(kind):
            turn.call([_call(body, at, kind.removesuffix("_call"))])
        elif kind.startswith("tool_") and "toolCallId" in body and body.keys() & {"input", "state"}:
            # The Vercel SDK names the tool in the type of its part.
            turn.call([_call(body, at, str(body["type"]).removeprefix("tool-"))])
        else:
            refuse_calls(part, at)

    def calls(self, turn: Turn, value: Mapping[str, Any], at: str) -> None:
        """Read the calls beside a message's content."""
        more = value.get("additional_kwargs")
        for inner, place in ((value, at), (more if isinstance(more, Mapping) else {}, _at(at, "additional_kwargs"))):
            for key in _CALLS:
                listed, named = inner.get(key), _at(place, key)
                if listed is None:
                    continue
                listed = [listed] if isinstance(listed, Mapping) else listed
                if not isinstance(listed, list):
                    raise UnknownCallError(named, "is not a list of tool calls")
                turn.call([_call(item, f"{named}[{index}]") for index, item in enumerate(listed)])

    def answered(self, result: Any) -> None:
        """Put a result into the call that it answers: that of its id, else the last of its tool that has none."""
        if not isinstance(result, Mapping):
            return
        identity, name = _first(result, _IDS), _first(result, _NAMES)
        made = [call for turn in self.turns for call in turn.calls or ()]
        found = [call for call in made if identity is not None and call.given.get("id") == identity]
        found = found or [call for call in made if call.name == name and "output" not in call.given]
        if found:
            found[-1].given.setdefault("output", _first(result, (*_RESULTS, "content", "errorText")))

    def unread(self, value: Mapping[str, Any], at: str, *read: str) -> None:
        """Refuse what looks like a call among the keys that nothing read."""
        for key, item in value.items():
            if key not in read:
                refuse_calls({key: item}, at)


def refuse_calls(value: Any, at: str = "") -> None:
    """Raise ``UnknownCallError`` where a JSON value holds what looks like a tool call; ``at`` names the value's place."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            refuse_calls(item, f"{at}[{index}]")
    if not isinstance(value, Mapping):
        return
    kind = next((_snake(value[key]) for key in ("type", "part_kind", "kind") if isinstance(value.get(key), str)), "")
    if _CALL_KIND.fullmatch(kind) or _RESULT_KIND.fullmatch(kind) or _is_like_a_call(value):
        raise UnknownCallError(at)
    for key, item in value.items():
        if key in _QUIET:
            continue
        listed = isinstance(item, list | Mapping) or (isinstance(item, str) and item.lstrip()[:1] in ("{", "["))
        if item and listed and _LIKE_CALLS.fullmatch(_snake(str(key))):
            raise UnknownCallError(_at(at, str(key)))
        refuse_calls(item, _at(at, str(key)))


def _is_like_a_call(value: Mapping[str, Any]) -> bool:
    """Whether a mapping names something and gives it arguments, and is no description of a tool that could be called."""
    given = [value[key] for key in _ARGUMENTS if key in value]
    if not given or "description" in value:
        return False
    if any(isinstance(value.get(key), str) and value[key] for key in _TOOLS) or "action_input" in value:
        return True
    has_name = any(isinstance(value.get(key), str) and value[key] for key in ("name", "action"))
    return has_name and any(isinstance(item, Mapping) or _is_object(item) for item in given)


def _call(value: Any, at: str, fallback: str = "") -> ToolCall:
    """Return a call; ``fallback``: its tool, where only the kind of the part says it."""
    value = _kind(value)[1] if isinstance(value, Mapping) and "function" not in value else value
    if not isinstance(value, Mapping):
        raise UnknownCallError(at, "is not a mapping with tool")
    inner = value.get("function")
    body = {**value, **inner} if isinstance(inner, Mapping) else value
    name = next((body[key] for key in _NAMES if isinstance(body.get(key), str) and body[key]), fallback)
    if not name or name in ("tool", "function"):
        raise UnknownCallError(at, "names no tool")
    arguments: Any = next((body[key] for key in _ARGUMENTS if key in body), None)
    read = {*_NAMES, *_ARGUMENTS, *_IDS, *_RESULTS, "type"}
    given = {
        "input": json.loads(arguments) if _is_object(arguments) else arguments,
        "output": _first(body, _RESULTS),
        "id": _first(body, _IDS),
        **{key: item for key, item in value.items() if (key not in read if "tool" in value else key in _OF_A_CALL)},
    }
    return ToolCall(name, {key: item for key, item in given.items() if item is not None})


def _is_object(text: Any) -> bool:
    """Whether a text is a JSON object."""
    if not isinstance(text, str) or text.lstrip()[:1] != "{":
        return False
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _kind(part: Any) -> tuple[str, Mapping[str, Any]]:
    """Return what kind of part a value is, ``""`` for none, and the mapping that holds it."""
    if not isinstance(part, Mapping):
        return "", {}
    for key in _WRAPPERS:
        if isinstance(part.get(key), Mapping):
            return _snake(key), part[key]
    kind = next((part[key] for key in ("type", "part_kind", "block_type") if isinstance(part.get(key), str)), None)
    return (_snake(kind) if kind else "text" if isinstance(part.get("text"), str) else ""), part


def _is_part(value: Any) -> bool:
    """Whether a value is a part of an answer in a known form, on its own."""
    kind = _kind(value)[0]
    known = kind in ("refusal", "reasoning", *_TEXT_KINDS, *_THINKING_KINDS) or kind.startswith("tool_")
    typed = known and (kind != "text" or value.keys() & {"type", "part_kind"})
    return bool(typed or _CALL_KIND.fullmatch(kind) or _RESULT_KIND.fullmatch(kind))


def _is_message(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    if any(key in value for key in ("role", "parts", "lc")):
        return True
    if "type" not in value:
        return isinstance(value.get("content"), list)
    return _named_role(value["type"]) is not None and any(key in value for key in ("content", "data"))


def _named_role(kind: Any) -> str | None:
    """Return the role of a message that LangChain writes by its class (AIMessageChunk) or a word (ai); None: it is none."""
    if not isinstance(kind, str):
        return None
    return _ROLES.get(kind.removesuffix("Chunk").removesuffix("Message").lower())


def _role(value: Mapping[str, Any]) -> str:
    given = value.get("role")
    if isinstance(given, str) and given:
        return _ROLES.get(given.lower(), given)
    if given is not None:
        raise TurnError("a message of the answer has a role that is not a text")
    return _named_role(value.get("type")) or ASSISTANT


def _plain(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message that LangChain wraps into its class, or keeps beside its type, as one with content."""
    inner = value.get("kwargs") if "lc" in value else value.get("data") if "role" not in value else None
    if not isinstance(inner, Mapping):
        return value
    path = value.get("id")
    return {**inner, "type": path[-1] if "lc" in value and isinstance(path, list) and path else value.get("type")}


def _stop(value: Mapping[str, Any]) -> str:
    """Return why a model stopped, ``""`` where that is not written."""
    found = [value.get(key) for key in _STOPS]
    for key in ("response_metadata", "incomplete_details"):
        inner = value.get(key)
        found += [inner.get(name) for name in (*_STOPS, "reason")] if isinstance(inner, Mapping) else []
    return next((item.lower() for item in found if isinstance(item, str) and item), "")


def _first(value: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((value[key] for key in keys if value.get(key) is not None), None)


def _at(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _snake(key: str) -> str:
    return _WORD_ENDS.sub("_", key).lower()
