"""Tests in files of their own: lists in YAML and JSON, JSON lines, and promptfoo's tables, whose cells are asserts."""

import re
from collections.abc import Iterator
from typing import Any

from persona_pipeline.base.documents.json import csv_rows
from persona_pipeline.base.errors import did_you_mean
from persona_pipeline.suites.format.loading.external_tests import json_lines
from persona_pipeline.suites.format.problems import ConfigEntry, RowSource
from persona_pipeline.suites.importing.asserts import TYPES
from persona_pipeline.suites.importing.findings import Part, Reference

ROW = "test key {}"
_MOST_NESTED = 8
_EXPECTED = re.compile(r"__expected\d*")
_METADATA = re.compile(r"__metadata:(?P<key>[^\[\]]+)(?P<list>\[\])?")
_CONFIG = re.compile(r"__config:(?P<column>__expected\d*):threshold")
# A cell: a type, perhaps a number, and everything behind the colon.
_SPELLED = re.compile(
    rf"(?P<type>(?:not-)?(?:{'|'.join(sorted(map(re.escape, TYPES), key=len, reverse=True))}))"
    r"(?:\((?P<number>\d+(?:\.\d+)?)\))?(?::(?P<value>.*))?",
    re.DOTALL,
)
_LIKE_A_TYPE = re.compile(r"(?P<negated>not-)?(?P<type>[a-z]+(?:-[a-z]+)*)(?:\([\d.]+\))?(?P<colon>:.*)?", re.DOTALL)
# Words before a colon that stand for another type, and files with code.
_OLDER = {
    "fn": "javascript",
    "eval": "javascript",
    "javascript": "javascript",
    "python": "python",
    "grade": "llm-rubric",
}
_CODE = re.compile(r"file://.*\.(?P<ending>py|js|ts)(?::.*)?")
# What a type takes as its limit where the cell gives no number.
_LIMITED = {"cost": 0.75, "latency": 0.75}


def read_rows(part: Part, key: str) -> Iterator[Part]:
    """Yield every test at a key of a file, each with its own place."""
    yield from _rows(part.each(key, ROW), 0)


def _rows(places: list[Part], depth: int) -> Iterator[Part]:
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


def _rows_of_file(reference: Reference, depth: int) -> Iterator[Part]:
    part, ending = reference.part, reference.path.suffix.lower()
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
            lines = (row for row, _ in json_lines(part.findings.reader, path, text))
            yield from _rows([part.findings.part(row, ROW) for row in lines], depth + 1)


def _table(part: Part, path: str, text: str) -> Iterator[Part]:
    """Yield the rows of a table: columns are variables, those that begin with two lines say more."""
    rows = csv_rows(text, path, part.findings.reader.problems)
    names = [name.strip() for name in next(rows, (1, []))[1]]
    for line, cells in rows:
        if any(cell.strip() for cell in cells):
            source = RowSource(path, line, {name: index for index, name in enumerate(names, start=1)})
            row = Part(part.findings, ConfigEntry(dict(zip(names, cells, strict=False)), source), "column {}")
            yield part.findings.part(ConfigEntry(_row_test(row, source), source), ROW)


def _row_test(row: Part, source: RowSource) -> dict[str, Any]:
    test: dict[str, Any] = {"vars": {}, "assert": [], "metadata": {}, "options": {}}
    metric = row.data.get("__metric")
    for name, cell in row.data.items():
        if not name.startswith("__"):
            test["vars"][name] = cell
        elif not cell.strip():
            continue
        elif _EXPECTED.fullmatch(name):
            # A finding about the assert is placed at its cell.
            source.columns[f"assert[{len(test['assert'])}]"] = source.columns[name]
            limit = _number("threshold", row.data.get(f"__config:{name}:threshold", ""))
            test["assert"].append(_expectation(row, name, cell) | limit | ({"metric": metric} if metric else {}))
        elif match := _METADATA.fullmatch(name):
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


def _expectation(row: Part, column: str, cell: str) -> dict[str, Any]:
    """Return the assert of a cell: ``type:value``, ``type(number)``, or a text that must be equalled."""
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


def _name_what_looks_like_a_type(row: Part, column: str, cell: str) -> None:
    """Name a cell that promptfoo compares as a text and whose author may have meant a type."""
    match = _LIKE_A_TYPE.fullmatch(cell.strip())
    if match is None:
        return
    hint = did_you_mean(match["type"], TYPES) if match["colon"] or "-" in match["type"] else ""
    spelled = f"{match['negated'] or ''}{match['type']}"
    if hint or spelled.startswith(("not-", "is-", "contains-")) or (match["colon"] and "-" in spelled):
        row.warn(f"{spelled} is no type of an assert: the whole cell is compared as text{hint}", column)
