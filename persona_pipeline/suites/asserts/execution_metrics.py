"""``execution_metrics``: how much the agent did to get to its answer."""

from pydantic import Field, model_validator

from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.format.models import Limit, Share
from persona_pipeline.suites.grading.base import Assert, Context
from persona_pipeline.suites.grading.results import TOLERANCE, Grade

EXPLORING = frozenset(("read", "grep", "glob", "search", "list", "Read", "Grep", "Glob", "WebSearch", "WebFetch"))
LIMITS = ("max_tool_calls", "max_llm_calls", "max_tokens", "max_cost_usd", "max_duration_ms")


class ExecutionMetrics(Assert):
    """The share of the given limits that are kept, 0-1. A limit on something the target did not report is not kept."""

    max_tool_calls: Limit | None = Field(None, description="Most tool calls.")
    max_llm_calls: Limit | None = Field(None, description="Most assistant messages.")
    max_tokens: Limit | None = Field(None, description="Most input and output tokens, cached ones not counted.")
    max_cost_usd: Limit | None = Field(None, description="Highest cost in US dollars.")
    max_duration_ms: Limit | None = Field(None, description="Longest time in milliseconds.")
    target_exploration_ratio: Share | None = Field(
        None, description="Share of the tool calls that should only look (read, grep, search, ...)."
    )
    exploration_tolerance: Limit = Field(0.2, description="How far that share may be off.")

    @model_validator(mode="after")
    def _has_a_limit(self) -> "ExecutionMetrics":
        names = (*LIMITS, "target_exploration_ratio")
        if all(getattr(self, name) is None for name in names):
            raise ValueError(f"needs at least one of {', '.join(names)}")
        return self

    def grade(self, output: Output, context: Context) -> Grade:
        if not output.has_trace:
            return Grade(0.0, misses=("There is no trace to measure.",))
        usage = output.token_usage
        measured = {
            "max_tool_calls": ("tool calls", len(output.tool_calls)),
            "max_llm_calls": ("model calls", output.llm_call_count),
            "max_tokens": ("tokens", None if usage is None else usage.input + usage.output),
            "max_cost_usd": ("US dollars", output.cost_usd),
            "max_duration_ms": ("milliseconds", output.duration_ms),
        }
        hits: list[str] = []
        misses: list[str] = []
        for name, (words, value) in measured.items():
            limit = getattr(self, name)
            if limit is None:
                continue
            if value is None:
                misses.append(f"The target did not report its {words}.")
            else:
                (hits if value <= limit else misses).append(f"{value:g} {words}, limit {limit:g}.")
        if self.target_exploration_ratio is not None:
            self._exploration(output, self.target_exploration_ratio, hits, misses)
        return Grade(len(hits) / (len(hits) + len(misses)), hits, misses)

    def _exploration(self, output: Output, target: float, hits: list[str], misses: list[str]) -> None:
        calls = output.tool_calls
        if not calls:
            misses.append("There are no tool calls to take an exploration ratio of.")
            return
        ratio = sum(call["tool"] in EXPLORING for call in calls) / len(calls)
        met = abs(ratio - target) <= self.exploration_tolerance + TOLERANCE
        text = f"Exploration ratio {ratio:.2f}, wanted {target:.2f} give or take {self.exploration_tolerance:.2f}."
        (hits if met else misses).append(text)
