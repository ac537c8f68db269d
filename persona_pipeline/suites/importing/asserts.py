"""Asserts of promptfoo and AgentV, and evaluators of pydantic-evals, as ours; what has no counterpart is named and left out."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from persona_pipeline.suites.asserts import registry
from persona_pipeline.suites.format.loading.tests import read_assert
from persona_pipeline.suites.format.models import apart
from persona_pipeline.suites.format.problems import ConfigEntry, Reader
from persona_pipeline.suites.importing.computed import COMMON, CONVERTERS, ConvertedAssert, plain
from persona_pipeline.suites.importing.findings import PYDANTIC_EVALS, Findings
from persona_pipeline.suites.importing.prompts import alone_in, filled

REMEDIES = {
    **dict.fromkeys(("ruby", "webhook"), "write a code_judge"),
    "HasMatchingSpan": "check tool calls with tool_trajectory",
    **dict.fromkeys(("select_best", "max_score"), "compare runs with pairwise or suite compare --pairwise"),
    **dict.fromkeys(("similar", "rouge_n", "bleu", "gleu", "meteor", "levenshtein"), "say in rubrics what must agree"),
}
# Types whose threshold alone decides: 0 lets everything pass.
_PASS_FROM_THRESHOLD = ("assert_set", "g_eval")
_GROUPS = ("assert", "assertions", "evaluators")
# Of a composite's members, with what stands for nothing said.
_LEFT_ASIDE = {"negate": False, "weight": 1, "required": False}
# From here on a mean score is no failure, and from there on a pass.
NO_FAILURE, PASSES = 0.6, 0.8
_FACTS = "Agrees with these facts and contradicts none of them: "
_PROGRAM = re.compile(r"\.(js|mjs|ts|py)(:\w+)?$")
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


def _criteria(prefix: str = "", limit: float | None = None) -> Callable[[ConvertedAssert], dict[str, Any] | None]:
    def convert(item: ConvertedAssert) -> dict[str, Any] | None:
        value, prompt = item.value(), item.take("prompt", "rubricPrompt", "rubric_prompt")
        criteria = item.take("criteria", "rubrics")
        if isinstance(prompt, dict | list) or (isinstance(prompt, str) and _PROGRAM.search(prompt)):
            return item.none(f"{item.data['type']} with a program as its prompt", "write the prompt out")
        if isinstance(prompt, str) and prompt.startswith(("file://", "./", "../")):
            prompt = item.findings.relocated(item.entry, prompt)
        value = value if value is not None else criteria
        if isinstance(value, list) and value:
            marks = {"score_ranges", "min_score", "required_min_score"}
            scored = any(isinstance(one, dict) and marks & set(one) for one in value)
            made: dict[str, Any] = {"type": "rubrics", "criteria": [_criterion(item, one, scored) for one in value]}
            return made | ({"prompt": prompt} if prompt else {})
        if isinstance(value, dict):
            return item.none(f"{item.data['type']} with data as its value", "write a list of criteria")
        passes = item.threshold if item.threshold is not None else limit
        if passes is None and isinstance(value, str) and not prompt:
            return {"type": "rubrics", "criteria": [prefix + value]}
        if value is not None and prompt:
            item.findings.none(item.entry, "a value beside a prompt", "value", remedy="write it into the prompt")
        text = prompt if prompt is not None else value
        made = {"type": "llm_judge"} | ({"prompt": prefix + text} if isinstance(text, str) else {})
        return made | ({"_passes_from": passes} if passes else {})

    return convert


def _criterion(item: ConvertedAssert, value: Any, scored: bool) -> Any:
    """A criterion of AgentV: met or not, it is required unless it says no; a minimum is a share, an operator turns the question."""
    if not isinstance(value, dict):
        return {"outcome": plain(value)} if scored else plain(value)
    made = {key: part for key, part in value.items() if key not in ("operator", "min_score", "description")}
    if "description" in value:
        made.setdefault("outcome", value["description"])
    if value.get("operator") == "contradiction":
        made["outcome"] = f"Says nothing that contradicts this, or does not speak of it: {made.get('outcome', '')}"
    elif value.get("operator") not in (None, "correctness"):
        item.findings.none(item.entry, f"operator {value['operator']}", "value")
    if isinstance(value.get("min_score"), int | float):
        made["required_min_score"] = math.ceil(10 * value["min_score"] - 1e-9)
    if not scored:
        made.setdefault("required", True)
    return made


def read_asserts(
    findings: Findings, entries: Sequence[ConfigEntry], variables: Mapping[str, Any], *, gates: bool
) -> list[dict[str, Any]]:
    """Return the asserts that these have a counterpart in.

    ``variables``: fill the templates in them. ``gates``: each must pass for the test to pass, as promptfoo has it where no
    threshold is given.
    """
    found: list[dict[str, Any]] = []
    if findings.origin == PYDANTIC_EVALS:
        entries = [made for entry in entries if (made := _of_evaluator(findings, entry, variables)) is not None]
    criteria = [entry for entry in entries if isinstance(entry.data, str) and entry.data.strip()]
    texts = [text for entry in criteria if (text := filled(findings, entry, entry.data, variables)) is not None]
    if texts:
        found.append({"type": "rubrics", "criteria": texts, "weight": len(texts)})
    for entry in entries:
        if isinstance(entry.data, str):
            continue
        entry = _referenced(findings, entry)
        if not isinstance(entry.data, dict) or not isinstance(entry.data.get("type"), str):
            findings.none(entry, "an assert without type")
            continue
        made = _converted(findings, entry, variables, gates)
        if made is not None and (checked := _checked(findings, entry, made)):
            found.append(checked)
    if findings.promptfoo and found and all(made.get("weight") == 0 for made in found):
        findings.differs(entries[0], "asserts that all have weight 0 pass always; here nothing is left to score by")
    taken: set[str] = set()
    for made in found:
        if made.get("name"):
            made["name"] = apart(made["name"], taken)
    return found


def _of_evaluator(findings: Findings, entry: ConfigEntry, variables: Mapping[str, Any]) -> ConfigEntry | None:
    """Return the assert that an evaluator is, at its place; None, and a finding, where there is none."""
    data: dict[str, Any] = entry.data if isinstance(entry.data, dict) else {str(entry.data): {}}
    name, given = next(iter(data.items()), ("", {}))
    if name not in _ARGUMENTS:
        return findings.none(entry, f"evaluator {name}", remedy=REMEDIES.get(name, "write an assert type"))
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


def _referenced(findings: Findings, entry: ConfigEntry) -> ConfigEntry:
    """Follow ``$ref: '#/assertionTemplates/name'``."""
    reference = entry.data.get("$ref") if isinstance(entry.data, dict) else None
    document = getattr(entry.source, "data", None)
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return entry
    keys = reference[2:].split("/")
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    if document is None:
        return entry
    own = {key: value for key, value in entry.data.items() if key != "$ref"}
    return ConfigEntry({**document, **own} if isinstance(document, dict) else document, entry.source, tuple(keys))


def _converted(
    findings: Findings, entry: ConfigEntry, variables: Mapping[str, Any], gates: bool
) -> dict[str, Any] | None:
    spelled = entry.data["type"]
    negated = spelled.startswith("not-")
    kind = spelled.removeprefix("not-").replace("-", "_")
    convert = _CONVERTERS.get(kind)
    if convert is None:
        findings.none(entry, f"assert {spelled}", "type", remedy=REMEDIES.get(kind, ""))
        return None
    # Templates in data are promptfoo's text.
    value = entry.data.get("value")
    kept = (*_GROUPS, "value") if findings.promptfoo and isinstance(value, dict) else _GROUPS
    inner = {key: value for key, value in entry.data.items() if key in kept}
    data = filled(findings, entry, {k: v for k, v in entry.data.items() if k not in inner}, variables)
    if data is None:
        return None
    if findings.promptfoo and any(isinstance(variables.get(name), dict | list) for name in alone_in(value)):
        findings.differs(entry, "data in an assert's template is [object Object] there; here it is JSON", "value")
    item = ConvertedAssert(findings, entry, kind, {**data, **inner}, variables, gates=gates)
    limit = data.get("threshold", data.get("min_score"))
    item.threshold = float(limit) if isinstance(limit, int | float) and not isinstance(limit, bool) else None
    made = convert(item)
    if made is None:
        return None
    for key in sorted(set(item.data) - set(COMMON)):
        if item.data[key] is not None:
            findings.none(entry, f"{key} of assert {spelled}", key)
    return _with_common(item, made, gates, negated=negated != (data.get("negate") is True))


def _with_common(item: ConvertedAssert, made: dict[str, Any], gates: bool, *, negated: bool) -> dict[str, Any]:
    name = item.data.get("metric") or item.data.get("name")
    head: dict[str, Any] = {"type": made.pop("type")}
    if isinstance(name, str):
        head["name"] = name
    weight, required = item.data.get("weight"), item.data.get("required")
    if weight is not None:
        made["weight"] = weight
    if negated:
        made["negate"] = True
    limit = made.pop("_passes_from", None) or (item.threshold if required is True else None)
    always = item.findings.promptfoo and item.threshold == 0 and item.kind in _PASS_FROM_THRESHOLD
    # A weight of 0 frees an assert from its verdict, but not a set.
    gate = required or (gates and not always and (weight != 0 or item.kind == "assert_set"))
    if always:
        said = f"{item.entry.data['type']} with a threshold of 0 passes always; here its score still counts"
        item.findings.differs(item.entry, said, "threshold")
    if gate:
        made["required"] = required if limit is None or isinstance(required, float) else limit
        made["required"] = made["required"] or True
    if limit and gate and limit < PASSES:
        said = f"passes from {limit:g} on, and counts with its score: below {PASSES} it can keep a test from passing"
        item.findings.differs(item.entry, f"{item.entry.data['type']} {said}", "threshold")
    elif limit and not gate and not item.findings.promptfoo:
        item.findings.none(item.entry, f"threshold of {item.entry.data['type']} that is not required", "threshold")
    return head | made


def _checked(findings: Findings, entry: ConfigEntry, made: dict[str, Any]) -> dict[str, Any] | None:
    """Return an assert as it is if a suite may hold it; what is wrong with it is a finding at its origin."""
    reader = Reader(findings.reader.files, findings.out, registry)
    read = read_assert(reader, ConfigEntry(made, entry.source, entry.location), "assert", 0)
    if read is None:
        findings.reader.warnings += reader.problems
        return None
    return made


def _group(item: ConvertedAssert) -> dict[str, Any] | None:
    key = next((name for name in _GROUPS if name in item.data), "assert")
    members = item.take(key)
    aggregator = item.take("aggregator")
    if not isinstance(members, list):
        return item.none(f"{item.data['type']} without asserts")
    strict = item.gates and item.threshold is None
    entries = [item.entry.child(key, index) for index in range(len(members))]
    for place in (entry for entry in entries if isinstance(entry.data, dict)):
        if item.findings.promptfoo and place.data.get("type") == "assert-set":
            item.findings.differs(place, "an assert-set in an assert-set is an error there; here it counts")
        for key, usual in _LEFT_ASIDE.items() if item.kind == "composite" and not item.findings.promptfoo else ():
            if place.data.get(key, usual) != usual:
                item.findings.differs(place, f"{key} of a composite's member counts here; AgentV leaves it aside", key)
    found = read_asserts(item.findings, entries, item.variables, gates=strict)
    if not found:
        return item.none(f"{item.data['type']} of which nothing is left")
    made = {"type": "composite", "assert": found, "aggregator": aggregator or {"type": "weighted_average"}}
    return made | ({"_passes_from": item.threshold} if item.threshold else {})


def over_threshold(
    findings: Findings, entry: ConfigEntry, asserts: list[dict[str, Any]], threshold: float
) -> list[dict[str, Any]]:
    """Return asserts of which the mean must reach a threshold: one group that is a gate."""
    if threshold < NO_FAILURE:
        said = f"threshold {threshold:g}: a test fails below {NO_FAILURE}, which is the least a suite can ask"
        findings.differs(entry, said, "threshold")
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
# Types another tool has, whether they have a counterpart or not: what a table's cell may begin with.
KNOWN = {*_CONVERTERS, *REMEDIES, "is_html", "contains_html", "is_xml", "contains_xml", "is_sql"}
