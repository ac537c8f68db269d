"""``field_accuracy``: fields of a structured answer against those of the expected one."""

import re
from collections.abc import Sequence
from datetime import date
from functools import lru_cache
from typing import Any, Literal

from pydantic import Field, field_validator

from persona_pipeline.suites.answering.output import Need, Output
from persona_pipeline.suites.format.models import Limit, StrictFields, Text, Weight
from persona_pipeline.suites.format.text import MISSING, json_equal, parse_float, parse_object, stringify, value_at
from persona_pipeline.suites.grading.base import NOT_REPORTED, Assert, Context
from persona_pipeline.suites.grading.results import Grade, UngradedError
from persona_pipeline.suites.grading.statistics import weighted_mean

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMES = "|".join(f"{month}[a-z]*" for month in _MONTHS)
_ISO = re.compile(r"(?P<y>\d{4})-(?P<m>\d{1,2})-(?P<d>\d{1,2})(?:[T ].*)?\Z", re.ASCII | re.DOTALL)
_YEAR_FIRST = re.compile(r"(?P<y>\d{4})[/.](?P<m>\d{1,2})[/.](?P<d>\d{1,2})\Z", re.ASCII)
_DAY_NAME = re.compile(
    rf"(?:[a-z]+,?\s+)?(?P<d>\d{{1,2}})(?:st|nd|rd|th)?[-\s/.]+(?P<n>{_NAMES})\.?[-\s/.,]+(?P<y>\d{{4}})\b.*\Z",
    re.ASCII | re.I,
)
_NAME_DAY = re.compile(
    rf"(?:[a-z]+,?\s+)?(?P<n>{_NAMES})\.?\s+(?P<d>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<y>\d{{4}})\b.*\Z", re.ASCII | re.I
)
_NUMBERS = re.compile(r"(?P<a>\d{1,2})[/.\-](?P<b>\d{1,2})[/.\-](?P<y>\d{4})\b.*\Z", re.ASCII)
_TOKENS = {
    "YYYY": r"(?P<y>\d{4})",
    "YY": r"(?P<yy>\d{2})",
    "MMMM": rf"(?P<n>{_NAMES})",
    "MMM": rf"(?P<n>{_NAMES})",
    "MM": r"(?P<m>\d{1,2})",
    "M": r"(?P<m>\d{1,2})",
    "DD": r"(?P<d>\d{1,2})",
    "D": r"(?P<d>\d{1,2})",
}
_TOKEN = re.compile("|".join(_TOKENS))
# Formats such as DD/MM/YYYY: they say which of two numbers is the day.
_ORDER = re.compile(r"(?:D{1,2}.M{1,2}|M{1,2}.D{1,2}).YYYY\Z")


@lru_cache(maxsize=256)
def format_pattern(text: str) -> re.Pattern[str]:
    """Raises ``ValueError`` unless a format names a day, a month and a year with YYYY, YY, MMMM, MMM, MM, M, DD, D."""
    pattern, position = "", 0
    for match in _TOKEN.finditer(text):
        pattern += re.escape(text[position : match.start()]) + _TOKENS[match[0]]
        position = match.end()
    pattern += re.escape(text[position:])
    try:
        compiled = re.compile(pattern + r"\Z", re.ASCII | re.I)
    except re.error as error:
        raise ValueError(f"date format {text!r} names a part twice") from error
    groups = set(compiled.groupindex)
    if "d" not in groups or not groups & {"m", "n"} or not groups & {"y", "yy"}:
        raise ValueError(f"date format {text!r} must name a day, a month and a year, as in DD-MMM-YYYY")
    return compiled


def parse_date(value: Any, formats: Sequence[str] = ()) -> date | None:
    """Return the calendar day a text names, None when it names none.

    ``formats``: tried first, in order. 2/3/2025 is in February if all of them that have two numbers put the month first, and in
    March if all put the day first; otherwise a number above 12 decides, and else the month comes first.
    """
    if not isinstance(value, str):
        return None
    text = value.strip()
    own = [format_pattern(text) for text in formats if not _ORDER.match(text)]
    for pattern in (*own, _ISO, _YEAR_FIRST, _DAY_NAME, _NAME_DAY):
        match = pattern.match(text)
        if match:
            found = _from_groups(match.groupdict())
            if found:
                return found
    match = _NUMBERS.match(text)
    if match is None:
        return None
    first, second, year = int(match["a"]), int(match["b"]), int(match["y"])
    orders = {text.find("M") < text.find("D") for text in formats if _ORDER.match(text)}
    month_first = orders.pop() if len(orders) == 1 else not (first > 12 >= second)
    return _day(year, first, second) if month_first else _day(year, second, first)


def _from_groups(groups: dict[str, str | None]) -> date | None:
    year = int(groups.get("y") or 0) or 2000 + int(groups.get("yy") or 0)
    name, number = groups.get("n"), groups.get("m")
    month = _MONTHS.index(name[:3].lower()) + 1 if name else int(number or 0)
    return _day(year, month, int(groups.get("d") or 0))


def _day(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


MOST_SENTENCES = 4
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
            format_pattern(text)
        return value

    def same(self, expected: Any, candidate: Any) -> bool:
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

    A field that the expected output lacks makes the assert an error. One that the answer lacks is missed if it is required and
    left out otherwise; when all fields are left out the score is 0.
    """

    needs = (Need.TEXT, Need.COMPLETE, Need.JSON)

    fields_: list[FieldCheck] = Field(alias="fields", min_length=1, description="The fields to compare.")
    aggregation: Literal["weighted_average", "all_or_nothing"] = Field(
        "weighted_average", description="all_or_nothing: 1 if nothing is missed, else 0."
    )

    def grade(self, output: Output, context: Context) -> Grade:
        candidate, expected = parse_object(output.text), expected_value(context.test.expected_messages)
        unknown = [check.path for check in self.fields_ if value_at(expected, check.path) is MISSING]
        if unknown:
            said = f"not reported: expected_output holds nothing at {', '.join(unknown)}; add it there, or remove the field"
            raise UngradedError(NOT_REPORTED, said)
        hits: list[str] = []
        misses: list[str] = []
        scores: list[tuple[float, float]] = []
        for check in self.fields_:
            wanted, found = value_at(expected, check.path), value_at(candidate, check.path)
            if found is MISSING:
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
        return MISSING if found is None else found
    return MISSING


def _as_number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    return parse_float(value) if isinstance(value, str) else None


def _short(value: Any) -> str:
    text = stringify(value)
    return text if len(text) <= 80 else text[:77] + "..."
