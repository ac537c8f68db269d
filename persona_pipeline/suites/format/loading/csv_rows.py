"""Tests as rows of a CSV table: a column for each field, and the columns other tools use for expectations."""

import re
from collections.abc import Iterator
from typing import Any

from persona_pipeline.documents.csv_rows import csv_rows
from persona_pipeline.errors import Problem, did_you_mean
from persona_pipeline.suites.format.javascript import parse_json
from persona_pipeline.suites.format.loading.expectations import ExpectationError, read_expectation
from persona_pipeline.suites.format.problems import Reader
from persona_pipeline.suites.format.sources import Entry, RowSource

_TEXT = ("id", "input", "criteria", "expected_outcome", "outcome", "conversation_id")
# Cells that hold JSON: an object or a list. Other text in expected_output is text.
_DATA = ("assert", "evaluators", "rubrics", "input_messages", "expected_messages", "metadata", "execution", "workspace")
_PLAIN = (*_TEXT, *_DATA, "expected_output", "skip_defaults", "targets", "tags")
_SPECIAL = ("__description", "__prefix", "__suffix", "__metric", "__threshold", "__expected")
_EXPECTED = re.compile(r"__expected([1-9][0-9]*)?")
_CONFIG = re.compile(r"__config:__expected([1-9][0-9]*)?:threshold")
_METADATA = re.compile(r"__metadata:(?P<key>[^\[\]]+)(?P<list>\[\])?")


class RowError(Exception):
    """A cell cannot be read."""

    def __init__(self, column: str, message: str) -> None:
        super().__init__(message)
        self.column = column


def read_rows(reader: Reader, path: str, text: str) -> Iterator[tuple[Entry, str]]:
    """Yield a test for every row that is not empty.

    Columns are the fields of a test by name, ``targets`` and ``tags`` (separated by commas), and ``__expected``, ``__expected1``,
    ... (such as ``contains:x``), ``__description`` (the goal), ``__prefix`` and ``__suffix`` (around the input), ``__metric`` (the
    name of the expectations), ``__threshold`` (a gate over them), ``__metadata:<key>`` (``[]``: a list), and
    ``__config:__expected<n>:threshold`` (a gate on one).
    """
    rows = csv_rows(text, path, reader.problems)
    header = next(rows, None)
    if header is None:
        return
    names = [name.strip() for name in header[1]]
    if not _check_header(reader, path, header[0], names):
        return
    for number, (line, cells) in enumerate(rows, start=1):
        if not any(cell.strip() for cell in cells):
            continue
        source = RowSource(path, line, {name: index for index, name in enumerate(names, start=1)})
        if len(cells) > len(names):
            reader.problems.append(Problem(f"the row has {len(cells)} cells, the header {len(names)}", path, line, 1))
            continue
        row = {name: cell for name, cell in zip(names, cells, strict=False) if cell != ""}
        try:
            yield Entry(_test(row, number), source, ()), f"row {number}"
        except RowError as problem:
            reader.problems.append(source.problem((problem.column,), f"{problem.column}: {problem}"))


def _check_header(reader: Reader, path: str, line: int, names: list[str]) -> bool:
    before = len(reader.problems)
    for index, name in enumerate(names, start=1):
        if names.index(name) != index - 1:
            reader.problems.append(Problem(f"column {name!r} stands twice; remove one", path, line, index))
        elif not _is_known(name):
            hint = did_you_mean(name, (*_PLAIN, *_SPECIAL)) or f"; to keep it with the test, call it __metadata:{name}"
            reader.problems.append(Problem(f"unknown column {name!r}{hint}", path, line, index))
    return len(reader.problems) == before


def _is_known(name: str) -> bool:
    patterns = (_EXPECTED, _CONFIG, _METADATA)
    return name in _PLAIN or name in _SPECIAL or any(pattern.fullmatch(name) for pattern in patterns)


def _test(row: dict[str, str], number: int) -> dict[str, Any]:
    test: dict[str, Any] = {name: row[name] for name in _TEXT if name in row}
    test.setdefault("id", f"row-{number}")
    if "input" in test or "__prefix" in row or "__suffix" in row:
        test["input"] = row.get("__prefix", "") + test.get("input", "") + row.get("__suffix", "")
    if "__description" in row and "criteria" not in test:
        test["criteria"] = row["__description"]
    for name in _DATA:
        if name in row:
            test[name] = _data(row, name)
    if "expected_output" in row:
        text = row["expected_output"]
        test["expected_output"] = _data(row, "expected_output") if text.lstrip()[:1] in ("{", "[") else text
    if "skip_defaults" in row:
        words = {"true": True, "false": False}
        value = words.get(row["skip_defaults"].strip().lower())
        if value is None:
            raise RowError("skip_defaults", "must be true or false")
        test["skip_defaults"] = value
    if "targets" in row:
        test["execution"] = {**test.get("execution", {}), "targets": _words(row["targets"])}
    metadata = _metadata(row)
    if metadata:
        test["metadata"] = {**test.get("metadata", {}), **metadata}
    asserts = _expectations(row)
    if asserts:
        test["assert"] = [*test.get("assert", ()), *asserts]
    return test


def _data(row: dict[str, str], name: str) -> Any:
    try:
        value = parse_json(row[name])
    except ValueError as error:
        raise RowError(name, f"is not JSON ({error})") from error
    wanted = dict if name in ("metadata", "execution", "workspace") else list
    if name != "expected_output" and not isinstance(value, wanted):
        raise RowError(name, f"must be a JSON {'object' if wanted is dict else 'list'}")
    return value


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _metadata(row: dict[str, str]) -> dict[str, Any]:
    metadata: dict[str, Any] = {"tags": _words(row["tags"])} if "tags" in row else {}
    for name, text in row.items():
        match = _METADATA.fullmatch(name)
        if match:
            metadata[match["key"]] = _words(text) if match["list"] else text
    return metadata


def _expectations(row: dict[str, str]) -> list[dict[str, Any]]:
    gates = {match[1] or "": row[name] for name in row if (match := _CONFIG.fullmatch(name))}
    asserts = []
    for name in sorted((name for name in row if _EXPECTED.fullmatch(name)), key=lambda name: (len(name), name)):
        try:
            item = read_expectation(row[name])
        except ExpectationError as problem:
            raise RowError(name, str(problem)) from problem
        number = name.removeprefix("__expected")
        if number in gates:
            item["required"] = _number(gates.pop(number), f"__config:__expected{number}:threshold")
        asserts.append(item)
    for number in gates:
        raise RowError(f"__config:__expected{number}:threshold", f"there is no __expected{number} in this row")
    metric = row.get("__metric")
    if "__threshold" in row and asserts:
        # A gate over all expectations of the row: they are graded as one.
        group: dict[str, Any] = {
            "type": "composite",
            "assert": asserts,
            "aggregator": {"type": "weighted_average"},
            "required": _number(row["__threshold"], "__threshold"),
        }
        return [{**group, "name": metric} if metric else group]
    if metric:
        for index, item in enumerate(asserts):
            item["name"] = metric if len(asserts) == 1 else f"{metric}-{index + 1}"
    return asserts


def _number(text: str, column: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise RowError(column, f"must be a number, not {text!r}") from error
    if not 0 < value <= 1:
        raise RowError(column, f"must be above 0 and at most 1, not {text!r}")
    return value
