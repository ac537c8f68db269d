"""Strict YAML 1.2 with positions, read, validated and written: every configuration file of the project.

PyYAML's C parser delivers events; scalars are resolved by the YAML 1.2 core schema (``no``, dates and ``1:30`` are
strings), keys are strings, duplicate keys, custom tags and merge keys are errors, and size, depth and expansion are
bounded, so that a hostile file ends in a ``ConfigError`` and nothing else.
"""

import contextlib
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.base.files import open_regular

Location = tuple[str | int, ...]

_CORE_TAG = "tag:yaml.org,2002:"
_NULL = re.compile(r"(?:null|Null|NULL|~|)\Z")
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INT = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_SPECIAL = re.compile(r"(?P<sign>[-+]?)\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z")
_KINDS: dict[str, Any] = {"null": type(None), "bool": bool, "int": int, "float": (int, float)}
_MOST_DIGITS = 400
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Limits:
    """Bounds of a document: bytes read, nesting depth, nodes after alias expansion; ``merge``: merge keys (<<) are resolved."""

    size: int = 1_000_000
    depth: int = 64
    nodes: int = 100_000
    merge: bool = False


DEFAULT_LIMITS = Limits()


@dataclass
class Places:
    """Positions in a document: from a location (keys and indexes from the root) to a 1-based ``(line, column)``.

    ``keys`` does the same for the key of a mapping entry.
    """

    values: dict[Location, tuple[int, int]] = field(default_factory=dict)
    keys: dict[Location, tuple[int, int]] = field(default_factory=dict)


@dataclass
class Document:
    """Plain data read from a file, with the position of each value.

    Positions take several times the memory of the data and are needed for errors only, so the text is read again for them.
    """

    path: str
    data: Any
    text: str = ""
    limits: Limits = DEFAULT_LIMITS

    @cached_property
    def places(self) -> Places:
        """The positions; none for text that cannot be read."""
        places = Places()
        if self.text:
            with contextlib.suppress(ConfigError, yaml.YAMLError):
                _DocumentReader(self.text, self.path, self.limits, places).read()
        return places

    def where(self, location: Sequence[str | int], *, key: bool = False) -> tuple[int, int]:
        """Return ``(line, column)`` of the value (or, with ``key``, its key) at a location, or of its nearest parent."""
        location = tuple(location)
        if key and location in self.places.keys:
            return self.places.keys[location]
        while location and location not in self.places.values:
            location = location[:-1]
        return self.places.values.get(location, (1, 1))

    def problem(self, location: Sequence[str | int], message: str, *, key: bool = False) -> Problem:
        """Return a problem placed at a location of this document."""
        line, column = self.where(location, key=key)
        return Problem(message, self.path, line, column)


def load_document(path: Path | str, *, roots: Sequence[Path] | None = None) -> Document:
    """Read and parse one regular YAML file; ``roots``: resolved folders it must lie in once links are followed, None: anywhere.

    ``ConfigError``: the file is missing, unreadable, too large, not UTF-8 or not one valid YAML 1.2 document.
    """
    shown = str(path)
    try:
        with open_regular(path, roots) as stream:
            raw = stream.read(DEFAULT_LIMITS.size + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(Problem(f"cannot be read ({reason}); check the path and its permissions", shown)) from error
    if len(raw) > DEFAULT_LIMITS.size:
        raise ConfigError(Problem(f"is larger than {DEFAULT_LIMITS.size:,} bytes; split the file", shown))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(Problem("is not UTF-8; save it as UTF-8", shown, line, 1)) from error
    return parse_document(text, shown)


def parse_document(text: str, path: str = "<text>", *, limits: Limits = DEFAULT_LIMITS) -> Document:
    """Parse YAML text; ``path`` is only named in errors. ``ConfigError``: it is not one valid YAML 1.2 document in the limits."""
    try:
        return Document(path, _DocumentReader(text, path, limits).read(), text, limits)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = f"is not valid YAML: {error.problem or error.context}{_advice(text, mark, error.problem or '')}"
        place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise ConfigError(Problem(message, path, *place)) from error
    except yaml.YAMLError as error:
        position = getattr(error, "position", 0) or 0
        line = text.count("\n", 0, position) + 1
        message = f"is not valid YAML: {getattr(error, 'reason', None) or error}"
        raise ConfigError(Problem(message, path, line, 1)) from error
    except (UnicodeEncodeError, RecursionError) as error:
        raise ConfigError(Problem(f"is not valid YAML: {error}", path, 1, 1)) from error


# What a line begins with before its value: list dashes, then a key. A text that begins with such a sign needs quotes.
_VALUE = re.compile(r"\s*(?:- +)*(?:[^\s:{\[\"'][^:]*: +)?(?P<value>.*)")
_BRACES = re.compile(r"\{\w+\}")
_SIGNS = "{[*&!|>@`%\"'-?"


def _advice(text: str, mark: Any, problem: str) -> str:
    """Return a remedy for a line that is not YAML, where its first characters show the cause: missing quotes or a tab."""
    lines = text.split("\n")
    line = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
    value = _VALUE.sub(r"\g<value>", line)
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "; indent with spaces, not with a tab"
    if "escape" in problem:
        return "; put single quotes around a text with a backslash"
    if "{{" in line and not line.partition("{{")[0].count('"') % 2:
        return "; put quotes around a value that begins with {{"
    if "mapping values" in problem or ": " in value.partition(": ")[2]:
        return "; put quotes around a text with ': ' in it, or correct how the line is indented"
    if value[:1] in ("'", '"'):
        return "; put one pair of quotes around the whole text"
    variable = f"; a variable has double braces: {{{name[0]}}}" if (name := _BRACES.match(value)) else ""
    return f"; put quotes around a text that begins with {value[0]}{variable}" if value and value[0] in _SIGNS else ""


def quotes_hint(value: Any) -> str:
    """Return what to write instead of a text without quotes that YAML reads as a mapping, as it does ``{name}`` and ``Say this:
    hello``; "" for any other value.
    """
    name, held = next(iter(value.items())) if isinstance(value, dict) and len(value) == 1 else (None, None)
    if not isinstance(name, str):
        return ""
    if held is None:
        return f"; a variable has double braces and quotes: '{{{{{name}}}}}'"
    return "; put quotes around a text with ': ' in it" if " " in name and not isinstance(held, dict | list) else ""


class _DocumentReader:
    """Builds plain data from parser events. Recursion is safe: the limits bound the depth.

    ``places``: where to note positions; None: they are not noted.
    """

    def __init__(self, text: str, path: str, limits: Limits, places: Places | None = None) -> None:
        self.text, self.path, self.limits, self.places = text, path, limits, places
        self.events = _events(text)
        # The value of each anchor and its number of nodes; None while the value is still open.
        self.anchors: dict[str, tuple[Any, int] | None] = {}
        self.nodes = 0
        self.problems: list[Problem] = []

    def read(self) -> Any:
        data, documents = None, 0
        for event in self.events:
            if type(event) is yaml.DocumentStartEvent:
                documents += 1
                if documents > 1:
                    raise self.fail(event, "holds more than one YAML document; keep one a file")
                data = self.node(next(self.events), None if self.places is None else (), 0)
        if self.problems:
            raise ConfigError(self.problems)
        return data

    def fail(self, event: yaml.Event, message: str) -> ConfigError:
        return ConfigError(Problem(message, self.path, *_place(event)))

    def count(self, event: yaml.Event, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > self.limits.nodes:
            raise self.fail(
                event, f"holds more than {self.limits.nodes:,} values once aliases are expanded; shorten it"
            )

    def node(self, event: Any, location: Location | None, depth: int) -> Any:
        """Return the value that begins with an event; ``location``: where to note its position, None: nowhere."""
        if location is not None and self.places is not None:
            self.places.values.setdefault(location, _place(event))
        if type(event) is yaml.AliasEvent:
            known = self.anchors.get(event.anchor)
            if known is None:
                raise self.fail(event, f"alias *{event.anchor} is not defined before this place")
            self.count(event, known[1])
            return known[0]
        before = self.nodes
        if type(event) is yaml.ScalarEvent:
            value = self.scalar(event)
            self.count(event, 1)
        else:
            value = self.container(event, location, depth)
        if event.anchor:
            self.anchors[event.anchor] = (value, self.nodes - before)
        return value

    def container(self, event: Any, location: Location | None, depth: int) -> Any:
        self.count(event, 1)
        if depth >= self.limits.depth:
            raise self.fail(event, f"nests deeper than {self.limits.depth} levels; flatten it")
        is_mapping = type(event) is yaml.MappingStartEvent
        if event.tag not in (None, "!", _CORE_TAG + ("map" if is_mapping else "seq")):
            raise self.fail(event, f"tag {event.tag} is not allowed; remove it")
        if event.anchor:
            self.anchors[event.anchor] = None
        return (self.mapping if is_mapping else self.sequence)(location, depth + 1)

    def sequence(self, location: Location | None, depth: int) -> list[Any]:
        items: list[Any] = []
        while type(event := next(self.events)) is not yaml.SequenceEndEvent:
            items.append(self.node(event, None if location is None else (*location, len(items)), depth))
        return items

    def mapping(self, location: Location | None, depth: int) -> dict[str, Any]:
        data: dict[str, Any] = {}
        lines: dict[str, int] = {}
        merges = False
        while type(event := next(self.events)) is not yaml.MappingEndEvent:
            key, is_merge = self.key(event)
            line, column = _place(event)
            if key in lines:
                said = f"key {key!r} stands twice (first on line {lines[key]}); remove one"
                self.problems.append(Problem(said, self.path, line, column))
            lines.setdefault(key, line)
            inner = None if location is None else (*location, key)
            if inner is not None and self.places is not None:
                self.places.keys.setdefault(inner, (line, column))
            data[key] = self.node(next(self.events), inner, depth)
            merges = merges or is_merge
        if merges:
            self.merge(data, event)
        return data

    def key(self, event: Any) -> tuple[str, bool]:
        """Return a key as a string, and whether it is a merge key."""
        if type(event) not in (yaml.ScalarEvent, yaml.AliasEvent):
            advice = _advice(self.text, event.start_mark, "")
            raise self.fail(event, f"a key must be a single value, not a list or a mapping{advice}")
        value = self.node(event, None, 0)
        if isinstance(value, dict | list):
            raise self.fail(event, "a key must be a single value, not a list or a mapping")
        is_merge = value == "<<" and getattr(event, "implicit", (False,))[0]
        if is_merge and not self.limits.merge:
            raise self.fail(event, "merge keys (<<) are not part of YAML 1.2; write the keys out")
        # As JSON spells it: ``1`` and ``true`` stay apart, and data round-trips through JSON.
        return sys.intern(value if isinstance(value, str) else json.dumps(value)), is_merge

    def merge(self, value: dict[str, Any], event: Any) -> None:
        """Add the keys of the mappings under ``<<``. A mapping's own keys win, then the first mapping that has a key."""
        named = value.pop("<<")
        for one in named if isinstance(named, list) else [named]:
            if not isinstance(one, dict):
                raise self.fail(event, "a merge key (<<) takes a mapping, or a list of mappings, before this place")
            for key, item in one.items():
                value.setdefault(key, item)

    def scalar(self, event: Any) -> Any:
        text, tag = event.value, event.tag
        if "\x00" in text:
            raise self.fail(event, "holds a NUL character, which no database takes; remove it")
        if tag == _CORE_TAG + "str" or tag == "!" or (tag is None and not event.implicit[0]):
            return text
        kind = _KINDS.get(tag.removeprefix(_CORE_TAG)) if tag else object
        if kind is None:
            raise self.fail(event, f"tag {tag} is not allowed; remove it")
        if len(text) > _MOST_DIGITS and _INT.match(text):
            raise self.fail(event, f"is a number of more than {_MOST_DIGITS} digits; shorten or quote it")
        value = _resolve(text)
        if tag is None:
            return value
        if isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool):
            return float(value) if tag.endswith("float") else value  # pyright: ignore[reportArgumentType]
        raise self.fail(event, f"{text!r} is no {tag.removeprefix(_CORE_TAG)}; correct the value or remove the tag")


def _events(text: str) -> Iterator[Any]:
    loader = _LOADER(text)
    try:
        while (event := loader.get_event()) is not None:
            yield event
    finally:
        loader.dispose()


def _place(event: Any) -> tuple[int, int]:
    mark = event.start_mark
    return mark.line + 1, mark.column + 1


def _resolve(text: str) -> Any:
    """Return a plain scalar by the core schema of YAML 1.2."""
    if text and text[0] not in "-+.0123456789ntfNTF~":
        return text
    if _NULL.match(text):
        return None
    if _BOOL.match(text):
        return text[0] in "tT"
    if _INT.match(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _FLOAT.match(text):
        return float(text)
    if special := _SPECIAL.match(text):
        is_nan = text[1:2].lower() == "n"
        return math.nan if is_nan else -math.inf if special["sign"] == "-" else math.inf
    return text


Model = TypeVar("Model", bound=BaseModel)

# Messages for values of the wrong kind, by the type of the pydantic error.
EXPECTED = {
    "string_type": "must be a string; quote it",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "finite_number": "must be a finite number",
    "missing": "is required",
}


def validate_document(model: type[Model], document: Document) -> Model:
    """Validate a document against a strict pydantic model; ``ConfigError``: all problems at once, each placed in the file."""
    try:
        return model.model_validate(document.data, strict=True)
    except ValidationError as error:
        raise ConfigError(model_problems(model, document, error)) from error


def model_problems(model: type[BaseModel], document: Document, error: ValidationError) -> list[Problem]:
    """Return the problems of a pydantic error, placed in the document."""
    problems = []
    for item in error.errors():
        location = item["loc"]
        name = ".".join(str(part) for part in item["loc"]) or "the file"
        if item["type"] == "extra_forbidden":
            hint = did_you_mean(str(item["loc"][-1]), names_at(model, item["loc"][:-1]))
            hint = hint or quotes_hint({item["loc"][-1]: item["input"] or ""})
            problems.append(document.problem(location, f"unknown key {item['loc'][-1]!r}{hint}", key=True))
            continue
        if item["type"] == "missing":
            problems.append(document.problem(location[:-1], f"{name} is required"))
            continue
        text = EXPECTED.get(item["type"]) or item["msg"].removeprefix("Value error, ")
        problems.append(document.problem(location, f"{name}: {text}{quotes_hint(item.get('input'))}"))
    return problems


def names_at(model: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    """Return the keys allowed at a location, aliases as they are written: walks the fields through lists and optional models."""
    current: Any = model
    for part in location:
        if isinstance(part, int):
            continue
        fields = getattr(current, "model_fields", {})
        found = next((info for name, info in fields.items() if part in (name, info.alias)), None)
        current = _model_in(found.annotation) if found else None
        if current is None:
            return []
    return [info.alias or name for name, info in current.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found:
            return found
    return None


_WIDTH = 120
# Text that only escapes keep as it is; text that YAML 1.2 reads as a number and PyYAML, which writes 1.1, leaves bare.
_ESCAPED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\t]")
_LIKE_A_NUMBER = re.compile(r"[-+.]?[0-9]")


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if _ESCAPED.search(text):
        style = '"'
    elif _LIKE_A_NUMBER.match(text):
        style = "'"
    elif "\n" in text and text.strip() == text:
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(data: Any) -> str:
    """Return data as YAML that is the same in versions 1.1 and 1.2."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
