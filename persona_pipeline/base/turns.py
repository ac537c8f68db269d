"""One reader for what chats and SDKs write: turns with their words, their thinking and the tools that they called.

A value is read by its shape: messages, one message, its parts, a response around them, or ``{text, tool_calls}``. Known forms are
OpenAI chat completions and Responses, Anthropic and Bedrock blocks, Gemini parts, the Vercel AI SDK, LangChain, pydantic-ai and
OpenTelemetry GenAI. What looks like a tool call and has none of these forms is refused with its place, never dropped.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import storable_json

USER, ASSISTANT, SYSTEM, TOOL = "user", "assistant", "system", "tool"
_TABLE = tomllib.loads((Path(__file__).parent / "data" / "turns.toml").read_text(encoding="utf-8"))
_ROLES: dict[str, str] = _TABLE["roles"]
_KEYS: dict[str, list[str]] = _TABLE["keys"]
_FORMS = {name: re.compile(pattern) for name, pattern in _TABLE["forms"].items()}
_OF_A_MESSAGE = frozenset(key for name in ("calls", "stops", "thoughts", "of_a_message") for key in _KEYS[name])
# What the Vercel SDK repeats next to the calls of a result.
_REPEATED = (*_KEYS["texts"], *_OF_A_MESSAGE, *_KEYS["repeated"])
_STOPPED_TO_CALL = {"tool_use", "tool_call", "tool_calls", "tool-calls", "function_call"}
# Keys under which programs list calls or their results.
_LIKE_CALLS = re.compile(
    r"(?:\w+_)?(?:tool|function)s?_(?:call|use|invocation|request|execution|result|return|response|output)s?(?:_list|_chunks)?"
    r"|(?:called|used|invoked)_(?:tool|function)s?|(?:tool|function)s?_(?:called|used|invoked)|intermediate_steps"
)
# How models write calls into their text, for a server to take them out.
_CALL_IN_TEXT = re.compile(
    r"<\|?(?:tool_calls?|function_calls?|python_tag|function=|invoke name=)|<｜tool|\[TOOL_CALLS\]|^Action Input:",
    re.MULTILINE | re.IGNORECASE,
)
_WORD_ENDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-\s]")
# A line of a prompt that begins with a role or a name.
_ROLE_MARK = re.compile(r"^(Human|AI|System|[a-z]\w{0,31}):(?=\s|$)", re.MULTILINE)
# What a program writes of its objects, JSON of nothing, and JSON that could not be read, as where an attribute was cut off.
_NO_WORDS = re.compile(
    r"""\s*(?:null\s*$|\[\s*\{|\[\s*"|\{\s*["']|[A-Z]\w*\(\w+=.*(?:\)|\.\.\.)\s*$|<[\w.]+ object at 0x)""", re.DOTALL
)
_TAG = r"(?:\w+:)?(?:ant)?(?:think|thinking|thoughts?|reasoning|scratchpad)"
_OPENED = (
    rf'(?:<{_TAG}(?:\s[^<>]*)?>|\[{_TAG}\]|◁{_TAG}▷|<details type="reasoning"[^<>]*>'
    r"|<\|(?:START_THINKING|begin_of_thought)\|>|(?:<\|start\|>assistant)?<\|channel\|>analysis<\|message\|>)"
)
_CLOSED = rf"(?:</{_TAG}>|\[/{_TAG}\]|◁/{_TAG}▷|<\|(?:END_THINKING|end_of_thought)\|>)"
_ENDED = rf"(?:{_CLOSED}|</details>|<\|end\|>(?=(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>))"
# Thinking in front of an answer: between tags, before a closing tag that has no opening one, or cut off before its end.
# A closing tag in quotes is a word about the tag.
_THINKING = re.compile(
    rf"\s*{_OPENED}((?:(?!{_OPENED}|{_ENDED}).)*){_ENDED}\s*"
    rf"|((?:(?!{_OPENED}|{_ENDED}).)*)(?<![`'\"]){_CLOSED}(?![`'\"])\s*|\s*{_OPENED}(.*)",
    re.DOTALL | re.IGNORECASE,
)
_MAY_BE_THINKING = re.compile(f"{_OPENED}|{_CLOSED}", re.IGNORECASE)
# Marks of a model's template around an answer's words.
_AROUND_WORDS = re.compile(
    r"\A\s*(?:<\|(?:START_RESPONSE|begin_of_solution)\|>|(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>)\s*"
    r"|\s*<\|(?:END_RESPONSE|end_of_solution|return)\|>\s*\Z"
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
    """A message with the tools that its speaker called.

    Attributes:
        role: ``user``, ``assistant``, ``system``, ``tool``, or another word that was written, in lower case.
        text: its words without thinking; None: it has none.
        speaker: its name, where it has one.
        data: content in place of words, such as an object.
        calls: None where nothing is known of them: the form has no place for calls, or the text holds one that no server took out.
        stop: why the model stopped, in lower case, where that is written.
        attachments: parts of its content that are not words, thinking or calls, such as pictures.
        extras: what else was written of it.
    """

    role: str
    text: str | None = None
    speaker: str = ""
    data: Any = None
    thinking: str = ""
    refusal: str = ""
    calls: list[ToolCall] | None = None
    stop: str = ""
    attachments: list[Any] = field(default_factory=list)
    extras: dict[str, Any] = field(default_factory=dict)

    @property
    def was_cut_off(self) -> bool:
        """Whether the model stopped before its answer was whole: at a limit of tokens, by a filter, or by a failure."""
        return self.stop in _KEYS["cut_off"]

    @property
    def silence(self) -> str:
        """Why it is not a message that a user or an agent sees; empty: it is one."""
        if self.role in (SYSTEM, TOOL):
            return "system prompt" if self.role == SYSTEM else "tool result"
        if (self.text or "").strip():
            return ""
        return "tool call without words" if self.calls else "turn without text"

    def say(self, text: Any, joint: str = "") -> None:
        """Add words, with ``joint`` between them and earlier ones. Thinking in front of an answer's words is kept apart."""
        if isinstance(text, str):
            thinking, words = split_thinking(text) if self.role == ASSISTANT and not self.text else ("", text)
            before = f"{self.text}{joint}" if self.text and words else self.text or ""
            self.text, self.thinking = before + words, self.thinking + thinking

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
    while _MAY_BE_THINKING.search(text) and (found := _THINKING.match(text)):
        thinking, text = thinking + (found[1] or found[2] or found[3] or ""), text[found.end() :]
    return thinking, _AROUND_WORDS.sub("", text) if "<|" in text else text


def read_turns(value: Any) -> list[Turn]:
    """Return the turns of a value in any known form; results of tools are in the calls that they answer.

    Raises:
        TurnError: it is not a turn; ``UnknownCallError``: something that looks like a tool call has no known form.
    """
    reader = _Reader()
    try:
        reader.read(value, "messages" if isinstance(value, list) else "")
    except RecursionError:
        raise TurnError("an answer is nested too deeply") from None
    for turn in reader.turns:
        if turn.calls == [] and turn.role == ASSISTANT and _is_a_call(turn.text or ""):
            turn.calls = None
    stops = {turn.stop for turn in reader.turns} & _STOPPED_TO_CALL
    if stops and not any(turn.calls for turn in reader.turns):
        raise UnknownCallError("the answer", f"stopped with {min(stops)!r}, and no tool call was found in it")
    return reader.turns


def read_message(value: Any) -> Turn:
    """Return the turn of a chat message in any known form; the texts of its parts are lines.

    Raises:
        TurnError: it is not one message; ``UnknownCallError``: something that looks like a tool call has no known form.
    """
    if not isinstance(value, Mapping):
        raise TurnError('is not a message; write {"role": ..., "content": ...}')
    plain, reader = _plain(value), _Reader(joint="\n")
    if not (plain.get("role") is not None or _named_role(plain.get("type")) or plain.get("kind")):
        raise TurnError("a message has no role")
    if not isinstance(plain.get("name"), str | None):
        raise TurnError("a message's name must be a string")
    try:
        turn = reader.message(plain, "")
    except RecursionError:
        raise TurnError("a message is nested too deeply") from None
    if len(reader.turns) > 1:
        raise TurnError("holds several messages; write each as one of its own")
    if turn.data is not None and not isinstance(turn.data, list):
        raise TurnError("a message's content must be a text or a list of parts")
    return turn


def find_turns(value: Any, role: str, at: str = "") -> list[Turn]:
    """Return the turns in an input or an output of any form; none: it holds no words that could be found.

    The value is a text, a message, parts, a list of these, an object around them, or JSON of any of these, encoded up to twice. Of
    alternatives the first is read.

    Args:
        role: of turns that have none.
        at: the place of the value, for errors.

    Raises:
        TurnError: a message in it cannot be read; ``UnknownCallError``: something that looks like a tool call has no known form.
    """
    reader = _Reader(joint="\n")
    try:
        reader.find(value, role, at)
    except RecursionError:
        raise TurnError("is nested too deeply") from None
    return reader.turns


def unpacked(value: Any, times: int = 2) -> Any:
    """Return what a text says that is JSON, also where it was encoded twice; else the value itself."""
    if times and isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"'):
        with suppress(ValueError, RecursionError):
            return unpacked(json.loads(storable_json(value)), times - 1)
    return value


def is_one_answer(listed: Sequence[Any]) -> bool:
    """Return whether a list holds the messages or parts of a single answer, not several answers."""
    return bool(listed) and all(_is_message(item) or _is_part(item) for item in listed)


class _Reader:
    """Collects turns. ``at`` is the place of a value, such as ``messages[2].content[0]``.

    ``joint``: the text between the texts of parts.
    """

    def __init__(self, joint: str = "") -> None:
        self.turns: list[Turn] = []
        self._joint = joint

    def read(self, value: Any, at: str) -> None:
        if isinstance(value, str):
            self.turn(ASSISTANT, None).say(value)
        elif isinstance(value, list):
            self.items(value, at)
        elif not isinstance(value, Mapping):
            raise TurnError("an answer must be a string, a list of messages or a mapping")
        elif _is_message(value):
            self.message(value, at)
        elif _is_part(value) and not any(key in value for key in _KEYS["calls"]):
            self.items([value], at)
        else:
            self.response(value, at)

    def turn(self, role: str, calls: list[ToolCall] | None) -> Turn:
        self.turns.append(turn := Turn(role, calls=calls))
        return turn

    def items(self, listed: Sequence[Any], at: str) -> None:
        """Read messages, or the items and parts of a single answer."""
        turn: Turn | None = None
        for index, item in enumerate(listed):
            place = f"{at}[{index}]"
            is_item = isinstance(item, Mapping) and item.get("type") == "message"
            role = _role(item) if is_item else ASSISTANT
            turn = turn if turn and turn.role == role else None
            if _is_message(item) and not (is_item and turn):
                read = self.message(item, place)
                turn = read if is_item else None
            elif is_item or _is_part(item):
                turn = turn or self.turn(role, [])
                content = item.get("content") if is_item else item
                self.parts(turn, content if isinstance(content, list) else [content], place)
                turn = None if _form(item)[0] == "result" else turn
            else:
                refuse_calls(item, place)
                raise TurnError(f"message {index} of the answer is not a mapping with a role")

    def find(self, value: Any, role: str, at: str, depth: int = 8) -> None:
        """Read what holds turns in a value of any form; the rest is left."""
        value = unpacked(value)
        if isinstance(value, str):
            if value.strip() and not _NO_WORDS.match(value):
                self.transcript(value, role)
        elif not value or not depth:
            return
        elif isinstance(value, list):
            self.find_in_list(value, role, at, depth - 1)
        elif isinstance(value, Mapping) and _is_message(value):
            self.message(value if value.get("role") or _named_role(value.get("type")) else {**value, "role": role}, at)
        elif isinstance(value, Mapping):
            self.find_inside(value, role, at, depth - 1)

    def find_in_list(self, listed: Sequence[Any], role: str, at: str, depth: int) -> None:
        if all(isinstance(item, str) for item in listed):
            # The texts of a history without roles: the last one is new. Those of an answer are its parts.
            self.find(listed[-1] if role == USER else "\n".join(listed), role, at, depth)
        elif isinstance(listed[0], list):
            self.find(listed[0], role, at, depth)
        elif all(isinstance(item, str) or _holds_words(item) for item in listed):
            self.parts(self.turn(role, []), listed, at)
        elif is_one_answer(listed) and any(map(_is_part, listed)):
            self.items(listed, at)
        else:
            for index, item in enumerate(listed):
                self.find(item, role, f"{at}[{index}]", depth)

    def find_inside(self, value: Mapping[str, Any], role: str, at: str, depth: int) -> None:
        """Read a wrapper of turns: the first key that may hold some, of alternatives the first."""
        alternatives = [key for key in _KEYS["alternatives"] if isinstance(value.get(key), list) and value[key]]
        calls = {key: item for key in _KEYS["calls"] if (item := unpacked(value.get(key)))}
        rows = {USER: ("inputs",), ASSISTANT: ("outputs",)}.get(role, ("inputs", "outputs"))
        keys = ("message", *(key for row in rows for key in _KEYS[row]))
        key = next((key for key in keys if isinstance(value.get(key), str | list | Mapping) and value[key]), None)
        # Under any other key, a list of roles with words is a conversation.
        key = key or next((key for key, item in value.items() if _holds_messages(unpacked(item), depth)), None)
        if alternatives:
            self.find(value[alternatives[0]][0], role, _at(at, alternatives[0]), depth)
        elif calls and not isinstance(value.get("output"), list):
            turn = self.turn(role or ASSISTANT, [])
            turn.say(_word(value, "texts"))
            self.calls(turn, calls, at)
        elif _holds_words(value) and value.keys() & {"type", "part_kind"}:
            self.parts(self.turn(role, []), [value], at)
        elif key:
            if role == ASSISTANT and isinstance(value[key], str):
                # Next to words, calls have no other place.
                refuse_keys(value, at, key, *_REPEATED)
            self.find(value[key], role, _at(at, key), depth)

    def transcript(self, text: str, role: str) -> None:
        """Read a text, or the lines of a prompt in which each says its role."""
        marks = list(_ROLE_MARK.finditer(text)) if role == USER else []
        if not marks or text[: marks[0].start()].strip() or any(_named_role(mark[1]) is None for mark in marks):
            self.turn(role, None).say(text)
            return
        ends = [*(mark.start() for mark in marks[1:]), len(text)]
        for mark, end in zip(marks, ends, strict=True):
            if words := text[mark.end() : end].strip():
                self.turn(_named_role(mark[1]) or role, []).say(words)

    def response(self, value: Mapping[str, Any], at: str) -> None:
        """Read what an API or an agent wraps around its messages."""
        before, key = len(self.turns), _wrapper(value)
        if key in _KEYS["alternatives"]:
            # The others are not read.
            self.read(value[key][0], f"{_at(at, key)}[0]")
        elif key == "steps":
            for index, step in enumerate(value[key]):
                self.read(step, f"{_at(at, key)}[{index}]")
        elif key:
            self.read(value[key], _at(at, key))
        else:
            self.text_and_calls(value, at)
        if key:
            # The keys around steps repeat the last of them.
            refuse_keys(value, at, key, *(_REPEATED if key == "steps" else ()))
        if len(self.turns) == before and "status" in value:
            # A response of a model that said nothing.
            self.turn(ASSISTANT, [])
        for turn in self.turns[before:]:
            turn.stop = turn.stop or _stop(value) or str(value.get("status") or "").lower()

    def text_and_calls(self, value: Mapping[str, Any], at: str) -> None:
        text = _word(value, "texts", empty=True)
        has_calls = any(value.get(key) is not None for key in _KEYS["calls"])
        if text is None and not has_calls:
            refuse_calls(value, at)
            held = ", ".join(map(str, value)) or "nothing"
            raise TurnError(f"an answer must have output_messages or text; this one has {held}")
        turn = self.turn(ASSISTANT, [] if has_calls else None)
        turn.say(text)
        self.calls(turn, value, at)
        for result in value.get("toolResults") or () if has_calls else ():
            self.answered(result)
        refuse_keys(value, at, *(_REPEATED if has_calls else (*_KEYS["texts"], *_OF_A_MESSAGE)))

    def message(self, value: Mapping[str, Any], at: str) -> Turn:
        """Read one message, or the several that a request of pydantic-ai holds, and return the last."""
        value = _plain(value)
        content, parts = value.get("content"), value.get("parts")
        if value.get("kind") == "request" and isinstance(parts, list) and parts:
            for index, part in enumerate(parts):
                kind = _word(part, "kinds") if isinstance(part, Mapping) else None
                self.parts(self.turn(_ROLES.get(_snake(kind or ""), USER), []), [part], f"{_at(at, 'parts')}[{index}]")
            return self.turns[-1]
        if self._joint and isinstance(content, str) and content.startswith("[{"):
            blocks = unpacked(content)
            content = blocks if isinstance(blocks, list) and all(map(_is_block, blocks)) else content
        content = value.get("contents") if content is None and parts is None else content
        turn = self.turn(_role(value), [])
        turn.stop, turn.speaker = _stop(value), _word(value, "names") or ""
        turn.thinking = "".join(value[key] for key in _KEYS["thoughts"] if isinstance(value.get(key), str))
        if isinstance(content, list) or _is_part(content):
            self.parts(turn, content if isinstance(content, list) else [content], _at(at, "content"))
        elif isinstance(content, str):
            turn.say(content)
        else:
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
        refuse_keys(value, at, *_OF_A_MESSAGE)
        turn.extras = {key: item for key, item in value.items() if key not in _OF_A_MESSAGE}
        return turn

    def parts(self, turn: Turn, parts: Sequence[Any], at: str) -> None:
        """Read the parts of a message's content; where none has a form they are its data."""
        forms = [self.part(turn, part, f"{at}[{index}]") for index, part in enumerate(parts)]
        if parts and not any(forms) and turn.text is None:
            turn.data = list(parts)
        if parts and turn.role == USER and {*forms} == {"result"}:
            turn.role = TOOL

    def part(self, turn: Turn, part: Any, at: str) -> str:
        """Read one part, and return its form."""
        form, body, tool = _form(part)
        words = _first(body, _KEYS["words"])
        if isinstance(part, str):
            turn.say(part, self._joint)
        elif form == "text":
            # Anthropic cuts a sentence into several texts where it cites a source.
            joint = "" if body.get("citations") else self._joint
            for text in words if isinstance(words, list) else [words]:
                turn.say(text, joint)
        elif form == "thinking":
            turn.thinking += words if isinstance(words, str) else ""
        elif form == "refusal":
            turn.refuse(body.get("refusal"))
        elif form == "result":
            self.answered(body)
        elif form == "call":
            turn.call([_call(body, at, tool)])
        else:
            refuse_calls(part, at)
            turn.attachments.append(part)
        return form

    def calls(self, turn: Turn, value: Mapping[str, Any], at: str) -> None:
        """Read the calls next to a message's content."""
        for key in _KEYS["calls"]:
            listed, place = value.get(key), _at(at, key)
            listed = [listed] if isinstance(listed, Mapping) else listed
            if isinstance(listed, list):
                turn.call([_call(item, f"{place}[{index}]") for index, item in enumerate(listed)])
            elif listed is not None:
                raise UnknownCallError(place, "is not a list of tool calls")
        if isinstance(more := value.get("additional_kwargs"), Mapping):
            self.calls(turn, more, _at(at, "additional_kwargs"))

    def answered(self, result: Any) -> None:
        """Put a result into the call that it answers: by its id (Haystack: its origin's), else its tool's last without one."""
        if not isinstance(result, Mapping):
            return
        result = {**origin, **result} if isinstance(origin := result.get("origin"), Mapping) else result
        identity, name = _first(result, _KEYS["ids"]), _first(result, (*_KEYS["tools"], "name"))
        made = [call for turn in self.turns for call in turn.calls or ()]
        found = [call for call in made if identity is not None and call.given.get("id") == identity]
        found = found or [call for call in made if call.name == name and "output" not in call.given]
        if found:
            found[-1].given.setdefault("output", _first(result, (*_KEYS["results"], "content", "errorText")))


def refuse_calls(value: Any, at: str = "") -> None:
    """Raise ``UnknownCallError`` where a JSON value holds what looks like a tool call; ``at`` names the value's place."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            refuse_calls(item, f"{at}[{index}]")
    elif isinstance(value, Mapping):
        if _is_like_a_call(value):
            raise UnknownCallError(at)
        refuse_keys(value, at)


def refuse_keys(value: Mapping[str, Any], at: str, *read: str) -> None:
    """Raise ``UnknownCallError`` for a value that looks like a tool call under a key that no rule read."""
    for key, item in value.items():
        if key in read or key in _KEYS["quiet"]:
            continue
        listed = isinstance(item, list | Mapping) or (isinstance(item, str) and item.lstrip()[:1] in ("{", "["))
        if item and listed and _LIKE_CALLS.fullmatch(_snake(str(key))):
            raise UnknownCallError(_at(at, str(key)))
        refuse_calls(item, _at(at, str(key)))


def _is_like_a_call(value: Mapping[str, Any]) -> bool:
    """Whether a mapping is a call by its kind, or names something and gives it arguments.

    The description of a tool that could be called is not a call.
    """
    if _form_of(_word(value, "kinds") or "") in ("call", "result"):
        return True
    value = {_snake(str(key)): item for key, item in value.items()}
    given = [value[key] for key in _KEYS["arguments"] if key in value]
    if not given or "description" in value:
        return False
    named = isinstance(value.get("name"), str) or isinstance(value.get("action"), str)
    has_data = any(isinstance(item, Mapping) or _object(item) is not None for item in given)
    return bool(_word(value, "tools")) or "action_input" in value or (named and has_data)


def _call(value: Any, at: str, fallback: str = "") -> ToolCall:
    """Return a call; ``fallback``: its tool, where only the kind of the part says it."""
    value = _form(value)[1] if isinstance(value, Mapping) and "function" not in value else value
    if not isinstance(value, Mapping):
        raise UnknownCallError(at, "is not a mapping with tool")
    inner = value.get("function")
    body = {**value, **inner} if isinstance(inner, Mapping) else value
    name = _word(body, "tools") or (body["name"] if isinstance(body.get("name"), str) else "") or fallback
    if not name or name in _KEYS["no_tools"]:
        raise UnknownCallError(at, "names no tool")
    arguments: Any = next((body[key] for key in _KEYS["arguments"] if key in body), None)
    read = {"name", "type", *(key for row in ("tools", "arguments", "ids", "results") for key in _KEYS[row])}
    given = {
        "input": arguments if (parsed := _object(arguments)) is None else parsed,
        "output": _first(body, _KEYS["results"]),
        "id": _first(body, _KEYS["ids"]),
    }
    kept = [key for key in value if (key not in read if "tool" in value else key in _KEYS["of_a_call"])]
    given |= {key: value[key] for key in kept}
    return ToolCall(name, {key: item for key, item in given.items() if item is not None})


def _object(text: Any) -> dict[str, Any] | None:
    """Return the JSON object that a text is, None where it is none."""
    value = unpacked(text) if isinstance(text, str) and text.lstrip()[:1] == "{" else None
    return value if isinstance(value, dict) else None


def _is_a_call(text: str) -> bool:
    """Whether a text holds a call as models write it, or is one: a name and its arguments, and nothing else."""
    found = _object(text) or {}
    named = "name" in found and bool(found.keys() & {"arguments", "parameters"})
    return bool(_CALL_IN_TEXT.search(text)) or (
        named and found.keys() <= {"name", "arguments", "parameters", "type", "id"}
    )


def _form(part: Any) -> tuple[str, Mapping[str, Any], str]:
    """Return the form of a part, the mapping that holds it, and the tool that its kind names.

    The form is a key of ``_FORMS``, ``other`` for an unknown kind, and ``""`` for a value without a kind.
    """
    if not isinstance(part, Mapping):
        return "", {}, ""
    wrapper = next((key for key in _KEYS["wrappers"] if isinstance(part.get(key), Mapping)), None)
    body = part[wrapper] if wrapper else part
    worded = any(isinstance(part.get(key), str) for key in ("text", "content"))
    kind = wrapper or _word(part, "kinds") or ("text" if worded else "")
    form = _form_of(kind)
    if form == "other" and kind.startswith("tool-") and "toolCallId" in body and body.keys() & {"input", "state"}:
        # The Vercel SDK names the tool in the type of its part.
        return "call", body, kind.removeprefix("tool-")
    if form == "text" and body.get("thought") is True:
        form = "thinking"
    return form, body, _snake(kind).removesuffix("_call")


def _holds_words(item: Any) -> bool:
    """Whether a value in a list is a part of an answer, on its own."""
    return _form(item)[0] in _FORMS and not _is_message(item) and "message" not in item


def _is_block(item: Any) -> bool:
    """Whether a value is surely a part, not data that only looks like one."""
    kind = _word(item, "kinds") if isinstance(item, Mapping) else None
    return (
        _is_part(item)
        or kind in _KEYS["files"]
        or (isinstance(item, Mapping) and len(item) == 1 and _holds_words(item))
    )


def _form_of(kind: str) -> str:
    word = _snake(kind)
    return next((form for form, pattern in _FORMS.items() if pattern.fullmatch(word)), "other" if word else "")


def _is_part(value: Any) -> bool:
    """Whether a value is a part of an answer in a known form, on its own."""
    form = _form(value)[0]
    return form in _FORMS and (form != "text" or bool(value.keys() & {"type", "part_kind"}))


def _wrapper(value: Mapping[str, Any]) -> str:
    """Return the key under which a response holds its messages, ``""`` where it is their words and calls itself."""
    lists = {key: held for key, held in value.items() if isinstance(held, list) and held}
    holds_calls = any(isinstance(step, Mapping) and "toolCalls" in step for step in lists.get("steps", ()))
    found = [key for key in _KEYS["messages"] if isinstance(value.get(key), list)]
    found += [key for key in _KEYS["alternatives"] if key in lists and isinstance(lists[key][0], Mapping)]
    found += ["steps"] if holds_calls else []
    found += [key for key in _KEYS["inner"] if isinstance(value.get(key), Mapping | list)]
    return next(iter(found), "")


def _is_message(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    if any(key in value for key in ("role", "_role", "parts", "lc")):
        return True
    if "type" not in value:
        return isinstance(value.get("content"), list)
    return _named_role(value["type"]) is not None and any(key in value for key in ("content", "data"))


def _holds_messages(value: Any, depth: int) -> bool:
    """Whether a value is a list of messages that say their roles, or an object around one."""
    if isinstance(value, list):
        named = ("role" in item or _named_role(_plain(item).get("type")) for item in value if _is_message(item))
        return bool(value) and sum(map(bool, named)) == len(value)
    inner = value.values() if isinstance(value, Mapping) and depth else ()
    return any(_holds_messages(unpacked(item), depth - 1) for item in inner)


def _named_role(kind: Any) -> str | None:
    """Return the role of a message that LangChain writes by its class (AIMessageChunk) or a word (ai); None: it is none."""
    return _ROLES.get(kind.removesuffix("Chunk").removesuffix("Message").lower()) if isinstance(kind, str) else None


def _role(value: Mapping[str, Any]) -> str:
    given = value.get("role")
    if isinstance(given, str) and given:
        return _ROLES.get(given.lower(), given.lower())
    if given is not None:
        raise TurnError("a message of the answer has a role that is not a text")
    return _named_role(value.get("type")) or ASSISTANT


def _plain(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message that LangChain wraps into its class, or keeps next to its type, as one with content."""
    if "_role" in value:
        return {key.removeprefix("_"): item for key, item in value.items()}
    inner = value.get("kwargs") if "lc" in value else value.get("data") if "role" not in value else None
    if not isinstance(inner, Mapping):
        return value
    path = value.get("id")
    return {**inner, "type": path[-1] if "lc" in value and isinstance(path, list) and path else value.get("type")}


def _stop(value: Mapping[str, Any]) -> str:
    """Return why a model stopped, ``""`` where that is not written."""
    inner = [value.get(key) for key in ("response_metadata", "incomplete_details")]
    found = [_word(item, "stops") for item in (value, *inner) if isinstance(item, Mapping)]
    found += [item.get("reason") for item in inner if isinstance(item, Mapping)]
    return next((item.lower() for item in found if isinstance(item, str) and item), "")


def _word(value: Mapping[str, Any], row: str, *, empty: bool = False) -> str | None:
    """Return the first text under one of a row's keys; ``empty``: an empty one counts."""
    found = (value.get(key) for key in _KEYS[row])
    return next((item for item in found if isinstance(item, str) and (item or empty)), None)


def _first(value: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((value[key] for key in keys if value.get(key) is not None), None)


def _at(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _snake(key: str) -> str:
    return _WORD_ENDS.sub("_", key).lower()
