"""One label as a JSON line: what somebody says of one judgment, with all its key is made of, so that nobody can relabel it."""

import re
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator, model_validator

from persona_pipeline.documents.json_lines import json_line, json_object
from persona_pipeline.documents.validation import EXPECTED
from persona_pipeline.errors import did_you_mean
from persona_pipeline.judging.verdict import JudgeRequest, recording_key, shown_subject
from persona_pipeline.propositions.dimensions import ALL_DIMENSIONS
from persona_pipeline.world.canonical import rfc3339
from persona_pipeline.world.ingest import parse_time

LABELLER_PATTERN = r"^[A-Za-z0-9._@-]{1,64}$"
MOST_NOTE = 2000
# In JSON Schema, what ``_sealed`` says of the two.
_ONE_ANSWER: list[JsonValue] = [
    {"required": [name], "properties": {name: {"not": {"type": "null"}}, other: {"type": "null"}}}
    for name, other in (("score", "unscored"), ("unscored", "score"))
]
_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class LabellerKind(StrEnum):
    """Who labelled. Only what people say counts as people's."""

    PERSON = "person"
    MODEL = "model"


class Label(BaseModel):
    """What one labeller says of one judgment: exactly one of ``score`` (whole, 0-9, as the claim is written) and ``unscored``."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, title="Label", json_schema_extra={"oneOf": _ONE_ANSWER}
    )

    key: _Sha256 = Field(description="SHA-256 of what is judged; another than the other fields give is an error.")
    agent_id: str = Field(min_length=1, description="Whose judgment it is.")
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
    def identity(self) -> tuple[str, str]:
        """What there is one label of: the judgment and who labelled it."""
        return self.key, self.labeller

    @property
    def is_persons(self) -> bool:
        """Whether a person labelled."""
        return self.labeller_kind is LabellerKind.PERSON

    def to_line(self) -> str:
        """Return the JSON line, ended by a line feed."""
        return json_line(self.model_dump(mode="json"))

    @field_validator("dimension")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in ALL_DIMENSIONS:
            hint = did_you_mean(value, ALL_DIMENSIONS) or f"; the dimensions are {', '.join(ALL_DIMENSIONS)}"
            raise ValueError(f"{value!r} is no dimension{hint}")
        return value

    @field_validator("labelled_at")
    @classmethod
    def _moment(cls, value: str) -> str:
        parse_time(value)
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


def label_of(
    request: JudgeRequest,
    answer: int | None,
    *,
    labeller: str,
    kind: LabellerKind = LabellerKind.PERSON,
    note: str = "",
    labelled_at: datetime | None = None,
) -> Label:
    """Return the label of a judgment. ``answer``: 0-9; None: not applicable. ``labelled_at``: default now.

    Raises:
        ValueError: a field cannot be so, in one line.
    """
    subject = {name: value for name, value in request.subject.items() if name != "kind"}
    return checked_label(
        {
            "key": recording_key(request.subject),
            **subject,
            "labeller": labeller,
            "labeller_kind": kind,
            "score": answer,
            "unscored": "not_applicable" if answer is None else None,
            "note": note,
            "labelled_at": rfc3339(labelled_at or datetime.now(UTC)),
        }
    )


def parse_label(line: str) -> Label:
    """Return the label of a JSON line.

    Raises:
        ValueError: what is wrong with the line.
    """
    return checked_label(json_object(line))


def checked_label(data: dict[str, object]) -> Label:
    """Return the label of plain data.

    Raises:
        ValueError: everything that is wrong with it, in one line.
    """
    try:
        return Label.model_validate(data)
    except ValidationError as error:
        raise ValueError("; ".join(_said(item["type"], item["loc"], item["msg"]) for item in error.errors())) from None


def check_labeller(name: str) -> str:
    """Return a labeller's name.

    Raises:
        ValueError: it cannot be one.
    """
    if not re.fullmatch(LABELLER_PATTERN, name):
        raise ValueError(f"{name!r} cannot name a labeller; use letters, digits and ._@-, at most 64")
    return name


def _said(kind: str, location: tuple[str | int, ...], message: str) -> str:
    name = str(location[0]) if location else ""
    if kind == "extra_forbidden":
        return f"unknown field {name!r}{did_you_mean(name, Label.model_fields)}"
    if kind == "missing":
        return f"{name!r} is missing"
    text = EXPECTED.get(kind) or message.removeprefix("Value error, ")
    return f"{name!r}: {text}" if name else text
