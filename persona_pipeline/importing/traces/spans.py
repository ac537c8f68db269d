"""Messages in a span: any attribute or event is read by its shape; tables of names decide between several."""

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from persona_pipeline.base.text import storable
from persona_pipeline.base.turn_forms import ASSISTANT, TOOL, USER, TurnError, UnknownCallError, unpacked
from persona_pipeline.base.turns import Turn, find_turns
from persona_pipeline.world.messages.files import MAX_TEXT

_TABLE = tomllib.loads((Path(__file__).parent / "spans.toml").read_text(encoding="utf-8"))
_WORDS: dict[str, frozenset[str]] = {name: frozenset(row) for name, row in _TABLE["words"].items()}
_KINDS = _TABLE["kinds"]
NAMES: dict[str, list[str]] = _TABLE["names"]
_NOBODY, _BESIDE = re.compile(_TABLE["names"]["nobody"]), re.compile(r"(?:.*\.)?(?:metadata|properties|context)\.(.+)")
_MODEL_KIND = re.compile(_KINDS["model"], re.IGNORECASE)
DETAILS, _EVENTS = "gen_ai.client.inference.operation.details", "EVENTS"
_OF_A_MESSAGE = re.compile(r"gen_ai\.(\w+)\.message|gen_ai\.choice")
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
# A numbered key such as gen_ai.prompt.0.content, and the words that OpenInference puts before each part.
_NUMBERED = re.compile(r"(?P<list>.*?[^.])\.(?P<number>\d{1,6})(?:\.(?P<rest>.+))?")
_AROUND = re.compile(r"^(?:message|message_content|tool_call)\.(?=.)")
_DEEPEST = 6
# Placeholders for redacted words, alone or in place of a sentence.
_REDACTED = re.compile(
    r"(?-i:REDACTED)|[_*]{1,2}redacted[_*]{1,2}|[\[<{]{1,2}(?:redacted|masked|scrubbed|filtered)\b[^\n\]>}]{0,60}[\]>}]{1,2}"
    r"|[*\u2022\u25cf\u2588\u2587\u25a0\u2591-\u2593]{3,}",
    re.IGNORECASE,
)


class SaidMessage(NamedTuple):
    """A message to or from a model: role, words and, where known, the speaker's name."""

    role: str
    text: str
    name: str | None = None


Event = tuple[str, Mapping[str, Any]]
Heard = tuple[Sequence[SaidMessage], Sequence[SaidMessage]]


class SpanContents(NamedTuple):
    """Messages of a span: inputs, outputs, and the keys that they were read from."""

    inputs: Sequence[SaidMessage] = ()
    outputs: Sequence[SaidMessage] = ()
    keys: Sequence[str] = ()

    def filled(self, other: "SpanContents") -> "SpanContents":
        """Return these contents with a side that they have not from others."""
        if (self.inputs or not other.inputs) and (self.outputs or not other.outputs):
            return self
        return SpanContents(self.inputs or other.inputs, self.outputs or other.outputs, [*self.keys, *other.keys])


def kind_of(found: Mapping[str, Any]) -> str:
    """Return what a span is by its attributes: ``model``, ``tool``, ``other``, or ``""`` where it does not say."""
    operation = str(found.get("gen_ai.operation.name") or "").lower()
    vercel = str(found.get("ai.operationId") or "")
    if operation in _KINDS["operations"] or ".do" in vercel:
        return "model"
    if operation in _KINDS["not_models"] or any(key in found for key in _KINDS["tools"]):
        return "tool"
    given = [unpacked(found[key]) for key in _KINDS["keys"] if found.get(key)]
    words = [str(item.get("type") if isinstance(item, Mapping) else item) for item in given]
    if any(map(_MODEL_KIND.fullmatch, words)):
        return "model"
    if words or vercel.startswith("ai."):
        return "other"
    return "model" if any(key in found for key in _KINDS["models"]) else ""


def read_span(found: Mapping[str, Any], events: Iterable[Event]) -> SpanContents:
    """Return the messages of a span. System instructions, results of tools and thinking are not messages.

    Args:
        found: the attributes of the span; ``events``: the names and attributes of its events.

    Raises:
        UnknownCallError: something in it looks like a tool call and has no known form.
    """
    kind = kind_of(found)
    return SpanContents() if kind == "tool" else _read(found, events, kind)


def beside(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes, also under the names that they have in metadata, properties or a context."""
    inner = unpacked(found.get("metadata"))
    named = {match[1]: unpacked(value) for key, value in found.items() if (match := _BESIDE.fullmatch(key))}
    return {**(inner if isinstance(inner, dict) else {}), **named, **found}


def names_nobody(name: str) -> bool:
    """Whether a name is one that a framework gives where the program gave none."""
    return bool(_NOBODY.fullmatch(name))


def keys_of_contents(found: Mapping[str, Any], events: Iterable[Event] = ()) -> list[str]:
    """Return the keys of attributes and events that by their names hold contents, whether these can be read or not."""
    keys = [
        key for key, value in found.items() if side_of(key)[0] and value and not isinstance(value, bool | int | float)
    ]
    return keys + [f"event {name}: {key}" for name, given in events for key in keys_of_contents(given)]


def is_redacted(found: Mapping[str, Any], *, is_model: bool) -> bool:
    """Whether attributes hold, in place of words, that these were taken out; of a call of a model, also inside its contents."""
    texts = {key: value for key, value in found.items() if isinstance(value, str)}
    contents = [texts[key] for key in keys_of_contents(texts)] if is_model else []
    return any(map(_REDACTED.fullmatch, texts.values())) or any(map(_REDACTED.search, contents))


def is_said(name: str) -> bool:
    """Whether an event of this name holds one message."""
    return bool(_OF_A_MESSAGE.fullmatch(name))


def content_fields(body: Any) -> Mapping[str, Any]:
    """Return the fields of an event's body; one that has none is its content."""
    body = unpacked(body)
    return body if isinstance(body, Mapping) else {} if body is None else {"content": body}


def heard_by_event(name: str, given: Mapping[str, Any]) -> Heard:
    """Return what an event that holds one message says, as an input or an output."""
    match = _OF_A_MESSAGE.fullmatch(name)
    given = {**given, **content_fields(given.get("gen_ai.event.content"))}
    if match and match[1]:
        return _said(find_turns({"role": match[1], **given}, match[1], name), match[1]), ()
    # Further choices are alternatives that may never have been shown.
    if str(given.get("index", 0)) != "0":
        return (), ()
    message = unpacked(given.get("message", given))
    turns = find_turns(message, ASSISTANT, name) or [Turn(ASSISTANT)]
    return (), _said(turns, ASSISTANT)


@dataclass
class _Row:
    """Keys that belong together, with their values, by side: of inputs, of outputs, and of whole conversations (``""``)."""

    values: dict[str, list[tuple[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    is_known: bool = False
    of_any_kind: bool = False


def _read(found: Mapping[str, Any], events: Iterable[Event], kind: str) -> SpanContents:
    contents = SpanContents()
    for row in _rows(_nested(found)):
        if kind == "other" and not row.of_any_kind:
            continue
        # A side that is missing in one row may be in another. There, a lone text may be an error.
        may_be_lone = kind == "model" and (row.is_known or not contents.keys)
        read = _read_events(events, kind) if row.values[_EVENTS] else _read_row(row.values, may_be_lone=may_be_lone)
        contents = contents.filled(read)
        if contents.inputs and contents.outputs:
            break
    return contents


def _rows(found: dict[str, Any]) -> Iterator[_Row]:
    """Yield the rows of the table, then keys that differ only in the word for their side, then whole conversations."""
    for given in _TABLE["rows"]:
        row = _Row(is_known=True, of_any_kind=given.get("of_any_kind", False))
        row.values[_EVENTS] = [(_EVENTS, None)] if given["inputs"] == [_EVENTS] else []
        for side, name in ((USER, "inputs"), (ASSISTANT, "outputs")):
            row.values[side] = [(key, found.pop(key)) for key in given[name] if found.get(key) is not None]
        yield row
    pairs: dict[str, _Row] = defaultdict(_Row)
    for key, value in sorted(found.items()):
        side, stem = side_of(key)
        if side is not None and (side or isinstance(unpacked(value), list | Mapping)):
            pairs[stem if side else key].values[side].append((key, value))
    yield from sorted(
        pairs.values(), key=lambda row: (bool(row.values[""]), not (row.values[USER] and row.values[ASSISTANT]))
    )


def side_of(key: str) -> tuple[str | None, str]:
    """Return the side of a key by its last words, and the rest of the key; None: it does not hold a conversation."""
    words = [word.lower() for word in _WORD.findall(key)]
    if _WORDS["others"] & {*words}:
        return None, ""
    while words and words[-1] in _WORDS["tails"]:
        words.pop()
    sides = {USER: _WORDS["inputs"], ASSISTANT: _WORDS["outputs"]}
    side = next((side for side, last in sides.items() if words and words[-1] in last), "")
    stem = words[:-1]
    while stem and stem[-1] in _WORDS["speakers"]:
        stem.pop()
    return side, ".".join(stem)


def _read_row(values: Mapping[str, Sequence[tuple[str, Any]]], *, may_be_lone: bool) -> SpanContents:
    """Return what a row says: of each side, the first key that holds words."""
    found = {}
    for side in (USER, ASSISTANT, ""):
        each = ((key, _turns(key, value, side)) for key, value in values[side])
        found[side] = next(((key, turns) for key, turns in each if turns), ("", []))
    keys = [key for key, _ in found.values() if key]
    asked, answered = found[USER][1], found[ASSISTANT][1]
    if whole := found[""][1]:
        answered = [whole.pop()] if whole[-1].role == ASSISTANT else []
        asked = whole
    # One text alone may be anything; one of a call of a model, or next to its answer, is a message.
    is_lone = len(keys) == 1 and all(turn.calls is None for turn in (*asked, *answered))
    if is_lone and not may_be_lone and not keys[0].startswith("gen_ai."):
        return SpanContents()
    if any(turn.role != ASSISTANT for turn in answered):
        # An output may be all that was said up to it.
        answered = [turn for turn in answered if turn.role == ASSISTANT][-1:]
    if not answered and any(key in _TABLE["answers"] for key, _ in values[ASSISTANT]):
        answered = [Turn(ASSISTANT)]
    return SpanContents(_said(asked, USER), _said(answered, ASSISTANT), keys)


def _turns(key: str, value: Any, side: str) -> list[Turn]:
    """Return the turns in a value. In a possible whole conversation, all turns must have a role."""
    try:
        turns = [] if isinstance(value, bool | int | float) else find_turns(value, side, key)
    except TurnError as error:
        if side and isinstance(error, UnknownCallError):
            raise
        return []
    return turns if side or all(turn.role for turn in turns) else []


def _read_events(events: Iterable[Event], kind: str) -> SpanContents:
    inputs: list[SaidMessage] = []
    outputs: list[SaidMessage] = []
    names: dict[str, None] = {}
    for name, given in events:
        if is_said(name):
            heard = heard_by_event(name, given)
        else:
            # The name of the event may say the side of its attributes.
            named = {key if side_of(key)[0] else f"{name}.{key}": value for key, value in given.items()}
            heard = _read(named, (), "model" if kind == "model" or name.startswith("gen_ai.") else "")[:2]
        inputs += heard[0]
        outputs += heard[1]
        names |= {f"event {name}": None} if any(heard) else {}
    return SpanContents(inputs, outputs, [*names])


def _said(turns: Iterable[Turn], role: str) -> list[SaidMessage]:
    said = []
    for turn in turns:
        if turn.role == TOOL and isinstance(turn.data, Mapping) and turn.data.keys() & {*_TABLE["described"]}:
            continue
        text, name = storable(turn.text or ""), turn.speaker
        if len(text) > MAX_TEXT:
            text = text[: MAX_TEXT - 1] + "\u2026"
        elif _REDACTED.fullmatch(text.strip()):
            text = ""
        known = name.isprintable() and 0 < len(name) <= 256
        said.append(SaidMessage(turn.role or role, text, name if known else None))
    return said


def _nested(found: Mapping[str, Any], depth: int = _DEEPEST) -> dict[str, Any]:
    """Return attributes with those of numbered keys as lists: the fields of messages, and of their parts and calls."""
    plain: dict[str, Any] = {}
    lists: dict[str, dict[int, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    for key, value in found.items():
        match = _NUMBERED.fullmatch(key) if depth else None
        if match:
            lists[match["list"]][int(match["number"])][_AROUND.sub("", match["rest"] or "")] = value
        else:
            plain[key] = value
    for key, numbered in lists.items():
        items = [_nested(fields, depth - 1) for _, fields in sorted(numbered.items())]
        plain[key] = [item[""] if item.keys() == {""} else _inner(item) for item in items]
    return plain


def _inner(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields with those of dotted keys, such as function.name, in an inner mapping."""
    found: dict[str, Any] = {}
    for key, value in fields.items():
        first, dot, rest = key.partition(".")
        if dot and isinstance(found.setdefault(first, {}), dict):
            found[first][rest] = value
        elif not dot:
            found[key] = value
    return found
