"""How an eval file is run: providers as targets, repetitions and caching, workspaces and their hooks."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from persona_pipeline.suites.format.models import HOOKS, STRATEGIES, apart, over_texts
from persona_pipeline.suites.format.problems import ConfigEntry, Reader, add_model_problems
from persona_pipeline.suites.importing.findings import Findings, children, first_of, items, listed
from persona_pipeline.suites.targets.registry import find_provider

# Servers that speak chat completions: where, and whose key they take.
_COMPATIBLE = {
    "groq": ("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "deepseek": ("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "mistral": ("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
}
# Providers of models by their names there.
_SAME = ("openai", "anthropic", "azure", "gemini", "ollama", "openrouter", "vllm", "bedrock", "vertex")
_MODELS = dict(zip(_SAME, _SAME, strict=True)) | {"azureopenai": "azure", "google": "gemini"}
_MODELS |= dict.fromkeys(_COMPATIBLE, "openai")
_API = ("chat", "messages", "responses")
# Fields of a request that servers read as they are.
_PARAMETERS = (
    "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_sequences", "frequency_penalty", "presence_penalty",
    "tools", "tool_choice", "parallel_tool_calls", "response_format", "reasoning", "reasoning_effort", "thinking", "verbosity",
    "service_tier", "logit_bias",
)  # fmt: skip
_ENVIRONMENT = re.compile(r"\{\{\s*(?:env\.|process\.env\.)(\w+)\s*\}\}|\$\{\{\s*(?:env\.)?(\w+)\s*\}\}")
_ANSWER = re.compile(r"json((?:\??\.[A-Za-z_]\w*|\??\.?\[\d+\]|\[['\"][^'\"]+['\"]\])*)")
_KNOWN = ("id", "label", "name", "config", "prompts", "provider", "workers", "runtime")
_REMEDY = "answer with a target of another kind, or grade recorded answers"
_TARGETS_FILES = ("targets.yaml", "providers.yaml")
_HTTP = {"GET", "POST", "PUT", "PATCH"}


@dataclass
class ConvertedProvider:
    """One provider: the target it becomes (None: it has no counterpart), what else calls it, and the prompts it is for."""

    name: str
    target: dict[str, Any] | None
    names: tuple[str, ...] = ()
    prompts: Any = None


def read_providers(findings: Findings, entry: ConfigEntry, key: str) -> list[ConvertedProvider]:
    """Return the providers at a key of a file; those without a counterpart are named."""
    found: list[ConvertedProvider] = []
    taken: set[str] = set()
    for place in children(entry, key):
        for provider in _read(findings, place):
            provider.name = apart(provider.name, taken)
            if provider.target is not None:
                provider.target["name"] = provider.name
            found.append(provider)
    return found


def _read(findings: Findings, entry: ConfigEntry) -> Iterator[ConvertedProvider]:
    value = entry.data
    if isinstance(value, dict) and "id" not in value and "provider" not in value and len(value) == 1:
        # {"openai:gpt-4o": {config: ...}}
        name, options = next(iter(value.items()))
        value = {"id": name, **(options if isinstance(options, dict) else {})}
    if isinstance(value, str) and value.startswith("file://") and value.endswith((".yaml", ".yml", ".json")):
        read = findings.document(entry, value)
        for place in items(read) if read is not None and isinstance(read.data, list | dict) else ():
            yield from _read(findings, place)
        return
    data: dict[str, Any] = value if isinstance(value, dict) else {"id": value}
    # AgentV: the id is the target's own name where the provider says what it is.
    spec = data.get("provider", data.get("id"))
    if not isinstance(spec, str):
        return findings.none(entry, "a provider without id")
    shown = str(data.get("label") or data.get("name") or data.get("id") or spec)
    if isinstance(value, str) and not findings.promptfoo and ":" not in value and value not in ("echo", "mock"):
        described = _described(findings, entry, value)
        if described is not None:
            yield from _read(findings, described)
            return
        findings.reader.warn(entry, f"target {value} is not described here; describe it in targets.yaml")
        yield ConvertedProvider(value, None, (value,))
        return
    given = data.get("config")
    config: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
    if not findings.promptfoo and "provider" in data and given is None:
        # AgentV's targets file: settings stand beside the name.
        config = {key: item for key, item in data.items() if key not in _KNOWN}
    elif isinstance(value, dict):
        findings.leftovers(ConfigEntry(data, entry.source, entry.location), _KNOWN, "provider key ")
    place = ConfigEntry({**data, **config}, entry.source, entry.location)
    target = _target(findings, place, spec, config)
    name = _name(shown)
    if target is not None:
        for key, left in config.items():
            if left is not None:
                findings.none(place, f"{key} of provider {spec}", *(("config", key) if "config" in data else (key,)))
        # References to the environment as targets write them.
        written = over_texts(target, partial(_ENVIRONMENT.sub, lambda match: f"${{{{ {match[1] or match[2]} }}}}"))
        target = _checked(findings, place, {"name": name, **written})
    yield ConvertedProvider(name, target, tuple(dict.fromkeys((name, shown, spec))), data.get("prompts"))


def _described(findings: Findings, entry: ConfigEntry, name: str) -> ConfigEntry | None:
    """Return the target of this name in AgentV's own targets file, the nearest above the eval file."""
    for folder in Path(entry.source.path).parents:
        path = next((file for own in _TARGETS_FILES if (file := folder / ".agentv" / own).is_file()), None)
        if path is None:
            continue
        read = findings.document(entry, str(path))
        if read is not None and isinstance(read.data, dict):
            read = read.child(key) if (key := first_of(read.data, "targets", "providers")) else None
        for place in items(read) if read is not None and isinstance(read.data, list) else ():
            if isinstance(place.data, dict) and name in map(place.data.get, ("label", "name", "id")):
                return place
        return None
    return None


def _name(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text.removeprefix("file://")).strip("-.") or "target"


def _checked(findings: Findings, entry: ConfigEntry, target: dict[str, Any]) -> dict[str, Any] | None:
    """Return a target as it is if a targets file may hold it; what is wrong with it is a finding."""
    model = find_provider(target["provider"])
    assert model is not None, target["provider"]
    try:
        model.model_validate(target)
    except ValidationError as error:
        reader = Reader(findings.reader.files, findings.out)
        add_model_problems(reader, entry, error, f"provider {target['name']!r}", model)
        findings.reader.warnings += reader.problems
        return None
    return target


def _target(findings: Findings, entry: ConfigEntry, spec: str, config: dict[str, Any]) -> dict[str, Any] | None:
    kind, _, rest = spec.partition(":")
    if spec.startswith(("http://", "https://")) or kind in ("http", "https"):
        return _server(findings, entry, spec, config)
    if kind in ("exec", "cli"):
        return _program(findings, entry, rest, config)
    if kind == "python" or (kind == "file" and re.search(r"\.py(:\w+)?$", spec)):
        return _function(findings, entry, spec.removeprefix("python:").removeprefix("file://"), config)
    if kind == "echo":
        return {"provider": "cli", "command": ["printf", "%s", "{PROMPT}"]}
    if kind == "mock":
        response = _taken(config, "response")
        return {"provider": "mock", "response": response if isinstance(response, str) else "ok"}
    if kind in _MODELS:
        return _model(findings, entry, spec, config)
    return findings.none(entry, f"provider {spec}", remedy=_REMEDY)


def _taken(config: dict[str, Any], *names: str) -> Any:
    key = first_of(config, *names)
    return None if key is None else config.pop(key)


def _model(findings: Findings, entry: ConfigEntry, spec: str, config: dict[str, Any]) -> dict[str, Any] | None:
    kind, *parts = spec.split(":")
    provider = _MODELS[kind]
    # Names of models may hold colons.
    ways = (*_API, "completion") if kind == "ollama" else _API
    free = kind in ("ollama", "openrouter", "bedrock", "vertex", "google", "vllm")
    how = parts.pop(0) if parts and (parts[0] in ways or (len(parts) > 1 and not free)) else "chat"
    model = ":".join(parts) or _taken(config, "model", "deployment")
    if how not in ways or not model or (provider in ("bedrock", "vertex") and "claude" not in model):
        return findings.none(entry, f"provider {spec}", remedy=_REMEDY)
    url, key_name = _COMPATIBLE.get(kind, (None, None))
    target: dict[str, Any] = {"provider": provider, "model": model} | ({"api": how} if how == "responses" else {})
    given = _taken(
        config, "apiBaseUrl", "apiHost", "baseUrl", "base_url", *(["endpoint"] if provider == "azure" else [])
    )
    if given or url:
        target["base_url"] = given if not isinstance(given, str) or "://" in given else f"https://{given}/v1"
        target["base_url"] = target["base_url"] or url
    key = _taken(config, "apiKey", "api_key")
    variable = _taken(config, "apiKeyEnvar") or key_name
    if isinstance(key, str) and not _ENVIRONMENT.search(key):
        said = f"the key of provider {spec} is left out: write it as ${{{{ NAME }}}} of the environment"
        findings.differs(entry, said)
        key = None
    if key or variable:
        target["api_key"] = key or f"${{{{ {variable} }}}}"
    tokens = _taken(config, "max_tokens", "maxTokens", "max_completion_tokens", "max_output_tokens")
    parameters = {
        name: _taken(config, name)
        for name in _PARAMETERS
        if config.get(name) is not None and not _in_a_file(config[name])
    }
    return (
        target
        | ({"max_tokens": tokens} if tokens is not None else {})
        | ({"parameters": parameters} if parameters else {})
    )


def _in_a_file(value: Any) -> bool:
    return any(isinstance(one, str) and one.startswith("file://") for one in listed(value))


def _server(findings: Findings, entry: ConfigEntry, spec: str, config: dict[str, Any]) -> dict[str, Any] | None:
    url = _taken(config, "url") or (spec if "://" in spec else None)
    if url is None:
        return findings.none(entry, f"provider {spec} without url")
    method = str(_taken(config, "method") or "POST").upper()
    if method not in _HTTP:
        return findings.none(entry, f"method {method} of provider {spec}")
    target: dict[str, Any] = {"provider": "http", "url": url}
    if method != "POST":
        target["method"] = method
    for name, own in (("headers", "headers"), ("body", "body"), ("maxRetries", "max_retries")):
        if (value := _taken(config, name)) is not None:
            target[own] = value
    if isinstance(target.get("body"), str):
        try:
            target["body"] = json.loads(target["body"])
        except ValueError:
            findings.differs(entry, f"the body of provider {spec} is sent as a JSON string")
    for text in re.findall(r"\{\{\s*([\w.]+)[^}]*\}\}", str(target)):
        if text != "prompt" and not text.startswith(("env.", "process.env.")):
            said = f"{{{{ {text} }}}} stays as it is: a target knows prompt, messages, test_id and metadata"
            findings.differs(entry, said)
    transform = _taken(config, "transformResponse", "responseParser")
    if isinstance(transform, str) and (path := _ANSWER.fullmatch(transform.strip())):
        target["answer"] = "$" + path[1].replace("?.", ".").replace(".[", "[")
    elif transform is not None:
        remedy = "say with answer, a JSONPath, where it is" if isinstance(transform, str) else ""
        findings.none(entry, f"transformResponse of provider {spec}", remedy=remedy)
    return target


def _program(findings: Findings, entry: ConfigEntry, command: str, config: dict[str, Any]) -> dict[str, Any] | None:
    given = _taken(config, "command", "command_template")
    try:
        argv = list(given) if isinstance(given, list) else shlex.split(str(given or command))
    except ValueError as error:
        return findings.none(entry, f"a command that cannot be split ({error})")
    if not any("{PROMPT}" in token for token in argv):
        argv.append("{PROMPT}")
        if findings.promptfoo:
            said = f"exec: {argv[0]} gets the prompt as its argument, and no options and context after it"
            findings.differs(entry, said)
    cwd = _taken(config, "basePath", "cwd")
    # Without one it runs beside the eval file.
    folder = findings.relocated(entry, str(cwd or findings.reader.suite_folder))
    target = {"provider": "cli", "command": argv, "cwd": folder}
    limit = _taken(config, "timeout_seconds")
    return target | ({"timeout_seconds": float(limit)} if isinstance(limit, int | float) else {})


def _function(findings: Findings, entry: ConfigEntry, reference: str, config: dict[str, Any]) -> dict[str, Any]:
    file, _, function = reference.partition(".py")
    place = findings.relocated(entry, file)
    module = re.sub(r"\W+", ".", place.removeprefix("./")).strip(".")
    name = function.lstrip(":") or "call_api"
    moved = " and stand beside the targets file" if place.startswith("..") else ""
    findings.differs(
        entry,
        f"{file}.py: {name} must take the prompt alone and return a text, or a mapping with text, token_usage and cost_usd{moved}",
    )
    return {"provider": "python", "function": f"{module}:{name}"}


def chosen(providers: list[ConvertedProvider], wanted: Any) -> list[ConvertedProvider]:
    """Return the providers that a test names; all where it names none."""
    names = [name for name in listed(wanted) if isinstance(name, str)]
    return [one for one in providers if set(names) & set(one.names)] if names else providers


_STRATEGIES = {"pass_any": "pass_at_k", "pass_all": "all", **{name: name for name in STRATEGIES}}
_EXECUTION = ("target", "targets", "trials", "cache", "cache_path", "skip_defaults")
_HOOK = ("script", "command", "timeout_ms", "cwd")


def read_execution(findings: Findings, entry: ConfigEntry, options: str | None) -> dict[str, Any]:
    """Return ``execution`` of a suite or a test. ``options``: the key of the run's options, None where there are none."""
    made: dict[str, Any] = {}
    if isinstance(entry.data.get("execution"), dict):
        place = entry.child("execution")
        findings.leftovers(place, _EXECUTION, "execution.")
        made = {
            key: place.data[key] for key in _EXECUTION if place.data.get(key) is not None and key != "skip_defaults"
        }
        if isinstance(made.get("trials"), dict) and isinstance(made["trials"].get("strategy"), str):
            made["trials"] = made["trials"] | {"strategy": _strategy(findings, place.child("trials"))}
    if options is None or not isinstance(entry.data[options], dict):
        return made
    place = entry.child(options)
    known = ("repeat", "maxConcurrency", "max_concurrency", "cache", "showProgressBar", "budget_usd")
    findings.leftovers(place, known, f"{options}.")
    if place.data.get("budget_usd") is not None:
        remedy = "pass --max-usd, or set trials.cost_limit_usd"
        findings.none(place, f"{options}.budget_usd", "budget_usd", remedy=remedy)
    if isinstance(place.data.get("cache"), bool):
        made["cache"] = place.data["cache"]
    repeat = place.data.get("repeat")
    trials = _trials(findings, place, repeat) if repeat is not None else None
    return made | ({"trials": trials} if trials else {})


def _trials(findings: Findings, place: ConfigEntry, repeat: Any) -> dict[str, Any] | None:
    if isinstance(repeat, int) and not isinstance(repeat, bool):
        if repeat <= 1:
            return None
        said = f"repeat: the {repeat} attempts at a test are one result with their mean score"
        findings.differs(place, said, "repeat")
        return {"count": repeat, "strategy": "mean"}
    if not isinstance(repeat, dict) or not isinstance(repeat.get("count"), int):
        return findings.none(place, "repeat", "repeat")
    inner = place.child("repeat")
    findings.leftovers(inner, ("count", "strategy", "cost_limit_usd"), "repeat.")
    limit = repeat.get("cost_limit_usd")
    made = {"count": repeat["count"], "strategy": _strategy(findings, inner)}
    return made | ({"cost_limit_usd": limit} if limit is not None else {})


def _strategy(findings: Findings, place: ConfigEntry) -> str:
    given = str(place.data.get("strategy", "pass_any"))
    if given not in _STRATEGIES:
        findings.none(place, f"strategy {given}", "strategy", remedy="the mean is taken")
    return _STRATEGIES.get(given, "mean")


def read_workspace(findings: Findings, entry: ConfigEntry) -> dict[str, Any]:
    """Return ``workspace`` of a suite or a test, its hooks in place."""
    if entry.data.get("workspace") is None:
        return {}
    place = entry.child("workspace")
    if isinstance(place.data, str) and (place := findings.document(place, place.data)) is None:
        return {}
    if not isinstance(place.data, dict):
        findings.none(entry, "workspace", "workspace")
        return {}
    findings.leftovers(place, ("template", "hooks", *HOOKS), "workspace.")
    made: dict[str, Any] = {}
    if isinstance(place.data.get("template"), str):
        made["template"] = findings.relocated(place, place.data["template"])
        if not (findings.out / made["template"]).is_dir():
            findings.reader.warn(
                place, f"workspace.template: folder {place.data['template']!r} does not exist", "template"
            )
    hooks = place.child("hooks") if isinstance(place.data.get("hooks"), dict) else None
    if hooks is not None:
        findings.leftovers(hooks, HOOKS, "workspace.hooks.")
    for where in (place, *([hooks] if hooks else [])):
        for name in HOOKS:
            if isinstance(where.data.get(name), dict):
                hook = _hook(findings, where.child(name))
                made |= {name: hook} if hook else {}
    return made


def _hook(findings: Findings, place: ConfigEntry) -> dict[str, Any] | None:
    key = first_of(place.data, "script", "command")
    findings.leftovers(place, _HOOK, "hook ")
    script = place.data.get(key) if key else None
    if isinstance(script, str):
        script = ["sh", "-lc", script]
    if not isinstance(script, list) or not all(isinstance(token, str) for token in script):
        return findings.none(place, "a hook without a command")
    made: dict[str, Any] = {"script": script}
    if isinstance(place.data.get("timeout_ms"), int | float):
        made["timeout_ms"] = float(place.data["timeout_ms"])
    cwd = place.data.get("cwd")
    return made | ({"cwd": findings.relocated(place, cwd)} if isinstance(cwd, str) else {})
