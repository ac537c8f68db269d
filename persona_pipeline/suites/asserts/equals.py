"""``equals``: the answer is this text."""

from pydantic import Field

from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.format.javascript import trim
from persona_pipeline.suites.format.models import Text
from persona_pipeline.suites.grading.base import Assert, Context
from persona_pipeline.suites.grading.results import Grade


class Equals(Assert):
    """1 if answer and ``value`` are the same text once white space at their ends is gone; else 0."""

    value: Text = Field(description="The text the answer must be.")

    def default_name(self, spelled: str) -> str:
        return f"equals-{self.value}"

    def grade(self, output: Output, context: Context) -> Grade:
        return Grade.of(
            trim(output.text) == trim(self.value),
            f"The answer is {self.value!r}.",
            f"The answer is not {self.value!r}.",
        )
