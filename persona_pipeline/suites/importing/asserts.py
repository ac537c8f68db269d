"""Asserts of promptfoo and AgentV, and evaluators of pydantic-evals, converted to asserts of a suite."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from persona_pipeline.suites.format.models import apart
from persona_pipeline.suites.format.problems import ConfigEntry
from persona_pipeline.suites.format.tests import read_assert
from persona_pipeline.suites.importing.computed import CONVERTERS, ConvertedAssert
from persona_pipeline.suites.importing.findings import PROGRAM, PYDANTIC_EVALS, TABLES, FilePart, Findings
from persona_pipeline.suites.importing.prompts import alone_in, filled, plain

# Types of other tools without a counterpart, with a remedy.
REMEDIES: dict[str, str] = TABLES["asserts"]["without_counterpart"]
# Types that pass at their threshold: 0 lets everything pass.
_PASS_FROM_THRESHOLD = ("assert_set", "g_eval")
_GROUPS = ("assert", "assertions", "evaluators")
# Keys of a composite's members that AgentV ignores, with their defaults.
_LEFT_ASIDE = {"negate": False, "weight": 1, "required": False}
# Lowest mean score that is not a failure, and lowest that passes.
NO_FAILURE, PASSES = 0.6, 0.8
_FACTS = "Agrees with these facts and contradicts none of them: "
# Python's types in JSON.
_TYPES: dict[str, str] = TABLES["asserts"]["types_of_python"]
# The first argument of each evaluator, which may have no name (``Contains: text``).
_ARGUMENTS: dict[str, str] = TABLES["asserts"]["first_argument"]


def _criteria(prefix: str = "", limit: float | None = None) -> Callable[[ConvertedAssert], dict[str, Any] | None]:
    def convert(item: ConvertedAssert) -> dict[str, Any] | None:
        value, prompt = item.value(), item.take("prompt", "rubricPrompt", "rubric_prompt")
        criteria = item.take("criteria", "rubrics")
        if isinstance(prompt, dict | list) or (isinstance(prompt, str) and PROGRAM.search(prompt)):
            return item.refused(f"{item.type} with a program as its prompt", "write the prompt out")
        if isinstance(prompt, str) and prompt.startswith(("file://", "./", "../")):
            prompt = item.file(prompt, "prompt").written()
            if prompt is None:
                return None
        value = value if value is not None else criteria
        if isinstance(value, list) and value:
            marks = {"score_ranges", "min_score", "required_min_score"}
            scored = any(isinstance(one, dict) and marks & set(one) for one in value)
            made: dict[str, Any] = {"type": "rubrics", "criteria": [_criterion(item, one, scored) for one in value]}
            return made | ({"prompt": prompt} if prompt else {})
        if isinstance(value, dict):
            return item.refused(f"{item.type} with data as its value", "write a list of criteria")
        passes = item.threshold if item.threshold is not None else limit
        if passes is None and isinstance(value, str) and not prompt:
            return {"type": "rubrics", "criteria": [prefix + value]}
        if value is not None and prompt:
            item.none("a value beside a prompt", "value", remedy="write it into the prompt")
        text = prompt if prompt is not None else value
        made = {"type": "llm_judge"} | ({"prompt": prefix + text} if isinstance(text, str) else {})
        return made | ({"_passes_from": passes} if passes else {})

    return convert


def _criterion(item: ConvertedAssert, value: Any, scored: bool) -> Any:
    """Convert a criterion of AgentV: required by default, with its minimum as a share, and its operator as a question."""
    if not isinstance(value, dict):
        return {"outcome": plain(value)} if scored else plain(value)
    made = {key: part for key, part in value.items() if key not in ("operator", "min_score", "description")}
    if "description" in value:
        made.setdefault("outcome", value["description"])
    if value.get("operator") == "contradiction":
        made["outcome"] = f"Says nothing that contradicts this, or does not speak of it: {made.get('outcome', '')}"
    elif value.get("operator") not in (None, "correctness"):
        item.none(f"operator {value['operator']}", "value")
    if isinstance(value.get("min_score"), int | float):
        made["required_min_score"] = math.ceil(10 * value["min_score"] - 1e-9)
    if not scored:
        made.setdefault("required", True)
    return made


def read_asserts(
    findings: Findings, parts: Sequence[FilePart], variables: Mapping[str, Any], *, gates: bool
) -> list[dict[str, Any]]:
    """Return the converted asserts.

    ``variables``: values for their templates. ``gates``: each must pass for the test to pass, as in promptfoo without a
    threshold.
    """
    found: list[dict[str, Any]] = []
    if findings.origin == PYDANTIC_EVALS:
        parts = [made for part in parts if (made := _of_evaluator(part, variables)) is not None]
    criteria = [part for part in parts if isinstance(part.data, str) and part.data.strip()]
    texts = [text for part in criteria if (text := filled(part, part.data, variables)) is not None]
    if texts:
        found.append({"type": "rubrics", "criteria": texts, "weight": len(texts)})
    for given in parts:
        if isinstance(given.data, str):
            continue
        part = _referenced(given)
        if part.first("type") is None or not isinstance(part.data["type"], str):
            part.dropped("an assert without type")
            continue
        part.label = f"{{}} of assert {part.take('type')}"
        made = _converted(part, variables, gates)
        if made is not None and part.valid(made, lambda reader, entry: read_assert(reader, entry, "assert", 0)):
            found.append(made)
        else:
            # One finding covers the whole assert.
            part.used.update(part.data)
    if findings.promptfoo and found and all(made.get("weight") == 0 for made in found):
        parts[0].warn("asserts that all have weight 0 pass always; here nothing is left to score by")
    taken: set[str] = set()
    for made in found:
        if made.get("name"):
            made["name"] = apart(made["name"], taken)
    return found


def _of_evaluator(part: FilePart, variables: Mapping[str, Any]) -> FilePart | None:
    """Return the assert for an evaluator; None, with a finding, without a counterpart."""
    data: dict[str, Any] = part.data if isinstance(part.data, dict) else {str(part.data): {}}
    name, given = next(iter(data.items()), ("", {}))
    if name not in _ARGUMENTS:
        return part.dropped(f"evaluator {name}", REMEDIES.get(name, "write an assert type"))
    first = _ARGUMENTS[name]
    part.used.add(name)
    if isinstance(given, dict) and isinstance(part.data, dict):
        arguments = part.child(name, label=f"evaluator {name}: {{}}")
    else:
        arguments = part.made({first: given} if isinstance(part.data, dict) else {})
    value = arguments.take(first)
    value = variables.get("expected_output") if name == "EqualsExpected" else value
    if value is None:
        # Without an expected output there is nothing to compare, there as here.
        return None if name == "EqualsExpected" else part.none(f"evaluator {name} without its {first}")
    made: dict[str, Any] | None = None
    if name.startswith("Equals"):
        same = {"type": "is_json", "value": {"const": value}}
        made = {"type": "equals", "value": value} if isinstance(value, str) else same
    elif name == "MaxDuration" and isinstance(value, int | float):
        made = {"type": "latency", "threshold": value * 1000}
    elif name == "LLMJudge":
        # Judges here always see the question and the expected output.
        for key in ("include_input", "include_expected_output", "assertion"):
            arguments.take(key)
        made = {"type": "llm-rubric", "value": value}
    elif name == "Contains":
        as_text, exact = arguments.take("as_strings") is True, arguments.take("case_sensitive") is not False
        text = {"type": "contains" if exact else "icontains", "value": str(value)}
        made = text if as_text or isinstance(value, str) else None
    elif name == "IsInstance" and str(value) in _TYPES:
        made = {"type": "is_json", "value": {"type": _TYPES[str(value)]}}
    if made is None:
        remedy = "answers are text; compare fields with field_accuracy"
        return part.dropped(f"evaluator {name} of {value}", remedy)
    return part.made(made | {"name": arguments.take("evaluation_name")})


def _referenced(part: FilePart) -> FilePart:
    """Follow ``$ref: '#/assertionTemplates/name'``."""
    reference = part.data.get("$ref") if isinstance(part.data, dict) else None
    document = getattr(part.entry.source, "data", None)
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return part
    keys = reference[2:].split("/")
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    if document is None:
        return part
    part.used.update(part.data)
    own = {key: value for key, value in part.data.items() if key != "$ref"}
    data = {**document, **own} if isinstance(document, dict) and own else document
    return part.findings.part(ConfigEntry(data, part.entry.source, tuple(keys)))


def _converted(part: FilePart, variables: Mapping[str, Any], gates: bool) -> dict[str, Any] | None:
    findings, spelled = part.findings, part.data["type"]
    negated = spelled.startswith("not-")
    kind = spelled.removeprefix("not-").replace("-", "_")
    convert = _CONVERTERS.get(kind)
    if convert is None:
        return part.none(f"assert {spelled}", "type", remedy=REMEDIES.get(kind, ""))
    # Promptfoo does not fill templates inside data.
    value = part.data.get("value")
    kept = (*_GROUPS, "value") if findings.promptfoo and isinstance(value, dict) else _GROUPS
    inner = {key: value for key, value in part.data.items() if key in kept}
    data = filled(part, {k: v for k, v in part.data.items() if k not in inner}, variables)
    if data is None:
        return None
    if findings.promptfoo and any(isinstance(variables.get(name), dict | list) for name in alone_in(value)):
        part.warn("data in an assert's template is [object Object] there; here it is JSON", "value")
    whole = ConfigEntry({**data, **inner}, part.entry.source, part.entry.location)
    item = ConvertedAssert(findings, whole, part.label, part.used, kind, variables, gates=gates)
    limit = item.take("threshold", "min_score")
    item.threshold = float(limit) if isinstance(limit, int | float) and not isinstance(limit, bool) else None
    made = convert(item)
    negated = negated != (made is not None and item.take("negate") is True)
    return made and _with_common(item, made, gates, negated=negated)


def _with_common(item: ConvertedAssert, made: dict[str, Any], gates: bool, *, negated: bool) -> dict[str, Any]:
    name = item.take("metric", "name")
    head: dict[str, Any] = {"type": made.pop("type")}
    if isinstance(name, str) and name:
        head["name"] = name
    weight, required = item.take("weight"), item.take("required")
    if weight is not None:
        made["weight"] = weight
    if negated:
        made["negate"] = True
    limit = made.pop("_passes_from", None) or (item.threshold if required is True else None)
    always = item.findings.promptfoo and item.threshold == 0 and item.kind in _PASS_FROM_THRESHOLD
    # With a weight of 0 an assert's verdict does not count, but that of a set does.
    gate = required or (gates and not always and (weight != 0 or item.kind == "assert_set"))
    if always:
        item.warn(f"{item.type} with a threshold of 0 passes always; here its score still counts", "threshold")
    if gate:
        made["required"] = required if limit is None or isinstance(required, float) else limit
        made["required"] = made["required"] or True
    if limit and gate and limit < PASSES:
        said = f"passes from {limit:g} on, and counts with its score: below {PASSES} it can keep a test from passing"
        item.warn(f"{item.type} {said}", "threshold")
    elif (limit or item.threshold) and not gate and not item.findings.promptfoo:
        item.none(f"threshold of {item.type} that is not required", "threshold")
    return head | made


def _group(item: ConvertedAssert) -> dict[str, Any] | None:
    key = next((name for name in _GROUPS if name in item.data), "assert")
    members = item.take(key)
    aggregator = item.take("aggregator")
    if not isinstance(members, list):
        return item.refused(f"{item.type} without asserts")
    findings, here = item.findings, (id(item.entry.source), item.entry.location)
    if here in findings.groups:
        return item.refused(f"{item.type} that holds itself")
    findings.spend("groups", 1, item)
    strict = item.gates and item.threshold is None
    places = [item.child(key, index) for index in range(len(members))]
    for place in (part for part in places if isinstance(part.data, dict)):
        if findings.promptfoo and place.data.get("type") == "assert-set":
            place.warn("an assert-set in an assert-set is an error there; here it counts")
        for name, usual in _LEFT_ASIDE.items() if item.kind == "composite" and not findings.promptfoo else ():
            if place.data.get(name, usual) != usual:
                place.warn(f"{name} of a composite's member counts here; AgentV leaves it aside", name)
    findings.groups.append(here)
    found = read_asserts(findings, places, item.variables, gates=strict)
    findings.groups.pop()
    if not found:
        return item.refused(f"{item.type} of which nothing is left")
    made = {"type": "composite", "assert": found, "aggregator": aggregator or {"type": "weighted_average"}}
    return made | ({"_passes_from": item.threshold} if item.threshold else {})


def over_threshold(part: FilePart, asserts: list[dict[str, Any]], threshold: float) -> list[dict[str, Any]]:
    """Return one group whose mean score must reach a threshold."""
    if threshold < NO_FAILURE:
        said = f"threshold {threshold:g}: a test fails below {NO_FAILURE}, which is the least a suite can ask"
        part.warn(said, "threshold")
    if threshold <= 0 or not asserts:
        return asserts
    group = {"type": "composite", "name": "all", "assert": asserts, "aggregator": {"type": "weighted_average"}}
    return [group | {"required": min(1.0, threshold)}]


_CONVERTERS = {
    **CONVERTERS,
    **dict.fromkeys(("llm_rubric", "model_graded_closedqa", "rubrics", "rubric"), _criteria()),
    **dict.fromkeys(("llm_grader", "llm_judge"), _criteria()),
    **dict.fromkeys(("factuality", "model_graded_factuality"), _criteria(_FACTS)),
    "g_eval": _criteria(limit=0.7),
    **dict.fromkeys(("assert_set", "composite"), _group),
}
# Promptfoo's types as a table's cell may spell them.
TYPES = sorted({name.replace("_", "-") for name in (*_CONVERTERS, *REMEDIES) if name.islower()})
