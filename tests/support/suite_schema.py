"""The JSON schema of a suite file, made of the models that load one.

``python -m tests.support.suite_schema`` writes it to the package and to ``schemas/``; a test holds both to the models.
"""

import json
from typing import Any

from pydantic.json_schema import models_json_schema

from persona_pipeline.suites.asserts.limits import SeveralLimits
from persona_pipeline.suites.format.models import (
    MOST_DESCRIPTION,
    AssertFields,
)
from persona_pipeline.suites.format.registry import ALIASES, BUILT_IN, canonical_type, find_type
from persona_pipeline.suites.format.suite import SuiteFields
from persona_pipeline.suites.format.tests import MessageFields, TestFields, TurnFields
from tests.conftest import PROJECT

PACKAGED = PROJECT / "persona_pipeline/suites/format/data/suite.json"

_ITEMS = {"type": "array", "items": {"$ref": "#/$defs/assert"}}
_CRITERIA = {"type": "array", "minItems": 1, "items": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/criterion"}]}}
_SCRIPT = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
_RANGES = {
    "anyOf": [
        {"type": "array", "items": {"$ref": "#/$defs/ScoreRange"}},
        {"type": "object", "additionalProperties": {"type": "string"}},
    ]
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
    models: list[type[Any]] = [SuiteFields, TestFields, TurnFields, MessageFields]
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
    definitions["assert"] = {
        "type": "object",
        "required": ["type"],
        "oneOf": [
            *({"$ref": f"#/$defs/{model.__name__}"} for model in types.values()),
            {"type": "object", "properties": {"type": {"type": "string", "not": {"enum": _spellings(*types)}}}},
        ],
    }
    definitions["ExecutionFields"]["properties"]["evaluators"] = {**_ITEMS, "deprecated": True}
    asked = ("input", "input_messages", "turns", "user")
    definitions["TestFields"]["anyOf"] = [{"required": [name]} for name in asked]
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
    found = {*names, *(old for old in ALIASES if canonical_type(old) in names)}
    return sorted(found | {name.replace("_", "-") for name in found})


def _finish_assert(name: str, model: type[AssertFields], definition: dict[str, Any]) -> None:
    properties = definition["properties"]
    properties["type"] = {"enum": _spellings(name)}
    properties |= _ALSO.get(name, {})
    # Fields of which one is enough.
    renamed = next((pair for pair in model.older_names.items() if pair[0] in definition.get("required", ())), ())
    one_of = ("minimums", "expected") if name == "tool_trajectory" else renamed
    one_of = model.limits if issubclass(model, SeveralLimits) and not renamed else one_of
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


def packaged_text() -> str:
    """Return the schema as the package holds it: one definition a line, so that a change shows as its line."""
    schema = suite_schema()
    definitions = schema.pop("$defs")
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in definitions.items())
    return f'{json.dumps(schema)[:-1]}, "$defs": {{\n{lines}\n}}}}\n'


if __name__ == "__main__":
    PACKAGED.parent.mkdir(exist_ok=True)
    PACKAGED.write_text(packaged_text(), encoding="utf-8")
    text = json.dumps(suite_schema(), indent=2) + "\n"
    (PROJECT / "schemas/suite.json").write_text(text, encoding="utf-8")
