"""Evaluators of pydantic-evals: each as the assert that the other importers know, or named where there is none."""

from collections.abc import Mapping
from typing import Any

from persona_pipeline.suites.format.problems import ConfigEntry
from persona_pipeline.suites.importing.findings import Findings

# What a type of Python's is in JSON.
_TYPES = {"dict": "object", "list": "array", "int": "integer", "float": "number", "bool": "boolean", "NoneType": "null"}
# The one argument of a short form: ``Contains: text``.
_FIRST = {
    "Equals": "value",
    "Contains": "value",
    "IsInstance": "type_name",
    "MaxDuration": "seconds",
    "LLMJudge": "rubric",
}
_KNOWN = {
    "Equals": ("value",),
    "EqualsExpected": (),
    "Contains": ("value", "case_sensitive", "as_strings"),
    "IsInstance": ("type_name",),
    "MaxDuration": ("seconds",),
    # Judges here see question and expected output always.
    "LLMJudge": ("rubric", "include_input", "include_expected_output", "assertion"),
}
_REMEDIES = {"HasMatchingSpan": "check tool calls with tool_trajectory"}


def as_assert(findings: Findings, entry: ConfigEntry, variables: Mapping[str, Any]) -> ConfigEntry | None:
    """Return the assert that an evaluator is, at its place; None, and a finding, where there is none."""
    data = entry.data
    if isinstance(data, str):
        data = {data: {}}
    if not isinstance(data, dict) or len(data) != 1:
        return findings.none(entry, "an evaluator that is no name with its arguments")
    name, given = next(iter(data.items()))
    if name not in _KNOWN:
        return findings.none(entry, f"evaluator {name}", remedy=_REMEDIES.get(name, "write an assert type"))
    arguments = given if isinstance(given, dict) else {_FIRST[name]: given} if name in _FIRST else {}
    named = {"evaluation_name": arguments["evaluation_name"]} if "evaluation_name" in arguments else {}
    findings.leftovers(
        ConfigEntry(arguments, entry.source, (*entry.location, name)),
        (*_KNOWN[name], "evaluation_name"),
        f"evaluator {name}: ",
    )
    made = _made(findings, entry, name, arguments, variables)
    return (
        None
        if made is None
        else ConfigEntry(made | {"name": named.get("evaluation_name")}, entry.source, entry.location)
    )


def _made(
    findings: Findings, entry: ConfigEntry, name: str, arguments: Mapping[str, Any], variables: Mapping[str, Any]
) -> dict[str, Any] | None:
    value = variables.get("expected_output") if name == "EqualsExpected" else arguments.get(_FIRST[name])
    if value is None:
        # Without an expected output there is nothing to equal, there as here.
        return None if name == "EqualsExpected" else findings.none(entry, f"evaluator {name} without its argument")
    if name in ("Equals", "EqualsExpected"):
        return {"type": "equals", "value": value} if isinstance(value, str) else _json({"const": value})
    if name == "MaxDuration":
        return {"type": "latency", "threshold": value * 1000}
    if name == "LLMJudge":
        return {"type": "llm-rubric", "value": value}
    if name == "Contains":
        if not isinstance(value, str) and arguments.get("as_strings") is not True:
            return findings.none(entry, "evaluator Contains with data", remedy="compare fields with field_accuracy")
        return {"type": "icontains" if arguments.get("case_sensitive") is False else "contains", "value": str(value)}
    if value in _TYPES:
        return _json({"type": _TYPES[value]})
    said = (
        "holds for every answer, which is text here" if value == "str" else "is of a class that answers have not here"
    )
    return findings.none(entry, f"evaluator IsInstance: {value} {said}, and")


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "is_json", "value": schema}
