"""Reading assert items: the type, its fields, its name."""

from typing import Any

from pydantic import ValidationError

from persona_pipeline.suites.format.assert_fields import AssertFields, rename
from persona_pipeline.suites.format.problems import Reader, add_model_problems
from persona_pipeline.suites.format.sources import Entry

MAX_NESTING = 16


def read_all_asserts(reader: Reader, entry: Entry, label: str) -> list[AssertFields]:
    """Read the asserts of a test or, without a label, of a suite: ``assert``, then what older names hold."""
    data, prefix = entry.data, f"{label}: " if label else ""
    found = read_asserts(reader, entry, "assert", label) if "assert" in data else []
    if "assertions" in data:
        reader.deprecated(entry, f"{prefix}assertions", "rename it to assert", "assertions")
        found += read_asserts(reader, entry, "assertions", label)
    if isinstance(data.get("execution"), dict) and "evaluators" in data["execution"]:
        new = f"rename it to assert, {'on the test' if label else 'at the top'}"
        reader.deprecated(entry, f"{prefix}execution.evaluators", new, "execution", "evaluators")
        found += read_asserts(reader, entry.child("execution"), "evaluators", label)
    if "evaluators" in data:
        reader.deprecated(entry, f"{prefix}evaluators", "rename it to assert", "evaluators")
        found += read_asserts(reader, entry, "evaluators", label)
    return found


def read_asserts(reader: Reader, entry: Entry, key: str, label: str, *, depth: int = 0) -> list[AssertFields]:
    """Read a list of assert items at ``entry[key]``; what is wrong is added to the reader."""
    value = entry.data[key]
    where = f"{label}: {key}" if label else key
    if not isinstance(value, list):
        reader.fail(entry, f"{where} must be a list of asserts, each with type", key)
        return []
    if depth > MAX_NESTING:
        reader.fail(entry, f"{where} nests deeper than {MAX_NESTING} levels; flatten it", key)
        return []
    found = []
    for index in range(len(value)):
        item = read_assert(reader, entry.child(key, index), where, index, depth=depth)
        if item is not None:
            found.append(item)
    return found


def read_assert(reader: Reader, entry: Entry, where: str, index: int, *, depth: int = 0) -> AssertFields | None:
    """Read one assert item; None when it is wrong."""
    data = entry.data
    if not isinstance(data, dict):
        reader.fail(entry, f"{where}[{index}] must be a mapping with type")
        return None
    spelled = data.get("type")
    if not isinstance(spelled, str) or not spelled:
        reader.fail(
            entry, f"{where}[{index}]: type is required, such as type: contains", *(("type",) if "type" in data else ())
        )
        return None
    name = reader.types.canonical_type(spelled)
    if name == "llm_judge" and data.get("rubrics") is not None:
        name = "rubrics"
    with reader.collecting():
        model = reader.types.find_type(name)
        if model is None:
            reader.fail(entry, f"{where}[{index}]: {reader.types.unknown_type(spelled)}", "type")
            return None
        shown = data.get("name") if isinstance(data.get("name"), str) and data.get("name") else str(index)
        return _build(reader, entry, model, name, spelled, f"{where}[{shown}] ({spelled})", depth)
    return None


def _build(
    reader: Reader, entry: Entry, model: type[AssertFields], name: str, spelled: str, label: str, depth: int
) -> AssertFields | None:
    before, found = len(reader.problems), len(reader.files.found)
    data: dict[str, Any] = {**entry.data, "type": name}
    if data.get("name", "") is None:
        del data["name"]
    reader.depth = depth
    data = model.prepare(data, entry, label, reader)
    for written, older in model.older_names.items():
        rename(data, older, written)
    try:
        item = model.model_validate(data)
    except ValidationError as error:
        add_model_problems(reader, entry, error, label, model)
        return None
    if len(reader.problems) > before:
        return None
    item.resolve(entry, label, reader)
    if len(reader.problems) > before:
        return None
    if not item.name:
        # Frozen for everybody else: a name that nobody wrote is made here, once.
        object.__setattr__(item, "name", item.default_name(spelled))
    item._entry = entry
    if len(reader.files.found) > found:
        item._files = tuple(reader.files.found[found:])
    return item
