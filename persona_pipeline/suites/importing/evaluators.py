"""Evaluators of pydantic-evals: each as the assert that the other importers know, or named where there is none."""

from collections.abc import Mapping
from typing import Any

from persona_pipeline.suites.format.problems import ConfigEntry
from persona_pipeline.suites.importing.findings import Findings

# What a type of Python's is in JSON.
_TYPES = {"dict": "object", "list": "array", "int": "integer", "float": "number", "bool": "boolean", "NoneType": "null"}
# The arguments of each; the first may stand alone (``Contains: text``). Judges here see question and expected output always.
_ARGUMENTS = {
    "Equals": ("value",),
    "EqualsExpected": ("value",),
    "Contains": ("value", "case_sensitive", "as_strings"),
    "IsInstance": ("type_name",),
    "MaxDuration": ("seconds",),
    "LLMJudge": ("rubric", "include_input", "include_expected_output", "assertion"),
}
_REMEDIES = {"HasMatchingSpan": "check tool calls with tool_trajectory"}


def as_assert(findings: Findings, entry: ConfigEntry, variables: Mapping[str, Any]) -> ConfigEntry | None:
    """Return the assert that an evaluator is, at its place; None, and a finding, where there is none."""
    data: dict[str, Any] = entry.data if isinstance(entry.data, dict) else {str(entry.data): {}}
    name, given = next(iter(data.items()), ("", {}))
    if name not in _ARGUMENTS:
        return findings.none(entry, f"evaluator {name}", remedy=_REMEDIES.get(name, "write an assert type"))
    first, *more = _ARGUMENTS[name]
    arguments = given if isinstance(given, dict) else {first: given}
    place = ConfigEntry(arguments, entry.source, (*entry.location, name))
    findings.leftovers(place, (first, *more, "evaluation_name"), f"evaluator {name}: ")
    value = variables.get("expected_output") if name == "EqualsExpected" else arguments.get(first)
    if value is None:
        # Without an expected output there is nothing to equal, there as here.
        return None if name == "EqualsExpected" else findings.none(entry, f"evaluator {name} without its {first}")
    made: dict[str, Any] | None = None
    if name.startswith("Equals"):
        same = {"type": "is_json", "value": {"const": value}}
        made = {"type": "equals", "value": value} if isinstance(value, str) else same
    elif name == "MaxDuration":
        made = {"type": "latency", "threshold": value * 1000}
    elif name == "LLMJudge":
        made = {"type": "llm-rubric", "value": value}
    elif name == "Contains" and (isinstance(value, str) or arguments.get("as_strings") is True):
        made = {"type": "icontains" if arguments.get("case_sensitive") is False else "contains", "value": str(value)}
    elif name == "IsInstance" and value in _TYPES:
        made = {"type": "is_json", "value": {"type": _TYPES[value]}}
    if made is None:
        return findings.none(
            entry, f"evaluator {name} of {value}", remedy="answers are text; compare fields with field_accuracy"
        )
    return ConfigEntry(made | {"name": arguments.get("evaluation_name")}, entry.source, entry.location)
