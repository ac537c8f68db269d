"""``tool_trajectory``: which tools the agent called, in which order, with which arguments."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.format.javascript import json_equal
from persona_pipeline.suites.format.models import Limit, StrictFields, Text
from persona_pipeline.suites.format.problems import ConfigEntry, Reader
from persona_pipeline.suites.grading.base import Assert, Context
from persona_pipeline.suites.grading.results import Grade

ArgsMatch = Literal["exact", "superset", "subset", "ignore"] | list[str]
_MISSING: Any = object()


def _args(value: Any) -> Any:
    if value == "any" or isinstance(value, dict):
        return value
    raise ValueError("must be a mapping, or 'any' to accept all arguments")


def _args_match(value: Any) -> Any:
    if value in ("exact", "superset", "subset", "ignore"):
        return value
    if isinstance(value, list) and value and all(isinstance(path, str) and path for path in value):
        return value
    raise ValueError("must be one of 'exact', 'superset', 'subset', 'ignore', or a list of dot paths")


Arguments = Annotated[dict[str, Any] | Literal["any"], BeforeValidator(_args)]
Matching = Annotated[ArgsMatch, BeforeValidator(_args_match)]


class ExpectedCall(StrictFields):
    """One call that is expected. ``args`` left out or ``any``: the arguments do not matter."""

    tool: Text
    args: Arguments | None = None
    args_match: Matching | None = None
    max_duration_ms: Limit | None = None


@dataclass
class _Tally:
    """Hits and misses of one comparison; a duration check counts beside the calls."""

    hits: list[str] = field(default_factory=list)
    misses: list[str] = field(default_factory=list)
    duration_checks: int = 0
    duration_hits: int = 0

    def duration(self, expected: ExpectedCall, call: dict[str, Any], where: str) -> None:
        took = call.get("duration_ms")
        if expected.max_duration_ms is None or isinstance(took, bool) or not isinstance(took, int | float):
            return
        self.duration_checks += 1
        met = took <= expected.max_duration_ms
        self.duration_hits += met
        text = f"{where} took {took:g} ms, limit {expected.max_duration_ms:g} ms."
        (self.hits if met else self.misses).append(text)


class ToolTrajectory(Assert):
    """How much of an expected course of tool calls the output shows, 0-1.

    ``any_order``: share of ``minimums`` met. ``in_order``: share of ``expected`` found one after the other; other calls may
    stand between, and a call of the right tool with other arguments is passed over. ``exact``: positions that agree over the
    longer of the two lists. ``superset``: share of ``expected`` found in any order, each call used once. ``subset``: share of
    the calls that are allowed by ``expected``.
    """

    mode: Literal["any_order", "in_order", "exact", "superset", "subset"] = Field(description="How calls are compared.")
    minimums: dict[str, Limit] | None = Field(None, description="any_order: the least number of calls, by tool.")
    expected: list[ExpectedCall] | None = Field(None, description="Every other mode: the calls, in order.")
    args_match: Matching | None = Field(
        None, description="How arguments are compared; superset (extra arguments are fine) by default."
    )

    @classmethod
    def prepare(cls, data: dict[str, Any], entry: ConfigEntry, label: str, reader: Reader) -> dict[str, Any]:
        expected = data.get("expected")
        if isinstance(expected, list):
            data["expected"] = [_of_today(item, index, entry, label, reader) for index, item in enumerate(expected)]
        return data

    @model_validator(mode="before")
    @classmethod
    def _mode_is_given(cls, data: Any) -> Any:
        if isinstance(data, dict) and "mode" not in data:
            raise ValueError("mode is required: one of 'any_order', 'in_order', 'exact', 'superset', 'subset'")
        return data

    @model_validator(mode="after")
    def _has_what_its_mode_needs(self) -> "ToolTrajectory":
        needed = "minimums" if self.mode == "any_order" else "expected"
        if getattr(self, needed) is None:
            raise ValueError(f"{needed} is required for mode {self.mode}")
        return self

    def grade(self, output: Output, context: Context) -> Grade:
        if not output.has_trace:
            return Grade(0.0, misses=("There is no trace of tool calls to look at.",))
        calls = output.tool_calls
        if self.mode == "any_order":
            return self._any_order(calls)
        expected = self.expected or []
        if self.mode == "subset":
            return self._subset(expected, calls)
        if not expected and not (self.mode == "exact" and calls):
            return Grade(1.0, hits=("No calls were expected.",))
        tally = _Tally()
        matched = 0
        for index, (item, call) in enumerate(self._pairs(expected, calls)):
            if call is None:
                tally.misses.append(f"Call {index + 1}, {_shown(item)}, is missing.")
            else:
                matched += 1
                tally.hits.append(f"Call {index + 1}, {_shown(item)}, is there.")
                tally.duration(item, call, f"Call {index + 1}, {item.tool},")
        total = len(expected)
        if self.mode == "exact" and len(calls) > total:
            extra = ", ".join(call["tool"] for call in calls[total:])
            tally.misses.append(f"There are more calls than expected: {extra}.")
            total = len(calls)
        score = (matched + tally.duration_hits) / (total + tally.duration_checks)
        return Grade(
            score, tally.hits, tally.misses, f"{matched} of {len(expected)} expected calls in {self.mode} mode."
        )

    def _pairs(
        self, expected: Sequence[ExpectedCall], calls: Sequence[dict[str, Any]]
    ) -> Iterator[tuple[ExpectedCall, dict[str, Any] | None]]:
        """Each expected call with the call that meets it, or None."""
        if self.mode == "exact":
            for index, item in enumerate(expected):
                call = calls[index] if index < len(calls) else None
                yield item, call if call is not None and self._matches(item, call) else None
            return
        if self.mode == "in_order":
            yield from self._in_order(expected, calls)
            return
        used: set[int] = set()
        for item in expected:
            free = (i for i, call in enumerate(calls) if i not in used and self._matches(item, call))
            found = next(free, None)
            if found is not None:
                used.add(found)
            yield item, None if found is None else calls[found]

    def _in_order(
        self, expected: Sequence[ExpectedCall], calls: Sequence[dict[str, Any]]
    ) -> Iterator[tuple[ExpectedCall, dict[str, Any] | None]]:
        """A tool that is not called any more ends the sequence; one called with other arguments only is passed over."""
        position = 0
        for item in expected:
            named = [i for i in range(position, len(calls)) if calls[i]["tool"] == item.tool]
            found = next((i for i in named if self._matches(item, calls[i])), None)
            if found is not None:
                position = found + 1
            elif not named:
                position = len(calls)
            yield item, None if found is None else calls[found]

    def _any_order(self, calls: Sequence[dict[str, Any]]) -> Grade:
        counts = Counter(call["tool"] for call in calls)
        hits, misses = [], []
        for tool, minimum in (self.minimums or {}).items():
            met = counts[tool] >= minimum
            (hits if met else misses).append(f"{tool} was called {counts[tool]} times, at least {minimum:g} wanted.")
        total = len(hits) + len(misses)
        return Grade(len(hits) / total if total else 1.0, hits, misses, f"{len(hits)} of {total} minimums met.")

    def _subset(self, expected: Sequence[ExpectedCall], calls: Sequence[dict[str, Any]]) -> Grade:
        tally = _Tally()
        allowed = 0
        for index, call in enumerate(calls):
            item = next((item for item in expected if self._matches(item, call)), None)
            where = f"Call {index + 1}, {call['tool']},"
            if item is None:
                tally.misses.append(f"{where} is not among the allowed ones.")
            else:
                allowed += 1
                tally.hits.append(f"{where} is allowed.")
                tally.duration(item, call, where)
        total = len(calls) + tally.duration_checks
        score = (allowed + tally.duration_hits) / total if total else 1.0
        return Grade(score, tally.hits, tally.misses, f"{allowed} of {len(calls)} calls are allowed.")

    def _matches(self, expected: ExpectedCall, call: dict[str, Any]) -> bool:
        if call["tool"] != expected.tool:
            return False
        how = expected.args_match or self.args_match or "superset"
        if expected.args is None or expected.args == "any" or how == "ignore":
            return True
        actual = call.get("input")
        return isinstance(actual, dict) and arguments_match(expected.args, actual, how)


def arguments_match(expected: dict[str, Any], actual: dict[str, Any], how: str | list[str]) -> bool:
    """Return whether a call's arguments meet the expected ones; nested values are always compared whole."""
    if how == "exact":
        return json_equal(expected, actual)
    if how == "subset":
        return all(key in expected and json_equal(expected[key], value) for key, value in actual.items())
    if how == "superset":
        return all(key in actual and json_equal(value, actual[key]) for key, value in expected.items())
    wanted = [(path, _at(expected, path)) for path in how]
    return all(value is _MISSING or json_equal(value, _at(actual, path)) for path, value in wanted)


def _at(value: Any, path: str) -> Any:
    for part in path.split("."):
        if not isinstance(value, dict) or part not in value:
            return _MISSING
        value = value[part]
    return value


def _shown(item: ExpectedCall) -> str:
    if not isinstance(item.args, dict):
        return item.tool
    return f"{item.tool}({', '.join(item.args)})"


def _of_today(item: Any, index: int, entry: ConfigEntry, label: str, reader: Reader) -> Any:
    """Return an expected call in today's spelling: older files write a call as it is recorded, with input and output."""
    if not isinstance(item, dict) or not item.keys() & {"input", "output"}:
        return item
    call, where = dict(item), f"{label}: expected[{index}]"
    if "input" in call and "args" not in call:
        reader.deprecated(entry, f"{where}.input", "rename it to args", "expected", index, "input")
        call["args"] = call.pop("input")
    if "output" in call:
        reader.deprecated(entry, f"{where}.output", "remove it: outputs are not compared", "expected", index, "output")
        del call["output"]
    return call
