"""``field_accuracy``: fields of a structured answer against those of the expected one."""

import contextlib
import re
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any, Literal

from pydantic import Field, field_validator

from persona_pipeline.suites.answering.output import Need, Output
from persona_pipeline.suites.format.models import Limit, StrictFields, Text, Weight
from persona_pipeline.suites.format.text import MISSING, json_equal, parse_float, parse_object, stringify, value_at
from persona_pipeline.suites.grading.base import NOT_REPORTED, Assert, Context
from persona_pipeline.suites.grading.results import Grade, UngradedError, weighted_mean

# Parts of a date format, and their names in Python.
_DIRECTIVES = {"YYYY": "%Y", "YY": "%y", "MMMM": "%B", "MMM": "%b", "MM": "%m", "M": "%m", "DD": "%d", "D": "%d"}
_TOKEN = re.compile("|".join(_DIRECTIVES))
# Two days that differ in every part; a part that the text leaves open is taken from them.
_FILLED = (datetime(2000, 1, 1), datetime(2001, 2, 2))


def date_format(text: str) -> str:
    """Return a Python date format. Raises ``ValueError``: it does not name a day, a month and a year once each."""
    if sorted(match[0][0] for match in _TOKEN.finditer(text)) != ["D", "M", "Y"]:
        raise ValueError(f"date format {text!r} must name a day, a month and a year once each, as in DD-MMM-YYYY")
    return _TOKEN.sub(lambda match: _DIRECTIVES[match[0]], text.replace("%", "%%"))


def parse_date(value: Any, formats: Sequence[str] = ()) -> date | None:
    """Return the calendar day of a text with a year of four digits; None without a day.

    ``formats``: tried first. If none fits, or several fit and disagree, 2/3/2025 is in March if every format has the day
    before the month, else in February. The time of day and the zone do not matter.
    """
    from dateutil.parser import parse

    if not isinstance(value, str):
        return None
    text, found = value.strip(), set[date]()
    for own in formats:
        with contextlib.suppress(ValueError):
            found.add(datetime.strptime(text, date_format(own)).date())
    if len(found) == 1:
        return found.pop()
    if not re.search(r"(?<!\d)\d{4}", text):
        return None
    orders = {own.index("D") < own.index("M") for own in formats if not own.startswith("Y")}
    day_first = orders == {True} and not re.match(r"\d{4}", text)
    try:
        read = {parse(text, default=day, dayfirst=day_first, ignoretz=True).date() for day in _FILLED}
    except (ValueError, OverflowError):
        return None
    return read.pop() if len(read) == 1 else None


MOST_SENTENCES = 4
# Rounding, such as that of 0.3 - 0.1, must not decide whether a number is within its tolerance.
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
            date_format(text)
        return value

    def read(self, value: Any) -> Any:
        """Return a value for the comparison; ``MISSING``: it is absent, or not a date or number."""
        if self.match == "exact":
            return value
        found = parse_date(value, self.formats or ()) if self.match == "date" else _as_number(value)
        return MISSING if found is None else found

    def same(self, expected: Any, candidate: Any) -> bool:
        left, right = self.read(expected), self.read(candidate)
        if self.match == "exact":
            return json_equal(left, right)
        if right is MISSING or self.match == "date":
            return left == right
        difference = abs(right - left)
        if self.relative and left != 0:
            difference /= abs(left)
        return difference <= self.tolerance + _ROUNDING * max(1.0, self.tolerance)


class FieldAccuracy(Assert):
    """The weighted share of fields in which the answer (JSON, alone or inside prose) agrees with the expected output, 0-1.

    A field that the expected output lacks makes the assert an error. A field that the answer lacks is missed if it is
    required, otherwise left out; if all fields are left out, the score is 0.
    """

    needs = (Need.TEXT, Need.COMPLETE, Need.JSON)

    fields_: list[FieldCheck] = Field(alias="fields", min_length=1, description="The fields to compare.")
    aggregation: Literal["weighted_average", "all_or_nothing"] = Field(
        "weighted_average", description="all_or_nothing: 1 if nothing is missed, else 0."
    )

    def grade(self, output: Output, context: Context) -> Grade:
        candidate, expected = parse_object(output.text), expected_value(context.test.expected_messages)
        wanted = [(check, value_at(expected, check.path)) for check in self.fields_]
        unknown = [check.path for check, value in wanted if check.read(value) is MISSING]
        if unknown:
            said = f"not reported: expected_output holds nothing to compare at {', '.join(unknown)}; add it, or remove the field"
            raise UngradedError(NOT_REPORTED, said)
        hits: list[str] = []
        misses: list[str] = []
        scores: list[tuple[float, float]] = []
        for check, value in wanted:
            found = value_at(candidate, check.path)
            if found is MISSING:
                scores.append((0.0, check.weight) if check.required else (1.0, 0.0))
                (misses if check.required else hits).append(f"{check.path}: missing.")
            else:
                met = check.same(value, found)
                scores.append((float(met), check.weight))
                (hits if met else misses).append(f"{check.path}: {_short(found)}, expected {_short(value)}.")
        mean = weighted_mean(scores)
        score = float(not misses) if mean is not None and self.aggregation == "all_or_nothing" else mean or 0.0
        reasoning = f"{len(hits)}/{len(self.fields_)} fields matched"
        return Grade(score, hits[:MOST_SENTENCES], misses[:MOST_SENTENCES], reasoning, empty=mean is None)


def expected_value(messages: Any) -> Any:
    """Return the data of the last expected assistant message that has any: as it is, or the JSON object in its text."""
    for message in reversed(messages):
        content = message.get("content")
        if message.get("role") != "assistant" or not content:
            continue
        if not isinstance(content, str):
            return content
        found = parse_object(content)
        return MISSING if found is None else found
    return MISSING


def _as_number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    return parse_float(str(value)) if isinstance(value, str | int | float) else None


def _short(value: Any) -> str:
    text = stringify(value)
    return text if len(text) <= 80 else text[:77] + "..."
