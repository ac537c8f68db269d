"""Tests of an eval file, inline, in files and in tables, with prompts, variables and asserts of all layers."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from persona_pipeline.base.documents.json import csv_rows
from persona_pipeline.base.errors import did_you_mean
from persona_pipeline.suites.format.csv_tests import METADATA
from persona_pipeline.suites.format.problems import ConfigEntry, LineSource
from persona_pipeline.suites.format.suite import json_lines
from persona_pipeline.suites.format.tests import Defaults, read_test
from persona_pipeline.suites.importing.asserts import TYPES, over_threshold, read_asserts
from persona_pipeline.suites.importing.findings import (
    MOST,
    PROGRAM,
    PYDANTIC_EVALS,
    TABLES,
    FilePart,
    FileReference,
    listed,
)
from persona_pipeline.suites.importing.prompts import (
    Prompt,
    TemplateError,
    asked,
    filled,
    known_variables,
    messages,
    named,
    plain,
)
from persona_pipeline.suites.importing.providers import Providers, read_execution, read_workspace

ROW = "test key {}"
_MOST_NESTED = 8
_EXPECTED = re.compile(r"__expected\d*")
_CONFIG = re.compile(r"__config:__expected\d*:threshold")
# A cell: a type, optionally a number, and the text after the colon.
_SPELLED = re.compile(
    rf"(?P<type>(?:not-)?(?:{'|'.join(sorted(map(re.escape, TYPES), key=len, reverse=True))}))"
    r"(?:\((?P<number>\d+(?:\.\d+)?)\))?(?::(?P<value>.*))?",
    re.DOTALL,
)
_LIKE_A_TYPE = re.compile(r"(?P<negated>not-)?(?P<type>[a-z]+(?:-[a-z]+)*)(?:\([\d.]+\))?(?P<colon>:.*)?", re.DOTALL)
# Older words before a colon; default limits of types; files with code.
_OLDER: dict[str, str] = TABLES["cells"]["older"]
_LIMITED: dict[str, float] = TABLES["cells"]["limits"]
_CODE = re.compile(r"file://.*\.(?P<ending>py|js|ts)(?::.*)?")


def read_rows(part: FilePart, key: str) -> Iterator[FilePart]:
    """Yield every test at a key of a file, each with its own place."""
    yield from _rows(part.each(key, label=ROW), 0)


def _rows(places: list[FilePart], depth: int) -> Iterator[FilePart]:
    for place in places:
        value = place.data
        if isinstance(value, dict) and isinstance(value.get("path"), str) and not value.keys() & {"vars", "input"}:
            value = place.take("path")
        if isinstance(value, str):
            found = False
            for row in _rows_of_file(place.file(value), depth):
                found = True
                yield row
            if not found:
                place.warn(f"{value} gives no test; correct the name, or write tests there")
        elif isinstance(value, dict):
            yield place
        else:
            place.none("a test that is no mapping")


def _rows_of_file(reference: FileReference, depth: int) -> Iterator[FilePart]:
    part, ending = reference.part, reference.path.suffix.lower()
    part.findings.spend("files", 1, part)
    if depth > _MOST_NESTED:
        return part.none(f"{reference.text}, which refers to itself")
    if ending not in (".yaml", ".yml", ".json", ".jsonl", ".csv"):
        return part.none(f"tests {reference.text}", remedy="write them to .yaml, .json, .jsonl or .csv")
    for file in reference.all() or ():
        if ending in (".yaml", ".yml", ".json"):
            read = file.document(ROW)
            yield from _rows([] if read is None else read.items(ROW), depth + 1)
        elif ending == ".csv":
            yield from _table(part, *(file.opened() or ("", "")))
        else:
            path, text = file.opened() or ("", "")
            lines = json_lines(part.findings.reader, path, text)
            yield from _rows([part.findings.part(row, ROW) for row in lines], depth + 1)


def _table(part: FilePart, path: str, text: str) -> Iterator[FilePart]:
    """Yield the rows of a table. Columns are variables; those with the prefix ``__`` have other meanings."""
    rows = csv_rows(text, path, part.findings.reader.problems)
    names = [name.strip() for name in next(rows, (1, []))[1]]
    for line, cells in rows:
        if any(cell.strip() for cell in cells):
            source = LineSource(path, line, columns={name: index for index, name in enumerate(names, start=1)})
            row = FilePart(part.findings, ConfigEntry(dict(zip(names, cells, strict=False)), source), "column {}")
            yield part.findings.part(ConfigEntry(_row_test(row, source), source), ROW)


def _row_test(row: FilePart, source: LineSource) -> dict[str, Any]:
    test: dict[str, Any] = {"vars": {}, "assert": [], "metadata": {}, "options": {}}
    metric = row.data.get("__metric")
    for name, cell in row.data.items():
        if not name.startswith("__"):
            test["vars"][name] = cell
        elif not cell.strip():
            continue
        elif _EXPECTED.fullmatch(name):
            # The place of a finding about the assert is its cell.
            source.columns[f"assert[{len(test['assert'])}]"] = source.columns[name]
            limit = _number("threshold", row.data.get(f"__config:{name}:threshold", ""))
            test["assert"].append(_expectation(row, name, cell) | limit | ({"metric": metric} if metric else {}))
        elif match := METADATA.fullmatch(name):
            test["metadata"][match["key"]] = [one.strip() for one in cell.split(",")] if match["list"] else cell
        elif name == "__description":
            test["description"] = cell
        elif name in ("__prefix", "__suffix"):
            test["options"][name[2:]] = cell
        elif name == "__threshold":
            test |= _number("threshold", cell)
        elif name != "__metric" and not _CONFIG.fullmatch(name):
            row.none(f"column {name}", name)
    return {key: value for key, value in test.items() if value}


def _number(name: str, text: str) -> dict[str, float]:
    try:
        return {name: float(text)}
    except ValueError:
        return {}


def _expectation(row: FilePart, column: str, cell: str) -> dict[str, Any]:
    """Return the assert of a cell: ``type:value``, ``type(number)``, or plain text for ``equals``."""
    word, colon, rest = cell.partition(":")
    if colon and word in _OLDER:
        return {"type": _OLDER[word], "value": rest.strip()}
    if code := _CODE.fullmatch(cell):
        return {"type": "python" if code["ending"] == "py" else "javascript", "value": cell}
    match = _SPELLED.fullmatch(cell)
    if match is None:
        _name_what_looks_like_a_type(row, column, cell)
        return {"type": "equals", "value": cell}
    item: dict[str, Any] = {"type": match["type"]}
    value, limit = match["value"] or "", _number("threshold", match["number"] or "")
    kind = match["type"].removeprefix("not-")
    if kind in _LIMITED:
        if not limit and (limit := _number("threshold", value)):
            row.warn(
                f"{cell}: promptfoo takes {_LIMITED[kind]} here and leaves {value} out; write {kind}({value})", column
            )
        return item | (limit or {"threshold": _LIMITED[kind]})
    return item | ({"value": value} if value else {}) | limit


def _name_what_looks_like_a_type(row: FilePart, column: str, cell: str) -> None:
    """Report a cell that promptfoo compares as text although its author may have meant a type."""
    match = _LIKE_A_TYPE.fullmatch(cell.strip())
    if match is None:
        return
    hint = did_you_mean(match["type"], TYPES) if match["colon"] or "-" in match["type"] else ""
    spelled = f"{match['negated'] or ''}{match['type']}"
    if hint or spelled.startswith(("not-", "is-", "contains-")) or (match["colon"] and "-" in spelled):
        row.warn(f"{spelled} is no type of an assert: the whole cell is compared as text{hint}", column)


_ASSERTS = ("assert", "assertions", "evaluators")
_SHARED = (*_ASSERTS, "input", "input_files")
_MEDIA = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".mp3", ".mp4", ".wav")


@dataclass
class ConvertedTest:
    """One test before its prompts, with the defaults above it. ``shared``: part of the suite that applies to every test."""

    part: FilePart
    layers: Sequence[FilePart]
    number: int
    shared: FilePart | None = None

    def get(self, *names: str) -> Any:
        """Return the value of the nearest layer under one of these names."""
        found = [layer.take(*names) for layer in self.layers]
        return next((value for value in found if value is not None), None)

    def merged(self, name: str) -> dict[str, Any]:
        """Return the merged mappings of all layers; the nearest layer wins."""
        return {key: value for layer in reversed(self.layers) for key, value in layer.mapping(name).items()}


def read_tests(part: FilePart, prompts: list[Prompt], providers: Providers) -> Iterator[dict[str, Any]]:
    """Yield the converted tests of a file: each test with each of its prompts and providers."""
    default = _default(part)
    kept = {key: part.take(key) for key in _SHARED if part.first(key)}
    shared = part.made(kept) if kept else None
    above = [default] if default else []
    key = part.first("tests", "eval_cases", "cases") or "tests"
    rows = [(row, [row, *above]) for row in read_rows(part, key)]
    for place in part.each("imports", label="imports.{}"):
        rows += [(row, [row, *above]) for row in read_rows(place, "tests")]
    rows += [(test, [test, config, *above]) for config, test in scenarios(part)]
    for number, (row, layers) in enumerate(rows, start=1):
        yield from _test(ConvertedTest(row, layers, number, shared), prompts, providers)


def scenarios(part: FilePart) -> Iterator[tuple[FilePart, FilePart]]:
    """Yield each test of each scenario with each of its settings."""
    for place in part.each("scenarios", label="scenario key {}"):
        read = place.followed()
        if isinstance(place.data, str):
            read = read.child("scenarios", label="scenario key {}") if read and read.first("scenarios") else read
            if read is None or not isinstance(read.data, list):
                place.none(f"scenarios {place.data}")
                continue
        for scenario in read.items("scenario key {}") if read else ():
            if not isinstance(scenario.data, dict):
                scenario.none("a scenario that is no mapping")
                continue
            scenario.text("description")
            tests = list(read_rows(scenario, "tests"))
            for config in read_rows(scenario, "config"):
                part.findings.spend("tests", len(tests), scenario)
                yield from ((config, test) for test in tests)


def _default(part: FilePart) -> FilePart | None:
    key = part.first("defaultTest", "default_test")
    if key is None:
        return None
    place = part.child(key, label=ROW)
    found = place.followed()
    return found if found is None or isinstance(found.data, dict) else place.none(key)


def _test(test: ConvertedTest, prompts: list[Prompt], providers: Providers) -> Iterator[dict[str, Any]]:
    findings, part = test.part.findings, test.part
    wanted = named(prompts, test.get("prompts"))
    options = [inner for layer in test.layers if (inner := layer.inner("options", "test option {}"))]
    around = (str(_option(options, "prefix") or ""), str(_option(options, "suffix") or ""))
    rows = list(_expanded(test, not _option(options, "disableVarExpansion")))
    if findings.origin == PYDANTIC_EVALS:
        rows = [{"expected_output": part.take("expected_output")}]
    asked_of = providers.of_test(test.layers)
    if asked_of is None:
        # Asserts on a conversation say nothing about a single answer.
        return part.used.update(part.data)
    for place, variables in enumerate(rows, start=1):
        made = _shared(test, variables)
        if made is None:
            continue
        for prompt in wanted:
            answering = [one for one in asked_of if prompt in named([prompt], one.prompts)]
            if asked_of and not answering:
                continue
            question = _with_input(test, prompt, variables, around)
            if question is None:
                continue
            parts = [made["id"], str(place) if len(rows) > 1 else "", prompt.label if len(wanted) > 1 else ""]
            identity = "-".join(_slug(one) if index else one for index, one in enumerate(parts) if one)
            restricted = [one.name for one in answering if one.target is not None or not findings.promptfoo]
            own: dict[str, Any] = {}
            if answering != providers.default and restricted:
                own = {"execution": {**made.get("execution", {}), "targets": restricted}}
            yield from _valid(part, {"id": identity, **question, **{k: v for k, v in made.items() if k != "id"}, **own})


def _valid(part: FilePart, made: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a test if it is valid in a suite; otherwise its problems are findings."""
    part.findings.spend("tests", 1, part)
    if part.valid(made, lambda reader, entry: read_test(reader, entry, Defaults(""))):
        yield made
    else:
        part.dropped(f"test {made['id']}")


def _option(options: Sequence[FilePart], name: str) -> Any:
    return next((value for value in [inner.take(name) for inner in options] if value is not None), None)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60].strip("-")


def _expanded(test: ConvertedTest, expands: bool) -> Iterator[dict[str, Any]]:
    """Yield a test's variables, with files read; promptfoo makes one test per value of a list."""
    given: dict[str, Any] = {}
    for layer in reversed(test.layers):
        value = layer.take("vars")
        if isinstance(value, str):
            read = layer.file(value, "vars").document()
            value = None if read is None else read.data
        if value is not None and not isinstance(value, dict):
            layer.none("variables that are no mapping", "vars")
            continue
        for name, item in (value or {}).items():
            given[name] = item
            layer.name_numbers(item, "vars", name)
            if isinstance(item, str) and item.startswith("file://"):
                given[name] = _of_file(layer, item, name)
    several = [name for name, value in given.items() if expands and isinstance(value, list)]
    several = several if test.part.findings.promptfoo else []
    count = math.prod(len(given[name]) for name in several)
    if count > MOST["tests"]:
        return test.part.dropped(f"a test of {count:,} combinations", "shorten the lists of its variables")
    for values in itertools.product(*(given[name] for name in several)):
        yield known_variables(given | dict(zip(several, values, strict=True)))


def _of_file(part: FilePart, reference: str, name: str) -> Any:
    if reference.endswith((".yaml", ".yml", ".json")):
        read = part.file(reference, "vars", name).document()
        return None if read is None else read.data
    if PROGRAM.search(reference) or reference.endswith(_MEDIA):
        return part.none(f"variable {name} from {reference}", "vars", name)
    return part.file(reference, "vars", name).read()


def _shared(test: ConvertedTest, variables: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the part of a test that all its prompts share; None if nothing would be checked."""
    findings, part = test.part.findings, test.part
    described = part.text("description")
    identity = part.take("id", *(["name"] if findings.origin == PYDANTIC_EVALS else []))
    made: dict[str, Any] = {"id": str(identity or _slug(described or "") or f"test-{test.number}")}
    if key := part.first("criteria", "expected_outcome"):
        made["criteria"] = filled(part, part.text(key), variables, key)
    key = part.first("expected_output", "expected_messages")
    answer = part.take(key) if key else variables.get("expected_output") if not findings.promptfoo else None
    if answer is not None:
        made["expected_output"] = _answer(part, filled(part, answer, variables, key or "vars"))
    limit = test.get("threshold")
    asserts = _asserts(test, variables, gates=findings.strict and limit is None)
    if findings.promptfoo and isinstance(limit, int | float) and not isinstance(limit, bool):
        asserts = over_threshold(part, asserts, float(limit))
    elif limit is not None:
        part.none("threshold of a test", "threshold", remedy="mark asserts as required")
    if part.first("turns"):
        made["turns"] = turns(part, variables)
        part.take("mode")
    checked = any(made.get(key) for key in ("criteria", "expected_output"))
    checked = checked or any("assert" in turn for turn in made.get("turns", ()))
    if not asserts and not checked:
        return part.dropped(f"a test with nothing to check ({made['id']})", "give it an assert or criteria")
    metadata = test.merged("metadata") | ({"description": described} if described and described != identity else {})
    conversation = part.take("conversation_id")
    more = {"assert": asserts, "metadata": metadata, "execution": read_execution(part, None), **read_workspace(part)}
    more["conversation_id"] = "" if conversation is None else str(conversation)
    return made | {key: value for key, value in more.items() if value}


def _asserts(test: ConvertedTest, variables: Mapping[str, Any], *, gates: bool) -> list[dict[str, Any]]:
    part = test.part
    execution = part.take("execution")
    skipping = [part.take("skip_defaults"), isinstance(execution, dict) and execution.get("skip_defaults")]
    layers = test.layers[:1] if True in skipping else [*test.layers, *([test.shared] if test.shared else [])]
    places = [item for layer in layers for key in _ASSERTS for item in layer.each(key)]
    asserts = read_asserts(part.findings, places, variables, gates=gates)
    if part.each("rubrics"):
        rubrics = part.made({"type": "rubrics", "value": part.take("rubrics")})
        asserts += read_asserts(part.findings, [rubrics], variables, gates=False)
    return asserts


def turns(part: FilePart, variables: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the turns of AgentV's conversation as turns of a suite."""
    found = []
    for place in part.each("turns", label="turn key {}"):
        said = _own_input(place, "input", variables) if place.first("input") else None
        if said is None:
            place.dropped("a turn without input")
            continue
        made: dict[str, Any] = {"user": said}
        asserts = [item for key in ("assert", "assertions") for item in place.each(key)]
        if asserts := read_asserts(part.findings, asserts, variables, gates=False):
            made["assert"] = asserts
        if (answer := place.take("expected_output")) is not None:
            made["expected_output"] = _answer(place, filled(place, answer, variables, "expected_output"))
        found.append(made)
    return found


def _answer(part: FilePart, value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], dict) and "role" in value[0]:
        return messages(part, value)
    return value if isinstance(value, str | dict | list) or value is None else str(value)


def _with_input(
    test: ConvertedTest, prompt: Prompt, variables: Mapping[str, Any], around: tuple[str, str]
) -> dict[str, Any] | None:
    """Return a test's input: AgentV's own input after that of its suite, else the filled prompt; None without one."""
    part = test.part
    key = None if part.findings.promptfoo else part.first("input_messages", "input", "inputs")
    if key is None and part.first("turns"):
        return {}
    if key is None:
        try:
            return {"input": asked(prompt, variables, around)}
        except TemplateError as problem:
            return part.dropped(f"the test's prompt ({problem})", "the test is left out; fill the prompt by hand")
    own = _own_input(part, key, variables)
    if own is None or test.shared is None or test.shared.first("input") is None:
        return None if own is None else {"input": own}
    return {"input": [*_as_messages(_own_input(test.shared, "input", variables)), *_as_messages(own)]}


def _as_messages(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [{"role": "user", "content": value}]


def _own_input(part: FilePart, key: str, variables: Mapping[str, Any]) -> Any:
    value = filled(part, part.take(key), variables, key)
    files = [
        path for name in listed(part.take("input_files")) if (path := part.file(str(name), "input_files").written())
    ]
    if isinstance(value, list) and key != "inputs":
        value = messages(part, value)
    elif value is not None and not isinstance(value, str):
        part.name_numbers(value, key)
        value = plain(value)
    if not files:
        return value
    parts: list[dict[str, Any]] = [{"type": "file", "value": name} for name in files]
    if isinstance(value, str):
        return [{"role": "user", "content": [*parts, {"type": "text", "value": value}]}]
    return [{"role": "user", "content": parts}, *_as_messages(value or [])]
