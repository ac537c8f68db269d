"""Asserts on the answer's text: ``contains``, anywhere or at an end; ``equals``; ``regex``."""

import unicodedata
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainValidator, field_validator

from persona_pipeline.suites.answering.output import Need, Output
from persona_pipeline.suites.format.models import Text
from persona_pipeline.suites.format.text import PatternError, compile_pattern, search
from persona_pipeline.suites.grading.base import Assert, Context
from persona_pipeline.suites.grading.results import Grade

# Characters of a pattern that are shown in a default name.
_PATTERN_LENGTH = 30
_SAID = {"anywhere": ("contains", "contain"), "start": ("starts with", "start with"), "end": ("ends with", "end with")}


def _texts(value: Any) -> str | list[str]:
    texts = value if isinstance(value, list) else [value]
    other = next((text for text in texts if not isinstance(text, str)), None)
    if other is not None or None in texts:
        raise ValueError(f"must be a string or a list of strings, not {other!r}")
    if not texts or "" in texts:
        raise ValueError("must not be empty")
    return value


Texts = Annotated[
    str | list[str],
    # One validator, so that a mistake is reported once and not for each type of the union.
    PlainValidator(
        _texts,
        json_schema_input_type=Annotated[str, Field(min_length=1)]
        | Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)],
    ),
]


class Contains(Assert):
    """1 if the answer contains ``value`` exactly, or all or any texts of a list; else 0.

    At the start or end, white space around answer and text is ignored. Case is ignored letter by letter: ß is not ss.
    """

    needs = (Need.TEXT, Need.COMPLETE)
    unsaid: ClassVar = {"ignore_case": False, "of": "all", "at": "anywhere", "trim": True}

    value: Texts = Field(description="The text to find, or a list of texts.")
    ignore_case: bool = Field(False, description="Whether capital letters are the same as small ones.")
    of: Literal["all", "any"] = Field("all", description="Whether of a list all must be there, or one.")
    at: Literal["anywhere", "start", "end"] = Field("anywhere", description="Where it must stand.")
    trim: bool = Field(True, description="Whether white space at the ends is left aside, at the start or end.")

    def default_name(self, spelled: str) -> str:
        return f"{spelled}-{', '.join(self._texts)}"

    def grade(self, output: Output, context: Context) -> Grade:
        missing = [text for text in self._texts if not in_either(self._stands, text, output.text)]
        met = not missing if self.of == "all" else len(missing) < len(self._texts)
        does, not_done = _SAID[self.at]
        what = repr(self._texts[0]) if len(self._texts) == 1 else f"{self.of} of {_listed(self._texts)}"
        aside = ", capitals aside" if self.ignore_case else ""
        lacking = f": {_listed(missing)} missing" if self.of == "all" and len(self._texts) > 1 else ""
        return Grade.of(
            met, f"The answer {does} {what}{aside}.", f"The answer does not {not_done} {what}{aside}{lacking}."
        )

    @property
    def _texts(self) -> list[str]:
        return [self.value] if isinstance(self.value, str) else self.value

    def _stands(self, text: str, answer: str) -> bool:
        if self.trim and self.at != "anywhere":
            text, answer = text.strip(), answer.strip()
        if self.ignore_case:
            text, answer = text.lower(), answer.lower()
        if self.at == "start":
            return answer.startswith(text)
        return answer.endswith(text) if self.at == "end" else text in answer


def in_either(meets: Callable[[str, str], bool], wanted: str, answer: str) -> bool:
    """Return whether an answer matches, as written or with composed letters (é as one character)."""
    if meets(wanted, answer) or answer.isascii():
        return meets(wanted, answer)
    return meets(unicodedata.normalize("NFC", wanted), unicodedata.normalize("NFC", answer))


def _listed(texts: list[str]) -> str:
    return ", ".join(map(repr, texts))


class Equals(Assert):
    """1 if answer and ``value`` are the same text, else 0. White space at the ends is ignored unless ``trim`` is false."""

    needs = (Need.TEXT, Need.COMPLETE)
    unsaid: ClassVar = {"trim": True}

    value: Text = Field(description="The text the answer must be.")
    trim: bool = Field(True, description="Whether white space at the ends is left aside.")

    def default_name(self, spelled: str) -> str:
        return f"equals-{self.value}"

    def grade(self, output: Output, context: Context) -> Grade:
        return Grade.of(
            in_either(lambda value, answer: self._whole(value) == self._whole(answer), self.value, output.text),
            f"The answer is {self.value!r}.",
            f"The answer is not {self.value!r}.",
        )

    def _whole(self, text: str) -> str:
        return text.strip() if self.trim else text


class Regex(Assert):
    """1 if the pattern (of Python's ``regex`` package) matches anywhere, else 0. A search that takes too long is an error."""

    needs = (Need.TEXT, Need.COMPLETE)

    value: Text = Field(description="The pattern.")

    @field_validator("value")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            compile_pattern(value)
        except PatternError as error:
            raise ValueError(f"{value!r} {error}") from error
        return value

    def default_name(self, spelled: str) -> str:
        return f"regex-{self.value[:_PATTERN_LENGTH]}"

    def grade(self, output: Output, context: Context) -> Grade:
        return Grade.of(
            in_either(search, self.value, output.text),
            f"The answer matches /{self.value}/.",
            f"The answer does not match /{self.value}/.",
        )
