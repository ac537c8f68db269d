"""Prompts of an eval file, inline and in files, and what a test asks once they are filled."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from persona_pipeline.suites.format.loading.messages import ROLES
from persona_pipeline.suites.importing.findings import Part, Reference, listed
from persona_pipeline.suites.importing.templates import fill

_TEXT = (".txt", ".md", ".j2", ".jinja", ".jinja2", ".prompt", ".njk")
_DATA = (".json", ".yaml", ".yml")
_OTHER_ROLES = {"developer": "system", "function": "tool", "model": "assistant", "human": "user", "ai": "assistant"}
_PROGRAM = re.compile(r"exec:.+|\w+://\S+|\S+\.(js|cjs|mjs|ts|py|rb|sh|bash|pl|csv)(:\w+)?")
_BETWEEN = re.compile(r"^---\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Prompt:
    """One prompt: a template, or messages with templates in them. ``names``: what providers and tests may call it."""

    content: Any
    part: Part
    names: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.names[0] if self.names else ""


def read_prompts(part: Part) -> list[Prompt]:
    """Return the prompts of a file, ``{{ prompt }}`` where it has none; those that are programs are named and left out."""
    if "prompts" not in part.data:
        return [Prompt("{{ prompt }}" if part.findings.promptfoo else "{{ input }}", part)]
    return [prompt for place in part.each("prompts", "prompt key {}") for prompt in _read(place)]


def _read(part: Part) -> Iterator[Prompt]:
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


def _of_text(part: Part, text: str, names: tuple[str, ...]) -> Iterator[Prompt]:
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


def _of_file(part: Part, file: Reference, names: tuple[str, ...]) -> Iterator[Prompt]:
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


def messages(part: Part, given: list[Any]) -> list[dict[str, Any]]:
    """Return messages as a suite has them; parts that are no text are named and left out."""
    found = []
    for message in given:
        role = message.get("role") if isinstance(message, dict) else None
        role = _OTHER_ROLES.get(str(role), role)
        if role not in ROLES:
            part.none(f"a message of role {role}")
            continue
        content = message.get("content")
        made = {"role": role, "content": _parts(part, content) if isinstance(content, list) else content}
        found.append(made | {key: message[key] for key in ("name", "tool_calls") if key in message})
        for key in sorted(message.keys() - {"role", "content", "name", "tool_calls"}):
            part.none(f"{key} of a message")
    return found


def _parts(part: Part, given: list[Any]) -> list[dict[str, Any]]:
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
