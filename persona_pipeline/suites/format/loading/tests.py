"""Reading one test: its goal under three names, its messages under two, its asserts under four, how it is run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from persona_pipeline.base.errors import nearest
from persona_pipeline.suites.format.loading.messages import (
    expected_messages,
    input_messages,
    question_text,
    reference_answer,
)
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


def read_execution(reader: Reader, entry: ConfigEntry, label: str) -> ExecutionFields:
    """Read ``execution`` of a suite or a test; ``evaluators`` in it are read with the asserts."""
    part = _part(reader, entry, "execution", ExecutionFields, label)
    if part is None:
        return ExecutionFields.model_validate({})
    inner, where, fields = part
    if fields.trials is not None and fields.trials.strategy not in (*STRATEGIES, "at_least"):
        known = f"{', '.join(STRATEGIES)} or {{at_least: K, of: COUNT}}"
        said = f"trials.strategy must be one of {known}, not {fields.trials.strategy!r}"
        reader.fail(inner, f"{where}: {said}", "trials", "strategy")
    return fields


def read_workspace(reader: Reader, entry: ConfigEntry, label: str) -> WorkspaceFields | None:
    part = _part(reader, entry, "workspace", WorkspaceFields, label)
    if part is None:
        return None
    inner, where, fields = part
    found: dict[str, Any] = {}
    if fields.template is not None:
        found["template"] = reader.find_folder(inner, fields.template, f"{where}: template", "template")
    for name, hook in fields.hooks.items():
        if hook.cwd:
            cwd = reader.find_folder(inner, hook.cwd, f"{where}: {name}.cwd", name, "cwd")
            found[name] = hook.model_copy(update={"cwd": cwd})
    return fields.model_copy(update=found)


def _part(
    reader: Reader, entry: ConfigEntry, name: str, model: type[Fields], label: str
) -> tuple[ConfigEntry, str, Fields] | None:
    """A part of an entry, what to call it and its fields; None where it is not written or not valid."""
    if entry.data.get(name) is None:
        return None
    inner, where = entry.child(name), f"{label}: {name}" if label else name
    if not isinstance(inner.data, dict):
        reader.fail(inner, f"{where} must be a mapping")
        return None
    data = {key: value for key, value in inner.data.items() if value is not None or key == "evaluators"}
    fields = reader.validated(model, data, inner, where)
    return None if fields is None else (inner, where, fields)


MAX_NESTING = 16


def read_all_asserts(reader: Reader, entry: ConfigEntry, label: str) -> list[AssertFields]:
    """Read the asserts of a test or, without a label, of a suite: ``assert``, then what older names hold."""
    data, prefix = entry.data, f"{label}: " if label else ""
    found = read_asserts(reader, entry, "assert", label) if "assert" in data else []
    moved = f"rename it to assert, {'on the test' if label else 'at the top'}"
    for *above, key in (("assertions",), ("execution", "evaluators"), ("evaluators",)):
        place = entry.child(*above) if not above or above[0] in data else None
        if place is not None and isinstance(place.data, dict) and key in place.data:
            new = moved if above else "rename it to assert"
            reader.deprecated(entry, f"{prefix}{'.'.join((*above, key))}", new, *above, key)
            found += read_asserts(reader, place, key, label)
    return found


def read_asserts(reader: Reader, entry: ConfigEntry, key: str, label: str, *, depth: int = 0) -> list[AssertFields]:
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


def read_assert(reader: Reader, entry: ConfigEntry, where: str, index: int, *, depth: int = 0) -> AssertFields | None:
    data = entry.data
    if not isinstance(data, dict):
        reader.fail(entry, f"{where}[{index}] must be a mapping with type")
        return None
    if id(data) in reader.broken:
        return None
    before = len(reader.problems)
    found = _read_assert(reader, entry, where, index, depth)
    if len(reader.problems) > before:
        reader.broken.add(id(data))
    return found


def _read_assert(reader: Reader, entry: ConfigEntry, where: str, index: int, depth: int) -> AssertFields | None:
    data = entry.data
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
    reader: Reader, entry: ConfigEntry, model: type[AssertFields], name: str, spelled: str, label: str, depth: int
) -> AssertFields | None:
    before, found = len(reader.problems), len(reader.files.found)
    data: dict[str, Any] = {**entry.data, "type": name}
    if data.get("name", "") is None:
        del data["name"]
    reader.depth = depth
    data = model.prepare(data, entry, label, reader)
    for written, older in model.older_names.items():
        rename(data, older, written)
    item = reader.validated(model, data, entry, label)
    if item is None or len(reader.problems) > before:
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
    """A turn of a conversation as it is written; a text stands for ``user``."""

    user: Annotated[Any, INPUT] = Field(description="What the user says: text, or messages.")
    criteria: str | None = Field(None, description="The goal: what a good answer to this turn achieves.")
    expected_output: Annotated[Any, _ANSWER] = Field(None, description="A good answer: text, data, or messages.")
    assert_: Annotated[Any, ITEMS] = Field(None, alias="assert", description="What must hold for this answer.")


@dataclass(frozen=True)
class Defaults:
    """What a suite gives to each of its tests."""

    dataset: str
    asserts: Sequence[AssertFields] = ()
    input_messages: Sequence[dict[str, Any]] = ()
    workspace: WorkspaceFields | None = None
    invalid: bool = False


def read_test(reader: Reader, entry: ConfigEntry, defaults: Defaults, where: str) -> Test | None:
    data = entry.data
    if not isinstance(data, dict):
        reader.fail(entry, f"{where} must be a mapping with id and input, or a file:// reference")
        return None
    before = len(reader.problems)
    label = f"test {data['id']!r}" if isinstance(data.get("id"), str) and data["id"] else where
    # Lists are read by their own readers, which know more about them; only keys and plain values are checked here.
    reader.validated(TestFields, present(data), entry, label)
    for old, new in _OLDER.items():
        if data.get(old) is not None:
            reader.deprecated(entry, f"{label}: {old}", new, old)
    execution = read_execution(reader, entry, label)
    skip_defaults = execution.skip_defaults or data.get("skip_defaults") is True
    part = _part(reader, entry, "user", SimulatedUser, label)
    user = part and part[2]
    asked = _input(reader, entry, label)
    expected = expected_messages(reader, entry, _present(entry, *_ANSWERS), label)
    asserts = _asserts(reader, entry, label)
    turns = _turns(reader, entry, defaults, label)
    if user is not None and len(turns) > user.turns:
        reader.fail(entry, f"{label}: {len(turns)} turns are written and user.turns allows {user.turns}", "user")
    every = read_asserts(reader, entry, "each_turn", label) if data.get("each_turn") is not None else []
    if every and not turns and user is None:
        reader.fail(entry, f"{label}: each_turn is of conversations; write turns or user", "each_turn", key=True)
    workspace = read_workspace(reader, entry, label)
    if len(reader.problems) > before:
        return None
    messages = asked if skip_defaults else (*defaults.input_messages, *asked)
    goal = next((data[key] for key in _GOALS if isinstance(data.get(key), str)), "")
    asserts = asserts if skip_defaults else [*asserts, *defaults.asserts]
    checked = asserts or goal or expected or every or any(turn.asserts for turn in turns)
    # Asserts that are written and not valid are named already.
    if not checked and not data.get("assert") and not (defaults.invalid and not skip_defaults):
        reader.fail(entry, f"{label}: there is nothing to check; add criteria, expected_output or assert")
        return None
    if asserts and not any(item.weight for item in asserts):
        reader.warn(entry, f"{label}: every assert weighs 0, so the score can only be 0", "assert")
    if defaults.workspace is not None:
        workspace = defaults.workspace if workspace is None else defaults.workspace.merged(workspace)
    targets = execution.targets or ([execution.target] if execution.target is not None else None)
    return Test(
        id=data["id"],
        input_messages=tuple(messages),
        expected_outcome=goal,
        expected_messages=expected,
        question=question_text(messages),
        reference_answer=reference_answer(expected),
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
        entry=entry,
    )


def _turns(reader: Reader, entry: ConfigEntry, defaults: Defaults, label: str) -> tuple[Test, ...]:
    """Read what the user says turn by turn; each is a test of the answer to it."""
    value = entry.data.get("turns")
    if value is None:
        return ()
    if not isinstance(value, list) or not value:
        reader.fail(entry, f"{label}: turns must be a list of at least one text, or mapping with user", "turns")
        return ()
    found = [_turn(reader, entry.child("turns", index), defaults, label, index + 1) for index in range(len(value))]
    return tuple(turn for turn in found if turn is not None)


def _turn(reader: Reader, entry: ConfigEntry, defaults: Defaults, label: str, number: int) -> Test | None:
    where = f"{label}: turn {number}"
    if isinstance(entry.data, str):
        entry = ConfigEntry({"user": entry.data}, entry.source, entry.location)
    if not isinstance(entry.data, dict):
        reader.fail(entry, f"{where} must be what the user says, or a mapping with user")
        return None
    before = len(reader.problems)
    if reader.validated(TurnFields, present(entry.data), entry, where) is None:
        return None
    said = input_messages(reader, entry, "user", where)
    expected = expected_messages(reader, entry, _present(entry, "expected_output"), where)
    asserts = read_asserts(reader, entry, "assert", where) if entry.data.get("assert") is not None else []
    if len(reader.problems) > before:
        return None
    return Test(
        id=f"turn {number}",
        input_messages=said,
        expected_outcome=entry.data.get("criteria") or "",
        expected_messages=expected,
        question=question_text(said),
        reference_answer=reference_answer(expected),
        dataset=defaults.dataset,
        asserts=tuple(asserts),
        entry=entry,
    )


def _input(reader: Reader, entry: ConfigEntry, label: str) -> tuple[dict[str, Any], ...]:
    key = _present(entry, "input_messages", "input")
    if key is None and _present(entry, "turns", "user"):
        return ()
    if key is None:
        if not any(nearest(name, ("input", "input_messages")) for name in entry.data.keys() - TestFields.model_fields):
            reader.fail(entry, f"{label}: input is required")
        return ()
    return input_messages(reader, entry, key, label)


def _present(entry: ConfigEntry, *keys: str) -> str | None:
    return next((key for key in keys if entry.data.get(key) is not None), None)


def _asserts(reader: Reader, entry: ConfigEntry, label: str) -> list[AssertFields]:
    """All of a test's own asserts: the rubrics first, then ``assert``, then what older names hold."""
    found: list[AssertFields] = []
    data = entry.data
    if isinstance(data.get("rubrics"), list):
        reader.deprecated(entry, f"{label}: rubrics", "write an assert of type rubrics", "rubrics")
        if data["rubrics"]:
            # Positions inside the list stay those of the file: the made-up item stands where the test stands.
            item = {"type": "rubrics", "name": "rubric", "rubrics": data["rubrics"]}
            made = read_assert(reader, ConfigEntry(item, entry.source, entry.location), f"{label}: rubrics", 0)
            found += [made] if made else []
    return found + read_all_asserts(reader, entry, label)
