"""``targets.yaml``: the targets a suite can name."""

import io
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dotenv import dotenv_values
from pydantic import ValidationError

from persona_pipeline.base.documents.yaml import parse_document
from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.suites.answering.base import OWN, Grants, TargetFields
from persona_pipeline.suites.format.files import FileError, Files, repository_root
from persona_pipeline.suites.format.loading.external_tests import check_numbers
from persona_pipeline.suites.format.problems import ConfigEntry, Reader, add_model_problems
from persona_pipeline.suites.targets.registry import TARGETS, find_provider, with_function

FILE_NAMES = ("targets.yaml", "targets.yml", ".agentv/targets.yaml", ".agentv/targets.yml")
_REFERENCE = re.compile(r"\$\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_KEYS = ("$schema", "targets")


@dataclass
class Targets:
    """The entries of a targets file. One is read and its variables are filled in when it is first asked for."""

    path: str
    entries: Mapping[str, ConfigEntry]
    environment: Mapping[str, str]
    grants: Grants = OWN
    _opened: dict[str, TargetFields] = field(default_factory=dict)
    _given: Mapping[str, TargetFields] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [*self.entries, *self._given]

    def runs_code(self, name: str) -> bool | None:
        """Return whether a target needs leave to run code, without opening it; None when there is none of that name."""
        if name not in self.names:
            return None
        model = self._model(name)
        return model is not None and model.runs_code

    def asks_network(self, name: str) -> bool:
        """Return whether a target needs leave to ask a server, without opening it."""
        model = self._model(name)
        return model is not None and model.asks_network and not self.grants.reaches

    def reads(self, name: str) -> list[str]:
        """Return the environment variables that a target's entry names and may not read, without opening it."""
        entry = self.entries.get(name)
        named = [] if entry is None else _REFERENCE.findall(json.dumps(entry.data, ensure_ascii=False, default=str))
        return [variable for variable in dict.fromkeys(named) if not self.grants.reads(variable)]

    def _model(self, name: str) -> type[TargetFields] | None:
        if name in self._given:
            return type(self._given[name])
        provider = self.entries[name].data.get("provider") if name in self.entries else None
        return find_provider(provider) if isinstance(provider, str) else None

    @classmethod
    def of(cls, given: "Callable[..., Any] | Mapping[str, Callable[..., Any]]") -> "Targets":
        """Return targets that are functions of the running program: one named default, or each by its name.

        Raises:
            ConfigError: one is no function.
        """
        from persona_pipeline.suites.targets.python import target_of

        functions = given if isinstance(given, Mapping) else {"default": given}
        return cls("", {}, {}, _given={name: target_of(function, name) for name, function in functions.items()})

    def close(self) -> None:
        """Let go of the connections that targets hold; a target that answers again connects again."""
        for target in (*self._opened.values(), *self._given.values()):
            target.close()

    def open(self, name: str) -> TargetFields:
        """Return a target ready to answer.

        Raises:
            ConfigError: there is none of that name, its entry is not valid, or a variable it refers to is not set.
        """
        if name in self._given:
            return self._given[name]
        if name not in self._opened:
            self._opened[name] = self._open(name)
        return self._opened[name]

    def filled(self, name: str) -> dict[str, Any]:
        """Return a target's keys with what the environment holds, as far as it may be read, without opening it."""
        entry = self.entries[name]
        return self._filled(with_function(entry.data), entry, name, (), Reader(Files(), Path(self.path).parent))

    def _open(self, name: str) -> TargetFields:
        if name not in self.entries:
            known = ", ".join(self.names) or "none"
            place = f" in {self.path}" if self.path else ""
            raise ConfigError(f"there is no target {name!r}{place}{did_you_mean(name, self.names)}; known: {known}")
        entry = self.entries[name]
        reader = Reader(Files(), Path(self.path).parent)
        label = f"target {name!r}"
        provider = entry.data.get("provider")
        model = find_provider(provider) if isinstance(provider, str) else None
        if model is None:
            hint = TARGETS.hint(str(provider))
            raise ConfigError(entry.problem(f"{label}: provider {provider!r} is unknown{hint}", "provider"))
        data = self._filled(with_function(entry.data), entry, label, (), reader)
        if reader.problems:
            raise ConfigError(reader.problems)
        try:
            target = model.model_validate(data)
        except ValidationError as error:
            add_model_problems(reader, entry, error, label, model)
            raise ConfigError(reader.problems) from error
        target._folder = Path(self.path).parent
        target._grants = self.grants
        opens = getattr(target, "open", None)
        if opens is not None:
            opens()
        return target

    def _filled(
        self, value: Any, entry: ConfigEntry, label: str, location: tuple[str | int, ...], reader: Reader
    ) -> Any:
        """Replace ``${{ NAME }}`` by what the environment holds, once."""
        if isinstance(value, dict):
            return {key: self._filled(item, entry, label, (*location, key), reader) for key, item in value.items()}
        if isinstance(value, list):
            return [self._filled(item, entry, label, (*location, index), reader) for index, item in enumerate(value)]
        if not isinstance(value, str) or "${{" not in value:
            return value
        for name in _REFERENCE.findall(value):
            if not self.grants.reads(name):
                reader.fail(
                    entry,
                    f"{label}: reads the environment variable {name}; pass --allow-env {name} if you trust the suite with it",
                    *location,
                )
            elif name not in self.environment:
                reader.fail(
                    entry,
                    f"{label}: the environment variable {name} is not set; export it or add it to .env",
                    *location,
                )
        readable = {name: text for name, text in self.environment.items() if self.grants.reads(name)}
        return _REFERENCE.sub(lambda match: readable.get(match[1], ""), value)


def find_targets_file(suite: Path) -> Path | None:
    """Return the nearest targets file: beside the suite, then in each folder above it up to the repository's top."""
    folder = suite.resolve().parent
    top = repository_root(folder) or folder
    for place in (folder, *folder.parents):
        for name in FILE_NAMES:
            if (place / name).is_file():
                return place / name
        if place == top:
            return None
    return None


def load_targets(path: Path | str, grants: Grants = OWN) -> Targets:
    """Read a targets file: ``targets: [{name, provider, ...}]``.

    Args:
        grants: what it may reach; by default it is the caller's own. For a file that was found beside a suite: ``grants_for``.

    Raises:
        ConfigError: it cannot be read, or is no list of targets with distinct names.
    """
    path = Path(path).absolute()
    files = Files()
    try:
        text = files.read(files.find(str(path), [path.parent]))
    except FileError as problem:
        raise ConfigError(problem.problem(path)) from problem
    document = parse_document(text, str(path))
    check_numbers(document.data, document)
    problems: list[Problem] = []
    data = document.data
    if not isinstance(data, dict) or not isinstance(data.get("targets"), list):
        raise ConfigError(document.problem((), "must be a mapping with targets, a list"))
    for key in data:
        if key not in _KEYS:
            problems.append(document.problem((key,), f"unknown key {key!r}{did_you_mean(key, _KEYS)}", key=True))
    entries: dict[str, ConfigEntry] = {}
    for index, item in enumerate(data["targets"]):
        entry = ConfigEntry(item, document, ("targets", index))
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str) or not name:
            problems.append(entry.problem(f"targets[{index}] must be a mapping with name and provider"))
        elif name in entries:
            problems.append(entry.problem(f"target {name!r} stands twice; rename one", "name"))
        else:
            entries[name] = entry
    if problems:
        raise ConfigError(problems)
    return Targets(str(path), entries, {**_dotenv(path.parent), **os.environ}, grants)


def _dotenv(folder: Path) -> dict[str, str]:
    """Variables of the ``.env`` files from the repository's top down to the folder; the nearer file wins. For references only."""

    top = repository_root(folder) or folder
    found: dict[str, str] = {}
    for place in reversed([place for place in (folder, *folder.parents) if place.is_relative_to(top)]):
        if (place / ".env").is_file():
            text = (place / ".env").read_text(encoding="utf-8", errors="replace")
            values = dotenv_values(stream=io.StringIO(text), interpolate=False)
            found |= {name: value for name, value in values.items() if value is not None}
    return found
