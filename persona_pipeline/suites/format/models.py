"""A loaded suite in its normalised form: one spelling whatever the file used, and the kinds of values it is made of."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, WithJsonSchema, model_validator

from persona_pipeline.base.errors import Problem
from persona_pipeline.suites.format.problems import ConfigEntry, Reader

PASS, BORDERLINE = 0.8, 0.6
# The JSON schema of a suite file; ``python -m tests.support.suite_schema`` makes it of the models.
SUITE_SCHEMA = Path(__file__).parent / "data" / "suite.json"


class StrictFields(BaseModel):
    """Part of a file as it is written: no value is converted into another kind, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


def _gate(value: Any) -> bool | float:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and 0 < value <= 1:
        return float(value)
    raise ValueError("must be true, false or a minimum score above 0 and at most 1")


Text = Annotated[str, Field(min_length=1)]
# So large that a sum of any number of them is a number.
Weight = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Limit = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Gate = Annotated[
    bool | float,
    BeforeValidator(_gate),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"type": "number", "exclusiveMinimum": 0, "maximum": 1}]}),
]


class AssertFields(StrictFields):
    """One assert item. Types whose spelling differs from their fields override ``prepare``."""

    # Whether grading asks the judge, whether it runs code of the suite, and whether it looks into the test's workspace, itself or a
    # target that it asks.
    judged: ClassVar[bool] = False
    runs_code: ClassVar[bool] = False
    needs_workspace: ClassVar[bool] = False
    # Older spellings that are read too, by the field they stand for.
    older_names: ClassVar[dict[str, str]] = {}
    # What other spellings of the type say beside it.
    spellings: ClassVar[Mapping[str, dict[str, Any]]] = {}
    # Fields that the normalised form leaves out where they hold this.
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

    # Without a default, which would be copied for each of a large suite's asserts.
    _entry: ConfigEntry = PrivateAttr()
    _files: tuple[Path, ...] = PrivateAttr()

    @property
    def entry(self) -> ConfigEntry | None:
        """Where it was written; None where no file says it."""
        return getattr(self, "_entry", None)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files it was made of beside the suite, such as a prompt's."""
        return getattr(self, "_files", ())

    @property
    def needs_judge(self) -> bool:
        """Whether this one asks the judge: what ``explain`` says and a run prepares for."""
        return self.judged

    @property
    def needs_code(self) -> bool:
        """Whether this one runs code of the suite."""
        return self.runs_code or self.program is not None or any(part.needs_code for part in self.parts)

    @property
    def has_gate(self) -> bool:
        """Whether this one, or a part of it, is a gate."""
        return self.required is not False or any(part.has_gate for part in self.parts)

    @property
    def asked(self) -> str | None:
        """The target that this one asks; None: none."""
        return None

    @property
    def program(self) -> tuple[Sequence[str], str | None] | None:
        """The suite's program that this one runs, and in which folder (None: the suite's); None: none."""
        return None

    @property
    def parts(self) -> "Sequence[AssertFields]":
        """The asserts it is made of."""
        return ()

    @classmethod
    def prepare(cls, data: dict[str, Any], entry: ConfigEntry, label: str, reader: Reader) -> dict[str, Any]:
        """Return the keys as the fields want them; called before validation, on a copy.

        ``older_names`` are renamed afterwards. Problems are added to the reader.
        """
        said = cls.spellings.get(str(entry.data["type"]).replace("-", "_"), {})
        return data | {key: data.get(key, value) for key, value in said.items()}

    def resolve(self, entry: ConfigEntry, label: str, reader: Reader) -> None:
        """Look up the files the assert names; called once after validation. Problems are added to the reader."""

    def default_name(self, spelled: str) -> str:
        """Return the name of an unnamed assert, given the type as the file spells it."""
        return spelled

    def dump(self) -> dict[str, Any]:
        """Return the normalised form as plain data."""
        unsaid = {"negate": False, **self.unsaid}
        data = self.model_dump(by_alias=True, exclude_none=True)
        return {key: value for key, value in data.items() if key not in unsaid or value != unsaid[key]}


def rename(data: dict[str, Any], old: str, new: str) -> None:
    """Move a value to its field's name; the field's own spelling wins when both are there."""
    if old in data:
        value = data.pop(old)
        data.setdefault(new, value)


def present(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping without the keys that have no value."""
    return {key: value for key, value in data.items() if value is not None}


def apart(name: str, taken: set[str]) -> str:
    """Return a name, numbered where it is taken, and take it."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    taken.add(found)
    return found


def over_texts(value: Any, change: Callable[[str], Any]) -> Any:
    """Return a value of JSON with every text in it changed; keys stay."""
    if isinstance(value, dict):
        return {key: over_texts(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [over_texts(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


_STRATEGY = {"anyOf": [{"type": "string"}, {"type": "object", "required": ["at_least", "of"]}]}
Strategy = Annotated[str, WithJsonSchema(_STRATEGY)]
STRATEGIES = ("pass_at_k", "mean", "confidence_interval", "all")
HOOKS = ("setup", "teardown", "before_all", "after_all", "before_each", "after_each")


class Metadata(StrictFields):
    """What makes a suite discoverable; there only when the file has a ``name``."""

    name: str
    description: str
    version: str | None = None
    author: str | None = None
    tags: list[str] | None = None
    license: str | None = None
    requires: dict[str, Any] | None = None


class TrialsFields(StrictFields):
    """``trials`` as it is written."""

    count: int = Field(ge=1, description="How often each test is run; 1 is the same as no trials.")
    strategy: Strategy = Field(
        "pass_at_k", description="pass_at_k, mean, confidence_interval, all, or {at_least: K, of: COUNT}."
    )
    at_least: int | None = Field(None, ge=1, description="How many attempts must pass, with the strategy at_least.")
    gates: Literal["every"] | None = Field(
        None,
        description="every: a gate that one attempt misses fails the test with pass_at_k too, as with the other strategies.",
    )
    flakes_at_most: Share | None = Field(
        None, description="A gate on the share of attempts that come out unlike the others, by its 95 % interval."
    )
    cost_limit_usd: Limit | None = Field(None, description="Stop after the attempt that reaches this cost.")

    @model_validator(mode="before")
    @classmethod
    def _apart(cls, data: Any) -> Any:
        """Take ``{at_least: K, of: COUNT}`` apart."""
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
        # With no attempt unlike the others the interval of their share ends at 1 / (1 + count / z²).
        most, squared = self.flakes_at_most, NormalDist().inv_cdf(0.975) ** 2
        if most is not None and 1 / (1 + self.count / squared) > most:
            fewest = math.ceil(squared * (1 / most - 1)) if most else None
            remedy = f"take count: {fewest} or more" if fewest else "no count can; allow more than 0"
            raise ValueError(
                f"flakes_at_most {self.flakes_at_most:g} cannot be shown by {self.count} attempts; {remedy}"
            )
        return self

    @property
    def label(self) -> str:
        """The strategy as people read it."""
        return self.strategy if self.at_least is None else f"at least {self.at_least}"

    @property
    def needed(self) -> int | None:
        """How many attempts must pass; None where their mean counts."""
        return {"pass_at_k": 1, "all": self.count, "at_least": self.at_least}.get(self.strategy)

    @property
    def every_gate(self) -> bool:
        """Whether a gate that one attempt misses fails the test: always but where the best attempt counts."""
        return self.gates == "every" or self.strategy != "pass_at_k"


class ExecutionFields(StrictFields):
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


class WorkspaceFields(StrictFields):
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
        """Its scripts by name."""
        return {name: hook for name in HOOKS if (hook := getattr(self, name)) is not None}

    def merged(self, override: "WorkspaceFields") -> "WorkspaceFields":
        """Return this workspace with what the other one sets in its place, field by field."""
        return self.model_copy(update={name: value for name, value in override if value is not None})


class SimulatedUser(StrictFields):
    """``user`` as it is written: who plays the user of a conversation, and what it wants."""

    target: Text = Field(description="The target that plays the user.")
    goal: Text = Field(description="What the user wants; the conversation ends where it says that it has it.")
    agent: Text | None = Field(None, description="The agent of the world whose persona the user has.")
    turns: int = Field(10, ge=1, le=200, description="How many turns there are at most, written ones included.")


@dataclass(frozen=True)
class Test:
    """One test.

    ``expected_outcome``: the goal in words, ``""`` when none is given. ``question``: the text of all input messages on one line;
    ``reference_answer``: the last expected message as text. ``asserts``: the test's own, then the suite's. ``targets``: who
    answers, None for the suite's; ``trials``, ``cache``: None for the suite's. ``entry``: where it was written.
    ``turns``: what the user says in a conversation, each a test of the answer; ``user``: who says what comes after them;
    ``each_turn``: what must hold for every answer.
    """

    __test__ = False

    id: str
    input_messages: tuple[dict[str, Any], ...]
    expected_outcome: str = ""
    expected_messages: tuple[dict[str, Any], ...] = ()
    question: str = ""
    reference_answer: str = ""
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
    entry: ConfigEntry | None = field(default=None, repr=False, compare=False)

    @property
    def is_conversation(self) -> bool:
        """Whether the target is asked turn by turn."""
        return bool(self.turns) or self.user is not None

    @property
    def all_asserts(self) -> tuple[AssertFields, ...]:
        """Those of the whole, of each turn, and of every turn."""
        return (*self.asserts, *(item for turn in self.turns for item in turn.asserts), *self.each_turn)

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of the test itself: ``metadata.tags``."""
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

    ``roots``: folders its files are confined to, None for no limit. ``warnings``: what a person should look at. ``missing``: files
    of its programs that are not there. ``files``: those it was read from, prompts included.
    ``content_hash``: SHA-256 of every file it was read from, prompts included.
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
        """The name in its metadata, else the file's name without endings."""
        return self.metadata.name if self.metadata else self.path.name.split(".")[0]

    def trials_of(self, test: Test) -> TrialsFields | None:
        """Return how often a test is run, None for once. Its own ``trials`` win, a count of 1 too."""
        trials = test.trials or self.trials
        return trials if trials and trials.count > 1 else None

    @property
    def shared_workspace(self) -> WorkspaceFields | None:
        """The workspace whose ``before_all`` and ``after_all`` frame the run: the first test's, which the suite's is part of."""
        return (self.tests[0].workspace if self.tests else None) or self.workspace

    @property
    def framing(self) -> dict[str, HookFields]:
        """The scripts that frame the run, by name."""
        hooks = self.shared_workspace.hooks if self.shared_workspace else {}
        return {name: hook for name, hook in hooks.items() if name in ("before_all", "after_all")}

    def model_dump(self) -> dict[str, Any]:
        """Return the normalised form as plain data."""
        shown = ("metadata", "target", "targets", "trials", "cache")
        data = {name: _plain(getattr(self, name)) for name in shown}
        if self.shared_workspace is not None:
            data["workspace"] = _plain(self.shared_workspace)
        return data | {"tests": _plain(self.tests)}
