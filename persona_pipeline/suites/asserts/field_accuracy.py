"""``field_accuracy``: fields of a structured answer against those of the expected one."""

import re
from typing import Any, Literal

from pydantic import Field, field_validator

from persona_pipeline.suites.asserts.base import Assert
from persona_pipeline.suites.asserts.context import Context
from persona_pipeline.suites.asserts.grades import Grade, weighted_mean
from persona_pipeline.suites.format.dates import check_format, parse_date
from persona_pipeline.suites.format.field_types import Limit, StrictFields, Text, Weight
from persona_pipeline.suites.format.javascript import json_equal, parse_float, parse_object, stringify
from persona_pipeline.suites.targets.output import Output

MOST_SENTENCES = 4
_MISSING: Any = object()
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
# What 0.3 - 0.1 differs from 0.2 by must not decide whether a number is within its tolerance.
_ROUNDING = 1e-12


class FieldCheck(StrictFields):
    """One field: where it is, and when two values count as the same."""

    path: Text
    match: Literal["exact", "numeric_tolerance", "date"] = "exact"
    required: bool = True
    weight: Weight = 1.0
    tolerance: Limit = 0.0
    relative: bool = False
    formats: list[Text] | None = None

    @field_validator("path")
    @classmethod
    def _readable(cls, value: str) -> str:
        if not re.fullmatch(r"(?:\[\d+\]|[^.\[\]]+)(?:\.[^.\[\]]+|\[\d+\])*", value):
            raise ValueError(
                f"{value!r} is no path; write keys with dots and list positions in brackets, as in a.b[0].c"
            )
        return value

    @field_validator("formats")
    @classmethod
    def _known(cls, value: list[str] | None) -> list[str] | None:
        for text in value or ():
            check_format(text)
        return value

    def same(self, expected: Any, candidate: Any) -> bool:
        """Return whether two values count as the same."""
        if self.match == "exact":
            return json_equal(expected, candidate)
        if self.match == "date":
            left, right = (parse_date(value, self.formats or ()) for value in (expected, candidate))
            return left is not None and left == right
        left, right = _as_number(expected), _as_number(candidate)
        if left is None or right is None:
            return False
        difference = abs(right - left)
        if self.relative and left != 0:
            difference /= abs(left)
        return difference <= self.tolerance + _ROUNDING * max(1.0, self.tolerance)


class FieldAccuracy(Assert):
    """The weighted share of fields on which the answer (JSON, alone or inside prose) agrees with the expected output, 0-1.

    A field the expected output lacks counts as met. A field the answer lacks counts as missed if it is required and is left out
    otherwise; when all fields are left out the score is 0.
    """

    fields_: list[FieldCheck] = Field(alias="fields", min_length=1, description="The fields to compare.")
    aggregation: Literal["weighted_average", "all_or_nothing"] = Field(
        "weighted_average", description="all_or_nothing: 1 if nothing is missed, else 0."
    )

    def grade(self, output: Output, context: Context) -> Grade:
        candidate = parse_object(output.text)
        if candidate is None:
            return Grade(0.0, misses=("The answer holds no JSON object.",))
        expected = expected_value(context.test.expected_messages)
        if expected is _MISSING:
            return Grade(0.0, misses=("The test has no expected output with data to compare with.",))
        hits: list[str] = []
        misses: list[str] = []
        scores: list[tuple[float, float]] = []
        for check in self.fields_:
            wanted, found = _at(expected, check.path), _at(candidate, check.path)
            if wanted is _MISSING:
                scores.append((1.0, check.weight))
                hits.append(f"{check.path}: nothing is expected.")
            elif found is _MISSING:
                scores.append((0.0, check.weight) if check.required else (1.0, 0.0))
                (misses if check.required else hits).append(f"{check.path}: missing.")
            else:
                met = check.same(wanted, found)
                scores.append((float(met), check.weight))
                (hits if met else misses).append(f"{check.path}: {_short(found)}, expected {_short(wanted)}.")
        score = float(not misses) if self.aggregation == "all_or_nothing" else weighted_mean(scores)
        reasoning = f"{len(hits)}/{len(self.fields_)} fields matched"
        return Grade(score, hits[:MOST_SENTENCES], misses[:MOST_SENTENCES], reasoning)


def expected_value(messages: Any) -> Any:
    """Return the data of the last expected assistant message that has any: as it is, or the JSON object in its text."""
    for message in reversed(messages):
        content = message.get("content")
        if message.get("role") != "assistant" or not content:
            continue
        if not isinstance(content, str):
            return content
        found = parse_object(content)
        return _MISSING if found is None else found
    return _MISSING


def _at(value: Any, path: str) -> Any:
    for match in _STEP.finditer(path):
        index, key = match.groups()
        if isinstance(value, list):
            # lines.0 is lines[0]: a list has no other keys.
            number = index if index is not None else key if key.isascii() and key.isdigit() else None
            value = _MISSING if number is None or int(number) >= len(value) else value[int(number)]
        elif isinstance(value, dict):
            value = value.get(key if index is None else index, _MISSING)
        else:
            return _MISSING
    return value


def _as_number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    return parse_float(value) if isinstance(value, str) else None


def _short(value: Any) -> str:
    text = stringify(value)
    return text if len(text) <= 80 else text[:77] + "..."
