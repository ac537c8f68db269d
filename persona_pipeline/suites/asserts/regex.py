"""``regex``: a pattern matches somewhere in the answer."""

from pydantic import Field, field_validator

from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.format.models import Text
from persona_pipeline.suites.format.patterns import PatternError, compile_pattern, search
from persona_pipeline.suites.grading.base import Assert, Context
from persona_pipeline.suites.grading.results import Grade

_NAME_LENGTH = 30


class Regex(Assert):
    """1 if the pattern (JavaScript's language, no flags) matches anywhere; else 0. Runs in linear time."""

    value: Text = Field(description="The pattern; no look-around and no back-references.")

    @field_validator("value")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            compile_pattern(value)
        except PatternError as error:
            raise ValueError(f"{value!r} {error}") from error
        return value

    def default_name(self, spelled: str) -> str:
        return f"regex-{self.value[:_NAME_LENGTH]}"

    def grade(self, output: Output, context: Context) -> Grade:
        return Grade.of(
            search(self.value, output.text),
            f"The answer matches /{self.value}/.",
            f"The answer does not match /{self.value}/.",
        )
