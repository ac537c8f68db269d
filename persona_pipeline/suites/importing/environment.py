"""How an eval file is run: repetitions, caching and workspaces that have a counterpart."""

from typing import Any

from persona_pipeline.suites.format.models import HOOKS, STRATEGIES
from persona_pipeline.suites.format.problems import ConfigEntry
from persona_pipeline.suites.importing.findings import Findings, first_of

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
