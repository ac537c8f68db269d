"""Prompts and templates of an eval file. A sandbox with a budget fills templates, because a stranger wrote them."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from jinja2 import StrictUndefined, nodes
from jinja2 import TemplateError as JinjaError
from jinja2.exceptions import SecurityError
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from persona_pipeline.suites.format.models import over_texts
from persona_pipeline.suites.format.tests import ROLES
from persona_pipeline.suites.format.text import stringify
from persona_pipeline.suites.importing.findings import PYDANTIC_EVALS, TABLES, FilePart, FileReference, listed

_WHOLE = re.compile(r"\{\{-?\s*(?:vars\.)?([A-Za-z_]\w*)\s*-?\}\}")
# Limits of a template: characters of its text, and steps of its loops times the size of the data.
MOST_CHARACTERS, MOST_WORK = 1_000_000, 1_000_000_000


class TemplateError(ValueError):
    """The template cannot be filled; the message has the reason."""


# Nodes that templates may have. Only loops can make text grow, and their steps are counted.
_NODES = (
    *(nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.Getattr, nodes.Getitem, nodes.Filter),
    *(nodes.If, nodes.CondExpr, nodes.For, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not),
    *(nodes.Test, nodes.Concat),
)
_FILTERS = (
    "capitalize", "default", "dump", "first", "float", "int", "join", "last", "length", "lower", "string", "title",
    "tojson", "trim", "upper",
)  # fmt: skip
# Attributes of ``loop``.
_OF_A_LOOP = ("index", "index0", "first", "last", "length")


class _Sandbox(ImmutableSandboxedEnvironment):
    """Fills one template within a budget, without functions, methods, or filters that make text grow."""

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined, finalize=_shown, keep_trailing_newline=True)
        self.left, self.cost = MOST_WORK, 0
        self.filters["dump"] = lambda value: json.dumps(value, ensure_ascii=False)
        self.filters = {name: self.filters[name] for name in _FILTERS} | {"_step": self.step}
        self.globals = {}

    def step(self, _: Any) -> str:
        """Count one step of a loop."""
        self.left -= self.cost
        if self.left < 0:
            raise SecurityError("its loops take too many steps")
        return ""

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, dict) and attribute in obj:
            return obj[attribute]
        if isinstance(obj, LoopContext) and attribute in _OF_A_LOOP:
            return getattr(obj, attribute)
        return self.undefined(obj=obj, name=attribute)

    def text(self, template: str, variables: Mapping[str, Any]) -> str:
        """Return the text of a template."""
        tree = self.parse(template)
        parts = [*tree.find_all(nodes.Node)]
        for node in parts:
            arguments = node.args if isinstance(node, nodes.Filter) else []
            if not isinstance(node, _NODES) or any(len(str(getattr(one, "value", ""))) > 100 for one in arguments):
                raise SecurityError(f"line {node.lineno}: {type(node).__name__.lower()} is not available")
        for loop in tree.find_all(nodes.For):
            # A call with a constant would be computed only once.
            loop.body.insert(0, nodes.Output([nodes.Filter(nodes.Name("vars", "load"), "_step", [], [], None, None)]))
        self.cost = len(parts) * len(json.dumps(variables, default=str))
        tree.set_environment(self)
        made, size = [], 0
        for piece in self.from_string(tree).generate({**variables, "vars": dict(variables)}):
            made.append(piece)
            size += len(piece)
            if size > MOST_CHARACTERS:
                raise SecurityError(f"it becomes longer than {MOST_CHARACTERS:,} characters")
        return "".join(made)


def _shown(value: Any) -> Any:
    return "" if value is None else plain(value) if isinstance(value, dict | list | float | bool) else value


def plain(value: Any) -> str:
    """Return text unchanged and data as JSON."""
    return value if isinstance(value, str) else stringify(value)


def fill(value: Any, variables: Mapping[str, Any]) -> Any:
    """Fill every template in a value; a template that is only a variable becomes its value."""
    return over_texts(value, lambda text: _fill(text, variables))


def alone_in(value: Any) -> list[str]:
    """Return the variables that are the only content of a template."""
    return [name for text in listed(value) if isinstance(text, str) for name in _WHOLE.findall(text)]


def _fill(template: str, variables: Mapping[str, Any]) -> Any:
    if not any(sign in template for sign in ("{{", "{%", "{#")):
        return template
    only = _WHOLE.fullmatch(template.strip())
    if only and isinstance(variables.get(only[1]), dict | list):
        return variables[only[1]]
    try:
        return _Sandbox().text(template, variables)
    except (JinjaError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError) as error:
        raise TemplateError(f"{str(error).splitlines()[0] if str(error) else type(error).__name__}") from error


def filled(part: FilePart, value: Any, variables: Mapping[str, Any], *keys: str | int) -> Any:
    """Fill the templates in a value; None, with a finding, if that fails. pydantic-evals has no templates."""
    if part.findings.origin == PYDANTIC_EVALS:
        return value
    try:
        made = fill(value, variables)
    except TemplateError as problem:
        return part.none(f"the template ({problem})", *keys)
    part.findings.spend("characters", len(made) if isinstance(made, str) else 1, part)
    return made


def known_variables(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fill templates in variables from the other variables, as far as possible."""
    found = dict(given)
    for name, value in given.items():
        try:
            found[name] = fill(value, {key: item for key, item in given.items() if key != name})
        except TemplateError:
            # The text may only look like a template.
            found[name] = value
    return found


_TEXT = (".txt", ".md", ".j2", ".jinja", ".jinja2", ".prompt", ".njk")
_DATA = (".json", ".yaml", ".yml")
_PROGRAM = re.compile(r"exec:.+|\w+://\S+|\S+\.(js|cjs|mjs|ts|py|rb|sh|bash|pl|csv)(:\w+)?")
_BETWEEN = re.compile(r"^---\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Prompt:
    """One prompt: a template, or messages with templates. ``names``: its names in providers and tests."""

    content: Any
    part: FilePart
    names: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.names[0] if self.names else ""


def read_prompts(part: FilePart) -> list[Prompt]:
    """Return the prompts of a file, by default ``{{ prompt }}``; programs are reported and left out."""
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


def _of_file(part: FilePart, file: FileReference, names: tuple[str, ...]) -> Iterator[Prompt]:
    content = file.read()
    if content is None:
        return
    if file.path.suffix in _DATA:
        # A template may be valid JSON or YAML only after it is filled.
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
    """Return the messages in a JSON text, else the text."""
    if text.lstrip()[:1] != "[":
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    is_chat = isinstance(value, list) and all(isinstance(item, dict) and "role" in item for item in value)
    return value if is_chat else text


def asked(prompt: Prompt, variables: Mapping[str, Any], around: tuple[str, str] = ("", "")) -> Any:
    """Return a test's ``input``: the filled prompt as text or messages. ``around``: prefix and suffix.

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
    """Return messages in the suite's form; parts that are not text are reported and left out."""
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
    """Return the prompts that a provider or a test names, by label or its beginning; without names, all."""
    names = [name.removesuffix("*").removesuffix(":") for name in listed(wanted) if isinstance(name, str)]
    if not names:
        return prompts
    return [
        prompt
        for prompt in prompts
        if any(own == name or own.startswith(f"{name}:") for own in prompt.names for name in names)
    ]
