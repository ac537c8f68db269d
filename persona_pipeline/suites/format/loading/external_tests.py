"""Tests in files of their own: YAML lists, JSON lines, CSV tables, globs of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from persona_pipeline.documents import Limits, parse_document
from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.suites.format.files import MAX_BYTES, FileError, is_pattern
from persona_pipeline.suites.format.javascript import parse_json
from persona_pipeline.suites.format.loading.csv_rows import read_rows
from persona_pipeline.suites.format.problems import Reader
from persona_pipeline.suites.format.sources import Entry, LineSource

SUITE_LIMITS = Limits(size=MAX_BYTES, depth=64, nodes=5_000_000)
ENDINGS = (".yaml", ".yml", ".jsonl", ".csv")
_MOST_NESTED = 16


def test_entries(reader: Reader, entry: Entry) -> Iterator[tuple[Entry, str]]:
    """Yield each test under ``tests`` and what to call it in messages, wherever it is written.

    Args:
        entry: the value of ``tests``: a list of tests and ``file://`` references, or one path.
    """
    value = entry.data
    if isinstance(value, str):
        path = _find(reader, entry, value, "tests")
        if path is not None:
            yield from _file_tests(reader, entry, path, (path,))
    elif isinstance(value, list):
        yield from _list_tests(reader, entry, "tests", ())
    else:
        reader.fail(entry, "tests must be a list of tests, or the path of a .yaml, .jsonl or .csv file")


def _list_tests(reader: Reader, entry: Entry, name: str, seen: tuple[Path, ...]) -> Iterator[tuple[Entry, str]]:
    for index, item in enumerate(entry.data):
        where = f"{name}[{index}]"
        place = entry.child(index)
        if not isinstance(item, str):
            yield place, where
        elif not item.startswith("file://"):
            reader.fail(place, f"{where} must be a test, or a reference that starts with file://; found {item!r}")
        else:
            for path in _referenced(reader, place, item, where):
                if path in seen or len(seen) >= _MOST_NESTED:
                    reader.fail(place, f"{where}: {path.name} refers to itself")
                else:
                    yield from _file_tests(reader, place, path, (*seen, path))


def _referenced(reader: Reader, entry: Entry, reference: str, where: str) -> list[Path]:
    if is_pattern(reference):
        try:
            found = [path for path in reader.files.glob(reference, reader.folders(entry)) if path.suffix in ENDINGS]
        except FileError as problem:
            reader.fail(entry, f"{where}: {problem}")
            return []
        if found:
            return found
    path = _find(reader, entry, reference, where) if not is_pattern(reference) else None
    if path is None and is_pattern(reference):
        reader.warn(entry, f"{where}: {reference!r} matches no test file")
    return [path] if path else []


def _find(reader: Reader, entry: Entry, reference: str, where: str) -> Path | None:
    suffix = Path(reference).suffix
    if suffix.lower() not in ENDINGS:
        reader.fail(
            entry, f"{where}: {reference!r} ends in {suffix or 'nothing'}; tests are read from {', '.join(ENDINGS)}"
        )
        return None
    try:
        return reader.files.find(reference, reader.folders(entry))
    except FileError as problem:
        reader.fail(entry, f"{where}: {problem}")
        return None


def _file_tests(reader: Reader, entry: Entry, path: Path, seen: tuple[Path, ...]) -> Iterator[tuple[Entry, str]]:
    try:
        text = reader.files.read(path)
    except FileError as problem:
        reader.problems.append(problem.problem(path))
        return
    count = 0
    ending = path.suffix.lower()
    if ending == ".jsonl":
        found: Iterator[tuple[Entry, str]] = json_lines(reader, str(path), text)
    elif ending == ".csv":
        found = read_rows(reader, str(path), text)
    else:
        found = _yaml_tests(reader, path, text, seen)
    for item in found:
        count += 1
        yield item
    if not count and reader.clean:
        reader.warn(entry, f"{path.name} holds no tests")


def _yaml_tests(reader: Reader, path: Path, text: str, seen: tuple[Path, ...]) -> Iterator[tuple[Entry, str]]:
    with reader.collecting():
        document = parse_document(text, str(path), limits=SUITE_LIMITS)
        if document.data is None:
            return
        if not isinstance(document.data, list):
            reader.problems.append(
                document.problem((), "must be a list (a YAML array) of tests; a suite cannot be nested in a suite")
            )
            return
        check_numbers(document.data, document)
        yield from _list_tests(reader, Entry(document.data, document, ()), path.name, seen)


def json_lines(
    reader: Reader, path: str, text: str, malformed: str = "Malformed JSONL at line {number}: {reason}"
) -> Iterator[tuple[Entry, str]]:
    """Yield the object of every line that is not blank. ``malformed``: what to say of a line that is not JSON."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = parse_json(line, unique_keys=True)
        except ValueError as error:
            column = getattr(error, "colno", 1)
            reason = getattr(error, "msg", None) or error
            reader.problems.append(Problem(malformed.format(number=number, reason=reason), path, number, column))
            continue
        source = LineSource(path, number, line)
        with reader.collecting():
            check_numbers(value, source)
            yield Entry(value, source, ()), f"line {number}"


def check_numbers(data: Any, source: Any) -> None:
    """Refuse NaN and infinity anywhere: no score can be made of them, and JSON cannot hold them.

    Raises:
        ConfigError: every place that holds one.
    """
    problems: list[Problem] = []
    waiting: list[tuple[Any, tuple[str | int, ...]]] = [(data, ())]
    while waiting:
        value, location = waiting.pop()
        if isinstance(value, float):
            if value - value != 0.0:
                name = location[-1] if location else "the value"
                problems.append(source.problem(location, f"{name}: must be a finite number, not {value}"))
        elif isinstance(value, dict):
            waiting += [
                (item, (*location, key)) for key, item in value.items() if isinstance(item, float | dict | list)
            ]
        elif isinstance(value, list):
            waiting += [
                (item, (*location, index)) for index, item in enumerate(value) if isinstance(item, float | dict | list)
            ]
    if problems:
        raise ConfigError(problems)
