"""Reading a test: messages and their short forms, asserts, turns, how it is run, and the texts derived from messages."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from persona_pipeline.base.documents.yaml import quotes_hint
from persona_pipeline.suites.format.models import (
    AssertFields,
    ExecutionFields,
    PartFields,
    SimulatedUser,
    Test,
    Text,
    WorkspaceFields,
    rename,
)
from persona_pipeline.suites.format.problems import ConfigEntry, Reader
from persona_pipeline.suites.format.registry import FUNCTIONS, TYPES, type_meant, unknown_type

ROLES = ("system", "user", "assistant", "tool")
MAX_NESTING = 16
# Messages, and the files that they name, by the paths as they are written.
Asked = tuple[tuple[dict[str, Any], ...], dict[str, Path]]


def _role(value: Any) -> Any:
    if value not in ROLES:
        said = f"must be one of {', '.join(ROLES)}, not {value!r}; to compare with data that has a role, put it under content"
        raise ValueError(said)
    return value


def _content(value: Any) -> Any:
    if isinstance(value, str | dict) or (isinstance(value, list) and all(isinstance(part, dict) for part in value)):
        return value
    raise ValueError("must be a string, a mapping or a list of parts (mappings)")


class ToolCallFields(PartFields):
    """A tool call in a message; other keys are kept."""

    model_config = ConfigDict(extra="allow")

    tool: Text


class MessageFields(PartFields):
    """A message; other keys are kept."""

    model_config = ConfigDict(extra="allow")

    role: Annotated[Any, AfterValidator(_role)]
    content: Annotated[Any, AfterValidator(_content)] = None
    tool_calls: list[ToolCallFields] | None = None
    name: str = ""

    @model_validator(mode="after")
    def _says_something(self) -> "MessageFields":
        if self.content is None and not (self.role == "assistant" and self.tool_calls):
            raise ValueError(f"{'content or tool_calls' if self.role == 'assistant' else 'content'} is required")
        return self


def _asked(value: Any) -> list[Any]:
    """Return the messages of an input; text is one user message."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if not isinstance(value, list):
        raise ValueError(f"must be a string or a list of messages{quotes_hint(value)}")
    return value


def _expected(value: Any) -> list[Any]:
    """Return the messages of an expected output; none for text and data, which are the content of one message."""
    if isinstance(value, list) and value and isinstance(value[0], dict) and "role" in value[0]:
        return value
    if isinstance(value, dict) and "role" in value:
        return [value]
    if isinstance(value, str | dict | list):
        return []
    raise ValueError("must be a string, a mapping or a list; quote it to compare it as text")


def file_parts(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield the ``{type: file, value: path}`` parts of messages, each with the numbers of its message and part."""
    for index, message in enumerate(messages):
        parts = message.get("content")
        for number, part in enumerate(parts if isinstance(parts, list) else ()):
            if part.get("type") == "file":
                yield index, number, part


def read_input(reader: Reader, entry: ConfigEntry, *keys: str) -> Asked:
    """Return the messages at the first of these keys that has a value, with the files of their parts, which must exist.

    The files are in the folder of the naming file or of the suite, or above them up to the repository's top.
    """
    key = _present(entry, *keys)
    if key is None:
        return (), {}
    found: dict[str, Path] = {}
    messages = tuple(_asked(entry.data[key]))
    for index, number, part in file_parts(messages):
        place = (key, index, "content", number)
        if not isinstance(part.get("value"), str):
            reader.fail(entry, "a file part needs value, a path", *place)
            continue
        with reader.placing(entry, key, *place):
            folders = reader.folders(entry)
            above = (folder for folder in folders[-1].parents if folder.is_relative_to(reader.top))
            found[part["value"]] = reader.files.find(part["value"], [*folders, *above])
    return messages, found


def _expected_messages(entry: ConfigEntry) -> tuple[dict[str, Any], ...]:
    key = _present(entry, *_ANSWERS)
    value = [] if key is None else entry.data[key]
    messages = value if key == "expected_messages" else _expected(value)
    return tuple(messages) or (() if value == [] else ({"role": "assistant", "content": value},))


def find_folders(reader: Reader, entry: ConfigEntry, fields: WorkspaceFields | None) -> WorkspaceFields | None:
    """Return the ``workspace`` of an entry with absolute paths of its folders."""
    if fields is None:
        return None
    inner, found = entry.child("workspace", label="workspace"), dict[str, Any]()
    if fields.template is not None:
        found["template"] = reader.find_folder(inner, fields.template, "template", "template")
    for name, hook in fields.hooks.items():
        if hook.cwd:
            cwd = reader.find_folder(inner, hook.cwd, f"{name}.cwd", name, "cwd")
            found[name] = hook.model_copy(update={"cwd": cwd})
    return fields.model_copy(update=found)


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


def read_asserts(reader: Reader, entry: ConfigEntry, key: str) -> list[AssertFields]:
    """Read the list of asserts at a key of an entry."""
    value = entry.data[key]
    if not isinstance(value, list):
        reader.fail(entry, f"{key} must be a list of asserts, each with type", key)
        return []
    if reader.depth > MAX_NESTING:
        reader.fail(entry, f"{key} nests deeper than {MAX_NESTING} levels; flatten it", key)
        return []
    items = (read_assert(reader, entry.child(key, index), key, index) for index in range(len(value)))
    return [item for item in items if item is not None]


def read_assert(reader: Reader, entry: ConfigEntry, key: str, index: int) -> AssertFields | None:
    """Read one assert. ``key``, ``index``: where it is in the value that its entry is labelled with."""
    data, before = entry.data, len(reader.problems)
    if not isinstance(data, dict):
        reader.fail(entry, f"{key}[{index}] must be a mapping with type")
        return None
    if id(data) in reader.broken:
        return None
    found = None
    with reader.collecting():
        found = _read_assert(reader, entry, key, index)
    if len(reader.problems) > before:
        reader.broken.add(id(data))
        return None
    return found


def _read_assert(reader: Reader, entry: ConfigEntry, key: str, index: int) -> AssertFields | None:
    data, spelled = entry.data, entry.data.get("type")
    if not isinstance(spelled, str) or not spelled:
        place = ("type",) if "type" in data else ()
        reader.fail(entry, f"{key}[{index}]: type is required, such as type: contains", *place)
        return None
    name, implied = type_meant(spelled)
    if name == "llm_judge" and data.get("rubrics") is not None:
        name = "rubrics"
    # No file holds a function.
    model = (FUNCTIONS if callable(data.get("call")) else TYPES).find(name)
    if model is None:
        reader.fail(entry, f"{key}[{index}]: {unknown_type(spelled)}", "type")
        return None
    shown = data["name"] if isinstance(data.get("name"), str) and data["name"] else index
    entry = entry.named(f"{key}[{shown}] ({spelled})")
    before, found = len(reader.problems), len(reader.files.found)
    data = {**implied, **data, "type": name}
    if data.get("name", "") is None:
        del data["name"]
    data = model.prepare(data, entry, reader)
    for written, older in model.older_names.items():
        rename(data, older, written)
    item = reader.validated(model, data, entry)
    if item is None or len(reader.problems) > before:
        return None
    item.resolve(entry, reader)
    if not item.name:
        # Frozen for all other code: the default name is made here, once.
        object.__setattr__(item, "name", item.default_name(spelled))
    item._entry = entry
    if len(reader.files.found) > found:
        item._files = tuple(reader.files.found[found:])
    return item


_GOALS = ("criteria", "expected_outcome", "outcome", "description")
_ANSWERS = ("expected_messages", "expected_output", "reference_answer")
# Older names of a test's fields, with what to write.
_OLDER = {"description": "write criteria, or a note under metadata", "reference_answer": "rename it to expected_output"}
ITEMS: Any = WithJsonSchema({"type": "array", "items": {"$ref": "#/$defs/assert"}})
Messages = Annotated[list[MessageFields], WithJsonSchema({"type": "array", "items": {"$ref": "#/$defs/MessageFields"}})]
Input = Annotated[
    Annotated[list[MessageFields], Field(min_length=1)] | None,
    BeforeValidator(_asked),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/MessageFields"}}]}),
]
Answer = Annotated[
    list[MessageFields] | None,
    BeforeValidator(_expected),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}, {"type": "array"}, {"type": "null"}]}),
]


class TurnFields(PartFields):
    """A turn of a conversation as it is written; plain text is short for ``user``."""

    user: Input = Field(description="What the user says: text, or messages.")
    criteria: str | None = Field(None, description="The goal: what a good answer to this turn achieves.")
    expected_output: Answer = Field(None, description="A good answer: text, data, or messages.")
    assert_: Annotated[Any, ITEMS] = Field(None, alias="assert", description="What must hold for this answer.")


Turns = Annotated[
    Annotated[list[TurnFields], Field(min_length=1)] | None,
    BeforeValidator(lambda value: [*map(_turn_of, value)] if isinstance(value, list) else value),
    WithJsonSchema(
        {
            "type": "array",
            "items": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/TurnFields"}]},
            "minItems": 1,
        }
    ),
]


def _turn_of(value: Any) -> Any:
    return {"user": value} if isinstance(value, str) else value


class TestFields(PartFields):
    """A test as it is written."""

    id: Text = Field(description="Names the test in results; unique in the suite.")
    criteria: str | None = Field(None, description="The goal: what a good answer achieves.")
    expected_outcome: str | None = Field(None, description="The goal, older name.")
    outcome: str | None = Field(None, description="The goal, oldest name.")
    input: Input = Field(None, description="What is asked: text, or messages.")
    input_messages: Annotated[Messages | None, Field(min_length=1)] = Field(
        None, description="What is asked; wins over input."
    )
    expected_output: Answer = Field(None, description="A good answer: text, data, or messages.")
    expected_messages: Messages | None = Field(None, description="A good answer; wins over expected_output.")
    assert_: Annotated[Any, ITEMS] = Field(None, alias="assert", description="What must hold for the answer.")
    description: str | None = Field(
        None, description="Oldest form of the goal; used where no other is given.", deprecated=True
    )
    reference_answer: str | None = Field(None, description="Older name of expected_output.", deprecated=True)
    assertions: Annotated[Any, ITEMS] = Field(None, description="Another name of assert.", deprecated=True)
    evaluators: Annotated[Any, ITEMS] = Field(None, description="Older name of assert.", deprecated=True)
    rubrics: list[Any] | None = Field(None, description="Older form of an assert of type rubrics.", deprecated=True)
    skip_defaults: bool = Field(False, description="Do not inherit the suite's asserts and input.")
    execution: ExecutionFields | None = None
    workspace: WorkspaceFields | None = None
    metadata: dict[str, Any] | None = Field(None, description="Anything; tags in it are filtered on.")
    conversation_id: str | None = Field(None, description="Echoed in the results.")
    turns: Turns = Field(
        None, description="A conversation: what the user says, turn by turn, and what must hold for each answer."
    )
    user: SimulatedUser | None = Field(None, description="Who plays the user of a conversation after the turns.")
    each_turn: Annotated[Any, ITEMS] = Field(None, description="What must hold for every answer of a conversation.")


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
    fields = reader.validated(TestFields, data, entry)
    for old, new in _OLDER.items():
        if data.get(old) is not None:
            reader.deprecated(entry, old, new, old)
    # Other functions read the asserts, because their fields depend on their types.
    asserts = _asserts(reader, entry)
    every = read_asserts(reader, entry, "each_turn") if data.get("each_turn") is not None else []
    if fields is None:
        return None
    execution = fields.execution or ExecutionFields.model_validate({})
    skip_defaults = execution.skip_defaults or fields.skip_defaults
    asked, files = read_input(reader, entry, "input_messages", "input")
    expected = _expected_messages(entry)
    turns = tuple(_turn(reader, entry, index, defaults) for index in range(len(fields.turns or ())))
    user = fields.user
    if not (asked or turns or user):
        reader.fail(entry, "input is required")
    if user is not None and len(turns) > user.turns:
        reader.fail(entry, f"{len(turns)} turns are written and user.turns allows {user.turns}", "user")
    if every and not turns and user is None:
        reader.fail(entry, "each_turn is for conversations; write turns or user", "each_turn", key=True)
    workspace = find_folders(reader, entry, fields.workspace)
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
        id=fields.id,
        input_messages=asked,
        expected_outcome=goal,
        expected_messages=expected,
        dataset=defaults.dataset,
        asserts=tuple(asserts),
        conversation_id=fields.conversation_id,
        metadata=fields.metadata,
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


def _turn(reader: Reader, entry: ConfigEntry, index: int, defaults: Defaults) -> Test:
    """Read a turn of a conversation, a test of the answer to it."""
    entry = entry.child("turns", index, label=f"turn {index + 1}")
    entry = replace(entry, data=_turn_of(entry.data))
    said, files = read_input(reader, entry, "user")
    asserts = read_asserts(reader, entry, "assert") if entry.data.get("assert") is not None else []
    return Test(
        id=f"turn {index + 1}",
        input_messages=said,
        expected_outcome=entry.data.get("criteria") or "",
        expected_messages=_expected_messages(entry),
        dataset=defaults.dataset,
        asserts=tuple(asserts),
        files=files,
        entry=entry,
    )


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
