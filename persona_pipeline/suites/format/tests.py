"""Reading a test: messages and their short forms, asserts, turns, how it is run, and the texts derived from messages."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from persona_pipeline.base.documents.yaml import quotes_hint
from persona_pipeline.base.errors import nearest
from persona_pipeline.suites.format.models import (
    STRATEGIES,
    AssertFields,
    ExecutionFields,
    SimulatedUser,
    StrictFields,
    Test,
    Text,
    WorkspaceFields,
    present,
    rename,
)
from persona_pipeline.suites.format.problems import ConfigEntry, Fields, Reader
from persona_pipeline.suites.format.registry import FUNCTIONS, TYPES, type_meant, unknown_type

ROLES = ("system", "user", "assistant", "tool")
_ROLES_TEXT = ", ".join(ROLES)
MAX_NESTING = 16


# Messages, and the files that they name, by the paths as they are written.
Asked = tuple[tuple[dict[str, Any], ...], dict[str, Path]]


def input_messages(reader: Reader, entry: ConfigEntry, key: str) -> Asked:
    """Return the messages at ``input``, ``input_messages`` or a turn's ``user``; text is one user message.

    The files that they name must exist.
    """
    value = entry.data[key]
    if isinstance(value, str) and key != "input_messages":
        return ({"role": "user", "content": value},), {}
    if not isinstance(value, list):
        wanted = "a list of messages" if key == "input_messages" else "a string or a list of messages"
        reader.fail(entry, f"{key} must be {wanted}{quotes_hint(value)}", key)
        return (), {}
    if not value:
        reader.fail(entry, f"{key} must hold at least one message", key)
    before = len(reader.problems)
    messages = _messages(reader, entry, key)
    return messages, _find_files(reader, entry, key, messages) if len(reader.problems) == before else {}


def expected_messages(reader: Reader, entry: ConfigEntry, key: str | None) -> tuple[dict[str, Any], ...]:
    """Return the messages at ``expected_output`` or ``expected_messages``; no key: no messages."""
    if key is None:
        return ()
    value = entry.data[key]
    if key == "expected_messages":
        if isinstance(value, list):
            return _messages(reader, entry, key)
        reader.fail(entry, f"{key} must be a list of messages", key)
        return ()
    if isinstance(value, dict) and "role" in value:
        message = _message(reader, entry.child(key, label=key))
        return () if message is None else (message,)
    if isinstance(value, list) and value and isinstance(value[0], dict) and "role" in value[0]:
        return _messages(reader, entry, key)
    if isinstance(value, str | dict | list):
        return () if value == [] else ({"role": "assistant", "content": value},)
    reader.fail(entry, f"{key} must be a string, a mapping or a list; quote it to compare it as text", key)
    return ()


def _messages(reader: Reader, entry: ConfigEntry, key: str) -> tuple[dict[str, Any], ...]:
    places = (entry.child(key, index, label=f"{key}[{index}]") for index in range(len(entry.data[key])))
    return tuple(message for place in places if (message := _message(reader, place)) is not None)


def _message(reader: Reader, entry: ConfigEntry) -> dict[str, Any] | None:
    message = entry.data
    if not isinstance(message, dict):
        reader.fail(entry, "must be a message (a mapping with role and content)")
        return None
    role = message.get("role")
    before = len(reader.problems)
    if role is None:
        reader.fail(entry, f"role is required, one of {_ROLES_TEXT}")
    elif role not in ROLES:
        hint = "" if "content" in message else "; to compare with data that has a role, put it under content"
        reader.fail(entry, f"role must be one of {_ROLES_TEXT}, not {role!r}{hint}", "role")
    calls = message.get("tool_calls")
    if calls is not None:
        _check_tool_calls(reader, entry, calls)
    content = message.get("content")
    if content is None:
        if not (role == "assistant" and calls):
            reader.fail(entry, f"{'content or tool_calls' if role == 'assistant' else 'content'} is required")
    elif not isinstance(content, str | dict) and not (
        isinstance(content, list) and all(isinstance(part, dict) for part in content)
    ):
        reader.fail(entry, "content must be a string, a mapping or a list of parts (mappings)", "content")
    if not isinstance(message.get("name", ""), str):
        reader.fail(entry, "name must be a string", "name")
    return message if len(reader.problems) == before else None


def _check_tool_calls(reader: Reader, entry: ConfigEntry, calls: Any) -> None:
    if not isinstance(calls, list):
        reader.fail(entry, "tool_calls must be a list", "tool_calls")
        return
    for index, call in enumerate(calls):
        if not isinstance(call, dict):
            reader.fail(entry, f"tool_calls[{index}] must be a mapping with tool", "tool_calls", index)
        elif not isinstance(call.get("tool"), str) or not call["tool"]:
            reader.fail(entry, f"tool_calls[{index}]: tool is required, a string", "tool_calls", index)


def file_parts(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield the ``{type: file, value: path}`` parts of messages, each with the numbers of its message and part."""
    for index, message in enumerate(messages):
        parts = message.get("content")
        for number, part in enumerate(parts if isinstance(parts, list) else ()):
            if part.get("type") == "file":
                yield index, number, part


def _find_files(reader: Reader, entry: ConfigEntry, key: str, messages: Sequence[dict[str, Any]]) -> dict[str, Path]:
    """Return the files of file parts, by the paths as they are written; each must exist.

    They are in the folder of the naming file or of the suite, or above them up to the repository's top.
    """
    found: dict[str, Path] = {}
    folders = reader.folders(entry)
    above = [folder for folder in folders[-1].parents if folder.is_relative_to(reader.top)]
    for index, number, part in file_parts(messages):
        place = (key, index, "content", number)
        if not isinstance(part.get("value"), str):
            reader.fail(entry, "a file part needs value, a path", *place)
            continue
        with reader.placing(entry, key, *place):
            found[part["value"]] = reader.files.find(part["value"], [*folders, *above])
    return found


def read_execution(reader: Reader, entry: ConfigEntry) -> ExecutionFields:
    """Read ``execution`` of a suite or a test, but not ``evaluators`` in it, which are asserts."""
    part = _part(reader, entry, "execution", ExecutionFields)
    if part is None:
        return ExecutionFields.model_validate({})
    inner, fields = part
    if fields.trials is not None and fields.trials.strategy not in (*STRATEGIES, "at_least"):
        known = f"{', '.join(STRATEGIES)} or {{at_least: K, of: COUNT}}"
        said = f"trials.strategy must be one of {known}, not {fields.trials.strategy!r}"
        reader.fail(inner, said, "trials", "strategy")
    return fields


def read_workspace(reader: Reader, entry: ConfigEntry) -> WorkspaceFields | None:
    part = _part(reader, entry, "workspace", WorkspaceFields)
    if part is None:
        return None
    inner, fields = part
    found: dict[str, Any] = {}
    if fields.template is not None:
        found["template"] = reader.find_folder(inner, fields.template, "template", "template")
    for name, hook in fields.hooks.items():
        if hook.cwd:
            cwd = reader.find_folder(inner, hook.cwd, f"{name}.cwd", name, "cwd")
            found[name] = hook.model_copy(update={"cwd": cwd})
    return fields.model_copy(update=found)


def _part(reader: Reader, entry: ConfigEntry, name: str, model: type[Fields]) -> tuple[ConfigEntry, Fields] | None:
    """Return the mapping at a key with its fields; None where it is not written or not valid."""
    if entry.data.get(name) is None:
        return None
    inner = entry.child(name, label=name)
    if not isinstance(inner.data, dict):
        reader.fail(entry, f"{name} must be a mapping", name)
        return None
    data = {key: value for key, value in inner.data.items() if value is not None or key == "evaluators"}
    fields = reader.validated(model, data, inner)
    return None if fields is None else (inner, fields)


def read_all_asserts(reader: Reader, entry: ConfigEntry) -> list[AssertFields]:
    """Read the asserts of a test or of a suite, which has no label: those of ``assert``, then those of older names."""
    data, level = entry.data, "on the test" if entry.label else "at the top"
    found = read_asserts(reader, entry, "assert") if "assert" in data else []
    for *above, key in (("assertions",), ("execution", "evaluators"), ("evaluators",)):
        place = entry.child(*above) if not above or above[0] in data else None
        if place is not None and isinstance(place.data, dict) and key in place.data:
            new = f"rename it to assert, {level}" if above else "rename it to assert"
            reader.deprecated(entry, ".".join((*above, key)), new, *above, key)
            found += read_asserts(reader, place, key)
    return found


def read_asserts(reader: Reader, entry: ConfigEntry, key: str, *, depth: int = 0) -> list[AssertFields]:
    """Read the list of asserts at a key of an entry. ``depth``: number of composites around them."""
    value = entry.data[key]
    if not isinstance(value, list):
        reader.fail(entry, f"{key} must be a list of asserts, each with type", key)
        return []
    if depth > MAX_NESTING:
        reader.fail(entry, f"{key} nests deeper than {MAX_NESTING} levels; flatten it", key)
        return []
    items = (read_assert(reader, entry.child(key, index), key, index, depth=depth) for index in range(len(value)))
    return [item for item in items if item is not None]


def read_assert(reader: Reader, entry: ConfigEntry, key: str, index: int, *, depth: int = 0) -> AssertFields | None:
    """Read one assert. ``key``, ``index``: where it is in the value that its entry is labelled with."""
    data, before = entry.data, len(reader.problems)
    if not isinstance(data, dict):
        reader.fail(entry, f"{key}[{index}] must be a mapping with type")
        return None
    if id(data) in reader.broken:
        return None
    found = _read_assert(reader, entry, key, index, depth)
    if len(reader.problems) > before:
        reader.broken.add(id(data))
        return None
    return found


def _read_assert(reader: Reader, entry: ConfigEntry, key: str, index: int, depth: int) -> AssertFields | None:
    data, spelled = entry.data, entry.data.get("type")
    if not isinstance(spelled, str) or not spelled:
        place = ("type",) if "type" in data else ()
        reader.fail(entry, f"{key}[{index}]: type is required, such as type: contains", *place)
        return None
    name, implied = type_meant(spelled)
    if name == "llm_judge" and data.get("rubrics") is not None:
        name = "rubrics"
    with reader.collecting():
        # No file holds a function.
        model = (FUNCTIONS if callable(data.get("call")) else TYPES).find(name)
        if model is None:
            reader.fail(entry, f"{key}[{index}]: {unknown_type(spelled)}", "type")
            return None
        shown = data["name"] if isinstance(data.get("name"), str) and data["name"] else index
        place = entry.named(f"{key}[{shown}] ({spelled})")
        return _build(reader, place, model, {**implied, **data, "type": name}, depth)
    return None


def _build(
    reader: Reader, entry: ConfigEntry, model: type[AssertFields], data: dict[str, Any], depth: int
) -> AssertFields | None:
    before, found = len(reader.problems), len(reader.files.found)
    if data.get("name", "") is None:
        del data["name"]
    reader.depth = depth
    data = model.prepare(data, entry, reader)
    for written, older in model.older_names.items():
        rename(data, older, written)
    item = reader.validated(model, data, entry)
    if item is None or len(reader.problems) > before:
        return None
    item.resolve(entry, reader)
    if not item.name:
        # Frozen for all other code: the default name is made here, once.
        object.__setattr__(item, "name", item.default_name(entry.data["type"]))
    item._entry = entry
    if len(reader.files.found) > found:
        item._files = tuple(reader.files.found[found:])
    return item


_GOALS = ("criteria", "expected_outcome", "outcome", "description")
_ANSWERS = ("expected_messages", "expected_output", "reference_answer")
# Older names of a test's fields, with what to write.
_OLDER = {"description": "write criteria, or a note under metadata", "reference_answer": "rename it to expected_output"}
ITEMS: Any = WithJsonSchema({"type": "array", "items": {"$ref": "#/$defs/assert"}})
_MESSAGES: Any = WithJsonSchema({"type": "array", "items": {"$ref": "#/$defs/message"}})
INPUT: Any = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/message"}}]})
TURNS: Any = WithJsonSchema(
    {
        "type": "array",
        "items": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/TurnFields"}]},
        "minItems": 1,
    }
)
_ANSWER: Any = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}, {"type": "array"}, {"type": "null"}]})


class TestFields(StrictFields):
    """A test as it is written."""

    id: Text = Field(description="Names the test in results; unique in the suite.")
    criteria: str | None = Field(None, description="The goal: what a good answer achieves.")
    expected_outcome: str | None = Field(None, description="The goal, older name.")
    outcome: str | None = Field(None, description="The goal, oldest name.")
    input: Annotated[Any, INPUT] = Field(None, description="What is asked: text, or messages.")
    input_messages: Annotated[Any, _MESSAGES] = Field(None, description="What is asked; wins over input.")
    expected_output: Annotated[Any, _ANSWER] = Field(None, description="A good answer: text, data, or messages.")
    expected_messages: Annotated[Any, _MESSAGES] = Field(None, description="A good answer; wins over expected_output.")
    assert_: Annotated[Any, ITEMS] = Field(None, alias="assert", description="What must hold for the answer.")
    description: str | None = Field(
        None, description="Oldest form of the goal; used where no other is given.", deprecated=True
    )
    reference_answer: str | None = Field(None, description="Older name of expected_output.", deprecated=True)
    assertions: Annotated[Any, ITEMS] = Field(None, description="Another name of assert.", deprecated=True)
    evaluators: Annotated[Any, ITEMS] = Field(None, description="Older name of assert.", deprecated=True)
    rubrics: list[Any] | None = Field(None, description="Older form of an assert of type rubrics.", deprecated=True)
    skip_defaults: bool = Field(False, description="Do not inherit the suite's asserts and input.")
    execution: dict[str, Any] | None = None
    workspace: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = Field(None, description="Anything; tags in it are filtered on.")
    conversation_id: str | None = Field(None, description="Echoed in the results.")
    turns: Annotated[Any, TURNS] = Field(
        None, description="A conversation: what the user says, turn by turn, and what must hold for each answer."
    )
    user: dict[str, Any] | None = Field(None, description="Who plays the user of a conversation after the turns.")
    each_turn: Annotated[Any, ITEMS] = Field(None, description="What must hold for every answer of a conversation.")


class TurnFields(StrictFields):
    """A turn of a conversation as it is written; plain text is short for ``user``."""

    user: Annotated[Any, INPUT] = Field(description="What the user says: text, or messages.")
    criteria: str | None = Field(None, description="The goal: what a good answer to this turn achieves.")
    expected_output: Annotated[Any, _ANSWER] = Field(None, description="A good answer: text, data, or messages.")
    assert_: Annotated[Any, ITEMS] = Field(None, alias="assert", description="What must hold for this answer.")


@dataclass(frozen=True)
class Defaults:
    """Values that each test inherits from its suite. ``invalid``: the suite has problems."""

    dataset: str
    asserts: Sequence[AssertFields] = ()
    asked: Asked = ((), {})
    workspace: WorkspaceFields | None = None
    invalid: bool = False


def read_test(reader: Reader, entry: ConfigEntry, defaults: Defaults) -> Test | None:
    """Read one test. Its label is its name in messages if it has no id."""
    data, before = entry.data, len(reader.problems)
    if not isinstance(data, dict):
        reader.fail(entry, "must be a mapping with id and input, or a file:// reference")
        return None
    if isinstance(data.get("id"), str) and data["id"]:
        entry = replace(entry, label=f"test {data['id']!r}")
    # Other functions read the lists, because they know more about them; this checks keys and plain values.
    reader.validated(TestFields, present(data), entry)
    for old, new in _OLDER.items():
        if data.get(old) is not None:
            reader.deprecated(entry, old, new, old)
    execution = read_execution(reader, entry)
    skip_defaults = execution.skip_defaults or data.get("skip_defaults") is True
    part = _part(reader, entry, "user", SimulatedUser)
    user = part and part[1]
    asked, files = _input(reader, entry)
    expected = expected_messages(reader, entry, _present(entry, *_ANSWERS))
    asserts = _asserts(reader, entry)
    turns = _turns(reader, entry, defaults)
    if user is not None and len(turns) > user.turns:
        reader.fail(entry, f"{len(turns)} turns are written and user.turns allows {user.turns}", "user")
    every = read_asserts(reader, entry, "each_turn") if data.get("each_turn") is not None else []
    if every and not turns and user is None:
        reader.fail(entry, "each_turn is for conversations; write turns or user", "each_turn", key=True)
    workspace = read_workspace(reader, entry)
    if len(reader.problems) > before:
        return None
    if not skip_defaults:
        asked, files = (*defaults.asked[0], *asked), {**defaults.asked[1], **files}
    goal = next((data[key] for key in _GOALS if isinstance(data.get(key), str)), "")
    asserts = asserts if skip_defaults else [*asserts, *defaults.asserts]
    checked = asserts or goal or expected or every or any(turn.asserts for turn in turns)
    # Asserts that are written and not valid have their own problems.
    if not checked and not data.get("assert") and not (defaults.invalid and not skip_defaults):
        reader.fail(entry, "there is nothing to check; add criteria, expected_output or assert")
        return None
    if asserts and not any(item.weight for item in asserts):
        reader.warn(entry, "every assert weighs 0, so the score can only be 0", "assert")
    if defaults.workspace is not None:
        workspace = defaults.workspace if workspace is None else defaults.workspace.merged(workspace)
    targets = execution.targets or ([execution.target] if execution.target is not None else None)
    return Test(
        id=data["id"],
        input_messages=asked,
        expected_outcome=goal,
        expected_messages=expected,
        dataset=defaults.dataset,
        asserts=tuple(asserts),
        conversation_id=data.get("conversation_id"),
        metadata=data.get("metadata"),
        workspace=workspace,
        targets=None if targets is None else tuple(dict.fromkeys(targets)),
        trials=execution.trials,
        cache=execution.cache,
        turns=turns,
        user=user,
        each_turn=tuple(every),
        files=files | {name: path for turn in turns for name, path in turn.files.items()},
        entry=entry,
    )


def _turns(reader: Reader, entry: ConfigEntry, defaults: Defaults) -> tuple[Test, ...]:
    """Read the turns of a conversation; each is a test of the answer to it."""
    value = entry.data.get("turns")
    if value is None:
        return ()
    if not isinstance(value, list) or not value:
        reader.fail(entry, "turns must be a list of at least one text, or mapping with user", "turns")
        return ()
    places = (entry.child("turns", index, label=f"turn {index + 1}") for index in range(len(value)))
    found = [_turn(reader, place, defaults, f"turn {number}") for number, place in enumerate(places, start=1)]
    return tuple(turn for turn in found if turn is not None)


def _turn(reader: Reader, entry: ConfigEntry, defaults: Defaults, name: str) -> Test | None:
    if isinstance(entry.data, str):
        entry = replace(entry, data={"user": entry.data})
    if not isinstance(entry.data, dict):
        reader.fail(entry, "must be the user's text, or a mapping with user")
        return None
    before = len(reader.problems)
    if reader.validated(TurnFields, present(entry.data), entry) is None:
        return None
    said, files = input_messages(reader, entry, "user")
    expected = expected_messages(reader, entry, _present(entry, "expected_output"))
    asserts = read_asserts(reader, entry, "assert") if entry.data.get("assert") is not None else []
    if len(reader.problems) > before:
        return None
    return Test(
        id=name,
        input_messages=said,
        expected_outcome=entry.data.get("criteria") or "",
        expected_messages=expected,
        dataset=defaults.dataset,
        asserts=tuple(asserts),
        files=files,
        entry=entry,
    )


def _input(reader: Reader, entry: ConfigEntry) -> Asked:
    key = _present(entry, "input_messages", "input")
    if key is not None:
        return input_messages(reader, entry, key)
    misspelt = (nearest(name, ("input", "input_messages")) for name in entry.data.keys() - TestFields.model_fields)
    if _present(entry, "turns", "user") is None and not any(misspelt):
        reader.fail(entry, "input is required")
    return (), {}


def _present(entry: ConfigEntry, *keys: str) -> str | None:
    return next((key for key in keys if entry.data.get(key) is not None), None)


def _asserts(reader: Reader, entry: ConfigEntry) -> list[AssertFields]:
    """Read a test's own asserts: the rubrics first, then ``assert``, then those of older names."""
    found: list[AssertFields] = []
    rubrics = entry.data.get("rubrics")
    if isinstance(rubrics, list):
        reader.deprecated(entry, "rubrics", "write an assert of type rubrics", "rubrics")
        if rubrics:
            # The new assert has the place of the test, so that positions in the list stay those of the file.
            item = replace(entry, data={"type": "rubrics", "name": "rubric", "rubrics": rubrics})
            made = read_assert(reader, item, "rubrics", 0)
            found += [made] if made else []
    return found + read_all_asserts(reader, entry)
