"""How a suite or a test is run, as it is written: ``execution`` and ``workspace``."""

from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from persona_pipeline.suites.format.field_types import Limit, StrictFields, Text
from persona_pipeline.suites.format.models import HOOKS, STRATEGIES, Hook, Trials, Workspace
from persona_pipeline.suites.format.problems import ConfigEntry, Reader, add_model_problems

Fields = TypeVar("Fields", bound=StrictFields)


class TrialsFields(StrictFields):
    """``trials`` as it is written."""

    count: int = Field(ge=1, description="How often each test is run; 1 is the same as no trials.")
    strategy: str = Field("pass_at_k", description="pass_at_k, mean or confidence_interval.")
    cost_limit_usd: Limit | None = Field(None, description="Stop after the attempt that reaches this cost.")


class ExecutionFields(StrictFields):
    """``execution`` as it is written, for a suite or a test."""

    target: Text | None = Field(None, description="Who answers.")
    targets: list[Text] | None = Field(None, min_length=1, description="Who answers: every test by each of them.")
    trials: TrialsFields | None = None
    cache: bool | None = Field(None, description="Answer again from what targets answered before.")
    cache_path: Text | None = Field(None, description="Where answers are kept.")
    skip_defaults: bool = Field(False, description="In a test: do not inherit the suite's asserts and input.")
    evaluators: list[Any] | None = Field(None, description="Older name of assert.", deprecated=True)


class HookFields(StrictFields):
    """A workspace script as it is written."""

    script: list[Text] = Field(min_length=1, description="The program and its arguments.")
    timeout_ms: float | None = Field(None, gt=0, allow_inf_nan=False)
    cwd: Text | None = None


class WorkspaceFields(StrictFields):
    """``workspace`` as it is written."""

    template: Text | None = Field(None, description="A folder that is copied for each test.")
    setup: HookFields | None = Field(
        None, description="Runs in the workspace before each test; a failure is the test's error."
    )
    teardown: HookFields | None = Field(None, description="Runs after each test.")
    before_all: HookFields | None = Field(None, description="Runs once before the first test.")
    after_all: HookFields | None = Field(None, description="Runs once after the last test.")
    before_each: HookFields | None = Field(None, description="The same as setup.")
    after_each: HookFields | None = Field(None, description="The same as teardown.")


@dataclass(frozen=True)
class Execution:
    """``execution`` once read."""

    target: str | None = None
    targets: tuple[str, ...] | None = None
    trials: Trials | None = None
    cache: bool | None = None
    cache_path: str | None = None
    skip_defaults: bool = False


def read_execution(reader: Reader, entry: ConfigEntry, label: str) -> Execution:
    """Read ``execution`` of a suite or a test; ``evaluators`` in it are read with the asserts."""
    part = _part(reader, entry, "execution", ExecutionFields, label)
    if part is None:
        return Execution()
    inner, where, fields = part
    trials = None
    if fields.trials is not None:
        if fields.trials.strategy not in STRATEGIES:
            reader.fail(
                inner,
                f"{where}: trials.strategy must be one of {', '.join(STRATEGIES)}, not {fields.trials.strategy!r}",
                "trials",
                "strategy",
            )
        else:
            trials = Trials(**fields.trials.model_dump())
    targets = None if fields.targets is None else tuple(dict.fromkeys(fields.targets))
    return Execution(fields.target, targets, trials, fields.cache, fields.cache_path, fields.skip_defaults)


def read_workspace(reader: Reader, entry: ConfigEntry, label: str) -> Workspace | None:
    """Read ``workspace`` of a suite or a test."""
    part = _part(reader, entry, "workspace", WorkspaceFields, label)
    if part is None:
        return None
    inner, where, fields = part
    template = fields.template
    if template is not None:
        template = reader.find_folder(inner, template, f"{where}: template", "template")
    hooks = {}
    for name in HOOKS:
        hook: HookFields | None = getattr(fields, name)
        if hook is not None:
            cwd = hook.cwd and reader.find_folder(inner, hook.cwd, f"{where}: {name}.cwd", name, "cwd")
            hooks[name] = Hook(tuple(hook.script), hook.timeout_ms, cwd)
    return Workspace(template, hooks)


def _part(
    reader: Reader, entry: ConfigEntry, name: str, model: type[Fields], label: str
) -> tuple[ConfigEntry, str, Fields] | None:
    """A part of an entry, what to call it and its fields; None where it is not written or not valid."""
    if entry.data.get(name) is None:
        return None
    inner, where = entry.child(name), f"{label}: {name}" if label else name
    if not isinstance(inner.data, dict):
        reader.fail(inner, f"{where} must be a mapping")
        return None
    data = {key: value for key, value in inner.data.items() if value is not None or key == "evaluators"}
    try:
        return inner, where, model.model_validate(data)
    except ValidationError as error:
        add_model_problems(reader, inner, error, where, model)
        return None
