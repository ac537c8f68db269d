"""How an eval file is run: targets, repetitions and caching of a suite or a test, workspaces and their hooks."""

from typing import Any

from persona_pipeline.suites.format.models import HOOKS, STRATEGIES, ExecutionFields
from persona_pipeline.suites.format.problems import Reader
from persona_pipeline.suites.importing.findings import Part

_STRATEGIES = {"pass_any": "pass_at_k", "pass_all": "all", **{name: name for name in STRATEGIES}}


def read_execution(part: Part, options: Part | None) -> dict[str, Any]:
    """Return ``execution`` of a suite or a test, its targets aside. ``options``: those of the run, None where there are none."""
    made: dict[str, Any] = {}
    if (place := part.inner("execution", "execution.{}")) is not None:
        place.take("skip_defaults")
        if isinstance(cache := place.take("cache"), bool):
            made["cache"] = cache
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
        if isinstance(cache := options.take("cache"), bool):
            made["cache"] = cache
        if options.first("repeat") and (trials := _repeated(options)):
            if "trials" in made:
                part.none("execution.trials next to repeat", "execution", "trials")
            made["trials"] = trials
    # What no suite may hold is a finding, and left out.
    for name in list(made):
        reader = Reader(part.findings.reader.files, part.findings.out)
        if reader.validated(ExecutionFields, {name: made[name]}, part.entry, "execution") is None:
            part.findings.reader.warnings += reader.problems
            del made[name]
    return made


def _repeated(part: Part) -> dict[str, Any] | None:
    repeat = part.take("repeat")
    if isinstance(repeat, int) and not isinstance(repeat, bool):
        if repeat > 1:
            part.warn(f"repeat: the {repeat} attempts at a test are one result with their mean score", "repeat")
        return {"count": repeat, "strategy": "mean"} if repeat > 1 else None
    if not isinstance(repeat, dict) or not isinstance(repeat.get("count"), int):
        return part.none("repeat", "repeat")
    return _count(part.child("repeat", label="repeat.{}"))


def _count(part: Part) -> dict[str, Any]:
    """Return trials: their count, their strategy by the name that it has here, and their limit."""
    made = {key: value for key in ("count", "cost_limit_usd") if (value := part.take(key)) is not None}
    given = part.take("strategy")
    if isinstance(given, dict):
        return made | {"strategy": given}
    if given is not None and given not in _STRATEGIES:
        part.none(f"strategy {given}", "strategy", remedy="the mean is taken")
    return made | {"strategy": _STRATEGIES.get(str(given or "pass_any"), "mean")}


def read_workspace(part: Part) -> dict[str, Any]:
    """Return ``workspace`` of a suite or a test, its hooks in place."""
    if part.first("workspace") is None:
        return {}
    place: Part | None = part.child("workspace", label="workspace.{}")
    if isinstance(place.data, str):
        place = place.file(place.data).document("workspace.{}")
    if place is None:
        return {}
    if not isinstance(place.data, dict):
        return part.none("workspace", "workspace") or {}
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


def _hook(part: Part) -> dict[str, Any] | None:
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
