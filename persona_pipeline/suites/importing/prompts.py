"""Prompts of an eval file, and its templates, which a sandbox fills within a budget: a stranger's may loop, repeat and pad."""

import functools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from jinja2 import StrictUndefined, nodes
from jinja2 import TemplateError as JinjaError
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from persona_pipeline.suites.format.loading.messages import ROLES
from persona_pipeline.suites.format.models import over_texts
from persona_pipeline.suites.format.text import stringify
from persona_pipeline.suites.importing.findings import PYDANTIC_EVALS, TABLES, FilePart, Reference, listed

_WHOLE = re.compile(r"\{\{-?\s*(?:vars\.)?([A-Za-z_]\w*)\s*-?\}\}")
# Of one template: characters of its text; steps and characters on the way; how large one call may make a value.
MOST_CHARACTERS, MOST_STEPS, MOST_OF_A_CALL = 1_000_000, 3_000_000, 20_000_000
# Texts that they are given say how long the result is, where no budget sees it.
_REFUSED = ("format", "format_map")


class TemplateError(ValueError):
    """The template cannot be filled; the message says why."""


# Blocks that run where nothing is counted. A macro calls itself; the others collect text.
_UNBOUNDED = (nodes.Macro, nodes.CallBlock, nodes.FilterBlock, nodes.AssignBlock, nodes.With)
# Nodes whose values are counted, because they take time or make larger ones.
_GROWING = (nodes.Assign, nodes.Test, nodes.Compare, nodes.Operand, nodes.Concat)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Fills one template within a budget of steps and characters."""

    intercepted_binops = frozenset(["*", "**", "%", "+"])

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined, finalize=self.shown, keep_trailing_newline=True)
        self.left = MOST_STEPS
        kept = {name: one for name, one in self.filters.items() if name not in _REFUSED}
        kept["dump"] = lambda value: json.dumps(value, ensure_ascii=False)
        self.filters = {name: self.counted(one) for name, one in kept.items()}
        self.filters |= {"_sized": self.sized, "_looped": self.looped}
        self.globals = {"range": self.globals["range"]}

    def sized(self, value: Any) -> Any:
        """Spend the values and characters that a value holds, and return it."""
        waiting = [value]
        while waiting:
            one = waiting.pop()
            self.left -= 1 + (len(one) if isinstance(one, str | range) else 0)
            if self.left < 0:
                raise SecurityError(f"it takes more than {MOST_STEPS:,} steps or characters")
            waiting += one.values() if isinstance(one, dict) else one if isinstance(one, list | tuple) else ()
        return value

    def looped(self, values: Any, cost: int) -> Any:
        """Spend a loop: for each value its body."""
        values = values if isinstance(values, list | dict | tuple | range | str) else list(values)
        self.left -= len(values) * cost
        return self.sized(values)

    def before(self, given: list[Any]) -> None:
        """Refuse a call whose result could be too large: a number is a width or a count, and sizes multiply."""
        sizes: list[float] = []
        for one in given:
            before = self.left
            self.sized(one)
            sizes.append(1 + abs(one) if isinstance(one, int | float) else before - self.left)
        if math.prod(sizes) > MOST_OF_A_CALL:
            raise SecurityError("it makes a value that is too large")

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def count(*args: Any, **kwargs: Any) -> Any:
            self.before([*args, *kwargs.values()])
            return self.sized(function(*args, **kwargs))

        return count

    def call(self, context: Any, function: Any, *args: Any, **kwargs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        widths = [] if function is self.globals["range"] else [*args, *kwargs.values()]
        self.before([getattr(function, "__self__", 0), *widths])
        return self.sized(super().call(context, function, *args, **kwargs))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        numbers = all(isinstance(value, int | float) and abs(value) < MOST_CHARACTERS for value in (left, right))
        if (operator != "+" and not numbers) or (operator == "**" and abs(right) > 100):
            raise SecurityError(f"{operator} is for numbers")
        return super().call_binop(context, operator, self.sized(left), self.sized(right))

    def getattr(self, obj: Any, attribute: str) -> Any:
        # A key comes before a method.
        if attribute in _REFUSED and not isinstance(obj, dict):
            raise SecurityError(f"{attribute} is not available")
        return super().getitem(obj, attribute) if isinstance(obj, dict) else super().getattr(obj, attribute)

    def shown(self, value: Any) -> Any:
        self.sized(value)
        return "" if value is None else plain(value) if isinstance(value, dict | list | float | bool) else value

    def filled(self, template: str, variables: Mapping[str, Any]) -> str:
        """Return the text of a template, every part of it that can grow counted."""
        tree = self.parse(template)
        for node in tree.find_all(_UNBOUNDED):
            raise SecurityError(f"line {node.lineno}: {type(node).__name__.lower()} is not available")
        for loop in tree.find_all(nodes.For):
            inside = loop.find_all((nodes.Node,))
            cost = sum(1 + len(str(getattr(one, "data", getattr(one, "value", "")))) for one in inside)
            loop.iter = nodes.Filter(loop.iter, "_looped", [nodes.Const(cost)], [], None, None)
        slices = [one for one in tree.find_all(nodes.Getitem) if isinstance(one.arg, nodes.Slice)]
        for node in [*tree.find_all(_GROWING), *slices]:
            for name, value in [*node.iter_fields(only=("node", "nodes", "expr"))]:
                setattr(node, name, [*map(_counted, value)] if isinstance(value, list) else _counted(value))
        tree.set_environment(self)
        return self.from_string(tree).render({**variables, "vars": dict(variables)})


def _counted(node: Any) -> nodes.Expr:
    return nodes.Filter(node, "_sized", [], [], None, None)


def plain(value: Any) -> str:
    """Return a text as it is, and data as JSON."""
    return value if isinstance(value, str) else stringify(value)


def fill(value: Any, variables: Mapping[str, Any]) -> Any:
    """Return a value with every template in it filled; one that is a variable and nothing else becomes the thing itself."""
    return over_texts(value, lambda text: _fill(text, variables))


def alone_in(value: Any) -> list[str]:
    """Return the variables that stand alone in the templates of a text or of several."""
    return [name for text in listed(value) if isinstance(text, str) for name in _WHOLE.findall(text)]


def _fill(template: str, variables: Mapping[str, Any]) -> Any:
    if not any(sign in template for sign in ("{{", "{%", "{#")):
        return template
    only = _WHOLE.fullmatch(template.strip())
    if only and isinstance(variables.get(only[1]), dict | list):
        return variables[only[1]]
    try:
        text = _Sandbox().filled(template, variables)
    except (JinjaError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError) as error:
        raise TemplateError(f"{str(error).splitlines()[0] if str(error) else type(error).__name__}") from error
    if len(text) > MOST_CHARACTERS:
        raise TemplateError(f"becomes longer than {MOST_CHARACTERS:,} characters")
    return text


def filled(part: FilePart, value: Any, variables: Mapping[str, Any], *keys: str | int) -> Any:
    """Return a value with its templates filled; None, and a finding, where one cannot be. pydantic-evals has none."""
    if part.findings.origin == PYDANTIC_EVALS:
        return value
    try:
        made = fill(value, variables)
    except TemplateError as problem:
        return part.none(f"the template ({problem})", *keys)
    part.findings.spend("characters", len(made) if isinstance(made, str) else 1, part)
    return made


def known_variables(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return variables with templates in them filled from the others, as far as that goes."""
    found = dict(given)
    for name, value in given.items():
        try:
            found[name] = fill(value, {key: item for key, item in given.items() if key != name})
        except TemplateError:
            # Text that looks like a template may be meant so.
            found[name] = value
    return found


_TEXT = (".txt", ".md", ".j2", ".jinja", ".jinja2", ".prompt", ".njk")
_DATA = (".json", ".yaml", ".yml")
_PROGRAM = re.compile(r"exec:.+|\w+://\S+|\S+\.(js|cjs|mjs|ts|py|rb|sh|bash|pl|csv)(:\w+)?")
_BETWEEN = re.compile(r"^---\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Prompt:
    """One prompt: a template, or messages with templates in them. ``names``: what providers and tests may call it."""

    content: Any
    part: FilePart
    names: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.names[0] if self.names else ""


def read_prompts(part: FilePart) -> list[Prompt]:
    """Return the prompts of a file, ``{{ prompt }}`` where it has none; those that are programs are named and left out."""
    if "prompts" not in part.data:
        return [Prompt("{{ prompt }}" if part.findings.promptfoo else "{{ input }}", part)]
    return [prompt for place in part.each("prompts", "prompt key {}") for prompt in _read(place)]


def _read(part: FilePart) -> Iterator[Prompt]:
    value, names = part.data, ()
    if isinstance(value, dict):
        value = part.take("prompt", "raw", "id", "path")
        names = tuple(name for key in ("label", "id") if (name := part.text(key)))
        if value is None:
            return part.dropped("a prompt without text")
    if isinstance(value, list):
        yield Prompt(value, part, names)
    elif isinstance(value, str):
        yield from _of_text(part, value, names)
    else:
        part.dropped("a prompt that is no text")


def _of_text(part: FilePart, text: str, names: tuple[str, ...]) -> Iterator[Prompt]:
    reference = text.removeprefix("file://")
    single = "\n" not in text and len(text) < 500
    if single and _PROGRAM.fullmatch(reference):
        return part.none(f"prompt {text}", remedy="write out what it makes")
    ending = PurePosixPath(text).suffix if single else ""
    if not text.startswith("file://") and not (ending in (*_TEXT, *_DATA) and " " not in text):
        yield Prompt(_chat(text), part, names)
        return
    files = part.file(text).all()
    if files == []:
        part.warn(f"{reference!r} matches no prompt")
    for file in files or ():
        yield from _of_file(part, file, (*(names or (file.path.stem,)), text))


def _of_file(part: FilePart, file: Reference, names: tuple[str, ...]) -> Iterator[Prompt]:
    content = file.read()
    if content is None:
        return
    if file.path.suffix in _DATA:
        # A template need not be data before it is filled.
        template = content if "{%" in content or "{{" in content else None
        read = file.document(quiet=template is not None)
        data = template if read is None else read.data
        if data is not None:
            yield Prompt(_chat(data) if isinstance(data, str) else data, part, names)
        return
    parts = [one.strip("\n") for one in _BETWEEN.split(content) if one.strip()]
    for number, one in enumerate(parts, start=1):
        name = names[0] if len(parts) == 1 else f"{names[0]}-{number}"
        yield Prompt(_chat(one), part, (name, *names))


def _chat(text: str) -> Any:
    """Return the messages a text is the JSON of, else the text."""
    if text.lstrip()[:1] != "[":
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    is_chat = isinstance(value, list) and all(isinstance(item, dict) and "role" in item for item in value)
    return value if is_chat else text


def asked(prompt: Prompt, variables: Mapping[str, Any], around: tuple[str, str] = ("", "")) -> Any:
    """Return a test's ``input``: the prompt filled, as text or messages. ``around``: what is before and after it.

    Raises ``TemplateError``: the prompt cannot be filled.
    """
    filled = fill(prompt.content, variables)
    if isinstance(filled, str):
        prompt.part.findings.spend("characters", len(filled), prompt.part)
        filled = _chat(f"{around[0]}{filled}{around[1]}") if any(around) else _chat(filled)
    elif any(around):
        prompt.part.none("prefix and suffix around messages")
    if isinstance(filled, list):
        return messages(prompt.part, filled)
    return filled if isinstance(filled, str) else json.dumps(filled, ensure_ascii=False)


def messages(part: FilePart, given: list[Any]) -> list[dict[str, Any]]:
    """Return messages as a suite has them; parts that are no text are named and left out."""
    found = []
    for message in given:
        role = message.get("role") if isinstance(message, dict) else None
        role = TABLES["roles"].get(str(role), role)
        if role not in ROLES:
            part.none(f"a message of role {role}")
            continue
        content = message.get("content")
        made = {"role": role, "content": _parts(part, content) if isinstance(content, list) else content}
        found.append(made | {key: message[key] for key in ("name", "tool_calls") if key in message})
        for key in sorted(message.keys() - {"role", "content", "name", "tool_calls"}):
            part.none(f"{key} of a message")
    return found


def _parts(part: FilePart, given: list[Any]) -> list[dict[str, Any]]:
    found = []
    for one in given:
        kind = one.get("type") if isinstance(one, dict) else None
        if kind == "text":
            found.append({"type": "text", "value": str(one.get("value", one.get("text", "")))})
        elif kind == "file" and isinstance(one.get("value"), str):
            path = part.file(one["value"]).written()
            found += [{"type": "file", "value": path}] if path else []
        else:
            part.none(f"a part of type {kind} in a message")
    return found


def named(prompts: list[Prompt], wanted: Any) -> list[Prompt]:
    """Return the prompts that a provider or a test names, by label or the beginning of one; all where it names none."""
    names = [name.removesuffix("*").removesuffix(":") for name in listed(wanted) if isinstance(name, str)]
    if not names:
        return prompts
    return [
        prompt
        for prompt in prompts
        if any(own == name or own.startswith(f"{name}:") for own in prompt.names for name in names)
    ]
