"""An assert as it is written: the fields every type has, and how a type reads its own."""

from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, PrivateAttr

from persona_pipeline.suites.format.field_types import Gate, StrictFields, Text, Weight
from persona_pipeline.suites.format.problems import Reader
from persona_pipeline.suites.format.sources import Entry


class AssertFields(StrictFields):
    """One assert item. Types whose spelling differs from their fields override ``prepare``."""

    # Whether grading asks the judge, and whether it runs code of the suite.
    judged: ClassVar[bool] = False
    runs_code: ClassVar[bool] = False
    # Older spellings that are read too, by the field they stand for.
    older_names: ClassVar[dict[str, str]] = {}

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
    _entry: Entry = PrivateAttr()
    _files: tuple[Path, ...] = PrivateAttr()

    @property
    def entry(self) -> Entry | None:
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
        return self.runs_code

    @classmethod
    def prepare(cls, data: dict[str, Any], entry: Entry, label: str, reader: Reader) -> dict[str, Any]:
        """Return the keys as the fields want them; called before validation, on a copy.

        ``older_names`` are renamed afterwards. Problems are added to the reader.
        """
        return data

    def resolve(self, entry: Entry, label: str, reader: Reader) -> None:
        """Look up the files the assert names; called once after validation. Problems are added to the reader."""

    def default_name(self, spelled: str) -> str:
        """Return the name of an unnamed assert, given the type as the file spells it."""
        return spelled

    def dump(self) -> dict[str, Any]:
        """Return the normalised form as plain data."""
        data = self.model_dump(by_alias=True, exclude_none=True)
        if not self.negate:
            del data["negate"]
        return data


def rename(data: dict[str, Any], old: str, new: str) -> None:
    """Move a value to its field's name; the field's own spelling wins when both are there."""
    if old in data:
        value = data.pop(old)
        data.setdefault(new, value)
