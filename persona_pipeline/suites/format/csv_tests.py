"""Tests in CSV tables."""

import re
from collections.abc import Iterator
from typing import Any

from persona_pipeline.base.documents.json import csv_rows, delimiter_of
from persona_pipeline.base.errors import Problem, did_you_mean
from persona_pipeline.base.text import names_in
from persona_pipeline.suites.format.problems import ConfigEntry, LineSource, Reader
from persona_pipeline.suites.format.text import parse_float, parse_json

_SPELLED = re.compile(
    r"(?P<negated>not-)?(?P<kind>[a-z][a-z-]*)(?:\((?P<argument>[^()]*)\))?(?::(?P<value>.*))?\Z", re.DOTALL
)
_LISTS = ("contains-all", "contains-any", "icontains-all", "icontains-any")
_LIMITS = {"latency": "max_ms", "cost": "max_usd"}
_KNOWN = (
    *("contains", "equals", "regex", "icontains", "starts-with", "ends-with", *_LISTS),
    *("is-json", "llm-rubric", "grade", *_LIMITS),
)
_OF_OTHER_TOOLS = ("javascript", "python", "webhook", "similar", "levenshtein", "factuality")


def read_expectation(text: str) -> dict[str, Any]:
    """Return the assert of an expectation such as ``contains:x``; plain text means ``equals``. Raises ``ValueError``."""
    text = text.strip()
    match = _SPELLED.match(text)
    kind = match["kind"] if match else ""
    if match is None or (kind not in _KNOWN and match["value"] is None):
        return {"type": "equals", "value": text}
    if kind not in _KNOWN:
        hint = did_you_mean(kind, _KNOWN)
        # Prose can have a word before a colon, too, but not one with a hyphen.
        if not (hint or match["negated"] or "-" in kind or kind in _OF_OTHER_TOOLS):
            return {"type": "equals", "value": text}
        raise ValueError(f"there is no expectation {kind!r}{hint or '; known: ' + ', '.join(_KNOWN)}")
    item = _item(kind, match)
    return item | ({"negate": True} if match["negated"] else {})


def _item(kind: str, match: re.Match[str]) -> dict[str, Any]:
    """Return an assert; without a usable value it lacks the field, which its type then requires."""
    text = (match["argument"] or match["value"] or "").strip()
    if kind in ("llm-rubric", "grade"):
        return {"type": "rubrics", "criteria": [text]}
    key = _LIMITS.get(kind, "value")
    value = parse_float(text) if kind in _LIMITS else names_in(text) if kind in _LISTS else text
    return {"type": kind} if value in (None, "") else {"type": kind, key: value}


_TEXT = ("id", "input", "criteria", "expected_outcome", "outcome", "conversation_id")
# Cells that hold a JSON object or list.
_DATA = ("assert", "evaluators", "rubrics", "input_messages", "expected_messages", "metadata", "execution", "workspace")
_PLAIN = (*_TEXT, *_DATA, "expected_output", "skip_defaults")
_SPECIAL = ("__description", "__prefix", "__suffix", "__metric", "__threshold", "__expected")
_EXPECTED = re.compile(r"__expected([1-9][0-9]*)?")
_CONFIG = re.compile(r"__config:__expected([1-9][0-9]*)?:threshold")
METADATA = re.compile(r"__metadata:(?P<key>[^\[\]]+)(?P<list>\[\])?")
_PATTERNS = (_EXPECTED, _CONFIG, METADATA)


class RowError(Exception):
    """A cell cannot be read."""

    def __init__(self, column: str, message: str) -> None:
        super().__init__(message)
        self.column = column


def read_rows(reader: Reader, path: str, text: str) -> Iterator[ConfigEntry]:
    """Yield a test for every row of a CSV file that is not empty.

    Columns are the fields of a test by name, and ``__expected``, ``__expected1``, ... (such as ``contains:x``),
    ``__description`` (the goal), ``__prefix`` and ``__suffix`` (around the input), ``__metric`` (the name of the
    expectations), ``__threshold`` (a gate over them), ``__metadata:<key>`` (``[]``: a list), and
    ``__config:__expected<n>:threshold`` (a gate on one).
    """
    rows = csv_rows(text, path, reader.problems, delimiter=delimiter_of(text))
    header = next(rows, None)
    if header is None:
        return
    names = [name.strip() for name in header[1]]
    if not _check_header(reader, path, header[0], names):
        return
    for number, (line, cells) in enumerate(rows, start=1):
        if not any(cell.strip() for cell in cells):
            continue
        source = LineSource(path, line, columns={name: index for index, name in enumerate(names, start=1)})
        if len(cells) > len(names):
            reader.problems.append(Problem(f"the row has {len(cells)} cells, the header {len(names)}", path, line, 1))
            continue
        row = {name: cell for name, cell in zip(names, cells, strict=False) if cell != ""}
        try:
            yield ConfigEntry(_test(row, number), source, label=f"row {number}")
        except RowError as problem:
            reader.problems.append(source.problem((problem.column,), f"{problem.column}: {problem}"))


def _check_header(reader: Reader, path: str, line: int, names: list[str]) -> bool:
    before = len(reader.problems)
    for index, name in enumerate(names, start=1):
        if names.index(name) != index - 1:
            reader.problems.append(Problem(f"column {name!r} is there twice; remove one", path, line, index))
        elif name not in (*_PLAIN, *_SPECIAL) and not any(pattern.fullmatch(name) for pattern in _PATTERNS):
            hint = did_you_mean(name, (*_PLAIN, *_SPECIAL)) or f"; to keep it with the test, call it __metadata:{name}"
            reader.problems.append(Problem(f"unknown column {name!r}{hint}", path, line, index))
    return len(reader.problems) == before


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
        said = row["skip_defaults"].strip().lower()
        test["skip_defaults"] = {"true": True, "false": False}.get(said, said)
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


def _metadata(row: dict[str, str]) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for name, text in row.items():
        match = METADATA.fullmatch(name)
        if match:
            metadata[match["key"]] = names_in(text) if match["list"] else text
    return metadata


def _expectations(row: dict[str, str]) -> list[dict[str, Any]]:
    gates = {match[1] or "": row[name] for name in row if (match := _CONFIG.fullmatch(name))}
    asserts = []
    for name in sorted((name for name in row if _EXPECTED.fullmatch(name)), key=lambda name: (len(name), name)):
        try:
            item = read_expectation(row[name])
        except ValueError as problem:
            raise RowError(name, str(problem)) from problem
        number = name.removeprefix("__expected")
        if number in gates:
            item["required"] = _gate(gates.pop(number))
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
            "required": _gate(row["__threshold"]),
        }
        return [{**group, "name": metric} if metric else group]
    if metric:
        for index, item in enumerate(asserts):
            item["name"] = metric if len(asserts) == 1 else f"{metric}-{index + 1}"
    return asserts


def _gate(text: str) -> float | str:
    """Return a minimum score; the assert refuses other text."""
    number = parse_float(text)
    return text if number is None else number
