"""Asserts of promptfoo and AgentV as asserts of ours; one that has no counterpart is named and left out."""

from collections.abc import Mapping, Sequence
from typing import Any

from persona_pipeline.suites.asserts import registry
from persona_pipeline.suites.format.loading.asserts import read_assert
from persona_pipeline.suites.format.problems import Reader
from persona_pipeline.suites.format.sources import Entry
from persona_pipeline.suites.importing.counterparts import COMMON, CONVERTERS, REMEDIES, Item
from persona_pipeline.suites.importing.findings import Findings
from persona_pipeline.suites.importing.templates import TemplateError, fill

# From here on a mean score is no failure, and from there on a pass.
NO_FAILURE, PASSES = 0.6, 0.8


def read_asserts(
    findings: Findings, entries: Sequence[Entry], variables: Mapping[str, Any], *, gates: bool
) -> list[dict[str, Any]]:
    """Return the asserts that these have a counterpart in.

    Args:
        variables: fill the templates in them.
        gates: each must pass for the test to pass, as promptfoo has it where no threshold is given.
    """
    found: list[dict[str, Any]] = []
    criteria = [entry for entry in entries if isinstance(entry.data, str) and entry.data.strip()]
    if criteria:
        texts = [_filled(findings, entry, entry.data, variables) for entry in criteria]
        texts = [text for text in texts if text is not None]
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
    return _named_apart(found)


def _filled(findings: Findings, entry: Entry, value: Any, variables: Mapping[str, Any]) -> Any:
    try:
        return fill(value, variables)
    except TemplateError as problem:
        findings.none(entry, f"the template ({problem})")
        return None


def _referenced(findings: Findings, entry: Entry) -> Entry:
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
    return Entry({**document, **own} if isinstance(document, dict) else document, entry.source, tuple(keys))


def _converted(findings: Findings, entry: Entry, variables: Mapping[str, Any], gates: bool) -> dict[str, Any] | None:
    spelled = entry.data["type"]
    negated = spelled.startswith("not-")
    kind = spelled.removeprefix("not-").replace("-", "_")
    convert = _CONVERTERS.get(kind)
    if convert is None:
        findings.none(entry, f"assert {spelled}", "type", remedy=REMEDIES.get(kind, ""))
        return None
    inner = {key: value for key, value in entry.data.items() if key in ("assert", "assertions", "evaluators")}
    data = _filled(findings, entry, {k: v for k, v in entry.data.items() if k not in inner}, variables)
    if data is None:
        return None
    item = Item(findings, entry, kind, {**data, **inner}, variables)
    limit = data.get("threshold", data.get("min_score"))
    item.threshold = float(limit) if isinstance(limit, int | float) and not isinstance(limit, bool) else None
    made = convert(item)
    if made is None:
        return None
    for key in sorted(set(item.data) - set(COMMON)):
        if item.data[key] is not None:
            findings.none(entry, f"{key} of assert {spelled}", key)
    return _with_common(item, made, gates, negated=negated != (data.get("negate") is True))


def _with_common(item: Item, made: dict[str, Any], gates: bool, *, negated: bool) -> dict[str, Any]:
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
    gate = required or (gates and weight != 0)
    if gate:
        made["required"] = required if limit is None or isinstance(required, float) else limit
        made["required"] = made["required"] or True
    if limit and gate and limit < PASSES:
        said = f"passes from {limit:g} on, and counts with its score: below {PASSES} it can keep a test from passing"
        item.findings.differs(item.entry, f"{item.entry.data['type']} {said}", "threshold")
    elif limit and not gate and not item.findings.promptfoo:
        item.findings.none(item.entry, f"threshold of {item.entry.data['type']} that is not required", "threshold")
    return head | made


def _checked(findings: Findings, entry: Entry, made: dict[str, Any]) -> dict[str, Any] | None:
    """Return an assert as it is if a suite may hold it; what is wrong with it is a finding at its origin."""
    reader = Reader(findings.reader.files, findings.out, registry)
    read = read_assert(reader, Entry(made, entry.source, entry.location), "assert", 0)
    if read is None:
        findings.reader.warnings += reader.problems
        return None
    return made


def _named_apart(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    taken: set[str] = set()
    for item in found:
        name, number = item.get("name"), 1
        while name is not None and item["name"] in taken:
            number += 1
            item["name"] = f"{name}-{number}"
        taken.add(item.get("name", ""))
    return found


def _group(item: Item) -> dict[str, Any] | None:
    key = next((name for name in ("assert", "assertions", "evaluators") if name in item.data), "assert")
    members = item.take(key)
    aggregator = item.take("aggregator")
    if not isinstance(members, list):
        return item.none(f"{item.data['type']} without asserts")
    strict = item.findings.promptfoo and item.threshold is None
    entries = [item.entry.child(key, index) for index in range(len(members))]
    found = read_asserts(item.findings, entries, item.variables, gates=strict)
    if not found:
        return item.none(f"{item.data['type']} of which nothing is left")
    made = {"type": "composite", "assert": found, "aggregator": aggregator or {"type": "weighted_average"}}
    return made | ({"_passes_from": item.threshold} if item.threshold else {})


def over_threshold(
    findings: Findings, entry: Entry, asserts: list[dict[str, Any]], threshold: float
) -> list[dict[str, Any]]:
    """Return asserts of which the mean must reach a threshold: one group that is a gate."""
    if threshold < NO_FAILURE:
        said = f"threshold {threshold:g}: a test fails below {NO_FAILURE}, which is the least a suite can ask"
        findings.differs(entry, said, "threshold")
    if threshold <= 0 or not asserts:
        return asserts
    group = {"type": "composite", "name": "all", "assert": asserts, "aggregator": {"type": "weighted_average"}}
    return [group | {"required": min(1.0, threshold)}]


_CONVERTERS = {**CONVERTERS, **dict.fromkeys(("assert_set", "composite"), _group)}
# Types another tool has, whether they have a counterpart or not: what a table's cell may begin with.
KNOWN = {*_CONVERTERS, *REMEDIES, "is_html", "contains_html", "is_xml", "contains_xml", "is_sql"}
