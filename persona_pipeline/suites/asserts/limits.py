"""Limits on time, cost, tokens and steps: ``latency``, ``cost``, ``token_usage`` and ``execution_metrics``."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from pydantic import Field, model_validator

from persona_pipeline.suites.answering.output import Need, Output
from persona_pipeline.suites.format.models import Limit, Share
from persona_pipeline.suites.grading.base import Assert, Context
from persona_pipeline.suites.grading.results import TOLERANCE, Grade

EXPLORING = frozenset(("read", "grep", "glob", "search", "list", "Read", "Grep", "Glob", "WebSearch", "WebFetch"))
# The evidence for a limit, the unit, and the measured value of an answer that has the evidence (None: it is compared otherwise).
Measure = tuple[Need, str, Callable[[Any], float] | None]
_DURATION: Measure = (Need.DURATION, "milliseconds", lambda output: output.duration_ms)
_COST: Measure = (Need.COST, "US dollars", lambda output: output.cost_usd)


class SeveralLimits(Assert):
    """Limits of which at least one must be given; 1 if all hold, else 0. ``limits``: what each is compared with, by field."""

    limits: ClassVar[Mapping[str, Measure]]

    @property
    def needed(self) -> Iterable[Need]:
        return [need for name, (need, *_) in self.limits.items() if getattr(self, name) is not None]

    @model_validator(mode="after")
    def _has_a_limit(self) -> "SeveralLimits":
        if all(getattr(self, name) is None for name in self.limits):
            raise ValueError(f"needs at least one of {', '.join(self.limits)}")
        return self

    def grade(self, output: Output, context: Context) -> Grade:
        hits, misses = self.held(output)
        return Grade(0.0 if misses else 1.0, hits, misses)

    def held(self, output: Output) -> tuple[list[str], list[str]]:
        """Return hits and misses of the given limits."""
        hits: list[str] = []
        misses: list[str] = []
        for name, (_, unit, measured) in self.limits.items():
            limit = getattr(self, name)
            if limit is not None and measured is not None:
                value = measured(output)
                (hits if value <= limit else misses).append(f"{value:g} {unit}, limit {limit:g}.")
        return hits, misses


class LatencyLimit(SeveralLimits):
    """1 if the answer took at most ``max_ms`` milliseconds; 0 if it took longer."""

    limits: ClassVar[Mapping[str, Measure]] = {"max_ms": _DURATION}
    older_names: ClassVar[dict[str, str]] = {"max_ms": "threshold"}

    max_ms: Limit = Field(description="Longest time in milliseconds.")


class CostLimit(SeveralLimits):
    """1 if the answer cost at most ``max_usd`` US dollars; 0 if it cost more."""

    limits: ClassVar[Mapping[str, Measure]] = {"max_usd": _COST}
    older_names: ClassVar[dict[str, str]] = {"max_usd": "budget"}

    max_usd: Limit = Field(description="Highest cost in US dollars.")


class TokenUsageLimit(SeveralLimits):
    """1 if no limit is exceeded; 0 if one is. The total counts cached input too."""

    limits: ClassVar[Mapping[str, Measure]] = {
        "max_total": (Need.TOKENS, "total tokens", lambda output: output.token_usage.total),
        "max_input": (Need.TOKENS, "input tokens", lambda output: output.token_usage.input),
        "max_output": (Need.TOKENS, "output tokens", lambda output: output.token_usage.output),
    }

    max_total: Limit | None = Field(None, description="Input, output and cached tokens together.")
    max_input: Limit | None = Field(None, description="Input tokens without cached ones.")
    max_output: Limit | None = Field(None, description="Output tokens.")


class ExecutionMetrics(SeveralLimits):
    """The share of the given limits that hold, 0-1."""

    limits: ClassVar[Mapping[str, Measure]] = {
        "max_tool_calls": (Need.CALLS, "tool calls", lambda output: len(output.tool_calls)),
        "max_llm_calls": (Need.CALLS, "model calls", lambda output: output.llm_call_count),
        "max_tokens": (Need.TOKENS, "tokens", lambda output: output.token_usage.input + output.token_usage.output),
        "max_cost_usd": _COST,
        "max_duration_ms": _DURATION,
        "target_exploration_ratio": (Need.CALLS, "", None),
    }

    max_tool_calls: Limit | None = Field(None, description="Most tool calls.")
    max_llm_calls: Limit | None = Field(None, description="Most assistant messages.")
    max_tokens: Limit | None = Field(None, description="Most input and output tokens, cached ones not counted.")
    max_cost_usd: Limit | None = Field(None, description="Highest cost in US dollars.")
    max_duration_ms: Limit | None = Field(None, description="Longest time in milliseconds.")
    target_exploration_ratio: Share | None = Field(
        None, description="Share of the tool calls that should only look (read, grep, search, ...)."
    )
    exploration_tolerance: Limit = Field(0.2, description="How far that share may be off.")

    def grade(self, output: Output, context: Context) -> Grade:
        (hits, misses), target = self.held(output), self.target_exploration_ratio
        if target is None:
            return Grade(len(hits) / (len(hits) + len(misses)), hits, misses)
        names = [call["tool"] for call in output.tool_calls]
        if names:
            ratio = sum(name in EXPLORING for name in names) / len(names)
            met = abs(ratio - target) <= self.exploration_tolerance + TOLERANCE
            text = f"Exploration ratio {ratio:.2f}, wanted {target:.2f} give or take {self.exploration_tolerance:.2f}."
            (hits if met else misses).append(text)
        else:
            misses.append("There are no tool calls to take an exploration ratio of.")
        return Grade(len(hits) / (len(hits) + len(misses)), hits, misses, empty=not names)
