"""Tests of an eval file, wherever they are written: inline, in YAML, JSON, JSON lines and tables, and as scenarios."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from persona_pipeline.documents.csv_rows import csv_rows
from persona_pipeline.suites.format.files import FileError, is_pattern
from persona_pipeline.suites.format.loading.external_tests import json_lines
from persona_pipeline.suites.format.sources import Entry, RowSource
from persona_pipeline.suites.importing.asserts import KNOWN
from persona_pipeline.suites.importing.findings import Findings, children

_EXPECTED = re.compile(r"__expected\d*")
_METADATA = re.compile(r"__metadata:(?P<key>[^\[\]]+)(?P<list>\[\])?")
_CONFIG = re.compile(r"__config:(?P<column>__expected\d*):threshold")
_SPELLED = re.compile(r"(?P<type>(?:not-)?[a-z][a-z:-]*)(?:\((?P<number>[\d.]+)\))?(?::(?P<value>.*))?\Z", re.DOTALL)
_MOST_NESTED = 8


def read_rows(findings: Findings, entry: Entry, key: str = "tests") -> Iterator[Entry]:
    """Yield every test at a key of a file, each with its own place."""
    yield from _rows(findings, children(entry, key), 0)


def _rows(findings: Findings, places: list[Entry], depth: int) -> Iterator[Entry]:
    for place in places:
        value = place.data
        if (
            isinstance(value, dict)
            and isinstance(value.get("path"), str)
            and "vars" not in value
            and "input" not in value
        ):
            findings.leftovers(place, ("path",), "test file key ")
            value = value["path"]
        if isinstance(value, str):
            yield from _of_file(findings, place, value, depth)
        elif isinstance(value, dict):
            yield place
        else:
            findings.none(place, "a test that is no mapping")


def _of_file(findings: Findings, entry: Entry, reference: str, depth: int) -> Iterator[Entry]:
    if depth > _MOST_NESTED:
        return findings.none(entry, f"{reference}, which refers to itself")
    ending = Path(reference).suffix.lower()
    if ending not in (".yaml", ".yml", ".json", ".jsonl", ".csv"):
        return findings.none(entry, f"tests {reference}", remedy="write them to .yaml, .json, .jsonl or .csv")
    if is_pattern(reference):
        try:
            found = findings.reader.files.glob(reference, findings.reader.folders(entry))
        except FileError as problem:
            return findings.reader.warn(entry, str(problem))
    else:
        path = findings.path(entry, reference)
        found = [] if path is None else [path]
    for path in found:
        if ending in (".jsonl", ".csv"):
            text = findings.text(entry, str(path)) or ""
            rows = (
                json_lines(findings.reader, str(path), text)
                if ending == ".jsonl"
                else _table(findings, str(path), text)
            )
            for row, _ in rows:
                yield row
        else:
            read = findings.document(entry, str(path))
            if read is not None:
                inner = read.data if isinstance(read.data, list) else [read.data]
                places = [read.child(index) for index in range(len(inner))] if inner is read.data else [read]
                yield from _rows(findings, places, depth + 1)


def _table(findings: Findings, path: str, text: str) -> Iterator[tuple[Entry, str]]:
    """Yield the rows of a table: columns are variables, those that begin with two lines say more."""
    rows = csv_rows(text, path, findings.reader.problems)
    names = [name.strip() for name in next(rows, (1, []))[1]]
    for line, cells in rows:
        if any(cell.strip() for cell in cells):
            source = RowSource(path, line, {name: index for index, name in enumerate(names, start=1)})
            row = dict(zip(names, cells, strict=False))
            yield Entry(_test(findings, row, Entry(row, source)), source), f"line {line}"


def _test(findings: Findings, row: dict[str, str], entry: Entry) -> dict[str, Any]:
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


def scenarios(findings: Findings, entry: Entry) -> Iterator[tuple[Entry, Entry]]:
    """Yield each test of each scenario with the row of settings it is crossed with."""
    for place in children(entry, "scenarios"):
        places = [place]
        if isinstance(place.data, str):
            read = findings.document(place, place.data)
            inside = None if read is None else read.data.get("scenarios") if isinstance(read.data, dict) else read.data
            if read is None or not isinstance(inside, list):
                findings.none(place, f"scenarios {place.data}")
                continue
            at = ("scenarios",) if isinstance(read.data, dict) else ()
            places = [read.child(*at, index) for index in range(len(inside))]
        for scenario in places:
            findings.leftovers(scenario, ("config", "tests", "description"), "scenario key ")
            tests = list(read_rows(findings, scenario))
            for config in read_rows(findings, scenario, "config"):
                yield from ((config, test) for test in tests)
