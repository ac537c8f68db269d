"""Prompts of an eval file, inline and in files, and what a test asks once they are filled."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites.format.javascript import stringify
from persona_pipeline.suites.format.loading.messages import ROLES
from persona_pipeline.suites.format.models import over_texts
from persona_pipeline.suites.format.problems import ConfigEntry
from persona_pipeline.suites.importing.findings import PYDANTIC_EVALS, Findings, children, first_of, listed, whole

_WHOLE = re.compile(r"\{\{-?\s*(?:vars\.)?([A-Za-z_]\w*)\s*-?\}\}")
MOST_CHARACTERS = 1_000_000


class TemplateError(ValueError):
    """The template cannot be filled; the message says why."""


@lru_cache(maxsize=1)
def _environment() -> Any:
    from jinja2 import StrictUndefined
    from jinja2.exceptions import SecurityError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Environment(ImmutableSandboxedEnvironment):
        # A template may not make large values out of small ones.
        intercepted_binops = frozenset(["*", "**"])

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if not all(isinstance(value, int | float) and abs(value) < MOST_CHARACTERS for value in (left, right)):
                raise SecurityError(f"{operator} is for numbers")
            return super().call_binop(context, operator, left, right)

        def getattr(self, obj: Any, attribute: str) -> Any:
            # A key comes before a method, and lengths are properties.
            if isinstance(obj, str | list) and attribute == "length":
                return len(obj)
            return super().getitem(obj, attribute) if isinstance(obj, dict) else super().getattr(obj, attribute)

    made = Environment(undefined=StrictUndefined, finalize=_shown, keep_trailing_newline=True)
    made.filters["dump"] = lambda value: json.dumps(value, ensure_ascii=False)
    return made


def _shown(value: Any) -> Any:
    return "" if value is None else stringify(value) if isinstance(value, dict | list | float | bool) else value


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
    from jinja2 import TemplateError as JinjaError

    try:
        text = _environment().from_string(template).render({**variables, "vars": dict(variables)})
    except (JinjaError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise TemplateError(f"{str(error).splitlines()[0] if str(error) else type(error).__name__}") from error
    if len(text) > MOST_CHARACTERS:
        raise TemplateError(f"becomes longer than {MOST_CHARACTERS:,} characters")
    return text


def filled(findings: Findings, entry: ConfigEntry, value: Any, variables: Mapping[str, Any], *keys: str) -> Any:
    """Return a value with its templates filled; None, and a finding, where one cannot be. pydantic-evals has none."""
    try:
        return value if findings.origin == PYDANTIC_EVALS else fill(value, variables)
    except TemplateError as problem:
        findings.none(entry, f"the template ({problem})", *keys)
        return None


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
_OTHER_ROLES = {"developer": "system", "function": "tool", "model": "assistant", "human": "user", "ai": "assistant"}
_PROGRAM = re.compile(r"exec:.+|\w+://\S+|\S+\.(js|cjs|mjs|ts|py|rb|sh|bash|pl|csv)(:\w+)?")
_BETWEEN = re.compile(r"^---\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Prompt:
    """One prompt: a template, or messages with templates in them. ``names``: what providers and tests may call it."""

    content: Any
    entry: ConfigEntry
    names: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.names[0] if self.names else ""


def read_prompts(findings: Findings, entry: ConfigEntry) -> list[Prompt]:
    """Return the prompts of a file, ``{{ prompt }}`` where it has none; those that are programs are named and left out."""
    if "prompts" not in entry.data:
        return [Prompt("{{ prompt }}" if findings.promptfoo else "{{ input }}", entry)]
    return [prompt for place in children(entry, "prompts") for prompt in _read(findings, place)]


def _read(findings: Findings, entry: ConfigEntry) -> Iterator[Prompt]:
    value, names = entry.data, ()
    if isinstance(value, dict):
        key = first_of(value, "prompt", "raw", "id", "path")
        names = tuple(value[name] for name in ("label", "id") if isinstance(value.get(name), str))
        findings.leftovers(entry, ("prompt", "raw", "id", "path", "label"), "prompt key ")
        if key is None:
            return findings.none(entry, "a prompt without text")
        value = value[key]
    if isinstance(value, list):
        yield Prompt(value, entry, names)
    elif isinstance(value, str):
        yield from _of_text(findings, entry, value, names)
    else:
        findings.none(entry, "a prompt that is no text")


def _of_text(findings: Findings, entry: ConfigEntry, text: str, names: tuple[str, ...]) -> Iterator[Prompt]:
    reference = text.removeprefix("file://")
    single = "\n" not in text and len(text) < 500
    if single and _PROGRAM.fullmatch(reference):
        return findings.none(entry, f"prompt {text}", remedy="write out what it makes")
    if not text.startswith("file://") and not (single and Path(text).suffix in (*_TEXT, *_DATA) and " " not in text):
        yield Prompt(_chat(text), entry, names)
        return
    before = len(findings.reader.warnings)
    paths = findings.paths(entry, reference)
    if not paths and len(findings.reader.warnings) == before:
        findings.reader.warn(entry, f"{reference!r} matches no prompt")
    for path in paths:
        content = findings.text(entry, str(path))
        if content is None:
            continue
        names_here = names or (path.stem,)
        if path.suffix in _DATA:
            # A template need not be data before it is filled.
            template = "{%" in content or "{{" in content
            try:
                data = whole(content, path).data
            except ConfigError as error:
                findings.reader.warnings += [] if template else error.problems
                data = content if template else None
            if data is not None:
                yield Prompt(_chat(data) if isinstance(data, str) else data, entry, (*names_here, text))
            continue
        parts = [part.strip("\n") for part in _BETWEEN.split(content) if part.strip()]
        for number, part in enumerate(parts, start=1):
            name = names_here[0] if len(parts) == 1 else f"{names_here[0]}-{number}"
            yield Prompt(_chat(part), entry, (name, *names_here, text))


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


def asked(findings: Findings, prompt: Prompt, variables: Mapping[str, Any], around: tuple[str, str] = ("", "")) -> Any:
    """Return a test's ``input``: the prompt filled, as text or messages. ``around``: what stands before and after it."""
    filled = fill(prompt.content, variables)
    if isinstance(filled, str):
        filled = _chat(f"{around[0]}{filled}{around[1]}") if any(around) else _chat(filled)
    elif any(around):
        findings.none(prompt.entry, "prefix and suffix around messages")
    if isinstance(filled, list):
        return messages(findings, prompt.entry, filled)
    return filled if isinstance(filled, str) else json.dumps(filled, ensure_ascii=False)


def messages(findings: Findings, entry: ConfigEntry, given: list[Any]) -> list[dict[str, Any]]:
    """Return messages as a suite has them; parts that are no text are named and left out."""
    found = []
    for message in given:
        role = message.get("role") if isinstance(message, dict) else None
        role = _OTHER_ROLES.get(str(role), role)
        if role not in ROLES:
            findings.none(entry, f"a message of role {role}")
            continue
        content = message.get("content")
        made = {"role": role, "content": _parts(findings, entry, content) if isinstance(content, list) else content}
        found.append(made | {key: message[key] for key in ("name", "tool_calls") if key in message})
    return found


def _parts(findings: Findings, entry: ConfigEntry, parts: list[Any]) -> list[dict[str, Any]]:
    found = []
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            found.append({"type": "text", "value": str(part.get("value", part.get("text", "")))})
        elif kind == "file" and isinstance(part.get("value"), str):
            found.append({"type": "file", "value": findings.relocated(entry, part["value"])})
        else:
            findings.none(entry, f"a part of type {kind} in a message")
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
