"""``tool_trajectory``: the tools that the agent called, their order and their arguments."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from persona_pipeline.suites.answering.output import Need, Output
from persona_pipeline.suites.format.models import Limit, StrictFields, Text
from persona_pipeline.suites.format.problems import ConfigEntry, Reader
from persona_pipeline.suites.format.text import MISSING, json_equal, value_at
from persona_pipeline.suites.grading.base import NOT_REPORTED, Assert, Context
from persona_pipeline.suites.grading.results import Grade, UngradedError

ArgsMatch = Literal["exact", "superset", "subset", "ignore"] | list[str]
_WAYS = ("exact", "superset", "subset", "ignore")


def _args(value: Any) -> Any:
    if value == "any" or isinstance(value, dict):
        return value
    raise ValueError("must be a mapping, or 'any' to accept all arguments")


def _args_match(value: Any) -> Any:
    if value in _WAYS:
        return value
    if isinstance(value, list) and value and all(isinstance(path, str) and path for path in value):
        return value
    raise ValueError(f"must be one of {', '.join(map(repr, _WAYS))}, or a list of dot paths")


Arguments = Annotated[dict[str, Any] | Literal["any"], BeforeValidator(_args)]
Matching = Annotated[ArgsMatch, BeforeValidator(_args_match)]


class ExpectedCall(StrictFields):
    """One expected call. ``args``: its arguments, as ``args_match`` reads them; left out or ``any``: all are accepted."""

    tool: Text
    args: Arguments | None = None
    args_match: Matching | None = None
    max_duration_ms: Limit | None = None


class ToolTrajectory(Assert):
    """How well the tool calls agree with the expected ones, 0-1.

    ``any_order``: share of ``minimums`` and ``maximums`` met. ``in_order``: share of ``expected`` found one after the other;
    other calls may come between. ``exact``: positions that agree, over the longer of the two lists. ``superset``: share of
    ``expected`` found in any order, each call used once. ``subset``: share of the calls that ``expected`` allows.

    ``args_match``: ``superset`` allows further arguments, at any depth; ``subset`` is the reverse.
    """

    needs = (Need.CALLS,)

    mode: Literal["any_order", "in_order", "exact", "superset", "subset"] = Field(description="How calls are compared.")
    minimums: dict[str, Limit] | None = Field(None, description="any_order: the least number of calls, by tool.")
    maximums: dict[str, Limit] | None = Field(None, description="any_order: the greatest number of calls, by tool.")
    expected: list[ExpectedCall] | None = Field(None, description="Every other mode: the calls, in order.")
    args_match: Matching | None = Field(
        None, description="How arguments are compared; superset (extra arguments are fine) by default."
    )

    @classmethod
    def prepare(cls, data: dict[str, Any], entry: ConfigEntry, reader: Reader) -> dict[str, Any]:
        expected = data.get("expected")
        if isinstance(expected, list):
            data["expected"] = [_of_today(item, index, entry, reader) for index, item in enumerate(expected)]
        return data

    @model_validator(mode="before")
    @classmethod
    def _mode_is_given(cls, data: Any) -> Any:
        if isinstance(data, dict) and "mode" not in data:
            raise ValueError("mode is required: one of 'any_order', 'in_order', 'exact', 'superset', 'subset'")
        return data

    @model_validator(mode="after")
    def _has_what_its_mode_needs(self) -> "ToolTrajectory":
        if self.mode == "any_order" and not self.minimums and not self.maximums:
            raise ValueError("minimums is required for mode any_order, or maximums, with a tool in it")
        if self.mode != "any_order" and self.expected is None:
            raise ValueError(f"expected is required for mode {self.mode}")
        if self.mode in ("in_order", "superset") and not self.expected:
            raise ValueError(f"expected is empty, so mode {self.mode} checks nothing; mode exact is met by no calls")
        return self

    def grade(self, output: Output, context: Context) -> Grade:
        calls = output.tool_calls
        if self.mode == "any_order":
            return self._any_order(calls)
        expected, is_subset = self.expected or [], self.mode == "subset"
        if not expected and not is_subset and not calls:
            return Grade(1.0, hits=("No calls were expected.",))
        met, unmet = ("allowed", "not among the allowed ones") if is_subset else ("there", "missing")
        hits, misses = [], []
        matched, durations = 0, list[bool]()
        for number, (item, call) in enumerate(pairs := [*self._pairs(expected, calls)], start=1):
            where = f"Call {number}, {call['tool'] if is_subset and call else _shown(item)}, is"
            if item is None or call is None:
                misses.append(f"{where} {unmet}.")
                continue
            matched += 1
            hits.append(f"{where} {met}.")
            if item.max_duration_ms is not None:
                kept, said = _within(item.max_duration_ms, call, f"Call {number}, {item.tool},")
                durations.append(kept)
                (hits if kept else misses).append(said)
        total = len(pairs)
        if self.mode == "exact" and len(calls) > total:
            extra = ", ".join(call["tool"] for call in calls[total:])
            misses.append(f"There are more calls than expected: {extra}.")
            total = len(calls)
        checks = total + len(durations)
        score = (matched + sum(durations)) / checks if checks else 1.0
        counted = f"{matched} of {len(pairs)}"
        reasoning = f"{counted} calls are allowed." if is_subset else f"{counted} expected calls in {self.mode} mode."
        return Grade(score, hits, misses, reasoning)

    def _pairs(
        self, expected: Sequence[ExpectedCall], calls: Sequence[dict[str, Any]]
    ) -> Iterator[tuple[ExpectedCall | None, dict[str, Any] | None]]:
        """Yield pairs of an expected call and the call that meets it, or None.

        For ``subset``: each call with the expected call that allows it.
        """
        if self.mode == "subset":
            for call in calls:
                yield next((item for item in expected if self._matches(item, call)), None), call
        elif self.mode == "exact":
            for item, call in zip_longest(expected, calls[: len(expected)]):
                yield item, call if call and self._matches(item, call) else None
        elif self.mode == "in_order":
            yield from self._in_order(expected, calls)
        else:
            free = [*calls]
            for item in expected:
                found = next((call for call in free if self._matches(item, call)), None)
                if found is not None:
                    free.remove(found)
                yield item, found

    def _in_order(
        self, expected: Sequence[ExpectedCall], calls: Sequence[dict[str, Any]]
    ) -> Iterator[tuple[ExpectedCall, dict[str, Any] | None]]:
        """Yield each expected call with the next call that meets it.

        A tool that is not called again ends the sequence; a call with other arguments is skipped.
        """
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
        wanted = [(tool, least, "at least") for tool, least in (self.minimums or {}).items()]
        wanted += [(tool, most, "at most") for tool, most in (self.maximums or {}).items()]
        for tool, limit, words in wanted:
            met = counts[tool] >= limit if words == "at least" else counts[tool] <= limit
            (hits if met else misses).append(f"{tool} was called {counts[tool]} times, {words} {limit:g} wanted.")
        share = len(hits) / len(wanted) if wanted else 1.0
        return Grade(share, hits, misses, f"{len(hits)} of {len(wanted)} limits met.")

    def _matches(self, expected: ExpectedCall, call: dict[str, Any]) -> bool:
        if call["tool"] != expected.tool:
            return False
        how = expected.args_match or self.args_match or "superset"
        if expected.args is None or expected.args == "any" or how == "ignore":
            return True
        if "input" not in call:
            said = f"not reported: the arguments of a call of {expected.tool}; let the target return its input"
            raise UngradedError(NOT_REPORTED, said)
        return isinstance(call["input"], dict) and arguments_match(expected.args, call["input"], how)


def arguments_match(expected: dict[str, Any], actual: dict[str, Any], how: str | list[str]) -> bool:
    """Return whether a call's arguments meet the expected ones."""
    if how == "exact":
        return json_equal(expected, actual)
    if how == "subset":
        return _covers(expected, actual)
    if how == "superset":
        return _covers(actual, expected)
    wanted = [(path, value_at(expected, path)) for path in how]
    return all(value is MISSING or json_equal(value, value_at(actual, path)) for path, value in wanted)


def _covers(large: Any, small: Any) -> bool:
    """Return whether a value contains another: each key of its mappings, and lists of equal length."""
    if isinstance(small, dict) and isinstance(large, dict):
        return all(key in large and _covers(large[key], value) for key, value in small.items())
    if isinstance(small, list) and isinstance(large, list):
        return len(small) == len(large) and all(map(_covers, large, small))
    return json_equal(large, small)


def _within(limit: float, call: dict[str, Any], where: str) -> tuple[bool, str]:
    """Return whether a call is within a limit in milliseconds, and a sentence. Raises ``UngradedError``: it has no duration."""
    took = call.get("duration_ms")
    if isinstance(took, bool) or not isinstance(took, int | float):
        raise UngradedError(NOT_REPORTED, f"not reported: {where} has no duration_ms to compare with its limit")
    return took <= limit, f"{where} took {took:g} ms, limit {limit:g} ms."


def _shown(item: ExpectedCall | None) -> str:
    if item is None or not isinstance(item.args, dict):
        return item.tool if item else ""
    return f"{item.tool}({', '.join(item.args)})"


def _of_today(item: Any, index: int, entry: ConfigEntry, reader: Reader) -> Any:
    """Return an expected call with its current keys; older files use ``input`` and ``output``."""
    if not isinstance(item, dict) or not item.keys() & {"input", "output"}:
        return item
    call, where = dict(item), f"expected[{index}]"
    if "input" in call and "args" not in call:
        reader.deprecated(entry, f"{where}.input", "rename it to args", "expected", index, "input")
        call["args"] = call.pop("input")
    if "output" in call:
        reader.deprecated(entry, f"{where}.output", "remove it: outputs are not compared", "expected", index, "output")
        del call["output"]
    return call
