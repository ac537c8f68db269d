"""Providers as targets, and how an eval file is run: repetitions, caching, workspaces and hooks.

The first word of a provider's id selects its rule. An id without a rule is a finding.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from persona_pipeline.base.documents.yaml import Location
from persona_pipeline.suites.format.models import HOOKS, STRATEGIES, ExecutionFields, apart, over_texts, present
from persona_pipeline.suites.format.problems import ConfigEntry, Reader
from persona_pipeline.suites.importing.findings import TABLES, FilePart, listed
from persona_pipeline.suites.targets.registry import find_provider

_TABLE = TABLES["providers"]
# Providers by the first word of an id, and words that choose an API.
_MODELS: dict[str, str] = _TABLE["models"]
_WAYS: dict[str, list[str]] = _TABLE["ways"]
_NO_MODEL = re.compile(_TABLE["no_models"])
_ENVIRONMENT = re.compile(r"\{\{\s*(?:env\.|process\.env\.)(\w+)\s*\}\}|\$\{\{\s*(?:env\.)?(\w+)\s*\}\}")
_ANSWER = re.compile(r"json((?:\??\.[A-Za-z_]\w*|\??\.?\[\d+\]|\[['\"][^'\"]+['\"]\])*)")
_REMEDY = "answer with a target of another kind, or grade recorded answers"
_HTTP = {"GET", "POST", "PUT", "PATCH"}
PROVIDER = "provider key {}"
_SIMULATED_USER, _MOST_ALIASES = "promptfoo:simulated-user", 10


@dataclass
class ConvertedProvider:
    """One provider: its target (None: no counterpart), its other names, and its prompts."""

    name: str
    target: dict[str, Any] | None
    names: tuple[str, ...] = ()
    prompts: Any = None


@dataclass
class Providers:
    """Providers of a file, those that it asks, and those of single tests by their place."""

    found: list[ConvertedProvider] = field(default_factory=list)
    asked: list[ConvertedProvider] = field(default_factory=list)
    own: dict[tuple[int, Location], list[ConvertedProvider]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    @property
    def default(self) -> list[ConvertedProvider]:
        """The providers of a test without its own."""
        return self.asked or self.found

    @property
    def targets(self) -> list[dict[str, Any]]:
        brought = [one for found in self.own.values() for one in found]
        return [one.target for one in [*self.found, *brought] if one.target is not None]

    def read(self, parts: Sequence[FilePart]) -> list[ConvertedProvider]:
        """Return the providers that these parts describe or name; providers without a counterpart are reported."""
        found = [one for part in parts for one in _read(part, _MOST_ALIASES)]
        for provider in found:
            provider.name = apart(provider.name, self.taken)
            if provider.target is not None:
                provider.target["name"] = provider.name
        return found

    def of_test(self, layers: Sequence[FilePart]) -> list[ConvertedProvider] | None:
        """Return the providers of a test, by default all of the file; None, with a finding: a user is simulated."""
        found = [layer.each("provider", "providers", label=PROVIDER) for layer in layers]
        if (execution := layers[0].inner("execution", "execution.{}")) is not None:
            found.append(execution.each("targets", "target", label=PROVIDER))
        nearest = next(filter(None, found), [])
        for part in nearest:
            if _SIMULATED_USER in (part.data, part.first("id") and part.data["id"]):
                return part.dropped("promptfoo's simulated user", "write the test as a conversation with user")
        return [one for part in nearest for one in self.of(part)] if nearest else self.default

    def of(self, part: FilePart) -> list[ConvertedProvider]:
        """Return the file's providers that a part names, else those that it describes."""
        known = [*self.found, *self.asked] if isinstance(part.data, str) else []
        named = [one for one in known if part.data in one.names]
        key = (id(part.entry.source), part.entry.location)
        if not named and key not in self.own:
            self.own[key] = self.read([part])
        return named or self.own[key]


def _read(part: FilePart, left: int) -> Iterator[ConvertedProvider]:
    """Yield the providers of a part. ``left``: number of names and files it may still follow."""
    findings, value = part.findings, part.data
    findings.spend("files", 1, part)
    if left < 1:
        return part.none("a provider that refers to itself")
    if isinstance(value, str) and not value.strip():
        return part.none("a provider without id")
    if isinstance(value, dict) and len(value) == 1 and not part.first("id", "provider", "use_target"):
        # {"openai:gpt-4o": {config: ...}}
        value = next(iter(value))
        part = part.inner(value, PROVIDER) or part.made({})
    elif isinstance(value, str) and value.startswith("file://") and value.endswith((".yaml", ".yml", ".json")):
        read = part.file(value).document(PROVIDER)
        for place in read.items(PROVIDER) if read is not None else ():
            yield from _read(place, left - 1)
        return
    elif isinstance(value, str) and not findings.promptfoo and ":" not in value and value not in ("echo", "mock"):
        yield from _named(part, value, left)
        return
    if (alias := part.text("use_target")) is not None:
        shown = str(part.take("label", "name", "id") or alias)
        for one in _named(part, alias, left):
            yield ConvertedProvider(_name(shown), one.target, (_name(shown), shown), one.prompts)
        return
    # In AgentV the id is the target's name if ``provider`` is given.
    backend, identity = part.take("provider"), part.take("id")
    spec = backend if backend is not None else identity if identity is not None else value
    if not isinstance(spec, str) or not spec:
        return part.dropped("a provider without id")
    shown = str(part.take("label", "name") or identity or spec)
    config, prompts, workers = _config(part, spec), part.take("prompts"), part.number("workers")
    if part.first("runtime") and part.data["runtime"] == "host":
        part.take("runtime")
    rule = _RULES.get(spec.partition(":")[0])
    target = rule(part, config, spec) if rule else part.none(f"provider {spec}", remedy=_REMEDY)
    name = _name(shown)
    if target is not None:
        # Targets spell references to the environment differently.
        written = over_texts(target, partial(_ENVIRONMENT.sub, lambda match: f"${{{{ {match[1] or match[2]} }}}}"))
        target = _checked(part, {"name": name, **written} | ({"workers": workers} if workers else {}))
    else:
        # One finding covers the whole provider.
        for one in (part, config):
            one.used.update(one.data if isinstance(one.data, dict) else ())
    yield ConvertedProvider(name, target, (name, shown, spec), prompts)


def _config(part: FilePart, spec: str) -> FilePart:
    """Return the settings of a provider. In AgentV's targets file they are next to the name."""
    label = f"{{}} of provider {spec}"
    if not part.findings.promptfoo and part.first("config") is None:
        part.label = label
        return part
    return part.inner("config", label) or part.made({})


def _named(part: FilePart, name: str, left: int) -> Iterator[ConvertedProvider]:
    """Yield the target of this name in the nearest AgentV targets file."""
    place = None if _ENVIRONMENT.search(name) else _described(part, name)
    if place is not None:
        yield from _read(place, left - 1)
        return
    part.warn(f"target {name} is not described here; describe it in targets.yaml")
    yield ConvertedProvider(name, None, (name,))


def _described(part: FilePart, name: str) -> FilePart | None:
    for file in part.file(".agentv").above("targets.yaml", "providers.yaml"):
        read = file.document()
        if read is not None and isinstance(read.data, dict):
            read = read.child(key, label=PROVIDER) if (key := read.first("targets", "providers")) else None
        for index, one in enumerate(read.data) if read is not None and isinstance(read.data, list) else ():
            if isinstance(one, dict) and name in map(one.get, ("label", "name", "id")):
                return read and read.child(index, label=PROVIDER)
        return None
    return None


def _name(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text.removeprefix("file://")).strip("-.") or "target"


def _checked(part: FilePart, target: dict[str, Any]) -> dict[str, Any] | None:
    """Return a target if it is valid in a targets file; otherwise its problems are findings."""
    model, label = find_provider(target["provider"]), f"provider {target['name']!r}"
    assert model is not None, target["provider"]
    held = part.valid(target, lambda reader, entry: reader.validated(model, target, entry.named(label)))
    return target if held else None


def _model(part: FilePart, config: FilePart, spec: str) -> dict[str, Any] | None:
    kind, *words = spec.split(":")
    provider, ways = _MODELS[kind], _WAYS.get(kind, _WAYS["others"])
    free = kind in _TABLE["with_colons"]
    how = words.pop(0) if words and (words[0] in ways or (len(words) > 1 and not free)) else "chat"
    model = ":".join(words) or config.text("model", "deployment")
    if model and _NO_MODEL.fullmatch(model if how in ways else how):
        return part.none(f"provider {spec}", remedy=f"it is no model that answers with text; {_REMEDY}")
    if how not in ways or not model or (provider in ("bedrock", "vertex") and "claude" not in model):
        return part.none(f"provider {spec}", remedy=_REMEDY)
    url, key_name = _TABLE["servers"].get(kind, (None, None))
    target: dict[str, Any] = {"provider": provider, "model": model} | ({"api": how} if how == "responses" else {})
    given = config.text("apiBaseUrl", "apiHost", "baseUrl", "base_url", *(["endpoint"] if provider == "azure" else []))
    if given or url:
        target["base_url"] = (given if "://" in given else f"https://{given}/v1") if given else url
    key, variable = config.text("apiKey", "api_key"), config.text("apiKeyEnvar") or key_name
    if key and not _ENVIRONMENT.search(key):
        part.warn(f"the key of provider {spec} is left out: write it as ${{{{ NAME }}}} of the environment")
        key = None
    if key or variable:
        target["api_key"] = key or f"${{{{ {variable} }}}}"
    tokens = config.take("max_tokens", "maxTokens", "max_completion_tokens", "max_output_tokens")
    names = [name for name in _TABLE["parameters"] if config.first(name) and not _in_a_file(config.data[name])]
    return target | present({"max_tokens": tokens, "parameters": {name: config.take(name) for name in names} or None})


def _in_a_file(value: Any) -> bool:
    return any(isinstance(one, str) and one.startswith("file://") for one in listed(value))


def _server(part: FilePart, config: FilePart, spec: str) -> dict[str, Any] | None:
    url = config.text("url") or (spec if "://" in spec else None)
    if url is None:
        return part.none(f"provider {spec} without url")
    method = str(config.take("method") or "POST").upper()
    if method not in _HTTP:
        return part.none(f"method {method} of provider {spec}")
    target: dict[str, Any] = {"provider": "http", "url": url}
    if method != "POST":
        target["method"] = method
    for name, own in (("headers", "headers"), ("body", "body"), ("maxRetries", "max_retries")):
        if config.first(name) and not _in_a_file(config.data[name]):
            target[own] = config.take(name)
    if isinstance(target.get("body"), str):
        try:
            target["body"] = json.loads(target["body"])
        except (ValueError, RecursionError):
            part.warn(f"the body of provider {spec} is sent as a JSON string")
    for text in re.findall(r"\{\{\s*([\w.]+)[^}]*\}\}", str(target)):
        if text != "prompt" and not text.startswith(("env.", "process.env.")):
            part.warn(f"{{{{ {text} }}}} stays as it is: a target knows prompt, messages, test_id and metadata")
    transform = config.take("transformResponse", "responseParser")
    if isinstance(transform, str) and (path := _ANSWER.fullmatch(transform.strip())):
        target["answer"] = "$" + path[1].replace("?.", ".").replace(".[", "[")
    elif transform is not None:
        remedy = "say with answer, a JSONPath, where it is" if isinstance(transform, str) else ""
        part.none(f"transformResponse of provider {spec}", remedy=remedy)
    return target


def _program(part: FilePart, config: FilePart, spec: str) -> dict[str, Any] | None:
    given = config.take("command", "command_template")
    try:
        argv = list(given) if isinstance(given, list) else shlex.split(str(given or spec.partition(":")[2]))
    except ValueError as error:
        return part.none(f"a command that cannot be split ({error})")
    if not argv or not all(isinstance(token, str) for token in argv):
        return part.none(f"provider {spec} without a command")
    if not any("{PROMPT}" in token for token in argv):
        argv.append("{PROMPT}")
        if part.findings.promptfoo:
            part.warn(f"exec: {argv[0]} gets the prompt as its argument, and no options and context after it")
    # By default it runs next to the eval file.
    cwd = config.text("basePath", "cwd") or str(part.findings.reader.suite_folder)
    folder, limit = part.file(cwd).written(), config.number("timeout_seconds")
    made = {"provider": "cli", "command": argv, "cwd": folder, "timeout_seconds": limit and float(limit)}
    return None if folder is None else present(made)


def _function(part: FilePart, config: FilePart, spec: str) -> dict[str, Any] | None:
    file, ending, name = spec.removeprefix("python:").removeprefix("file://").partition(".py")
    if spec.startswith("file") and (not ending or not re.fullmatch(r"(:\w+)?", name)):
        return part.none(f"provider {spec}", remedy=_REMEDY)
    place, name = part.file(file + ending).written(), name.lstrip(":") or "call_api"
    if place is None:
        return None
    module = re.sub(r"\W+", ".", place.removesuffix(".py").removeprefix("./")).strip(".")
    moved = " and stand beside the targets file" if place.startswith("..") else ""
    said = "must take the prompt alone and return a text, or a mapping with text, token_usage and cost_usd"
    part.warn(f"{file}.py: {name} {said}{moved}")
    return {"provider": "python", "function": f"{module}:{name}"}


# Rules by the first word of an id.
_RULES: dict[str, Callable[[FilePart, FilePart, str], dict[str, Any] | None]] = {
    **dict.fromkeys(("http", "https"), _server),
    **dict.fromkeys(("exec", "cli"), _program),
    **dict.fromkeys(("python", "file"), _function),
    "echo": lambda part, config, spec: {"provider": "cli", "command": ["printf", "%s", "{PROMPT}"]},
    "mock": lambda part, config, spec: {"provider": "mock", "response": config.text("response") or "ok"},
    **dict.fromkeys(_MODELS, _model),
}


_STRATEGIES = {"pass_any": "pass_at_k", "pass_all": "all", **{name: name for name in STRATEGIES}}


def read_execution(part: FilePart, options: FilePart | None) -> dict[str, Any]:
    """Return ``execution`` of a suite or a test without its targets. ``options``: those of the run, or None."""
    made: dict[str, Any] = {}
    if (place := part.inner("execution", "execution.{}")) is not None:
        place.take("skip_defaults")
        path = place.text("cache_path")
        if path and (path := place.file(path, "cache_path").written()):
            made["cache_path"] = path
        if (trials := place.inner("trials", "trials.{}")) is not None:
            made["trials"] = _count(trials)
    if options is not None:
        options.take("showProgressBar")
        if options.take("budget_usd") is not None:
            remedy = "pass --max-usd, or set trials.cost_limit_usd"
            options.none(options.label.replace("{}", "budget_usd"), "budget_usd", remedy=remedy)
        if options.first("repeat") and (trials := _repeated(options)):
            if "trials" in made:
                part.none("execution.trials next to repeat", "execution", "trials")
            made["trials"] = trials

    for where in (place, options):
        if where is not None and isinstance(cache := where.take("cache"), bool):
            made["cache"] = cache

    # Values that are not valid in a suite become findings.
    def read(reader: Reader, entry: ConfigEntry) -> ExecutionFields | None:
        return reader.validated(ExecutionFields, entry.data, entry.named("execution"))

    return {name: value for name, value in made.items() if part.valid({name: value}, read)}


def _repeated(part: FilePart) -> dict[str, Any] | None:
    repeat = part.take("repeat")
    if isinstance(repeat, int) and not isinstance(repeat, bool):
        if repeat > 1:
            part.warn(f"repeat: the {repeat} attempts at a test are one result with their mean score", "repeat")
        return {"count": repeat, "strategy": "mean"} if repeat > 1 else None
    if not isinstance(repeat, dict) or not isinstance(repeat.get("count"), int):
        return part.none("repeat", "repeat")
    return _count(part.child("repeat", label="repeat.{}"))


def _count(part: FilePart) -> dict[str, Any]:
    """Return trials: count, strategy and limit."""
    made = {key: value for key in ("count", "cost_limit_usd") if (value := part.take(key)) is not None}
    given = part.take("strategy")
    if isinstance(given, dict):
        return made | {"strategy": given}
    if given is not None and str(given) not in _STRATEGIES:
        part.none(f"strategy {given}", "strategy", remedy="the mean is taken")
    if given == "confidence_interval" and isinstance(count := made.get("count"), int) and count > 30:
        part.warn("confidence_interval takes Student's t of any count here, there 1.96 from 31 attempts on", "strategy")
    return made | {"strategy": _STRATEGIES.get(str(given or "pass_any"), "mean")}


def read_workspace(part: FilePart) -> dict[str, Any]:
    """Return ``workspace`` of a suite or a test with its hooks."""
    if part.first("workspace") is None:
        return {}
    place = part.child("workspace", label="workspace.{}").followed()
    if place is None or not isinstance(place.data, dict):
        return (place and part.none("workspace", "workspace")) or {}
    made: dict[str, Any] = {}
    template = place.text("template")
    if template and (folder := place.file(template, "template").written(folder="workspace.template")):
        made["template"] = folder
    hooks = place.inner("hooks", "workspace.hooks.{}")
    for where in (place, *([hooks] if hooks else [])):
        for name in HOOKS:
            if where.first(name) and (hook := _hook(where.child(name, label="hook {}"))):
                made[name] = hook
    return {"workspace": made} if made else {}


def _hook(part: FilePart) -> dict[str, Any] | None:
    script = part.take("script", "command")
    if isinstance(script, str) and script:
        script = ["sh", "-lc", script]
    if not isinstance(script, list) or not script or not all(isinstance(token, str) and token for token in script):
        return part.dropped("a hook without a command")
    made: dict[str, Any] = {"script": script}
    limit = part.number("timeout_ms")
    if limit is not None and limit > 0:
        made["timeout_ms"] = float(limit)
    if cwd := part.text("cwd"):
        folder = part.file(cwd, "cwd").written(folder="hook cwd")
        return made | {"cwd": folder} if folder else None
    return made
