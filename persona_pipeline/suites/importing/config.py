"""Suites and other tools: eval files of others made into suites and their targets, and the schema by which editors check ours."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic.json_schema import models_json_schema

from persona_pipeline.base.documents.json import write_atomically
from persona_pipeline.base.documents.yaml import to_yaml
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.suites.asserts import registry
from persona_pipeline.suites.asserts.limits import SeveralLimits
from persona_pipeline.suites.asserts.registry import ALIASES, BUILT_IN, canonical_type, find_type
from persona_pipeline.suites.format.files import FileError, Files, default_roots
from persona_pipeline.suites.format.loading.messages import ROLES
from persona_pipeline.suites.format.loading.suite import MOST_DESCRIPTION, SuiteFields
from persona_pipeline.suites.format.loading.tests import TestFields, TurnFields
from persona_pipeline.suites.format.models import (
    AssertFields,
    ExecutionFields,
    SimulatedUser,
    WorkspaceFields,
    apart,
)
from persona_pipeline.suites.format.problems import Reader
from persona_pipeline.suites.importing.cases import read_tests
from persona_pipeline.suites.importing.findings import (
    AGENTV,
    PROMPTFOO,
    PYDANTIC_EVALS,
    Findings,
    Part,
    listed,
    whole,
)
from persona_pipeline.suites.importing.prompts import read_prompts
from persona_pipeline.suites.importing.providers import Providers
from persona_pipeline.suites.importing.running import read_execution, read_workspace

ORIGINS = (PROMPTFOO, AGENTV, PYDANTIC_EVALS)
_PROVIDERS = ("providers", "targets", "target")
_AGENTV_KEYS = (
    "default_test", "evaluate_options", "assertions", "execution", "workspace", "target", "input_files", "imports", "governance",
)  # fmt: skip


@dataclass(frozen=True)
class ImportedSuite:
    """A suite and its targets as plain data, and what could not be taken over as it was."""

    suite: dict[str, Any]
    targets: dict[str, Any] | None
    findings: tuple[Problem, ...]
    origin: str


def import_file(path: Path, out: Path, origin: str | None = None) -> ImportedSuite:
    """Return the suite and the targets that an eval file of another tool stands for.

    ``out``: the folder they will be written to, from which their paths start. ``origin``: ``promptfoo`` or ``agentv``; None: told
    by what the file holds. Raises ``ConfigError``: the file cannot be read, or holds no test that can be taken over.
    """
    path = path.absolute().parent.resolve() / path.name
    if origin is not None and origin not in ORIGINS:
        raise ConfigError(f"--from {origin!r} is unknown; use {', '.join(ORIGINS)}")
    if path.suffix.lower() not in (".yaml", ".yml", ".json"):
        said = "is no eval file that can be read: its name must end in .yaml, .yml or .json"
        raise ConfigError(Problem(said, str(path)))
    # The gate: everything that is read lies in the file's repository.
    reader = Reader(Files(default_roots(path)), path.parent, registry)
    try:
        entry = whole(reader.files.read(reader.files.find(str(path), [path.parent])), path)
    except FileError as problem:
        raise ConfigError(problem.problem(path)) from problem
    if not isinstance(entry.data, dict):
        raise ConfigError(entry.problem("must be a mapping with tests"))
    # Paths that lead through a folder are looked up in it.
    out.mkdir(parents=True, exist_ok=True)
    findings = Findings(reader, out.resolve(), origin or _origin(entry.data, path))
    imported = _imported(findings.part(entry))
    if reader.problems:
        raise ConfigError(list(dict.fromkeys(reader.problems)))
    if not imported.suite["tests"]:
        raise ConfigError([*imported.findings, Problem("holds no test that can be taken over", str(path))])
    return imported


def _origin(data: Mapping[str, Any], path: Path) -> str:
    if path.name.startswith("promptfoo") or "defaultTest" in data or "evaluateOptions" in data:
        return PROMPTFOO
    if "cases" in data and "tests" not in data:
        return PYDANTIC_EVALS
    tests = [test for test in listed(data.get("tests")) if isinstance(test, dict)]
    if any(key in data for key in _AGENTV_KEYS) or any("id" in test for test in tests):
        return AGENTV
    return PROMPTFOO if "providers" in data or "prompts" in data else AGENTV


def _imported(part: Part) -> ImportedSuite:
    findings, providers = part.findings, Providers()
    for key in ("$schema", "assertionTemplates"):
        part.take(key)
    prompts = read_prompts(part)
    providers.found = providers.read(part.each(part.first(*_PROVIDERS), "provider key {}"))
    if (execution := part.inner("execution", "execution.{}")) is not None:
        asked = execution.each(execution.first("targets", "target"), "provider key {}")
        providers.asked = [one for place in asked for one in providers.of(place)]
    suite = _metadata(part)
    key = part.first("evaluateOptions", "evaluate_options")
    options = part.inner(key, f"{key}.{{}}") if key else None
    run = read_execution(part, options)
    names = [one.name for one in providers.default if one.target is not None or not findings.promptfoo]
    if names:
        run = {"targets": names} | run if len(names) > 1 else {"target": names[0]} | run
    suite |= ({"execution": run} if run else {}) | read_workspace(part)
    taken: set[str] = set()
    suite["tests"] = [test | {"id": apart(test["id"], taken)} for test in read_tests(part, prompts, providers)]
    targets, workers = providers.targets, options and options.number("maxConcurrency", "max_concurrency")
    if isinstance(workers, int) and 1 <= workers <= 256:
        targets = [{**target, "workers": workers} for target in targets]
    findings.unread()
    found = sorted(
        dict.fromkeys(findings.reader.warnings), key=lambda one: (str(one.path), one.line or 0, one.column or 0)
    )
    return ImportedSuite(suite, {"targets": targets} if targets else None, tuple(found), findings.origin)


def _metadata(part: Part) -> dict[str, Any]:
    """Return what a file says of itself, as far as a suite may hold it."""
    found: dict[str, Any] = {}
    described = part.text("description")
    if part.first("name") and not (described and len(described) <= MOST_DESCRIPTION):
        part.none(
            "name", "name", remedy=f"a suite with a name has a description, of at most {MOST_DESCRIPTION} characters"
        )
    elif part.first("name"):
        found["name"] = re.sub(r"[^a-z0-9-]+", "-", (part.text("name") or "").lower()).strip("-")[:64]
    found = {name: value for name, value in found.items() if value} | ({"description": described} if described else {})
    found |= {name: value for name in ("version", "author", "license") if (value := part.text(name))}
    found |= {"requires": requires} if (requires := part.mapping("requires")) else {}
    tags = part.take("tags")
    if isinstance(tags, dict):
        found["tags"] = [f"{name}:{value}" for name, value in tags.items()]
    elif tags is not None:
        found["tags"] = [str(tag) for tag in listed(tags)]
    reader = Reader(part.findings.reader.files, part.findings.out)
    if found and reader.validated(SuiteFields, found, part.entry, "suite") is None:
        part.findings.reader.warnings += reader.problems
        found = {}
    # Nothing here reads it; it stays with the suite.
    governance = part.take("governance")
    return found | ({} if governance is None else {"x-governance": governance})


def write_import(imported: ImportedSuite, source: Path, out: Path, *, force: bool = False) -> list[Path]:
    """Write an import to a folder and return the files: ``<name>.eval.yaml``, and ``targets.yaml`` where there are targets.

    Raises ``ConfigError``: a file is there already and ``force`` is not set.
    """
    head = f"# Imported from {source.name} ({imported.origin}).\n"
    stem = re.sub(r"(\.eval)?\.(ya?ml|json)$", "", source.name, flags=re.IGNORECASE)
    stem = re.sub(r"[^\w.-]+", "-", stem) or "suite"
    texts = {out / f"{stem}.eval.yaml": head + to_yaml(imported.suite)}
    if imported.targets is not None:
        texts[out / "targets.yaml"] = head + to_yaml(imported.targets)
    there = [path for path in texts if path.exists()]
    if there and not force:
        raise ConfigError(
            f"{', '.join(map(str, there))} is there already; pass --force to replace it, or --out elsewhere"
        )
    for path, text in texts.items():
        write_atomically(path, text)
    return list(texts)


_ITEMS = {"type": "array", "items": {"$ref": "#/$defs/assert"}}
_CRITERIA = {"type": "array", "minItems": 1, "items": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/criterion"}]}}
_SCRIPT = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
_RANGES = {
    "anyOf": [
        {"type": "array", "items": {"$ref": "#/$defs/ScoreRange"}},
        {"type": "object", "additionalProperties": {"type": "string"}},
    ]
}
_MESSAGE = {
    "type": "object",
    "required": ["role"],
    "properties": {
        "role": {"enum": list(ROLES)},
        "content": {"anyOf": [{"type": "string"}, {"type": "object"}, {"type": "array", "items": {"type": "object"}}]},
        "name": {"type": "string"},
        "tool_calls": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool"],
                "properties": {"tool": {"type": "string"}, "input": {}, "output": {}},
            },
        },
    },
}
# Spellings that loading turns into a type's own fields.
_ALSO: dict[str, dict[str, Any]] = {
    "latency": {"threshold": {"type": "number", "minimum": 0}},
    "cost": {"budget": {"type": "number", "minimum": 0}},
    "rubrics": {"rubrics": _CRITERIA},
    "llm_judge": {"rubrics": _CRITERIA},
    "composite": {"evaluators": _ITEMS},
    "persona_drift": {"dimension": {"type": "string"}},
}
_AGGREGATORS = {
    "WeightedAverage": "weighted_average",
    "Threshold": "threshold",
    "CodeAggregator": "code_judge",
    "JudgeAggregator": "llm_judge",
}


def suite_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a suite file, every built-in assert type included."""
    models: list[type[Any]] = [SuiteFields, TestFields, TurnFields, SimulatedUser, ExecutionFields, WorkspaceFields]
    types = {name: model for name in BUILT_IN if (model := find_type(name))}
    _, generated = models_json_schema(
        [(model, "validation") for model in (*models, *dict.fromkeys(types.values()))], ref_template="#/$defs/{model}"
    )
    definitions: dict[str, Any] = generated["$defs"]
    for name, model in types.items():
        _finish_assert(name, model, definitions[model.__name__])
    for name, kind in _AGGREGATORS.items():
        definitions[name]["properties"]["type"] = {"enum": sorted({kind, kind.replace("_", "-")})}
    program = definitions["CodeAggregator"]
    program["properties"] |= {"path": _SCRIPT, "script": _SCRIPT}
    program |= {"required": ["type"], "anyOf": [{"required": ["path"]}, {"required": ["script"]}]}
    criterion = definitions["Criterion"]
    properties = {**criterion["properties"], "score_ranges": _RANGES}
    definitions["criterion"] = {**criterion, "properties": properties, "required": []}
    definitions["message"] = _MESSAGE
    definitions["assert"] = {
        "type": "object",
        "required": ["type"],
        "oneOf": [
            *({"$ref": f"#/$defs/{model.__name__}"} for model in types.values()),
            {"type": "object", "properties": {"type": {"type": "string", "not": {"enum": _spellings(*types)}}}},
        ],
    }
    execution, workspace = {"$ref": "#/$defs/ExecutionFields"}, {"$ref": "#/$defs/WorkspaceFields"}
    definitions["ExecutionFields"]["properties"]["evaluators"] = {**_ITEMS, "deprecated": True}
    for name in ("SuiteFields", "TestFields"):
        definitions[name]["properties"] |= {"execution": execution, "workspace": workspace}
    asked = ("input", "input_messages", "turns", "user")
    definitions["TestFields"]["anyOf"] = [{"required": [name]} for name in asked]
    definitions["TestFields"]["properties"]["user"] = {"$ref": "#/$defs/SimulatedUser"}
    definitions["TestFields"]["properties"]["rubrics"] = {**_CRITERIA, "deprecated": True, "minItems": 0}
    _drop_titles(definitions)
    suite = definitions.pop("SuiteFields")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Eval suite",
        **suite,
        "anyOf": [{"required": [name]} for name in ("tests", "eval_cases", "evalcases")],
        "dependentSchemas": {
            "name": {
                "required": ["description"],
                "properties": {"description": {"minLength": 1, "maxLength": MOST_DESCRIPTION}},
            }
        },
        "$defs": definitions,
    }


def _spellings(*names: str) -> list[str]:
    found = {*names, *(old for old, new in ALIASES.items() if canonical_type(new) in names)}
    return sorted(found | {name.replace("_", "-") for name in found})


def _finish_assert(name: str, model: type[AssertFields], definition: dict[str, Any]) -> None:
    properties = definition["properties"]
    properties["type"] = {"enum": _spellings(name)}
    properties |= _ALSO.get(name, {})
    # Fields of which one is enough.
    one_of = ("minimums", "expected") if name == "tool_trajectory" else next(iter(model.older_names.items()), ())
    one_of = model.limits if issubclass(model, SeveralLimits) else one_of
    definition["required"] = [field for field in definition.get("required", ()) if field not in one_of]
    if one_of:
        definition["anyOf"] = [{"required": [field]} for field in one_of]
    if name == "composite":
        properties["assert"] = _ITEMS
        # Its kinds have two spellings each, which a discriminator cannot know.
        properties["aggregator"] = {"oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in _AGGREGATORS]}
    if name in ("rubrics", "agent_judge"):
        properties["criteria" if name == "rubrics" else "rubrics"] = _CRITERIA
    if name == "code_judge":
        properties["script"] = _SCRIPT
        definition["additionalProperties"] = True


def _drop_titles(value: Any) -> None:
    """Remove the titles pydantic makes of field names; they say nothing a reader does not see."""
    if isinstance(value, dict):
        if isinstance(value.get("title"), str) and "type" in value | {"type": 1}:
            value.pop("title")
        for item in value.values():
            _drop_titles(item)
    elif isinstance(value, list):
        for item in value:
            _drop_titles(item)
