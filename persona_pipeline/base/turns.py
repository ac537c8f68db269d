"""One reader for what chats and SDKs write: turns with their words, their thinking and the tools that they called.

A value is read by its shape: messages, one message, its parts, a response around them, or ``{text, tool_calls}``. Known forms are
OpenAI chat completions and Responses, Anthropic and Bedrock blocks, Gemini parts, the Vercel AI SDK, LangChain, pydantic-ai and
OpenTelemetry GenAI. What looks like a tool call and has none of these forms is refused with its place, never dropped.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from persona_pipeline.base import turn_forms as forms
from persona_pipeline.base.text import split_thinking
from persona_pipeline.base.turn_forms import ASSISTANT, KEYS, SYSTEM, TOOL, USER, ToolCall, TurnError, UnknownCallError

_OF_A_MESSAGE = frozenset(key for name in ("calls", "stops", "thoughts", "of_a_message") for key in KEYS[name])
# What the Vercel SDK repeats next to the calls of a result.
_REPEATED = (*KEYS["texts"], *_OF_A_MESSAGE, *KEYS["repeated"])
_STOPPED_TO_CALL = {"tool_use", "tool_call", "tool_calls", "tool-calls", "function_call"}
# A line of a prompt that begins with a role or a name.
_ROLE_MARK = re.compile(r"^(Human|AI|System|[a-z]\w{0,31}):(?=\s|$)", re.MULTILINE)
# What a program writes of its objects, JSON of nothing, and JSON that could not be read, as where an attribute was cut off.
_NO_WORDS = re.compile(
    r"""\s*(?:null\s*$|\[\s*\{|\[\s*"|\{\s*["']|[A-Z]\w*\(\w+=.*(?:\)|\.\.\.)\s*$|<[\w.]+ object at 0x)""", re.DOTALL
)
# Objects around turns that are looked into.
_DEEPEST = 8


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
        return self.stop in KEYS["cut_off"]

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


def read_turns(value: Any) -> list[Turn]:
    """Return the turns of a value in any known form; results of tools are in the calls that they answer.

    Raises:
        TurnError: it is not a turn; ``UnknownCallError``: something that looks like a tool call has no known form.
    """
    reader = _Reader()
    try:
        reader.read(value, ASSISTANT, "messages" if isinstance(value, list) else "")
    except RecursionError:
        raise TurnError("an answer is nested too deeply") from None
    for turn in reader.turns:
        if turn.calls == [] and turn.role == ASSISTANT and forms.is_written_call(turn.text or ""):
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
    message, reader = forms.plain(value), _Reader(joint="\n")
    if not (message.get("role") is not None or forms.named_role(message.get("type")) or message.get("kind")):
        raise TurnError("a message has no role")
    if not isinstance(message.get("name"), str | None):
        raise TurnError("a message's name must be a string")
    try:
        turn = reader.message(message, ASSISTANT, "")
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
    reader = _Reader(finds=True, joint="\n")
    try:
        reader.read(value, role, at)
    except RecursionError:
        raise TurnError("is nested too deeply") from None
    return reader.turns


class _Reader:
    """Collects turns. ``at`` is the place of a value, such as ``messages[2].content[0]``; ``role``: of turns that say none.

    ``finds``: the value may be anything, and what holds no turns is left; otherwise the whole value must be an answer.
    ``joint``: the text between the texts of parts.
    """

    def __init__(self, *, finds: bool = False, joint: str = "") -> None:
        self.turns: list[Turn] = []
        self._finds, self._joint = finds, joint

    def read(self, value: Any, role: str, at: str, depth: int = _DEEPEST) -> None:
        value = forms.unpacked(value) if self._finds else value
        if isinstance(value, str):
            self.text(value, role)
        elif self._finds and not (value and depth):
            return
        elif isinstance(value, list):
            self.items(value, role, at, depth - 1)
        elif forms.is_message(value):
            self.message(value, role, at)
        elif isinstance(value, Mapping):
            self.around(value, role, at, depth - 1)
        elif not self._finds:
            raise TurnError("an answer must be a string, a list of messages or a mapping")

    def turn(self, role: str, calls: list[ToolCall] | None) -> Turn:
        self.turns.append(turn := Turn(role, calls=calls))
        return turn

    def text(self, text: str, role: str) -> None:
        """Read a text, or the lines of a prompt in which each says its role."""
        marks = list(_ROLE_MARK.finditer(text)) if self._finds and role == USER else []
        if not marks or text[: marks[0].start()].strip() or any(forms.named_role(mark[1]) is None for mark in marks):
            if not self._finds or (text.strip() and not _NO_WORDS.match(text)):
                self.turn(role, None).say(text)
            return
        ends = [*(mark.start() for mark in marks[1:]), len(text)]
        for mark, end in zip(marks, ends, strict=True):
            if words := text[mark.end() : end].strip():
                self.turn(forms.named_role(mark[1]) or role, []).say(words)

    def items(self, listed: Sequence[Any], role: str, at: str, depth: int) -> None:
        """Read messages, or the items and parts of a single answer; to find some, each item."""
        if not self._finds:
            self.answer(listed, at)
        elif all(isinstance(item, str) for item in listed):
            # The texts of a history without roles: the last one is new. Those of an answer are its parts.
            self.read(listed[-1] if role == USER else "\n".join(listed), role, at, depth)
        elif isinstance(listed[0], list):
            self.read(listed[0], role, at, depth)
        elif all(isinstance(item, str) or forms.holds_words(item) for item in listed):
            self.parts(self.turn(role, []), listed, at)
        elif forms.is_one_answer(listed) and any(map(forms.is_part, listed)):
            self.answer(listed, at)
        else:
            for index, item in enumerate(listed):
                self.read(item, role, f"{at}[{index}]", depth)

    def answer(self, listed: Sequence[Any], at: str) -> None:
        turn: Turn | None = None
        for index, item in enumerate(listed):
            inner = f"{at}[{index}]"
            is_item = isinstance(item, Mapping) and item.get("type") == "message"
            role = _role(item, ASSISTANT) if is_item else ASSISTANT
            turn = turn if turn and turn.role == role else None
            if forms.is_message(item) and not (is_item and turn):
                read = self.message(item, ASSISTANT, inner)
                turn = read if is_item else None
            elif is_item or forms.is_part(item):
                turn = turn or self.turn(role, [])
                content = item.get("content") if is_item else item
                self.parts(turn, content if isinstance(content, list) else [content], inner)
                turn = None if forms.form_of(item)[0] == "result" else turn
            else:
                forms.refuse_calls(item, inner)
                raise TurnError(f"message {index} of the answer is not a mapping with a role")

    def around(self, value: Mapping[str, Any], role: str, at: str, depth: int) -> None:
        """Read a part, what an API or an agent wraps around its messages, or words and calls next to each other."""
        before, calls = len(self.turns), [key for key in KEYS["calls"] if key in value]
        if not calls and forms.is_part(value):
            self.parts(self.turn(role, []), [value], at)
            return
        key = self.key_of_turns(value, role, depth)
        if key in KEYS["alternatives"] or key == "steps":
            # Of alternatives, the others are not read.
            for index, item in enumerate(value[key] if key == "steps" else value[key][:1]):
                self.read(item, role, f"{forms.place(at, key)}[{index}]", depth)
        elif key:
            self.read(value[key], role, forms.place(at, key), depth)
        elif not self._finds or any(value[key] for key in calls):
            self.words_and_calls(value, role, at)
        if key and (not self._finds or (role == ASSISTANT and isinstance(value[key], str))):
            # The keys around steps repeat the last of them. Next to words, calls have no other place.
            forms.refuse_keys(value, at, key, *(_REPEATED if key == "steps" or self._finds else ()))
        if len(self.turns) == before and "status" in value and not self._finds:
            # A response of a model that said nothing.
            self.turn(ASSISTANT, [])
        for turn in self.turns[before:]:
            turn.stop = turn.stop or _stop(value) or str(value.get("status") or "").lower()

    def key_of_turns(self, value: Mapping[str, Any], role: str, depth: int) -> str:
        """Return the key under which a wrapper holds turns, ``""`` where it is words and calls itself, or holds none."""
        lists = {key: held for key, held in value.items() if isinstance(held, list) and (held or not self._finds)}
        answers = role != USER
        found = [key for key in KEYS["messages"] if key in lists and (answers or key == "messages")]
        found += [key for key in KEYS["alternatives"] if lists.get(key)]
        calling = any(isinstance(step, Mapping) and "toolCalls" in step for step in lists.get("steps", ()))
        found += ["steps"] if answers and calling else []
        inner = KEYS["inner"] if not self._finds else KEYS["inner"][: 2 if answers else 1]
        found += [key for key in inner if isinstance(value.get(key), Mapping | list)]
        if found or not self._finds or any(value.get(key) for key in KEYS["calls"]):
            return next(iter(found), "")
        rows = {USER: KEYS["inputs"], ASSISTANT: KEYS["outputs"]}.get(role, KEYS["inputs"] + KEYS["outputs"])
        key = next(
            (key for key in ("message", *rows) if isinstance(value.get(key), str | list | Mapping) and value[key]), None
        )
        # Under any other key, a list of roles with words is a conversation.
        return key or next((key for key, item in value.items() if forms.holds_messages(item, depth)), "")

    def words_and_calls(self, value: Mapping[str, Any], role: str, at: str) -> None:
        text = forms.word(value, "texts", empty=True)
        has_calls = any(value.get(key) is not None for key in KEYS["calls"])
        if text is None and not has_calls:
            forms.refuse_calls(value, at)
            held = ", ".join(map(str, value)) or "nothing"
            raise TurnError(f"an answer must have output_messages or text; this one has {held}")
        turn = self.turn(role or ASSISTANT, [] if has_calls else None)
        turn.say(text)
        self.calls(turn, value, at)
        for result in value.get("toolResults") or () if has_calls else ():
            self.answered(result)
        if not self._finds:
            forms.refuse_keys(value, at, *(_REPEATED if has_calls else (*KEYS["texts"], *_OF_A_MESSAGE)))

    def message(self, value: Mapping[str, Any], role: str, at: str) -> Turn:
        """Read one message, or the several that a request of pydantic-ai holds, and return the last."""
        value = forms.plain(value)
        content, parts = value.get("content"), value.get("parts")
        if value.get("kind") == "request" and isinstance(parts, list) and parts:
            for index, part in enumerate(parts):
                kind = forms.word(part, "kinds") if isinstance(part, Mapping) else None
                turn = self.turn(forms.ROLES.get(forms.snake(kind or ""), USER), [])
                self.parts(turn, [part], f"{forms.place(at, 'parts')}[{index}]")
            return self.turns[-1]
        if self._joint and isinstance(content, str) and content.startswith("[{"):
            blocks = forms.unpacked(content)
            content = blocks if isinstance(blocks, list) and all(map(forms.is_block, blocks)) else content
        content = value.get("contents") if content is None and parts is None else content
        turn = self.turn(_role(value, role), [])
        turn.stop, turn.speaker = _stop(value), forms.word(value, "names") or ""
        turn.thinking = "".join(value[key] for key in KEYS["thoughts"] if isinstance(value.get(key), str))
        if isinstance(content, list) or forms.is_part(content):
            self.parts(turn, content if isinstance(content, list) else [content], forms.place(at, "content"))
        elif isinstance(content, str):
            turn.say(content)
        else:
            forms.refuse_calls(content, forms.place(at, "content"))
            turn.data = content
        if isinstance(parts, list):
            said = turn.text
            self.parts(turn, parts, forms.place(at, "parts"))
            # A message of the Vercel SDK may say its words twice.
            turn.text = said or turn.text
        self.calls(turn, value, at)
        turn.refuse(value.get("refusal"))
        if turn.role == TOOL and isinstance(content, str):
            self.answered({**value, "output": content})
        forms.refuse_keys(value, at, *_OF_A_MESSAGE)
        turn.extras = {key: item for key, item in value.items() if key not in _OF_A_MESSAGE}
        return turn

    def parts(self, turn: Turn, parts: Sequence[Any], at: str) -> None:
        """Read the parts of a message's content; where none has a form they are its data."""
        found = [self.part(turn, part, f"{at}[{index}]") for index, part in enumerate(parts)]
        if parts and not any(found) and turn.text is None:
            turn.data = list(parts)
        if parts and turn.role == USER and {*found} == {"result"}:
            turn.role = TOOL

    def part(self, turn: Turn, part: Any, at: str) -> str:
        """Read one part, and return its form."""
        form, body, tool = forms.form_of(part)
        words = forms.first(body, KEYS["words"])
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
            turn.call([forms.call_in(body, at, tool)])
        else:
            forms.refuse_calls(part, at)
            turn.attachments.append(part)
        return form

    def calls(self, turn: Turn, value: Mapping[str, Any], at: str) -> None:
        """Read the calls next to a message's content."""
        for key in KEYS["calls"]:
            listed, around = value.get(key), forms.place(at, key)
            listed = forms.unpacked(listed) if self._finds else listed
            listed = [listed] if isinstance(listed, Mapping) else listed
            if isinstance(listed, list):
                turn.call([forms.call_in(item, f"{around}[{index}]") for index, item in enumerate(listed)])
            elif listed is not None:
                raise UnknownCallError(around, "is not a list of tool calls")
        if isinstance(more := value.get("additional_kwargs"), Mapping):
            self.calls(turn, more, forms.place(at, "additional_kwargs"))

    def answered(self, result: Any) -> None:
        """Put a result into the call that it answers: by its id (Haystack: its origin's), else its tool's last without one."""
        if not isinstance(result, Mapping):
            return
        result = {**origin, **result} if isinstance(origin := result.get("origin"), Mapping) else result
        identity, name = forms.first(result, KEYS["ids"]), forms.first(result, (*KEYS["tools"], "name"))
        made = [call for turn in self.turns for call in turn.calls or ()]
        found = [call for call in made if identity is not None and call.given.get("id") == identity]
        found = found or [call for call in made if call.name == name and "output" not in call.given]
        if found:
            found[-1].given.setdefault("output", forms.first(result, (*KEYS["results"], "content", "errorText")))


def _role(value: Mapping[str, Any], otherwise: str) -> str:
    given = value.get("role")
    if isinstance(given, str) and given:
        return forms.ROLES.get(given.lower(), given.lower())
    if given is not None:
        raise TurnError("a message of the answer has a role that is not a text")
    return forms.named_role(value.get("type")) or otherwise


def _stop(value: Mapping[str, Any]) -> str:
    """Return why a model stopped, ``""`` where that is not written."""
    inner = [value.get(key) for key in ("response_metadata", "incomplete_details")]
    found = [forms.word(item, "stops") for item in (value, *inner) if isinstance(item, Mapping)]
    found += [item.get("reason") for item in inner if isinstance(item, Mapping)]
    return next((item.lower() for item in found if isinstance(item, str) and item), "")
