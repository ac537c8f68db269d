"""``latency``: the answer came in time."""

from typing import ClassVar

from pydantic import Field

from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.format.models import Limit
from persona_pipeline.suites.grading.base import Assert, Context
from persona_pipeline.suites.grading.results import Grade


class LatencyLimit(Assert):
    """1 if the answer took at most ``max_ms`` milliseconds; 0 if it took longer, or nobody knows how long."""

    older_names: ClassVar[dict[str, str]] = {"max_ms": "threshold"}

    max_ms: Limit = Field(description="Longest time in milliseconds.")

    def grade(self, output: Output, context: Context) -> Grade:
        if output.duration_ms is None:
            return Grade(0.0, misses=("The target did not report how long it took.",))
        text = f"The answer took {output.duration_ms:g} ms, limit {self.max_ms:g} ms."
        return Grade.of(output.duration_ms <= self.max_ms, text, text)
