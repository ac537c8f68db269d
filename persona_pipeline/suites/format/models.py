"""A loaded suite in its normalised form, and the types of its values."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    WithJsonSchema,
    model_validator,
)

from persona_pipeline.base.errors import Problem
from persona_pipeline.suites.format.problems import ConfigEntry, Reader
from persona_pipeline.suites.format.text import question_text, reference_answer

PASS, BORDERLINE = 0.8, 0.6
# The JSON schema of a suite file; ``python -m tests.support.suite_schema`` generates it from the models.
SUITE_SCHEMA = Path(__file__).parent / "data" / "suite.json"


class StrictFields(BaseModel):
    """A part of a file as it is written: values are not converted, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class PartFields(StrictFields):
    """A part of a suite; a key without a value counts as left out."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return present(data) if isinstance(data, dict) else data


def _gate(value: Any) -> bool | float:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and 0 < value <= 1:
        return float(value)
    raise ValueError("must be true, false or a minimum score above 0 and at most 1")


Text = Annotated[str, Field(min_length=1)]
# The limit keeps sums finite.
Weight = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Limit = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Gate = Annotated[
    bool | float,
    BeforeValidator(_gate),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"type": "number", "exclusiveMinimum": 0, "maximum": 1}]}),
]


class AssertFields(StrictFields):
    """One assert. Types with other spellings override ``prepare``."""

    # Whether grading asks the judge, or reads the test's workspace.
    judged: ClassVar[bool] = False
    needs_workspace: ClassVar[bool] = False
    # Older names of fields.
    older_names: ClassVar[dict[str, str]] = {}
    # Values that the normalised form leaves out.
    unsaid: ClassVar[Mapping[str, Any]] = {}

    name: Text = Field(default="", description="What results call it; made up from the type where it is left out.")
    type: str = Field(description="Which assert this is.")
    weight: Weight = Field(
        default=1.0, description="Its share in the test's score; 0 leaves it out, but a gate stays a gate."
    )
    required: Gate = Field(
        default=False,
        description="A gate: true needs a score of 0.8, a number that score; otherwise the whole test scores 0.",
    )
    negate: bool = Field(default=False, description="Turn the result round: it must not hold.")

    # Without defaults, which pydantic would copy for each assert.
    _entry: ConfigEntry = PrivateAttr()
    _files: tuple[Path, ...] = PrivateAttr()

    @property
    def entry(self) -> ConfigEntry | None:
        """Its place in a file; None without a file."""
        return getattr(self, "_entry", None)

    @property
    def files(self) -> tuple[Path, ...]:
        """The other files it was read from, such as a prompt."""
        return getattr(self, "_files", ())

    @property
    def needs_judge(self) -> bool:
        """Whether it asks the judge."""
        return self.judged

    @property
    def needs_code(self) -> bool:
        """Whether it runs code of the suite."""
        return self.program is not None or any(part.needs_code for part in self.parts)

    @property
    def has_gate(self) -> bool:
        """Whether it, or a part of it, is a gate."""
        return self.required is not False or any(part.has_gate for part in self.parts)

    def world_files(self, world: Path) -> Iterable[Path]:
        """Return the files of a world that grading reads, also those that do not exist."""
        return ()

    @property
    def program(self) -> tuple[Sequence[str], str | None] | None:
        """The suite's program that it runs, and its folder (None: the suite's); None: no program."""
        return None

    @property
    def parts(self) -> "Sequence[AssertFields]":
        """The asserts inside it."""
        return ()

    @classmethod
    def prepare(cls, data: dict[str, Any], entry: ConfigEntry, reader: Reader) -> dict[str, Any]:
        """Return the keys as the fields need them; called before validation, with a copy of the data.

        ``older_names`` are renamed afterwards. Problems are added to the reader.
        """
        return data

    def resolve(self, entry: ConfigEntry, reader: Reader) -> None:
        """Find the files that the assert names; called once after validation. Problems are added to the reader."""

    def default_name(self, spelled: str) -> str:
        """Return the default name. ``spelled``: the type as the file has it."""
        return spelled

    def dump(self) -> dict[str, Any]:
        """Return the normalised form as plain data."""
        unsaid = {"negate": False, **self.unsaid}
        data = self.model_dump(by_alias=True, exclude_none=True)
        return {key: value for key, value in data.items() if key not in unsaid or value != unsaid[key]}


def rename(data: dict[str, Any], old: str, new: str) -> None:
    """Move a value from an older name to its field; the field's own value wins."""
    if old in data:
        value = data.pop(old)
        data.setdefault(new, value)


def present(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping without None values."""
    return {key: value for key, value in data.items() if value is not None}


def apart(name: str, taken: set[str]) -> str:
    """Return a unique name, numbered if needed, and add it to ``taken``."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    taken.add(found)
    return found


def over_texts(value: Any, change: Callable[[str], Any]) -> Any:
    """Return JSON data with every text changed; keys stay."""
    if isinstance(value, dict):
        return {key: over_texts(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [over_texts(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


STRATEGIES = ("pass_at_k", "mean", "confidence_interval", "all")


def _known_strategy(value: str) -> str:
    if value in (*STRATEGIES, "at_least"):
        return value
    raise ValueError(f"must be one of {', '.join(STRATEGIES)} or {{at_least: K, of: COUNT}}, not {value!r}")


Strategy = Annotated[
    str,
    AfterValidator(_known_strategy),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object", "required": ["at_least", "of"]}]}),
]
HOOKS = ("setup", "teardown", "before_all", "after_all", "before_each", "after_each")


MOST_DESCRIPTION = 1024


class Requires(BaseModel):
    """What the suite needs; keys other than ``agentv`` are kept as they are."""

    model_config = ConfigDict(extra="allow", strict=True)

    agentv: str | None = None


class Metadata(PartFields):
    """Description of a suite; a loaded suite has it only if the file has a ``name``."""

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


class TrialsFields(StrictFields):
    """``trials`` as it is written."""

    count: int = Field(ge=1, description="How often each test is run; 1 is the same as no trials.")
    strategy: Strategy = Field(
        "pass_at_k", description="pass_at_k, mean, confidence_interval, all, or {at_least: K, of: COUNT}."
    )
    at_least: int | None = Field(None, ge=1, description="How many attempts must pass, with the strategy at_least.")
    cost_limit_usd: Limit | None = Field(None, description="Stop after the attempt that reaches this cost.")

    @model_validator(mode="before")
    @classmethod
    def _apart(cls, data: Any) -> Any:
        """Split ``{at_least: K, of: COUNT}`` into fields."""
        wanted = data.get("strategy") if isinstance(data, dict) else None
        if not isinstance(wanted, dict):
            return data
        if not (wanted.keys() == {"at_least", "of"} and all(type(item) is int for item in wanted.values())):
            raise ValueError(
                "strategy must be {at_least: K, of: COUNT}, whole numbers, or one of " + ", ".join(STRATEGIES)
            )
        if data.get("count", wanted["of"]) != wanted["of"]:
            raise ValueError(f"count {data['count']} is not the {wanted['of']} of strategy; leave one out")
        return {**data, "count": wanted["of"], "strategy": "at_least", "at_least": wanted["at_least"]}

    @model_validator(mode="after")
    def _possible(self) -> "TrialsFields":
        if (self.strategy == "at_least") is not (self.at_least is not None) or (self.at_least or 0) > self.count:
            raise ValueError("at_least is written as strategy: {at_least: K, of: COUNT}, and K is at most COUNT")
        return self

    @property
    def label(self) -> str:
        """The strategy in words."""
        return self.strategy if self.at_least is None else f"at least {self.at_least}"

    @property
    def needed(self) -> int | None:
        """The number of attempts that must pass; None: their mean counts."""
        return {"pass_at_k": 1, "all": self.count, "at_least": self.at_least}.get(self.strategy)


class ExecutionFields(PartFields):
    """``execution`` as it is written, for a suite or a test."""

    target: Text | None = Field(None, description="Who answers.")
    targets: list[Text] | None = Field(None, min_length=1, description="Who answers: every test by each of them.")
    trials: TrialsFields | None = None
    cache: bool | None = Field(None, description="Answer again from what targets answered before.")
    cache_path: Text | None = Field(None, description="Where answers are kept.")
    skip_defaults: bool = Field(False, description="In a test: do not inherit the suite's asserts and input.")
    evaluators: list[Any] | None = Field(None, description="Older name of assert.", deprecated=True)


class HookFields(StrictFields):
    """A workspace script as it is written."""

    script: list[Text] = Field(min_length=1, description="The program and its arguments.")
    timeout_ms: float | None = Field(None, gt=0, allow_inf_nan=False)
    cwd: Text | None = None


class WorkspaceFields(PartFields):
    """``workspace`` as it is written."""

    template: Text | None = Field(None, description="A folder that is copied for each test.")
    setup: HookFields | None = Field(
        None, description="Runs in the workspace before each test; a failure is the test's error."
    )
    teardown: HookFields | None = Field(None, description="Runs after each test.")
    before_all: HookFields | None = Field(None, description="Runs once before the first test.")
    after_all: HookFields | None = Field(None, description="Runs once after the last test.")
    before_each: HookFields | None = Field(None, description="The same as setup.")
    after_each: HookFields | None = Field(None, description="The same as teardown.")

    @property
    def hooks(self) -> dict[str, HookFields]:
        """Scripts by name."""
        return {name: hook for name in HOOKS if (hook := getattr(self, name)) is not None}

    def merged(self, override: "WorkspaceFields") -> "WorkspaceFields":
        """Return this workspace with the fields that another one sets."""
        return self.model_copy(update={name: value for name, value in override if value is not None})


class SimulatedUser(PartFields):
    """``user`` as it is written: the target that plays the user, and its goal."""

    target: Text = Field(description="The target that plays the user.")
    goal: Text = Field(description="What the user wants; the conversation ends where it says that it has it.")
    agent: Text | None = Field(None, description="The agent of the world whose persona the user has.")
    turns: int = Field(10, ge=1, le=200, description="How many turns there are at most, written ones included.")


@dataclass(frozen=True)
class Test:
    """One test. None in ``targets``, ``trials`` and ``cache``: as the suite has it.

    Attributes:
        expected_outcome: the goal in words, or "".
        asserts: the test's own, then the suite's.
        turns: the user's lines in a conversation, each a test of the answer.
        user: the simulated user after these turns.
        each_turn: asserts for every answer.
        files: the files of the input and of the turns, by the paths as they are written.
        entry: its place in a file.
    """

    __test__ = False

    id: str
    input_messages: tuple[dict[str, Any], ...]
    expected_outcome: str = ""
    expected_messages: tuple[dict[str, Any], ...] = ()
    dataset: str = ""
    asserts: tuple[AssertFields, ...] = ()
    conversation_id: str | None = None
    metadata: Mapping[str, Any] | None = None
    workspace: WorkspaceFields | None = None
    targets: tuple[str, ...] | None = None
    trials: TrialsFields | None = None
    cache: bool | None = None
    turns: "tuple[Test, ...]" = ()
    user: SimulatedUser | None = None
    each_turn: tuple[AssertFields, ...] = ()
    files: Mapping[str, Path] = field(default_factory=dict, repr=False, compare=False)
    entry: ConfigEntry | None = field(default=None, repr=False, compare=False)

    @cached_property
    def question(self) -> str:
        """The text of all input messages on one line."""
        return question_text(self.input_messages)

    @cached_property
    def reference_answer(self) -> str:
        """The last expected message as text."""
        return reference_answer(self.expected_messages)

    @property
    def is_conversation(self) -> bool:
        """Whether it is a conversation."""
        return bool(self.turns) or self.user is not None

    @property
    def all_asserts(self) -> tuple[AssertFields, ...]:
        """Asserts of the test, of each turn, and of every turn."""
        return (*self.asserts, *(item for turn in self.turns for item in turn.asserts), *self.each_turn)

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of the test: ``metadata.tags``."""
        tags = (self.metadata or {}).get("tags")
        return tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ()

    def model_dump(self) -> dict[str, Any]:
        """Return the normalised form as plain data."""
        data = {name: _plain(getattr(self, name)) for name in _OF_EVERY_TEST}
        data["assert"] = _plain(self.asserts)
        return data | {
            name: _plain(value) for name in _OF_SOME_TESTS if (value := getattr(self, name)) not in (None, ())
        }


_OF_EVERY_TEST = (
    "id", "expected_outcome", "input_messages", "expected_messages", "question", "reference_answer", "dataset",
)  # fmt: skip
_OF_SOME_TESTS = (
    "conversation_id", "metadata", "workspace", "targets", "trials", "cache", "turns", "user", "each_turn",
)  # fmt: skip


def _plain(value: Any) -> Any:
    """Return a part of a suite as plain data."""
    if isinstance(value, AssertFields):
        return value.dump()
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_none=True)
    if isinstance(value, tuple):
        return [item.model_dump() if isinstance(item, Test) else _plain(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


@dataclass(frozen=True)
class Suite:
    """A whole suite.

    Attributes:
        roots: folders its files are confined to; None: no limit.
        warnings: findings for the author.
        missing: files of its programs that do not exist.
        files: the files it was read from, prompts included.
        content_hash: SHA-256 of these files.
    """

    path: Path
    tests: tuple[Test, ...]
    metadata: Metadata | None = None
    tags: tuple[str, ...] = ()
    target: str | None = None
    targets: tuple[str, ...] | None = None
    trials: TrialsFields | None = None
    cache: bool | None = None
    cache_path: str | None = None
    workspace: WorkspaceFields | None = None
    evaluator: str = "llm_judge"
    roots: tuple[Path, ...] | None = None
    warnings: tuple[Problem, ...] = field(default=(), compare=False)
    missing: tuple[Problem, ...] = field(default=(), compare=False)
    files: tuple[Path, ...] = field(default=(), repr=False, compare=False)
    content_hash: str = ""

    @property
    def name(self) -> str:
        """Its name: that in the metadata, else the file's name without endings."""
        return (self.metadata and self.metadata.name) or self.path.name.split(".")[0]

    def trials_of(self, test: Test) -> TrialsFields | None:
        """Return the trials of a test; None: it runs once. Its own ``trials`` win."""
        trials = test.trials or self.trials
        return trials if trials and trials.count > 1 else None

    @property
    def shared_workspace(self) -> WorkspaceFields | None:
        """The workspace of ``before_all`` and ``after_all``: that of the first test, which includes the suite's."""
        return (self.tests[0].workspace if self.tests else None) or self.workspace

    @property
    def framing(self) -> dict[str, HookFields]:
        """The scripts before and after the run, by name."""
        hooks = self.shared_workspace.hooks if self.shared_workspace else {}
        return {name: hook for name, hook in hooks.items() if name in ("before_all", "after_all")}

    def model_dump(self) -> dict[str, Any]:
        """Return the normalised form as plain data."""
        shown = ("metadata", "target", "targets", "trials", "cache")
        data = {name: _plain(getattr(self, name)) for name in shown}
        if self.shared_workspace is not None:
            data["workspace"] = _plain(self.shared_workspace)
        return data | {"tests": _plain(self.tests)}
