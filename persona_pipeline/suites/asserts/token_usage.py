"""``token_usage``: the answer took no more tokens than allowed."""

from pydantic import Field, model_validator

from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.format.models import Limit
from persona_pipeline.suites.grading.base import Assert, Context
from persona_pipeline.suites.grading.results import Grade


class TokenUsageLimit(Assert):
    """1 if no limit is exceeded; 0 if one is, or the target reported no tokens. The total counts cached input too."""

    max_total: Limit | None = Field(None, description="Input, output and cached tokens together.")
    max_input: Limit | None = Field(None, description="Input tokens without cached ones.")
    max_output: Limit | None = Field(None, description="Output tokens.")

    @model_validator(mode="after")
    def _has_a_limit(self) -> "TokenUsageLimit":
        if self.max_total is None and self.max_input is None and self.max_output is None:
            raise ValueError("needs at least one of max_total, max_input, max_output")
        return self

    def grade(self, output: Output, context: Context) -> Grade:
        usage = output.token_usage
        if usage is None:
            return Grade(0.0, misses=("The target did not report its tokens.",))
        checks = (("total", usage.total, self.max_total), ("input", usage.input, self.max_input))
        hits, misses = [], []
        for word, count, limit in (*checks, ("output", usage.output, self.max_output)):
            if limit is not None:
                (hits if count <= limit else misses).append(f"{count:g} {word} tokens, limit {limit:g}.")
        return Grade(0.0 if misses else 1.0, hits, misses)
