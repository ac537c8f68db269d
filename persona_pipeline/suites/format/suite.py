"""Reading a whole suite, with its tests in other files: YAML lists, JSON lines, CSV tables, globs of them."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError, WithJsonSchema

from persona_pipeline.base.documents.yaml import Document, Limits, parse_document
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.suites.format.files import MAX_BYTES, FileError, Files, is_pattern
from persona_pipeline.suites.format.models import (
    MOST_DESCRIPTION,
    ExecutionFields,
    Metadata,
    Suite,
    Test,
    Text,
    WorkspaceFields,
)
from persona_pipeline.suites.format.problems import ConfigEntry, LineSource, Reader, grouped
from persona_pipeline.suites.format.registry import canonical_type, find_type, unknown_type
from persona_pipeline.suites.format.tests import (
    ITEMS,
    Defaults,
    Input,
    find_folders,
    read_all_asserts,
    read_input,
    read_test,
)
from persona_pipeline.suites.format.text import json_file, json_rows

SCHEMA_NAME = "agentv-eval-v2"
# Keys of a suite with this prefix hold YAML anchors and are not read.
EXTENSION = "x-"
_OLD_TESTS = ("eval_cases", "evalcases")
_TESTS: Any = WithJsonSchema({
    "anyOf": [
        {"type": "string", "pattern": r"\.(yaml|yml|json|jsonl|csv)$"},
        {
            "type": "array",
            "items": {"anyOf": [{"$ref": "#/$defs/TestFields"}, {"type": "string", "pattern": "^file://"}]},
        },
    ]
})  # fmt: skip


class SuiteFields(Metadata):
    """A suite as it is written."""

    model_config = ConfigDict(populate_by_name=True, json_schema_extra={"patternProperties": {f"^{EXTENSION}": {}}})

    schema_: str | None = Field(None, alias="$schema")
    assert_: Annotated[Any, ITEMS] = Field(None, alias="assert", description="Added to every test's asserts.")
    assertions: Annotated[Any, ITEMS] = Field(None, description="Another name of assert.", deprecated=True)
    evaluators: Annotated[Any, ITEMS] = Field(None, description="Older name of assert.", deprecated=True)
    tests: Annotated[Any, _TESTS] = Field(None, description="The tests, or the file they are in.")
    eval_cases: Annotated[Any, _TESTS] = Field(None, description="Older name of tests.", deprecated=True)
    evalcases: Annotated[Any, _TESTS] = Field(None, description="Older name of tests.", deprecated=True)
    input: Input = Field(None, description="Put before every test's input.")
    execution: ExecutionFields | None = None
    workspace: WorkspaceFields | None = None
    dataset: Text | None = Field(None, description="What results call the data; the file's name by default.")
    target: Text | None = Field(None, description="Older name of execution.target.", deprecated=True)
    evaluator: Text = Field("llm_judge", description="The assert type of a test that has no asserts at all.")


def load_suite(path: Path | str, roots: Iterable[Path | str] | None = None) -> Suite:
    """Load a suite from ``.yaml``, ``.yml`` or ``.jsonl``.

    Args:
        path: the file. JSON lines are tests; a YAML file of the same name next to them has the rest.
        roots: folders that every file of the suite must be in, links followed. None: no limit.

    Returns:
        The normalised suite; ``warnings`` has deprecated and suspicious parts.

    Raises:
        ConfigError: the suite is not valid; with every problem at its file, line and column.
    """
    path = Path(path).absolute()
    reader = _reader(path, roots)
    return _valid(reader, _read(reader, path))


def build_suite(data: dict[str, Any], path: Path, line: int, roots: Iterable[Path | str] | None) -> Suite:
    """Build a suite from data. ``path``, ``line``: its place in messages. Raises ``ConfigError`` with every problem."""
    reader = _reader(path, roots)
    suite = None
    with reader.collecting():
        source = LineSource(str(path), line)
        check_numbers(data, source)
        suite = _suite(reader, path, ConfigEntry(data, source), None)
    return _valid(reader, suite)


def _reader(path: Path, roots: Iterable[Path | str] | None) -> Reader:
    return Reader(Files(None if roots is None else tuple(map(Path, roots))), path.parent)


def _valid(reader: Reader, suite: Suite | None) -> Suite:
    if reader.problems or suite is None:
        raise ConfigError(grouped(reader.problems))
    return suite


def _read(reader: Reader, path: Path) -> Suite | None:
    ending = path.suffix.lower()
    if ending not in (".yaml", ".yml", ".jsonl"):
        reader.problems.append(Problem("is not a suite: its name must end in .yaml, .yml or .jsonl", str(path)))
        return None
    with reader.collecting():
        text = reader.files.text_of(path)
        if ending == ".jsonl":
            return _read_lines(reader, path, text)
        document = _document(reader, path, text)
        return None if document is None else _suite(reader, path, ConfigEntry(document.data, document), None)
    return None


def _document(reader: Reader, path: Path, text: str) -> Document | None:
    document = read_document(path, text)
    if not isinstance(document.data, dict):
        reader.problems.append(document.problem((), "must be a mapping with tests"))
        return None
    schema = document.data.get("$schema")
    if isinstance(schema, str) and schema.startswith("agentv-") and not schema.startswith("agentv-eval"):
        said = f"is not a suite: $schema is {schema!r}, not {SCHEMA_NAME!r}"
        reader.problems.append(document.problem(("$schema",), said))
        return None
    return document


def _read_lines(reader: Reader, path: Path, text: str) -> Suite | None:
    """Read JSON lines with their sidecar, if there is one."""
    sidecar = next((file for end in (".yaml", ".yml") if (file := path.with_suffix(end)).is_file()), None)
    if sidecar is None:
        document = Document(str(path), {})
    else:
        found = _document(reader, sidecar, reader.files.text_of(sidecar))
        if found is None:
            return None
        document = found
        entry, tests = ConfigEntry(document.data, document), document.data.get("tests")
        # A sidecar may name its own JSON lines.
        if isinstance(tests, str) and (path.parent / tests.removeprefix("file://")).resolve() == path.resolve():
            reader.deprecated(entry, "tests", f"remove it: {path.name} is what is run", "tests")
        elif "tests" in document.data:
            said = f"{path.name} holds the tests; run this file alone or remove tests"
            reader.fail(entry, said, "tests", key=True)
    return _suite(reader, path, ConfigEntry(document.data, document), text)


def _suite(reader: Reader, path: Path, entry: ConfigEntry, lines: str | None) -> Suite | None:
    data = entry.data
    fields = _fields(reader, entry)
    execution = (fields and fields.execution) or ExecutionFields.model_validate({})
    if execution.cache_path:
        try:
            reader.files.check_place(path.parent / execution.cache_path, execution.cache_path)
        except (FileError, ValueError) as problem:
            reader.fail(entry, f"execution: cache_path: {problem}", "execution", "cache_path")
    workspace = find_folders(reader, entry, fields and fields.workspace)
    asserts = read_all_asserts(reader, entry)
    asked = read_input(reader, entry.named("suite"), "input") if fields else ((), {})
    dataset = data.get("dataset") if isinstance(data.get("dataset"), str) else path.stem
    defaults = Defaults(str(dataset), asserts, asked, workspace, invalid=bool(reader.problems))
    tests = _tests(reader, entry, path, lines, defaults)
    if fields is None or reader.problems:
        return None
    if not tests:
        reader.warn(entry, "the suite has no tests")
    about = {key: data.get(key) for key in Metadata.model_fields}
    return Suite(
        path=path,
        tests=tests,
        metadata=None if fields.name is None else Metadata.model_validate(about),
        tags=tuple(fields.tags or ()),
        target=execution.target or vars(fields)["target"],
        targets=None if execution.targets is None else tuple(dict.fromkeys(execution.targets)),
        trials=execution.trials if execution.trials and execution.trials.count > 1 else None,
        cache=execution.cache,
        cache_path=execution.cache_path,
        workspace=workspace,
        evaluator=canonical_type(fields.evaluator),
        roots=reader.files.roots,
        warnings=tuple(grouped(reader.warnings)),
        missing=tuple(dict.fromkeys(reader.missing)),
        files=tuple(reader.files.read_files),
        content_hash=reader.files.content_hash(path.parent),
    )


def _fields(reader: Reader, entry: ConfigEntry) -> SuiteFields | None:
    data = {key: value for key, value in entry.data.items() if value is not None and not str(key).startswith(EXTENSION)}
    fields = reader.validated(SuiteFields, data, entry.named("suite"))
    if fields is None:
        return None
    # Older files have a description of any length and no name.
    if fields.name is not None and not fields.description:
        reader.fail(entry, f"suite: description is required with name, 1 to {MOST_DESCRIPTION} characters", "name")
    if fields.name is not None and len(fields.description or "") > MOST_DESCRIPTION:
        reader.fail(entry, f"suite: description: must have at most {MOST_DESCRIPTION} characters", "description")
    # Reading the deprecated attribute would warn.
    if vars(fields)["target"] is not None:
        reader.deprecated(entry, "target", "write execution.target", "target")
    if "evaluator" in fields.model_fields_set:
        _check_evaluator(reader, entry, fields.evaluator)
    return fields


def _check_evaluator(reader: Reader, entry: ConfigEntry, spelled: str) -> None:
    name = canonical_type(spelled)
    model = find_type(name)
    if model is None:
        reader.fail(entry, f"evaluator: {unknown_type(spelled)}", "evaluator")
        return
    try:
        model.model_validate({"type": name})
    except ValidationError:
        reader.fail(entry, f"evaluator: {spelled} needs fields of its own; write it under assert", "evaluator")


def _tests(reader: Reader, entry: ConfigEntry, path: Path, lines: str | None, defaults: Defaults) -> tuple[Test, ...]:
    if lines is not None:
        found = json_lines(reader, str(path), lines, "Line {number}: Invalid JSON - {error}; correct line {number}")
    else:
        key = next((name for name in ("tests", *_OLD_TESTS) if name in entry.data), None)
        if key is None:
            reader.fail(entry, "tests is required: a list of tests, or the path of a file that holds them")
            return ()
        if key != "tests":
            reader.deprecated(entry, key, "rename it to tests", key)
        for other in _OLD_TESTS:
            if other in entry.data and other != key:
                said = f"{other} is ignored, because {key} holds the tests; move its tests there"
                reader.warn(entry, said, other, key=True)
        found = _test_entries(reader, entry.child(key))
    tests: list[Test] = []
    places: dict[str, ConfigEntry] = {}
    for item in found:
        test = read_test(reader, item, defaults)
        if test is None:
            continue
        first = places.setdefault(test.id, item)
        if first is not item:
            said = f"duplicate test id {test.id!r} (first at {first.place}); rename one"
            reader.problems.append(item.problem(said, "id"))
        tests.append(test)
    return tuple(tests)


SUITE_LIMITS = Limits(size=MAX_BYTES, depth=64, nodes=5_000_000)
ENDINGS = (".yaml", ".yml", ".json", ".jsonl", ".csv")
_MOST_NESTED = 16


def _test_entries(reader: Reader, entry: ConfigEntry) -> Iterator[ConfigEntry]:
    """Yield each test under ``tests``, also those in other files.

    ``entry``: the value of ``tests``: a list of tests and ``file://`` references, or one path.
    """
    value = entry.data
    if isinstance(value, str):
        for path in _referenced(reader, entry.named("tests"), value):
            yield from _file_tests(reader, entry, path, (path,))
    elif isinstance(value, list):
        yield from _list_tests(reader, entry, "tests", ())
    else:
        reader.fail(entry, "tests must be a list of tests, or the path of a .yaml, .jsonl or .csv file")


def _list_tests(reader: Reader, entry: ConfigEntry, name: str, seen: tuple[Path, ...]) -> Iterator[ConfigEntry]:
    for index, item in enumerate(entry.data):
        place = entry.child(index, label=f"{name}[{index}]")
        if not isinstance(item, str):
            yield place
        elif not item.startswith("file://"):
            reader.fail(place, f"must be a test, or a reference that starts with file://; found {item!r}")
        else:
            for path in _referenced(reader, place, item):
                if path in seen or len(seen) >= _MOST_NESTED:
                    reader.fail(place, f"{path.name} refers to itself")
                else:
                    yield from _file_tests(reader, place, path, (*seen, path))


def _referenced(reader: Reader, entry: ConfigEntry, reference: str) -> list[Path]:
    """Return the test files that a reference names: one, or the matches of a pattern."""
    suffix, pattern = Path(reference).suffix, is_pattern(reference)
    if not pattern and suffix.lower() not in ENDINGS:
        said = f"{reference!r} ends in {suffix or 'nothing'}; tests are read from {', '.join(ENDINGS)}"
        reader.fail(entry, said)
        return []
    try:
        if not pattern:
            return [reader.files.find(reference, reader.folders(entry))]
        found = [path for path in reader.files.glob(reference, reader.folders(entry)) if path.suffix in ENDINGS]
    except FileError as problem:
        reader.fail(entry, str(problem))
        return []
    if not found:
        reader.fail(entry, f"{reference!r} matches no test file; correct or remove it")
    return found


def _file_tests(reader: Reader, entry: ConfigEntry, path: Path, seen: tuple[Path, ...]) -> Iterator[ConfigEntry]:
    try:
        text = reader.files.read(path)
    except FileError as problem:
        reader.problems.append(problem.problem(path))
        return
    first = next(found := _entries_of(reader, path, text, seen), None)
    if first is not None:
        yield first
        yield from found
    elif not reader.problems:
        reader.problems.append(entry.problem(f"{path.name} holds no tests; add one, or remove the reference"))


def _entries_of(reader: Reader, path: Path, text: str, seen: tuple[Path, ...]) -> Iterator[ConfigEntry]:
    if path.suffix.lower() == ".jsonl":
        yield from json_lines(reader, str(path), text)
        return
    if path.suffix.lower() == ".csv":
        from persona_pipeline.suites.format.csv_tests import read_rows

        yield from read_rows(reader, str(path), text)
        return
    with reader.collecting():
        document = read_document(path, text)
        if document.data is None:
            return
        if not isinstance(document.data, list):
            said = "must be a list (a YAML array) of tests; a suite cannot be nested in a suite"
            reader.problems.append(document.problem((), said))
            return
        yield from _list_tests(reader, ConfigEntry(document.data, document), path.name, seen)


def read_document(path: Path, text: str, *, merge: bool = False) -> Document:
    """Return a YAML or JSON file with its places. ``merge``: resolve merge keys (<<).

    Raises ``ConfigError``: it is not valid, or has a number that is not finite.
    """
    if path.suffix.lower() == ".json":
        return Document(str(path), json_file(text, str(path), unique_keys=True), text, SUITE_LIMITS)
    document = parse_document(text, str(path), limits=replace(SUITE_LIMITS, merge=merge))
    check_numbers(document.data, document)
    return document


def json_lines(
    reader: Reader, path: str, text: str, malformed: str = "Malformed JSONL at line {number}: {error}"
) -> Iterator[ConfigEntry]:
    """Yield the object of every line that is not blank. ``malformed``: the message for a line that is not JSON."""
    for number, line, value in json_rows(text, path, malformed, reader.problems):
        yield ConfigEntry(value, LineSource(path, number, line), label=f"line {number}")


def check_numbers(data: Any, source: Any) -> None:
    """Refuse NaN and infinity: scores cannot use them, and JSON cannot hold them."""
    problems = [
        source.problem(location, f"{location[-1] if location else 'the value'}: must be a finite number, not {value}")
        for location, value in _not_finite(data)
    ]
    if problems:
        raise ConfigError(problems)


def _not_finite(value: Any) -> Iterator[tuple[tuple[str | int, ...], float]]:
    if isinstance(value, float) and not math.isfinite(value):
        yield (), value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if isinstance(item, float | dict | list):
            yield from (((key, *inside), number) for inside, number in _not_finite(item))
