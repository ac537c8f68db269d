"""Reading a whole suite."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

from persona_pipeline.base.documents.yaml import Document, parse_document
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.suites.format.external_tests import SUITE_LIMITS, check_numbers, json_lines, test_entries
from persona_pipeline.suites.format.files import FileError, Files
from persona_pipeline.suites.format.models import Metadata, StrictFields, Suite, Test, Text
from persona_pipeline.suites.format.problems import AssertTypes, ConfigEntry, LineSource, Reader, grouped
from persona_pipeline.suites.format.tests import (
    INPUT,
    ITEMS,
    Defaults,
    input_messages,
    read_all_asserts,
    read_execution,
    read_test,
    read_workspace,
)

SCHEMA_NAME = "agentv-eval-v2"
MOST_DESCRIPTION = 1024
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


class Requires(BaseModel):
    """What the suite needs; keys other than ``agentv`` are kept as they are."""

    model_config = ConfigDict(extra="allow", strict=True)

    agentv: str | None = None


class SuiteFields(StrictFields):
    """A suite as it is written."""

    model_config = ConfigDict(populate_by_name=True, json_schema_extra={"patternProperties": {f"^{EXTENSION}": {}}})

    schema_: str | None = Field(None, alias="$schema")
    name: str | None = Field(
        None, min_length=1, max_length=64, pattern="^[a-z0-9-]+$", description="Turns the metadata on."
    )
    description: str | None = Field(
        None, description=f"What the suite measures: required with name, then up to {MOST_DESCRIPTION} characters."
    )
    version: str | None = Field(None, description="Semantic version, quoted.")
    author: str | None = None
    tags: list[str] | None = Field(None, description="For finding and filtering.")
    license: str | None = Field(None, description="SPDX identifier.")
    requires: Requires | None = None
    assert_: Annotated[Any, ITEMS] = Field(None, alias="assert", description="Added to every test's asserts.")
    assertions: Annotated[Any, ITEMS] = Field(None, description="Another name of assert.", deprecated=True)
    evaluators: Annotated[Any, ITEMS] = Field(None, description="Older name of assert.", deprecated=True)
    tests: Annotated[Any, _TESTS] = Field(None, description="The tests, or the file they are in.")
    eval_cases: Annotated[Any, _TESTS] = Field(None, description="Older name of tests.", deprecated=True)
    evalcases: Annotated[Any, _TESTS] = Field(None, description="Older name of tests.", deprecated=True)
    input: Annotated[Any, INPUT] = Field(None, description="Put before every test's input.")
    execution: dict[str, Any] | None = None
    workspace: dict[str, Any] | None = None
    dataset: Text | None = Field(None, description="What results call the data; the file's name by default.")
    target: Text | None = Field(None, description="Older name of execution.target.", deprecated=True)
    evaluator: Text = Field("llm_judge", description="The assert type of a test that has no asserts at all.")


def read_suite(path: Path | str, roots: Iterable[Path | str] | None, types: AssertTypes) -> Suite:
    """Read a suite file. ``types``: the types of asserts. See ``load_suite``."""
    path = Path(path)
    confined = None if roots is None else tuple(Path(root) for root in roots)
    reader = Reader(Files(confined), path.absolute().parent, types)
    return _valid(reader, _read(reader, path.absolute()))


def build_suite(
    data: dict[str, Any], path: Path, line: int, roots: Iterable[Path | str] | None, types: AssertTypes
) -> Suite:
    """Build a suite from data. ``path``, ``line``: its place in messages. Raises ``ConfigError`` with every problem."""
    reader = Reader(Files(None if roots is None else tuple(map(Path, roots))), path.parent, types)
    suite = None
    with reader.collecting():
        source = LineSource(str(path), line, "")
        check_numbers(data, source)
        suite = _suite(reader, path, ConfigEntry(data, source), None)
    return _valid(reader, suite)


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
    document = parse_document(text, str(path), limits=SUITE_LIMITS)
    if not isinstance(document.data, dict):
        reader.problems.append(document.problem((), "must be a mapping with tests"))
        return None
    schema = document.data.get("$schema")
    if isinstance(schema, str) and schema.startswith("agentv-") and not schema.startswith("agentv-eval"):
        said = f"is not a suite: $schema is {schema!r}, not {SCHEMA_NAME!r}"
        reader.problems.append(document.problem(("$schema",), said))
        return None
    check_numbers(document.data, document)
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
        entry = ConfigEntry(document.data, document)
        tests = document.data.get("tests")
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
    execution = read_execution(reader, entry)
    if execution.cache_path:
        try:
            reader.files.check_place(path.parent / execution.cache_path, execution.cache_path)
        except (FileError, ValueError) as problem:
            reader.fail(entry, f"execution: cache_path: {problem}", "execution", "cache_path")
    workspace = read_workspace(reader, entry)
    asserts = read_all_asserts(reader, entry)
    asked: tuple[dict[str, Any], ...] = ()
    if data.get("input") is not None:
        asked = input_messages(reader, entry.named("suite"), "input")
    dataset = data.get("dataset") if isinstance(data.get("dataset"), str) else path.stem
    defaults = Defaults(str(dataset), asserts, asked, workspace, invalid=not reader.clean)
    tests = _tests(reader, entry, path, lines, defaults)
    if fields is None or not reader.clean:
        return None
    if not tests:
        reader.warn(entry, "the suite has no tests")
    metadata = {key: data.get(key) for key in Metadata.model_fields}
    return Suite(
        path=path,
        tests=tests,
        metadata=None if fields.name is None else Metadata.model_validate(metadata),
        tags=tuple(fields.tags or ()),
        target=execution.target or vars(fields)["target"],
        targets=None if execution.targets is None else tuple(dict.fromkeys(execution.targets)),
        trials=execution.trials if execution.trials and execution.trials.count > 1 else None,
        cache=execution.cache,
        cache_path=execution.cache_path,
        workspace=workspace,
        evaluator=reader.types.canonical_type(fields.evaluator),
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
    name = reader.types.canonical_type(spelled)
    model = reader.types.find_type(name)
    if model is None:
        reader.fail(entry, f"evaluator: {reader.types.unknown_type(spelled)}", "evaluator")
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
        found = test_entries(reader, entry.child(key))
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
