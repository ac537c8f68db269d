"""The JSON schema of suite files, for editors: made from the models that loading checks against."""

from typing import Any

from pydantic.json_schema import models_json_schema

from persona_pipeline.suites.asserts.agent_judge import AgentJudge
from persona_pipeline.suites.asserts.base import Assert
from persona_pipeline.suites.asserts.code_judge import CodeJudge
from persona_pipeline.suites.asserts.composite import Composite
from persona_pipeline.suites.asserts.rubrics import Rubrics
from persona_pipeline.suites.loading.execution import ExecutionFields, WorkspaceFields
from persona_pipeline.suites.loading.messages import ROLES
from persona_pipeline.suites.loading.suite import SuiteFields
from persona_pipeline.suites.loading.tests import TestFields
from persona_pipeline.suites.registry import ALIASES, BUILT_IN, canonical_type, find_type

_ITEMS = {"type": "array", "items": {"$ref": "#/$defs/assert"}}
_CRITERIA = {
    "type": "array",
    "minItems": 1,
    "items": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/criterion"}]},
}
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
_NO_LONGER_REQUIRED = {"latency": "max_ms", "cost": "max_usd", "rubrics": "criteria", "composite": "assert"}


def suite_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a suite file, every built-in assert type included."""
    models: list[type[Any]] = [SuiteFields, TestFields, ExecutionFields, WorkspaceFields]
    types = {name: model for name in BUILT_IN if (model := find_type(name))}
    _, generated = models_json_schema(
        [(model, "validation") for model in (*models, *dict.fromkeys(types.values()))],
        ref_template="#/$defs/{model}",
    )
    definitions: dict[str, Any] = generated["$defs"]
    for name, model in types.items():
        _finish_assert(name, model, definitions[model.__name__])
    definitions["criterion"] = _criterion(definitions["Criterion"])
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
    definitions["TestFields"]["properties"]["rubrics"] = {**_CRITERIA, "deprecated": True, "minItems": 0}
    _drop_titles(definitions)
    suite = definitions.pop("SuiteFields")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Eval suite",
        **suite,
        "anyOf": [{"required": [name]} for name in ("tests", "eval_cases", "evalcases")],
        "dependentRequired": {"name": ["description"]},
        "$defs": definitions,
    }


def _spellings(*names: str) -> list[str]:
    found = {*names, *(old for old, new in ALIASES.items() if canonical_type(new) in names)}
    return sorted(found | {name.replace("_", "-") for name in found})


def _finish_assert(name: str, model: type[Assert], definition: dict[str, Any]) -> None:
    properties = definition["properties"]
    properties["type"] = {"enum": _spellings(name)}
    properties |= _ALSO.get(name, {})
    required = [field for field in definition.get("required", ()) if field != _NO_LONGER_REQUIRED.get(name)]
    definition["required"] = required
    if model is Composite:
        properties["assert"] = _ITEMS
        properties["aggregator"] = _aggregator(properties["aggregator"])
    if model in (Rubrics, AgentJudge):
        properties["criteria" if model is Rubrics else "rubrics"] = _CRITERIA
    if model is CodeJudge:
        properties["script"] = _SCRIPT
        definition["additionalProperties"] = True


def _aggregator(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "anyOf": [{"type": "object", "required": ["type"]}],
        **{k: v for k, v in schema.items() if k == "description"},
    }


def _criterion(schema: dict[str, Any]) -> dict[str, Any]:
    properties = {**schema["properties"], "score_ranges": _RANGES}
    return {**schema, "properties": properties, "required": []}


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
