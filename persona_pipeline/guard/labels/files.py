"""Labels on disk, ``labels/<dimension>.jsonl``, one per line, and which of them are of current claims.

A line has everything that its key is made of, so it cannot be moved to another judgment. ``messages.jsonl`` has labels of messages
(``guard.labels.messages``), kept in the same way.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, Field, JsonValue, ValidationError, field_validator, model_validator

from persona_pipeline.base.documents.json import (
    json_line,
    json_object,
    read_rows,
)
from persona_pipeline.base.documents.yaml import Document, model_problems
from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.base.text import storable_data
from persona_pipeline.judging.verdict import recording_key, shown_subject
from persona_pipeline.world.messages.files import parse_time
from persona_pipeline.world.propositions.loading import PROPOSITIONS, read_claims
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS, Proposition

# The folder of a world's labels, and its files of message labels: the current one, and the one of releases until 0.2.
LABELS, MESSAGES, VOICE = "labels", "messages", "voice"
LABELLER_PATTERN = r"^[A-Za-z0-9._@-]{1,64}$"
MOST_NOTE = 2000
# In JSON Schema, what ``_sealed`` says of the two.
_ONE_ANSWER: list[JsonValue] = [
    {"required": [name], "properties": {name: {"not": {"type": "null"}}, other: {"type": "null"}}}
    for name, other in (("score", "unscored"), ("unscored", "score"))
]
_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class LabellerKind(StrEnum):
    """The kind of labeller. Only labels of people count as people's."""

    PERSON = "person"
    MODEL = "model"


class AnyLabel(BaseModel, extra="forbid", frozen=True, strict=True):
    """Fields of labels of all kinds. ``file``: the stem of their file.

    ``former_file``, ``former_fields``: names of earlier releases that are still read.
    """

    former_file: ClassVar[str] = ""
    former_fields: ClassVar[tuple[str, ...]] = ()

    key: _Sha256 = Field(description="SHA-256 of what is labelled; another than the other fields give is an error.")
    agent_id: str = Field(min_length=1, description="Whose judgment or message it is.")
    if TYPE_CHECKING:
        # Each kind has them where its lines show them.
        labeller: str
        note: str
        labelled_at: str

    @property
    def identity(self) -> tuple[str, str]:
        """Subject and labeller: there is one label of each pair."""
        return self.key, self.labeller

    @property
    def file(self) -> str:
        raise NotImplementedError

    @property
    def subject(self) -> str:
        """The labelled thing, in a word."""
        return "judgment"

    def to_line(self) -> str:
        """Return the JSON line, ended by a line feed."""
        return json_line(self.model_dump(mode="json"))

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, data: Any) -> Any:
        # As its line will hold it, so that a label is equal to itself read again.
        return storable_data(data)

    @field_validator("labelled_at", check_fields=False)
    @classmethod
    def _moment(cls, value: str) -> str:
        parse_time(value)
        return value


LabelType = TypeVar("LabelType", bound=AnyLabel)


class Label(AnyLabel, frozen=True, title="Label", json_schema_extra={"oneOf": _ONE_ANSWER}):
    """A labeller's answer to a judgment: exactly one of ``score`` (whole, 0-9, as the claim is written) and ``unscored``."""

    dimension: str = Field(json_schema_extra={"enum": list(ALL_DIMENSIONS)}, description="Also the file's name.")
    proposition_id: str = Field(min_length=1, description="The claim's id.")
    claim: str = Field(min_length=1, description="The claim with its variables filled in, as it was shown.")
    persona: _Sha256 | None = Field(None, description="SHA-256 of the persona that was shown; null: none was.")
    trajectory: _Sha256 = Field(description="SHA-256 of the transcript that was shown.")
    labeller: str = Field(pattern=LABELLER_PATTERN, description="Who labelled.")
    labeller_kind: Annotated[LabellerKind, Field(strict=False)] = Field(
        description="Whether that is a person or a model."
    )
    score: Annotated[int, Field(ge=0, le=9)] | None = Field(None, description="How far the claim holds, 0-9.")
    unscored: Literal["not_applicable"] | None = Field(None, description="The situation of the claim never came up.")
    note: str = Field("", max_length=MOST_NOTE, description="Why, in the labeller's own words.")
    labelled_at: str = Field(description="When, as RFC 3339.", json_schema_extra={"format": "date-time"})

    @property
    def file(self) -> str:
        return self.dimension

    @property
    def is_persons(self) -> bool:
        """Whether a person labelled."""
        return self.labeller_kind is LabellerKind.PERSON

    @field_validator("dimension")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in ALL_DIMENSIONS:
            hint = did_you_mean(value, ALL_DIMENSIONS) or f"; the dimensions are {', '.join(ALL_DIMENSIONS)}"
            raise ValueError(f"{value!r} is no dimension{hint}")
        return value

    @model_validator(mode="after")
    def _sealed(self) -> Self:
        if (self.score is None) == (self.unscored is None):
            raise ValueError("exactly one of 'score' and 'unscored' has a value")
        if self.key != recording_key(shown_subject(self)):
            raise ValueError(
                "its key is not that of what the line says was judged: a field or the key was changed by hand"
            )
        return self


def checked_label(model: type[LabelType], data: dict[str, Any]) -> LabelType:
    """Return the label of plain data; ValueError: all problems in one line."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = model_problems(model, Document("", data), error)
        raise ValueError("; ".join(item.message.removeprefix("the file: ") for item in problems)) from None


def check_labeller(name: str) -> str:
    """Return a labeller's name; ValueError: it cannot be one."""
    if not re.fullmatch(LABELLER_PATTERN, name):
        raise ValueError(f"{name!r} cannot name a labeller; use letters, digits and ._@-, at most 64")
    return name


def load_labels(folder: Path) -> list[Label]:
    """Return the labels of judgments in a folder, file by file in their order. A missing folder has none.

    A line that is there twice, as a merge may leave it, is one label. Raises ``ConfigError``: lines that are not labels, and
    judgments that one labeller answered in two ways, each with its place.
    """
    return load_label_files(Label, label_paths(folder))


def label_paths(folder: Path) -> list[Path]:
    """Return the files of labels of judgments in a folder."""
    return sorted(path for path in folder.glob("*.jsonl") if path.stem not in (MESSAGES, VOICE))


def load_label_files(model: type[LabelType], paths: Iterable[Path]) -> list[LabelType]:
    """Return the labels of some files, each of the same kind; ConfigError as ``load_labels``."""
    problems: list[Problem] = []
    found = [(path, number, label) for path in paths for number, label in _read(model, path, problems)]
    problems += _contradictions(found)
    if problems:
        raise ConfigError(problems)
    return list({label.identity: label for _, _, label in found}.values())


def _read(model: type[LabelType], path: Path, problems: list[Problem]) -> list[tuple[int, LabelType]]:
    def parse(line: str) -> LabelType:
        label = checked_label(model, json_object(line))
        if path.stem not in (label.file, label.former_file):
            raise ValueError(f"a label of {label.file} is in {path.name}")
        return label

    return read_rows(path, parse, problems, remedy="correct the line, or delete it and label again")


def _contradictions(found: Collection[tuple[Path, int, AnyLabel]]) -> list[Problem]:
    first: dict[tuple[str, str], tuple[AnyLabel, str]] = {}
    problems = []
    for path, number, label in found:
        known, place = first.setdefault(label.identity, (label, f"{path}:{number}"))
        if known != label:
            text = f"{label.labeller} has labelled this {label.subject} otherwise at {place}; delete one of the two"
            problems.append(Problem(text, str(path), number))
    return problems


# A labelled claim by agent, dimension and id.
LabelledClaims = Mapping[tuple[str, str, str], Proposition]


def labelled_claims(root: Path, labels: Iterable[Label]) -> LabelledClaims:
    """Return the current claims of labelled agents and dimensions; those of invalid files are left out."""
    agents, names = ({getattr(label, name) for label in labels} for name in ("agent_id", "dimension"))
    found, _ = read_claims(root / PROPOSITIONS, agents, sorted(names))
    return {
        (agent_id, dimension, claim.id): claim
        for agent_id, own in found.items()
        for dimension, stored in own.items()
        for claim in (stored.propositions.propositions if stored.propositions else ())
    }


def current_labels(labels: Iterable[Label], claims: LabelledClaims) -> list[Label]:
    """Return the labels whose claim is still asked, of ``claims`` (see ``labelled_claims``).

    Neither the window nor the persona matters: an earlier judgment of the same claim still measures the judge.
    """
    named = ((label, claims.get((label.agent_id, label.dimension, label.proposition_id))) for label in labels)
    return [label for label, claim in named if claim is not None and is_filled(claim.claim, label.claim)]


def is_filled(claim: str, text: str) -> bool:
    """Return whether a text is a claim with its variables filled in, whatever with."""
    first, *parts = map(re.escape, re.split(r"\{\{[A-Za-z0-9_]+\}\}", claim))
    # Atomic groups keep the search linear in hostile texts.
    filled = "".join(f"(?>.+?{part})" for part in parts[:-1]) + "".join(f".+{part}" for part in parts[-1:])
    return re.fullmatch(first + filled, text, re.DOTALL) is not None
