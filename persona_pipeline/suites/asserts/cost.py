"""``cost``: the answer was not too dear."""

from typing import TYPE_CHECKING, Any

from pydantic import Field

from persona_pipeline.suites.asserts.base import Assert, rename
from persona_pipeline.suites.grades import Grade
from persona_pipeline.suites.places import Entry
from persona_pipeline.suites.values import Limit

if TYPE_CHECKING:
    from persona_pipeline.suites.context import Context
    from persona_pipeline.suites.loading.problems import Reader
    from persona_pipeline.suites.output import Output


class Cost(Assert):
    """1 if the answer cost at most ``max_usd`` US dollars; 0 if it cost more, or nobody knows what it cost."""

    max_usd: Limit = Field(description="Highest cost in US dollars.")

    @classmethod
    def prepare(cls, data: dict[str, Any], entry: Entry, label: str, reader: "Reader") -> dict[str, Any]:
        rename(data, "budget", "max_usd")
        return data

    def grade(self, output: "Output", context: "Context") -> Grade:
        if output.cost_usd is None:
            return Grade(0.0, misses=("The target did not report what it cost.",))
        text = f"The answer cost ${output.cost_usd:.4f}, limit ${self.max_usd:.4f}."
        return Grade.of(output.cost_usd <= self.max_usd, text, text)
