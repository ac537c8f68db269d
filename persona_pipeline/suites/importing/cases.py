"""Tests of an eval file: prompts filled with variables, asserts of every layer above them."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import csv_rows
from persona_pipeline.suites.format.javascript import stringify
from persona_pipeline.suites.format.loading.external_tests import json_lines
from persona_pipeline.suites.format.problems import ConfigEntry, RowSource
from persona_pipeline.suites.importing.asserts import KNOWN, over_threshold, read_asserts
from persona_pipeline.suites.importing.findings import PYDANTIC_EVALS, Findings, children, first_of, items, listed
from persona_pipeline.suites.importing.prompts import (
    Prompt,
    TemplateError,
    asked,
    filled,
    known_variables,
    messages,
    named,
)
from persona_pipeline.suites.importing.providers import ConvertedProvider, chosen, read_execution, read_workspace

_EXPECTED = re.compile(r"__expected\d*")
_METADATA = re.compile(r"__metadata:(?P<key>[^\[\]]+)(?P<list>\[\])?")
_CONFIG = re.compile(r"__config:(?P<column>__expected\d*):threshold")
_SPELLED = re.compile(r"(?P<type>(?:not-)?[a-z][a-z:-]*)(?:\((?P<number>[\d.]+)\))?(?::(?P<value>.*))?\Z", re.DOTALL)
_MOST_NESTED = 8


def read_rows(findings: Findings, entry: ConfigEntry, key: str = "tests") -> Iterator[ConfigEntry]:
    """Yield every test at a key of a file, each with its own place."""
    yield from _rows(findings, children(entry, key), 0)


def _rows(findings: Findings, places: list[ConfigEntry], depth: int) -> Iterator[ConfigEntry]:
    for place in places:
        value = place.data
        if isinstance(value, dict) and isinstance(value.get("path"), str) and not value.keys() & {"vars", "input"}:
            findings.leftovers(place, ("path",), "test file key ")
            value = value["path"]
        if isinstance(value, str):
            found = False
            for row in _rows_of_file(findings, place, value, depth):
                found = True
                yield row
            if not found:
                findings.reader.warn(place, f"{value} gives no test; correct the name, or write tests there")
        elif isinstance(value, dict):
            yield place
        else:
            findings.none(place, "a test that is no mapping")


def _rows_of_file(findings: Findings, entry: ConfigEntry, reference: str, depth: int) -> Iterator[ConfigEntry]:
    if depth > _MOST_NESTED:
        return findings.none(entry, f"{reference}, which refers to itself")
    ending = Path(reference).suffix.lower()
    if ending not in (".yaml", ".yml", ".json", ".jsonl", ".csv"):
        return findings.none(entry, f"tests {reference}", remedy="write them to .yaml, .json, .jsonl or .csv")
    for path in findings.paths(entry, reference):
        if ending in (".jsonl", ".csv"):
            text = findings.text(entry, str(path)) or ""
            lines = json_lines(findings.reader, str(path), text) if ending == ".jsonl" else ()
            yield from _table(findings, str(path), text) if ending == ".csv" else (row for row, _ in lines)
        else:
            read = findings.document(entry, str(path))
            yield from _rows(findings, [] if read is None else items(read), depth + 1)


def _table(findings: Findings, path: str, text: str) -> Iterator[ConfigEntry]:
    """Yield the rows of a table: columns are variables, those that begin with two lines say more."""
    rows = csv_rows(text, path, findings.reader.problems)
    names = [name.strip() for name in next(rows, (1, []))[1]]
    for line, cells in rows:
        if any(cell.strip() for cell in cells):
            source = RowSource(path, line, {name: index for index, name in enumerate(names, start=1)})
            row = dict(zip(names, cells, strict=False))
            yield ConfigEntry(_row_test(findings, row, ConfigEntry(row, source)), source)


def _row_test(findings: Findings, row: dict[str, str], entry: ConfigEntry) -> dict[str, Any]:
    test: dict[str, Any] = {"vars": {}, "assert": [], "metadata": {}, "options": {}}
    for name, cell in row.items():
        if not name.startswith("__"):
            test["vars"][name] = cell
        elif not cell.strip():
            continue
        elif _EXPECTED.fullmatch(name):
            item = _expectation(cell.strip())
            limit = row.get(f"__config:{name}:threshold", "")
            test["assert"].append(
                item | _number("threshold", limit) | ({"metric": row["__metric"]} if row.get("__metric") else {})
            )
        elif match := _METADATA.fullmatch(name):
            test["metadata"][match["key"]] = [part.strip() for part in cell.split(",")] if match["list"] else cell
        elif name == "__description":
            test["description"] = cell
        elif name in ("__prefix", "__suffix"):
            test["options"][name[2:]] = cell
        elif name == "__threshold":
            test |= _number("threshold", cell)
        elif name != "__metric" and not _CONFIG.fullmatch(name):
            findings.none(entry, f"column {name}", name)
    return {key: value for key, value in test.items() if value}


def _number(name: str, text: str) -> dict[str, float]:
    try:
        return {name: float(text)}
    except ValueError:
        return {}


def _expectation(text: str) -> dict[str, Any]:
    """Return the assert of a cell: ``type:value``, ``type(number)``, or a text that must be equalled."""
    match = _SPELLED.match(text)
    kind = match["type"].removeprefix("not-").replace("-", "_") if match else ""
    if match is None or (kind not in KNOWN and kind != "grade"):
        return {"type": "equals", "value": text}
    value = (match["value"] or "").strip()
    item: dict[str, Any] = {"type": "llm-rubric" if kind == "grade" else match["type"]}
    return item | ({"value": value} if value else {}) | _number("threshold", match["number"] or "")


def scenarios(findings: Findings, entry: ConfigEntry) -> Iterator[tuple[ConfigEntry, ConfigEntry]]:
    """Yield each test of each scenario with the row of settings it is crossed with."""
    for place in children(entry, "scenarios"):
        read = place
        if isinstance(place.data, str):
            read = findings.document(place, place.data)
            if read is not None and isinstance(read.data, dict):
                read = read.child("scenarios") if "scenarios" in read.data else None
            if read is None or not isinstance(read.data, list):
                findings.none(place, f"scenarios {place.data}")
                continue
        for scenario in items(read):
            findings.leftovers(scenario, ("config", "tests", "description"), "scenario key ")
            tests = list(read_rows(findings, scenario))
            for config in read_rows(findings, scenario, "config"):
                yield from ((config, test) for test in tests)


_OPTIONS = ("prefix", "suffix", "disableVarExpansion")
_TEST = (
    "id", "description", "criteria", "expected_outcome", "vars", "assert", "assertions", "evaluators", "rubrics", "threshold",
    "metadata", "options", "provider", "providers", "prompts", "input", "input_messages", "input_files", "expected_output",
    "expected_messages", "conversation_id", "skip_defaults", "execution", "workspace",
    "name", "inputs", "governance", "turns", "mode",
)  # fmt: skip
_ASSERTS = ("assert", "assertions", "evaluators")
_SHARED = (*_ASSERTS, "input", "input_files")


@dataclass
class ConvertedTest:
    """One test before its prompts: what it and the defaults above it say."""

    entry: ConfigEntry
    layers: Sequence[ConfigEntry]
    number: int

    def get(self, *names: str) -> Any:
        """Return what the nearest layer says under one of these names."""
        for layer in self.layers:
            key = first_of(layer.data, *names)
            if key is not None:
                return layer.data[key]
        return None

    def merged(self, name: str) -> dict[str, Any]:
        """Return a mapping of which every layer may give keys; the nearest wins."""
        found: dict[str, Any] = {}
        for layer in reversed(self.layers):
            value = layer.data.get(name)
            found |= value if isinstance(value, dict) else {}
        return found


def read_tests(
    findings: Findings, entry: ConfigEntry, prompts: list[Prompt], providers: list[ConvertedProvider]
) -> Iterator[dict[str, Any]]:
    """Yield the tests of a file as a suite has them: each with each of its prompts, for the providers that are to answer."""
    default = _default(findings, entry)
    kept = {key: entry.data[key] for key in _SHARED if key in entry.data}
    above = [ConfigEntry(kept, entry.source, entry.location)] if kept else []
    shared = [*([default] if default else []), *above]
    key = first_of(entry.data, "tests", "eval_cases", "cases") or "tests"
    rows = [(row, [row, *shared]) for row in read_rows(findings, entry, key)]
    for place in children(entry, "imports"):
        findings.leftovers(place, ("tests",), "imports.")
        rows += [(row, [row, *shared]) for row in read_rows(findings, place)]
    rows += [(test, [test, config, *shared]) for config, test in scenarios(findings, entry)]
    for number, (row, layers) in enumerate(rows, start=1):
        for layer in layers[: len(layers) - len(above)]:
            findings.leftovers(layer, _TEST, "test key ")
        yield from _test(findings, ConvertedTest(row, layers, number), prompts, providers)


def _default(findings: Findings, entry: ConfigEntry) -> ConfigEntry | None:
    key = first_of(entry.data, "defaultTest", "default_test")
    if key is None:
        return None
    place = entry.child(key)
    if isinstance(place.data, str):
        read = findings.document(place, place.data)
        return read if read is not None and isinstance(read.data, dict) else None
    return place if isinstance(place.data, dict) else None


def _test(
    findings: Findings, test: ConvertedTest, prompts: list[Prompt], providers: list[ConvertedProvider]
) -> Iterator[dict[str, Any]]:
    options = test.merged("options")
    for layer in test.layers:
        if isinstance(layer.data.get("options"), dict):
            findings.leftovers(layer.child("options"), _OPTIONS, "test option ")
    wanted = named(prompts, test.get("prompts"))
    asked_of = chosen(providers, test.get("provider", "providers"))
    around = (str(options.get("prefix") or ""), str(options.get("suffix") or ""))
    rows = list(_expanded(findings, test, options))
    if findings.origin == PYDANTIC_EVALS:
        rows = [{"expected_output": test.entry.data.get("expected_output")}]
    for place, variables in enumerate(rows, start=1):
        made = _shared(findings, test, variables)
        if made is None:
            continue
        for prompt in wanted:
            answering = [one for one in asked_of if prompt in named([prompt], one.prompts)]
            if providers and not answering:
                continue
            single = _with_input(findings, test, prompt, variables, around)
            if single is None:
                continue
            parts = [made["id"], str(place) if len(rows) > 1 else "", prompt.label if len(wanted) > 1 else ""]
            identity = "-".join(_slug(part) if index else part for index, part in enumerate(parts) if part)
            restricted = [one.name for one in answering if one.target is not None or not findings.promptfoo]
            own: dict[str, Any] = {}
            if len(answering) < len(providers) and restricted:
                own = {"execution": {**made.get("execution", {}), "targets": restricted}}
            question = {} if single == [] else {"input": single}
            yield {"id": identity, **question, **{k: v for k, v in made.items() if k != "id"}, **own}


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60].strip("-")


def _expanded(findings: Findings, test: ConvertedTest, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a test's variables: files read, and for promptfoo a list as one test for each of its values."""
    given: dict[str, Any] = {}
    for layer in reversed(test.layers):
        value = layer.data.get("vars")
        if isinstance(value, str):
            read = findings.document(layer, value, "vars")
            value = None if read is None else read.data
        for name, item in value.items() if isinstance(value, dict) else ():
            given[name] = item
            if isinstance(item, str) and item.startswith("file://"):
                given[name] = _of_file(findings, layer, item, name)
    expands = findings.promptfoo and not options.get("disableVarExpansion")
    several = [name for name, value in given.items() if expands and isinstance(value, list)]
    for values in itertools.product(*(given[name] for name in several)):
        yield known_variables(given | dict(zip(several, values, strict=True)))


def _of_file(findings: Findings, entry: ConfigEntry, reference: str, name: str) -> Any:
    if reference.endswith((".yaml", ".yml", ".json")):
        read = findings.document(entry, reference, "vars", name)
        return None if read is None else read.data
    if re.search(r"\.(js|cjs|mjs|ts|py|rb|png|jpe?g|gif|webp|pdf|mp[34]|wav)(:\w+)?$", reference):
        findings.none(entry, f"variable {name} from {reference}", "vars", name)
        return None
    return findings.text(entry, reference, "vars", name)


def _shared(findings: Findings, test: ConvertedTest, variables: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what all prompts of a test have in common; None where nothing would be checked."""
    entry, data = test.entry, test.entry.data
    described = data.get("description")
    identity = data.get(first_of(data, "id", *(["name"] if findings.origin == PYDANTIC_EVALS else [])))
    made: dict[str, Any] = {"id": str(identity or _slug(str(described or "")) or f"test-{test.number}")}
    criteria = first_of(data, "criteria", "expected_outcome")
    if criteria:
        made["criteria"] = filled(findings, entry, data[criteria], variables, criteria)
    expected = first_of(data, "expected_output", "expected_messages")
    answer = data[expected] if expected else variables.get("expected_output") if not findings.promptfoo else None
    if answer is not None:
        answer = filled(findings, entry, answer, variables, expected or "vars")
        made["expected_output"] = _answer(findings, entry, answer)
    strict = findings.strict and test.get("threshold") is None
    skipped = any(
        isinstance(part, dict) and part.get("skip_defaults") is True for part in (data, data.get("execution"))
    )
    layers = test.layers[:1] if skipped else test.layers
    entries = [item for layer in layers for key in _ASSERTS for item in children(layer, key)]
    asserts = read_asserts(findings, entries, variables, gates=strict)
    if children(entry, "rubrics"):
        made_up = ConfigEntry({"type": "rubrics", "value": data["rubrics"]}, entry.source, entry.location)
        asserts += read_asserts(findings, [made_up], variables, gates=False)
    limit = test.get("threshold")
    if findings.promptfoo and isinstance(limit, int | float) and not isinstance(limit, bool):
        asserts = over_threshold(findings, entry, asserts, float(limit))
    elif limit is not None:
        findings.none(entry, "threshold of a test", "threshold", remedy="mark asserts as required")
    if data.get("turns") is not None:
        made["turns"] = turns(findings, entry, variables)
    checked = (
        made.get("criteria") or made.get("expected_output") or any("assert" in turn for turn in made.get("turns", ()))
    )
    if not asserts and not checked:
        what = f"a test with nothing to check ({made['id']})"
        return findings.none(entry, what, remedy="give it an assert or criteria")
    if asserts:
        made["assert"] = asserts
    metadata = test.merged("metadata") | ({"description": described} if described and described != identity else {})
    if data.get("governance") is not None:
        metadata["governance"] = data["governance"]
    if metadata:
        made["metadata"] = metadata
    if data.get("conversation_id") is not None:
        made["conversation_id"] = str(data["conversation_id"])
    execution, workspace = read_execution(findings, entry, None), read_workspace(findings, entry)
    return made | ({"execution": execution} if execution else {}) | ({"workspace": workspace} if workspace else {})


def turns(findings: Findings, entry: ConfigEntry, variables: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the turns of AgentV's conversation as a suite has them: what the user says, and what is asked of the answer."""
    found = []
    for place in children(entry, "turns"):
        findings.leftovers(place, ("input", "expected_output", "assert", "assertions"), "turn key ")
        made: dict[str, Any] = {"user": _own_input(findings, place, "input", variables)}
        asserts = [item for key in ("assert", "assertions") for item in children(place, key)]
        if asserts := read_asserts(findings, asserts, variables, gates=False):
            made["assert"] = asserts
        if place.data.get("expected_output") is not None:
            answer = filled(findings, place, place.data["expected_output"], variables, "expected_output")
            made["expected_output"] = _answer(findings, place, answer)
        found.append(made)
    return found


def _answer(findings: Findings, entry: ConfigEntry, value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], dict) and "role" in value[0]:
        return messages(findings, entry, value)
    return value if isinstance(value, str | dict | list) or value is None else str(value)


def _with_input(
    findings: Findings, test: ConvertedTest, prompt: Prompt, variables: Mapping[str, Any], around: tuple[str, str]
) -> Any:
    """Return a test's input: its own of AgentV after that of its suite, else the prompt filled; None where there is none."""
    key = first_of(test.entry.data, "input_messages", "input", "inputs")
    if key is None and test.entry.data.get("turns") is not None:
        return []
    if findings.promptfoo or key is None:
        try:
            return asked(findings, prompt, variables, around)
        except TemplateError as problem:
            remedy = "the test is left out; fill the prompt by hand"
            return findings.none(test.entry, f"the test's prompt ({problem})", remedy=remedy)
    own = _own_input(findings, test.entry, key, variables)
    before = [layer for layer in test.layers[1:] if "input" in layer.data]
    if not before or own is None:
        return own
    first = _own_input(findings, before[0], "input", variables)
    return [*_as_messages(first), *_as_messages(own)]


def _as_messages(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [{"role": "user", "content": value}]


def _own_input(findings: Findings, entry: ConfigEntry, key: str, variables: Mapping[str, Any]) -> Any:
    value = filled(findings, entry, entry.data[key], variables, key)
    files = [name for name in listed(entry.data.get("input_files")) if isinstance(name, str)]
    if isinstance(value, list) and key != "inputs":
        value = messages(findings, entry, value)
    elif value is not None and not isinstance(value, str):
        value = stringify(value)
    if not files:
        return value
    parts: list[dict[str, Any]] = [{"type": "file", "value": findings.relocated(entry, name)} for name in files]
    if isinstance(value, str):
        return [{"role": "user", "content": [*parts, {"type": "text", "value": value}]}]
    return [{"role": "user", "content": parts}, *_as_messages(value or [])]
