"""``contains``: a piece of text stands in the answer."""

from typing import TYPE_CHECKING

from pydantic import Field

from persona_pipeline.suites.asserts.base import Assert
from persona_pipeline.suites.grades import Grade
from persona_pipeline.suites.values import Text

if TYPE_CHECKING:
    from persona_pipeline.suites.context import Context
    from persona_pipeline.suites.output import Output


class Contains(Assert):
    """1 if the answer contains ``value``, letter for letter; else 0."""

    value: Text = Field(description="The text to find.")

    def default_name(self, spelled: str) -> str:
        return f"contains-{self.value}"

    def grade(self, output: "Output", context: "Context") -> Grade:
        return Grade.of(
            self.value in output.text,
            f"The answer contains {self.value!r}.",
            f"The answer does not contain {self.value!r}.",
        )
