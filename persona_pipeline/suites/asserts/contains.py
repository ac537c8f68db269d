"""``contains``: a piece of text stands in the answer."""

from pydantic import Field

from persona_pipeline.suites.asserts.base import Assert
from persona_pipeline.suites.asserts.context import Context
from persona_pipeline.suites.asserts.grades import Grade
from persona_pipeline.suites.format.field_types import Text
from persona_pipeline.suites.targets.output import Output


class Contains(Assert):
    """1 if the answer contains ``value``, letter for letter; else 0."""

    value: Text = Field(description="The text to find.")

    def default_name(self, spelled: str) -> str:
        return f"contains-{self.value}"

    def grade(self, output: Output, context: Context) -> Grade:
        return Grade.of(
            self.value in output.text,
            f"The answer contains {self.value!r}.",
            f"The answer does not contain {self.value!r}.",
        )
