"""``cost``: the answer was not too dear."""

from typing import ClassVar

from pydantic import Field

from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.format.models import Limit
from persona_pipeline.suites.grading.base import Assert, Context
from persona_pipeline.suites.grading.results import Grade


class CostLimit(Assert):
    """1 if the answer cost at most ``max_usd`` US dollars; 0 if it cost more, or nobody knows what it cost."""

    older_names: ClassVar[dict[str, str]] = {"max_usd": "budget"}

    max_usd: Limit = Field(description="Highest cost in US dollars.")

    def grade(self, output: Output, context: Context) -> Grade:
        if output.cost_usd is None:
            return Grade(0.0, misses=("The target did not report what it cost.",))
        text = f"The answer cost ${output.cost_usd:.4f}, limit ${self.max_usd:.4f}."
        return Grade.of(output.cost_usd <= self.max_usd, text, text)
