"""Limits on time, cost, tokens and steps: ``latency``, ``cost``, ``token_usage`` and ``execution_metrics``."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from pydantic import Field, model_validator

from persona_pipeline.suites.answering.output import Need, Output
from persona_pipeline.suites.format.models import Limit, Share
from persona_pipeline.suites.grading.base import Assert, Context
from persona_pipeline.suites.grading.results import TOLERANCE, Grade

EXPLORING = frozenset(("read", "grep", "glob", "search", "list", "Read", "Grep", "Glob", "WebSearch", "WebFetch"))


class LatencyLimit(Assert):
    """1 if the answer took at most ``max_ms`` milliseconds; 0 if it took longer."""

    needs = (Need.DURATION,)
    older_names: ClassVar[dict[str, str]] = {"max_ms": "threshold"}

    max_ms: Limit = Field(description="Longest time in milliseconds.")

    def grade(self, output: Output, context: Context) -> Grade:
        assert output.duration_ms is not None
        text = f"The answer took {output.duration_ms:g} ms, limit {self.max_ms:g} ms."
        return Grade.of(output.duration_ms <= self.max_ms, text, text)


class CostLimit(Assert):
    """1 if the answer cost at most ``max_usd`` US dollars; 0 if it cost more."""

    needs = (Need.COST,)
    older_names: ClassVar[dict[str, str]] = {"max_usd": "budget"}

    max_usd: Limit = Field(description="Highest cost in US dollars.")

    def grade(self, output: Output, context: Context) -> Grade:
        assert output.cost_usd is not None
        text = f"The answer cost ${output.cost_usd:.4f}, limit ${self.max_usd:.4f}."
        return Grade.of(output.cost_usd <= self.max_usd, text, text)


class SeveralLimits(Assert):
    """Several limits; at least one must be given. ``limits``: the evidence for each limit, by its field."""

    limits: ClassVar[Mapping[str, Need]]

    @property
    def needed(self) -> Iterable[Need]:
        return [need for name, need in self.limits.items() if getattr(self, name) is not None]

    @model_validator(mode="after")
    def _has_a_limit(self) -> "SeveralLimits":
        if all(getattr(self, name) is None for name in self.limits):
            raise ValueError(f"needs at least one of {', '.join(self.limits)}")
        return self

    def held(self, measured: Mapping[str, tuple[str, float | None]]) -> tuple[list[str], list[str]]:
        """Return hits and misses of the given limits. ``measured``: unit and value by limit."""
        hits: list[str] = []
        misses: list[str] = []
        for name, (words, value) in measured.items():
            limit = getattr(self, name)
            if limit is not None and value is not None:
                (hits if value <= limit else misses).append(f"{value:g} {words}, limit {limit:g}.")
        return hits, misses


class TokenUsageLimit(SeveralLimits):
    """1 if no limit is exceeded; 0 if one is. The total counts cached input too."""

    limits = dict.fromkeys(("max_total", "max_input", "max_output"), Need.TOKENS)

    max_total: Limit | None = Field(None, description="Input, output and cached tokens together.")
    max_input: Limit | None = Field(None, description="Input tokens without cached ones.")
    max_output: Limit | None = Field(None, description="Output tokens.")

    def grade(self, output: Output, context: Context) -> Grade:
        usage = output.token_usage
        assert usage is not None
        measured = {
            "max_total": ("total tokens", usage.total),
            "max_input": ("input tokens", usage.input),
            "max_output": ("output tokens", usage.output),
        }
        hits, misses = self.held(measured)
        return Grade(0.0 if misses else 1.0, hits, misses)


class ExecutionMetrics(SeveralLimits):
    """The share of the given limits that hold, 0-1."""

    limits: ClassVar[Mapping[str, Need]] = {
        "max_tool_calls": Need.CALLS,
        "max_llm_calls": Need.CALLS,
        "max_tokens": Need.TOKENS,
        "max_cost_usd": Need.COST,
        "max_duration_ms": Need.DURATION,
        "max_first_token_ms": Need.FIRST_TOKEN,
        "target_exploration_ratio": Need.CALLS,
    }

    max_tool_calls: Limit | None = Field(None, description="Most tool calls.")
    max_llm_calls: Limit | None = Field(None, description="Most assistant messages.")
    max_tokens: Limit | None = Field(None, description="Most input and output tokens, cached ones not counted.")
    max_cost_usd: Limit | None = Field(None, description="Highest cost in US dollars.")
    max_duration_ms: Limit | None = Field(None, description="Longest time in milliseconds.")
    max_first_token_ms: Limit | None = Field(None, description="Longest time to the first piece of a streamed answer.")
    target_exploration_ratio: Share | None = Field(
        None, description="Share of the tool calls that should only look (read, grep, search, ...)."
    )
    exploration_tolerance: Limit = Field(0.2, description="How far that share may be off.")

    def grade(self, output: Output, context: Context) -> Grade:
        usage = output.token_usage
        measured = {
            "max_tool_calls": ("tool calls", len(output.tool_calls)),
            "max_llm_calls": ("model calls", output.llm_call_count),
            "max_tokens": ("tokens", None if usage is None else usage.input + usage.output),
            "max_cost_usd": ("US dollars", output.cost_usd),
            "max_duration_ms": ("milliseconds", output.duration_ms),
            "max_first_token_ms": ("milliseconds to the first token", output.first_token_ms),
        }
        hits, misses = self.held(measured)
        calls, target = output.tool_calls, self.target_exploration_ratio
        if target is not None and not calls:
            misses.append("There are no tool calls to take an exploration ratio of.")
        elif target is not None:
            ratio = sum(call["tool"] in EXPLORING for call in calls) / len(calls)
            met = abs(ratio - target) <= self.exploration_tolerance + TOLERANCE
            text = f"Exploration ratio {ratio:.2f}, wanted {target:.2f} give or take {self.exploration_tolerance:.2f}."
            (hits if met else misses).append(text)
        return Grade(len(hits) / (len(hits) + len(misses)), hits, misses, empty=target is not None and not calls)
